// A transport has to give memory that its peers reach.
// expect: a transport gives memory that its peers reach

#include <trireme/dist/self.hpp>
#include <trireme/dist/transport.hpp>

struct users_transport : trireme::detail::collectives_of_one {
    static constexpr bool reproducible = true;
    static constexpr bool host_memory = true;
    trireme::detail::collectives_of_one channel() { return {}; }
#ifdef TRIREME_REFUSE_OK
    template <class T>
    std::span<T> allocate(std::size_t) {
        return {};
    }
#endif
};

static_assert(trireme::explain::transport<users_transport>());
