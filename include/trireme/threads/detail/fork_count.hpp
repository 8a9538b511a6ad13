#pragma once
// How many forks lie between this process and the one that first asked. A pool compares: its threads exist only in
// the process that started them, and getpid() would be a system call in every loop.

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace trireme::detail {

inline std::atomic<std::uint32_t> fork_counter{0};

/// Grows by one in each child of fork(); the same for the life of a process.
inline std::uint32_t fork_count() noexcept {
    // Registered by the first pool, before it starts a thread. It only counts: a handler must not take locks.
    static const bool counting = [] {
        ::pthread_atfork(nullptr, nullptr, [] { fork_counter.fetch_add(1, std::memory_order_relaxed); });
        return true;
    }();
    static_cast<void>(counting);
    return fork_counter.load(std::memory_order_relaxed);
}

}  // namespace trireme::detail
