// A field's name is checked by the compiler.
// expect: the schema has no field of this name

#include <trireme/data/row.hpp>

using sample = trireme::schema<trireme::field<"image", unsigned char, 28, 28>, trireme::field<"label", long>>;

void write(trireme::row<sample> r) {
#ifdef TRIREME_REFUSE_OK
    r.get<"label">() = 1;
#else
    r.get<"lable">() = 1;
#endif
}
