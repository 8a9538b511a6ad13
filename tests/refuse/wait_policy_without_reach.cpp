// A wait policy has to say whom it can wake.
// expect: a wait_policy says whom it can wake

#include <trireme/sys/wait.hpp>

struct users_wait {
#ifdef TRIREME_REFUSE_OK
    static constexpr trireme::scope reach = trireme::scope::threads;
#endif
    std::uint32_t until_different(const std::atomic<std::uint32_t>& word, std::uint32_t,
                                  trireme::deadline) const noexcept {
        return word.load(std::memory_order_acquire);
    }
    void wake_all(std::atomic<std::uint32_t>&) const noexcept {}
};

static_assert(trireme::explain::wait_policy<users_wait>());
