// The mean of integers is refused, not rounded.
// expect: the mean of integers is not an integer

#include <vector>

#include <trireme/dist/self.hpp>

int main() {
    trireme::self alone;
#ifdef TRIREME_REFUSE_OK
    std::vector<float> v(3);
#else
    std::vector<int> v(3);
#endif
    alone.all_reduce(v, trireme::reduce::mean);
}
