// Only numbers can be reduced.
// expect: this type cannot be reduced

#include <vector>

#include <trireme/dist/self.hpp>

int main() {
    trireme::self alone;
#ifdef TRIREME_REFUSE_OK
    std::vector<double> v(3);
#else
    std::vector<const char*> v(3);
#endif
    alone.all_reduce(v, trireme::reduce::sum);
}
