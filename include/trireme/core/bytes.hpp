#pragma once
// Sizes in bytes: literals, alignment and how a size is printed.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace trireme {

inline namespace literals {
constexpr std::size_t operator""_KiB(unsigned long long n) { return static_cast<std::size_t>(n) << 10; }
constexpr std::size_t operator""_MiB(unsigned long long n) { return static_cast<std::size_t>(n) << 20; }
constexpr std::size_t operator""_GiB(unsigned long long n) { return static_cast<std::size_t>(n) << 30; }
}  // namespace literals

/// One cache line of x86-64 and most ARM machines: the unit of `alignas` for data that one thread writes.
inline constexpr std::size_t cache_line = 64;
/// Two lines: flags on which others spin, kept apart from the neighbour that the prefetcher pulls along.
inline constexpr std::size_t flag_line = 128;
inline constexpr std::size_t page_bytes = 4096;

/// `n` rounded up to a multiple of `to`, a power of two.
constexpr std::size_t align_up(std::size_t n, std::size_t to) noexcept { return (n + to - 1) & ~(to - 1); }

/// "512 B", "1.5 MiB": three significant places, binary units.
inline std::string format_bytes(std::uint64_t n) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = static_cast<double>(n);
    unsigned u = 0;
    for (; v >= 1024.0 && u < 6; ++u) v /= 1024.0;
    char text[32];
    std::snprintf(text, sizeof text, u == 0 || v >= 100.0 ? "%.0f %s" : "%.1f %s", v, units[u]);
    return text;
}

}  // namespace trireme
