#pragma once
// Philox4x32-10: a counter-based random generator. Its n-th draw is a function of (key, counter), so a sample's
// random numbers depend on the sample and not on the worker that happens to make it.

#include <array>
#include <cstdint>
#include <limits>

namespace trireme {

namespace detail {
__extension__ typedef unsigned __int128 uint128;  // "__extension__" keeps -Wpedantic quiet in users' builds
}

/// Source  Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
///         Key = (seed, epoch) folded to 64 bits by the caller, counter = (stream, draw).
/// Threads a value: copy it, or make one per sample
class philox {
  public:
    using result_type = std::uint64_t;  // models std::uniform_random_bit_generator

    constexpr philox(std::uint64_t key, std::uint64_t stream) noexcept : key_(key), stream_(stream) {}

    static constexpr result_type(min)() { return 0; }
    static constexpr result_type(max)() { return (std::numeric_limits<result_type>::max)(); }

    constexpr result_type operator()() noexcept {
        if (half_) {
            half_ = false;
            return (static_cast<std::uint64_t>(block_[3]) << 32) | block_[2];
        }
        block_ = block(key_, stream_, draw_++);
        half_ = true;
        return (static_cast<std::uint64_t>(block_[1]) << 32) | block_[0];
    }
    /// Uniform in [0, 1), 53 bits.
    constexpr double uniform() noexcept { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
    /// Uniform in [0, n), n > 0; the bias is below n / 2^64.
    constexpr std::uint64_t below(std::uint64_t n) noexcept {
        return static_cast<std::uint64_t>((static_cast<detail::uint128>((*this)()) * n) >> 64);
    }

    static constexpr std::array<std::uint32_t, 4> block(std::uint64_t key, std::uint64_t hi,
                                                        std::uint64_t lo) noexcept {
        std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
        std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(lo), static_cast<std::uint32_t>(lo >> 32),
                                       static_cast<std::uint32_t>(hi), static_cast<std::uint32_t>(hi >> 32)};
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t a = 0xD2511F53ULL * c[0], b = 0xCD9E8D57ULL * c[2];
            c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
                 static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
            k0 += 0x9E3779B9U;
            k1 += 0xBB67AE85U;
        }
        return c;
    }

  private:
    std::uint64_t key_, stream_, draw_ = 0;
    std::array<std::uint32_t, 4> block_{};
    bool half_ = false;
};

}  // namespace trireme
