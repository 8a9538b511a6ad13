#pragma once
// A keyed bijection of 0 .. 2^width-1, and by cycle walking of 0 .. n-1: the machine behind `shuffled`.

#include <trireme/core/philox.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::detail {

/// A Feistel network over exactly bit_width(n-1) bits, so that a walk takes less than two steps on average, also at
/// n = 2^k + 1. The halves may differ by a bit: the rounds change them in turn, which works for any two widths.
///
/// Source     cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002; as a
///            shuffle: Mitchell, Stokes, Frank, Holmes, ACM TOPC 9(1), 2022, with 24 rounds. Ours has 12: from 8
///            on the statistics of tests/data/order_test.cpp are clean, with 6 neighbours are not.
class feistel {
  public:
    static constexpr unsigned rounds = 12;
    static constexpr std::size_t lanes = 4;  // evaluated together, so that multiplications overlap or vectorise

    /// Any 2 <= n <= 2^63.
    constexpr void bind(std::uint64_t n, std::uint64_t key, std::uint64_t stream) noexcept {
        n_ = n;
        const auto width = static_cast<unsigned>(std::bit_width(n - 1));
        // One bit has no two halves: the network then works on two bits and walks.
        right_bits_ = width < 2 ? 1 : (width + 1) / 2;
        left_bits_ = width < 2 ? 1 : width / 2;
        for (unsigned i = 0; i < rounds; ++i) {
            const auto words = philox::block(key, stream, i);
            factor_[i] = std::uint64_t{words[1]} << 32 | words[0] | 1;
            summand_[i] = std::uint64_t{words[3]} << 32 | words[2];
        }
    }

    constexpr std::uint64_t forward(std::uint64_t x) const noexcept {
        do {
            std::uint64_t l = left(x), r = right(x);
            for (unsigned i = 0; i < rounds; i += 2) {
                l ^= round(r, i) >> (64 - left_bits_);
                r ^= round(l, i + 1) >> (64 - right_bits_);
            }
            x = join(l, r);
        } while (x >= n_);
        return x;
    }

    constexpr std::uint64_t backward(std::uint64_t x) const noexcept {
        do {
            std::uint64_t l = left(x), r = right(x);
            for (unsigned i = rounds; i > 0; i -= 2) {
                r ^= round(l, i - 1) >> (64 - right_bits_);
                l ^= round(r, i - 2) >> (64 - left_bits_);
            }
            x = join(l, r);
        } while (x >= n_);
        return x;
    }

    /// out[i] = forward(first + i * stride)
    constexpr void forward_many(std::uint64_t first, std::uint64_t stride,
                                std::span<std::uint64_t> out) const noexcept {
        // Values that land outside 0 .. n-1 are collected and go round again together: a walk of single values
        // would stop the lanes from working side by side.
        constexpr std::size_t chunk = 64;
        for (std::size_t base = 0; base < out.size(); base += chunk) {
            std::uint64_t value[chunk];
            std::uint8_t place[chunk];
            std::size_t open = out.size() - base < chunk ? out.size() - base : chunk;
            for (std::size_t i = 0; i < open; ++i) {
                value[i] = first + (base + i) * stride;
                place[i] = static_cast<std::uint8_t>(i);
            }
            for (std::size_t i = open; i % lanes != 0; ++i) value[i] = 0;  // fills up the last group
            while (open > 0) {
                for (std::size_t i = 0; i < open; i += lanes) rounds_over(value + i);
                std::size_t kept = 0;
                for (std::size_t i = 0; i < open; ++i) {
                    const std::uint64_t v = value[i];
                    out[base + place[i]] = v;
                    value[kept] = v;
                    place[kept] = place[i];
                    kept += v >= n_ ? 1 : 0;
                }
                open = kept;
            }
        }
    }

  private:
    // Multiply-shift with random factor and summand: the upper bits of a*x + b are strongly universal for inputs of
    // up to 32 bits (Dietzfelbinger, STACS 1996). One multiplication a round, and as clean in our statistics as two
    // of MurmurHash3's, which take up to twice as long.
    constexpr std::uint64_t round(std::uint64_t x, unsigned i) const noexcept {
        return x * factor_[i] + summand_[i];
    }
    constexpr std::uint64_t left(std::uint64_t x) const noexcept { return x >> right_bits_; }
    constexpr std::uint64_t right(std::uint64_t x) const noexcept {
        return x & ((std::uint64_t{1} << right_bits_) - 1);
    }
    constexpr std::uint64_t join(std::uint64_t l, std::uint64_t r) const noexcept { return l << right_bits_ | r; }
    // Four lanes in named variables: compilers keep these in registers at every level of optimisation.
    constexpr void rounds_over(std::uint64_t* v) const noexcept {
        std::uint64_t l0 = left(v[0]), l1 = left(v[1]), l2 = left(v[2]), l3 = left(v[3]);
        std::uint64_t r0 = right(v[0]), r1 = right(v[1]), r2 = right(v[2]), r3 = right(v[3]);
        const unsigned left_shift = 64 - left_bits_, right_shift = 64 - right_bits_;
        for (unsigned k = 0; k < rounds; k += 2) {
            l0 ^= round(r0, k) >> left_shift, l1 ^= round(r1, k) >> left_shift;
            l2 ^= round(r2, k) >> left_shift, l3 ^= round(r3, k) >> left_shift;
            r0 ^= round(l0, k + 1) >> right_shift, r1 ^= round(l1, k + 1) >> right_shift;
            r2 ^= round(l2, k + 1) >> right_shift, r3 ^= round(l3, k + 1) >> right_shift;
        }
        v[0] = join(l0, r0), v[1] = join(l1, r1), v[2] = join(l2, r2), v[3] = join(l3, r3);
    }

    std::uint64_t n_ = 0;
    unsigned left_bits_ = 1, right_bits_ = 1;
    std::array<std::uint64_t, rounds> factor_{}, summand_{};
};

}  // namespace trireme::detail
