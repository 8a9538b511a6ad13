#pragma once
// A 64-bit hash that is the same on every machine and every build: layouts, plans and fingerprints are compared by
// it.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

/// The finalizer of MurmurHash3 (Austin Appleby, public domain): every input bit reaches every output bit.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33;
    return x;
}

/// Accumulates values into a hash; order matters. Not for adversaries.
class hasher {
  public:
    constexpr hasher& add(std::uint64_t v) noexcept {
        state_ = mix64(state_ ^ v) + 0x9e3779b97f4a7c15ULL;
        return *this;
    }
    constexpr hasher& add(std::string_view s) noexcept {
        add(s.size());
        for (char c : s) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
        return add(std::uint64_t{0});
    }
    constexpr std::uint64_t value() const noexcept { return mix64(state_); }

  private:
    std::uint64_t state_ = 0x6a09e667f3bcc908ULL;
};

}  // namespace trireme
