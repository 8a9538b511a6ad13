#pragma once
// The futex system call on a 32-bit word, shared between processes (the key is the page, not the address).
//
// A waiter that is killed leaves the kernel's queue and nothing else behind, which no condition variable can say.

#include <trireme/core/deadline.hpp>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace trireme {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

/// Sleeps while `word == seen`, until woken or `until`. May return early; callers look again.
/// Processes  any that map the page       Blocks  at most until the deadline
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen, deadline until) noexcept {
    timespec at{};
    if (!until.is_never()) {
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(until.at().time_since_epoch()).count();
        if (ns <= 0) return;
        at.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
        at.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    }
    // WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, which steady_clock is on Linux; plain WAIT a relative
    // one.
    ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, until.is_never() ? nullptr : &at, nullptr,
              FUTEX_BITSET_MATCH_ANY);
}

/// Wakes up to `count` sleepers and returns how many there were. About 1 us without a sleeper, 2 to 30 us with one.
inline int futex_wake(std::atomic<std::uint32_t>& word, int count = (std::numeric_limits<int>::max)()) noexcept {
    return static_cast<int>(::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0));
}

}  // namespace trireme
