// A dataset says what its samples look like.
// expect: a dataset names its fields: 'using schema

#include <trireme/data/dataset.hpp>

#include <cstdint>

using reals = trireme::schema<trireme::field<"x", float>>;

struct numbers {
#ifdef TRIREME_REFUSE_OK
    using schema = reals;
#endif
    std::uint64_t size() const { return 10; }
    void read(std::uint64_t, trireme::row<reals>, trireme::sample_context&) const {}
};

static_assert(trireme::explain::map_dataset<numbers>());
