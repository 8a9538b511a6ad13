#pragma once
// How many ranks of the job share this host's CPUs: what everything that sizes itself divides by.

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace trireme {

namespace detail {
inline std::atomic<std::uint32_t>& told_local_ranks() noexcept {
    static std::atomic<std::uint32_t> n{0};
    return n;
}
}  // namespace detail

/// Set by `launch` and `world`; before that what the launcher says in LOCAL_WORLD_SIZE; else 1.
inline std::uint32_t local_ranks() noexcept {
    if (const auto n = detail::told_local_ranks().load(std::memory_order_relaxed); n != 0) return n;
    const char* const text = std::getenv("LOCAL_WORLD_SIZE");
    const long n = text != nullptr ? std::strtol(text, nullptr, 10) : 1;
    return n > 1 && n < 65536 ? static_cast<std::uint32_t>(n) : 1;
}
inline void set_local_ranks(std::uint32_t n) noexcept {
    detail::told_local_ranks().store(n, std::memory_order_relaxed);
}

}  // namespace trireme
