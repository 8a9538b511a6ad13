#pragma once
// Stands in for trireme/sys/futex.hpp: the same two calls on a `weak::atomic`, without time.

#include <trireme/core/deadline.hpp>

#include <cstdint>
#include <limits>

#include <weak/atomic.hpp>

namespace trireme {

inline void futex_wait(const weak::atomic<std::uint32_t>& word, std::uint32_t seen, deadline) noexcept {
    word.futex_wait(seen);
}
inline int futex_wake(weak::atomic<std::uint32_t>& word, int count = (std::numeric_limits<int>::max)()) noexcept {
    return word.futex_wake(count);
}

}  // namespace trireme
