// Several threads read from one dataset: `read` has to be const.
// expect: a dataset makes one sample: 'void read\(std::uint64_t index, trireme::row<schema>

#include <trireme/data/dataset.hpp>

#include <cstdint>

struct tokens {
    using schema = trireme::schema<trireme::field<"token", std::uint16_t, 1024>>;
    std::uint64_t size() const { return 10; }
#ifdef TRIREME_REFUSE_OK
    void read(std::uint64_t, trireme::row<schema>, trireme::sample_context&) const {}
#else
    void read(std::uint64_t, trireme::row<schema>, trireme::sample_context&) {}
#endif
};

static_assert(trireme::explain::map_dataset<tokens>());
