#pragma once
// The two 16-bit floating-point types of training, as storage: half (IEEE binary16) and bfloat16. Arithmetic is
// done in float; a conversion to 16 bits rounds to nearest, ties to even.

#include <bit>
#include <cstdint>
#include <type_traits>

namespace trireme {

namespace detail {

/// Every path is computed and one is selected: no branch, so that a loop over this vectorises.
constexpr float half_to_float(std::uint16_t h) noexcept {
    const std::uint32_t magnitude = h & 0x7fffU;
    const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16;
    const std::uint32_t normal = (magnitude << 13) + (112U << 23);  // the exponent's bias: 15 becomes 127
    const std::uint32_t special = (magnitude << 13) | 0x7f800000U;
    // Subnormal: the 10 bits as an integer next to 2^-14, minus 2^-14. Exact, and normal numbers all the way, so
    // that flush-to-zero modes cannot touch it.
    const float tiny = std::bit_cast<float>((magnitude << 13) + (113U << 23)) - 0x1.0p-14F;
    const std::uint32_t finite = magnitude < 0x0400U ? std::bit_cast<std::uint32_t>(tiny) : normal;
    return std::bit_cast<float>((magnitude >= 0x7c00U ? special : finite) | sign);
}

constexpr std::uint16_t float_to_half(float f) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    // Normal: move the bias, then add half of the last place less one, plus its parity: nearest, ties to even. A
    // carry runs into the exponent, as it should.
    const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    // Subnormal: the adder rounds, by lining the value up with 0.5, whose last place is 2^-24.
    const std::uint32_t below = magnitude < (113U << 23) ? magnitude : 0U;  // keeps the sum in range for the rest
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(below) + 0.5F) - 0x3f000000U;
    const std::uint32_t finite = magnitude < (113U << 23) ? subnormal : normal;
    const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);  // quiet, the payload's upper bits kept
    const std::uint32_t special = magnitude > 0x7f800000U ? nan : 0x7c00U;
    // 65520 is half-way between the largest half and 2^16: from there on the result is infinite.
    return static_cast<std::uint16_t>((magnitude >= 0x477ff000U ? special : finite) | sign);
}

constexpr float bfloat16_to_float(std::uint16_t b) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

constexpr std::uint16_t float_to_bfloat16(float f) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t nan = (bits >> 16) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

}  // namespace detail

/// IEEE binary16: 5 bits of exponent, 10 of fraction; largest finite value 65504, smallest positive 2^-24.
///
/// Storage only: it converts from float by an explicit constructor (nearest, ties to even; NaN stays NaN) and to
/// float implicitly and exactly. `bits` is the encoding; all zero is +0.
struct half {
    std::uint16_t bits;

    half() = default;
    constexpr explicit half(float f) noexcept : bits(detail::float_to_half(f)) {}
    constexpr operator float() const noexcept { return detail::half_to_float(bits); }  // NOLINT: exact
    static constexpr half from_bits(std::uint16_t encoding) noexcept {
        half h{};
        h.bits = encoding;
        return h;
    }
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction. Same conversions as `half`.
struct bfloat16 {
    std::uint16_t bits;

    bfloat16() = default;
    constexpr explicit bfloat16(float f) noexcept : bits(detail::float_to_bfloat16(f)) {}
    constexpr operator float() const noexcept { return detail::bfloat16_to_float(bits); }  // NOLINT: exact
    static constexpr bfloat16 from_bits(std::uint16_t encoding) noexcept {
        bfloat16 b{};
        b.bits = encoding;
        return b;
    }
};

static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half> && std::is_trivial_v<half>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16> && std::is_trivial_v<bfloat16>);

}  // namespace trireme
