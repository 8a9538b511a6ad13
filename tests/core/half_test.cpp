#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include <trireme/core/half.hpp>

using trireme::bfloat16;
using trireme::half;

namespace {

// The judge: by arithmetic on doubles, in no way like the code under test.
std::uint16_t nearest_half(float f) {
    if (std::isnan(f)) return 0x7e00;
    const std::uint16_t sign = std::signbit(f) ? 0x8000 : 0;
    const double x = std::fabs(static_cast<double>(f));
    if (x >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7c00);
    int e = 0;
    std::frexp(x, &e);                                           // x = m * 2^e, m in [0.5, 1)
    const int place = x == 0 || e - 11 < -24 ? -24 : e - 11;     // exponent of the last place
    const double units = std::nearbyint(std::ldexp(x, -place));  // ties to even, the mode of this program
    const double rounded = std::ldexp(units, place);
    if (rounded < 0x1.0p-14)
        return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(rounded * 0x1.0p24));
    std::frexp(rounded, &e);
    const auto fraction = static_cast<std::uint16_t>(std::ldexp(rounded, 11 - e) - 1024.0);
    return static_cast<std::uint16_t>(sign | ((e - 1 + 15) << 10) | fraction);
}

}  // namespace

TEST_SUITE("core/half") {
TEST_CASE("every half converts to the float it stands for, and back to itself") {
    int wrong = 0;
    for (std::uint32_t b = 0; b < 0x10000; ++b) {
        const half h = half::from_bits(static_cast<std::uint16_t>(b));
        const float f = h;
        const int exponent = static_cast<int>((b >> 10) & 31), fraction = static_cast<int>(b & 1023);
        if (exponent == 31 && fraction != 0) {
            wrong += !std::isnan(f) || !std::isnan(static_cast<float>(half(f)));
            continue;
        }
        double stands_for = exponent == 31  ? std::numeric_limits<double>::infinity()
                            : exponent == 0 ? std::ldexp(fraction, -24)
                                            : std::ldexp(1024 + fraction, exponent - 25);
        if ((b & 0x8000) != 0) stands_for = -stands_for;
        wrong += static_cast<double>(f) != stands_for || half(f).bits != b;
    }

    CHECK(wrong == 0);
}
TEST_CASE("a float rounds to the nearest half, ties to even") {
    int wrong = 0;
    const auto judge = [&](float f) { wrong += half(f).bits != nearest_half(f); };
    for (std::uint32_t b = 0; b < 0x7c00; ++b) {  // each half, its midpoint to the next, and their neighbours
        const auto low = static_cast<double>(static_cast<float>(half::from_bits(static_cast<std::uint16_t>(b))));
        const double high =
            b + 1 == 0x7c00
                ? 65536.0
                : static_cast<double>(static_cast<float>(half::from_bits(static_cast<std::uint16_t>(b + 1))));
        for (const double x : {low, (low + high) / 2}) {
            const auto f = static_cast<float>(x);
            for (const float g : {f, std::nextafter(f, 0.0F), std::nextafter(f, 1e6F)}) judge(g), judge(-g);
        }
    }
    std::mt19937 random(1);
    for (int i = 0; i < 1'000'000; ++i) {
        const auto bits = static_cast<std::uint32_t>(random());
        float f = 0;
        std::memcpy(&f, &bits, sizeof f);
        if (!std::isnan(f)) judge(f);
    }

    CHECK(wrong == 0);
    CHECK(half(80000.0F).bits == 0x7c00);
    CHECK(half(40000.0F).bits == 0x78e2);
    CHECK(half(0x1.0p-24F).bits == 0x0001);
    CHECK(half(0x1.0p-25F).bits == 0x0000);  // a tie, and zero is even
}
TEST_CASE("a float rounds to the nearest bfloat16, ties to even") {
    CHECK(bfloat16(256.0F).bits == 0x4380);
    CHECK(bfloat16(260.0F).bits == 0x4382);
    CHECK(bfloat16(257.0F).bits == 0x4380);  // between 256 and 258: even
    CHECK(bfloat16(259.0F).bits == 0x4382);  // between 258 and 260: even
    CHECK(bfloat16(std::numeric_limits<float>::infinity()).bits == 0x7f80);
    CHECK(bfloat16((std::numeric_limits<float>::max)()).bits == 0x7f80);
    CHECK(std::isnan(static_cast<float>(bfloat16(std::numeric_limits<float>::quiet_NaN()))));
    const std::uint32_t low_payload = 0x7f800001U;  // a NaN whose upper half alone would be infinite
    float f = 0;
    std::memcpy(&f, &low_payload, sizeof f);
    CHECK(std::isnan(static_cast<float>(bfloat16(f))));
}
TEST_CASE("a bfloat16 converts to a float and back without a change") {
    int wrong = 0;
    for (std::uint32_t b = 0; b < 0x10000; ++b) {
        const float f = bfloat16::from_bits(static_cast<std::uint16_t>(b));
        wrong += std::isnan(f) ? !std::isnan(static_cast<float>(bfloat16(f))) : bfloat16(f).bits != b;
    }

    CHECK(wrong == 0);
}
}  // TEST_SUITE("core/half")
