// What lies in shared memory is bytes: a std::string's characters would stay in the worker.
// expect: a field's element must be trivially copyable
// expect: a field's element must be a plain value type

#include <trireme/data/schema.hpp>

#include <string>

#ifdef TRIREME_REFUSE_OK
using word = char;
using text = trireme::schema<trireme::field<"text", char, 80>>;
#else
using word = trireme::field<"word", const char*>::element;
using text = trireme::schema<trireme::field<"text", std::string>>;
#endif

static_assert(text::count == 1 && sizeof(word) > 0);
