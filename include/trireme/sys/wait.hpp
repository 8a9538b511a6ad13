#pragma once
// How one side waits for a word that another side changes: by spinning, or by spinning a little and parking.

#include <trireme/core/deadline.hpp>
#include <trireme/sys/clock.hpp>
#include <trireme/sys/futex.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>

namespace trireme {

/// Whom a wake reaches.
enum class scope { threads, processes };

/// Tells the core that this is a spin loop.
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
}

/// How one side of a ring, a team or a group waits for the other.
///
///   until_different(word, seen, until)  returns the value last read; may return early, callers loop
///   wake_all(word)                      wakes every waiter that `reach` promises to reach
///
/// The compiler cannot check: the returned value was read with acquire order; nothing allocates;
/// `reach == scope::processes` holds across address spaces (a process-private futex does not).
/// Reference model: wait::spin below. Suite: tests/conformance/wait_policy_suite.hpp.
template <class W>
concept wait_policy = requires(const W& w, std::atomic<std::uint32_t>& word, std::uint32_t seen, deadline until) {
    { W::reach } -> std::convertible_to<scope>;
    { w.until_different(word, seen, until) }
    noexcept->std::same_as<std::uint32_t>;
    { w.wake_all(word) }
    noexcept;
};

namespace wait {

/// Never sleeps. Right when every waiter has a core to itself.
struct spin {
    static constexpr scope reach = scope::processes;

    std::uint32_t until_different(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                                  deadline until) const noexcept {
        for (;;) {
            for (int i = 0; i < 64; ++i) {
                if (const auto now = word.load(std::memory_order_acquire); now != seen) return now;
                cpu_relax();
            }
            if (until.passed()) return word.load(std::memory_order_acquire);
        }
    }
    void wake_all(std::atomic<std::uint32_t>&) const noexcept {}
};
static_assert(wait_policy<spin>);

/// Spins for `budget`, by time because a pause costs 10 to 140 cycles depending on the core, then parks on a futex.
/// The budget wants to be about the cost of one wake (50 us on virtual machines) when every waiter has a core, and
/// zero when there are more runnable threads than cores.
struct futex {
    static constexpr scope reach = scope::processes;
    std::chrono::nanoseconds budget{0};

    std::uint32_t until_different(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                                  deadline until) const noexcept {
        if (budget.count() > 0) {
            if (const auto now = spin{}.until_different(word, seen, until.slice(budget)); now != seen) return now;
        }
        if (const auto now = word.load(std::memory_order_acquire); now != seen) return now;
        futex_wait(word, seen, until);
        return word.load(std::memory_order_acquire);
    }
    void wake_all(std::atomic<std::uint32_t>& word) const noexcept { futex_wake(word); }
};
static_assert(wait_policy<futex>);

}  // namespace wait

namespace explain {
/// One sentence for each requirement of `wait_policy`; the first that fails is what the user reads.
template <class W>
consteval bool wait_policy() {
    static_assert(
        requires {
            { W::reach } -> std::convertible_to<scope>;
        },
        "trireme: a wait_policy says whom it can wake: 'static constexpr scope reach'. Copy wait::spin, "
        "trireme/sys/wait.hpp");
    static_assert(trireme::wait_policy<W>,
                  "trireme: not a wait_policy; compare with wait::spin, trireme/sys/wait.hpp");
    return true;
}
}  // namespace explain

}  // namespace trireme
