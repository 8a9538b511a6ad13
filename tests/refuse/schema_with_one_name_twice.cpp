// Two fields of a schema cannot have the same name.
// expect: two fields of a schema have the same name

#include <trireme/data/schema.hpp>

#ifdef TRIREME_REFUSE_OK
using sample = trireme::schema<trireme::field<"x", float, 3>, trireme::field<"y", float>>;
#else
using sample = trireme::schema<trireme::field<"x", float, 3>, trireme::field<"x", float>>;
#endif

static_assert(sample::bytes(1) > 0);
