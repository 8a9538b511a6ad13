// Setting a field does not lose bits on the quiet.
// expect: row.set would narrow the elements

#include <trireme/data/row.hpp>

#include <vector>

using sample = trireme::schema<trireme::field<"x", float, 3>>;

void write(trireme::row<sample> r, const std::vector<double>& doubles, const std::vector<float>& floats) {
#ifdef TRIREME_REFUSE_OK
    static_cast<void>(doubles);
#else
    r.set<"x">(doubles);
#endif
    r.set<"x">(floats);
}
