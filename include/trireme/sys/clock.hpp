#pragma once
// The monotonic clock, in nanoseconds.

#include <cstdint>

#include <time.h>

namespace trireme {

/// Nanoseconds of CLOCK_MONOTONIC: one epoch for all processes of a host, so it may be compared across them.
inline std::uint64_t now_ns() noexcept {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000ULL + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace trireme
