#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <trireme/dist/detail/operation.hpp>
#include <trireme/dist/reduction.hpp>

using namespace trireme;

TEST_SUITE("dist/reduction") {
TEST_CASE("types have the names and sizes of their elements") {
    CHECK(dtype_of<float> == dtype::f32);
    CHECK(dtype_of<half> == dtype::f16);
    CHECK(dtype_of<long> == dtype::i64);
    CHECK(dtype_of<long long> == dtype::i64);
    CHECK(dtype_of<char> == (std::is_signed_v<char> ? dtype::i8 : dtype::u8));
    CHECK(dtype_of<bool> == dtype::bytes);
    CHECK(size_of(dtype::bf16) == 2);
    CHECK(size_of(dtype::u64) == 8);
    CHECK(std::string(name(dtype::f64)) == "double");
}
TEST_CASE("integers wrap at their own width") {
    CHECK(reduce::sum.combine(std::int8_t{100}, std::int8_t{100}) == -56);
    CHECK(reduce::sum.combine((std::numeric_limits<std::int64_t>::max)(), std::int64_t{1}) ==
          (std::numeric_limits<std::int64_t>::min)());
    CHECK(reduce::product.combine(std::uint16_t{65535}, std::uint16_t{65535}) == 1);
    CHECK(reduce::product.combine(std::int32_t{65536}, std::int32_t{65536}) == 0);
}
TEST_CASE("minimum and maximum prefer a number to NaN on either side") {
    const float nan = std::numeric_limits<float>::quiet_NaN();

    CHECK(reduce::maximum.combine(nan, 1.0F) == 1.0F);
    CHECK(reduce::maximum.combine(1.0F, nan) == 1.0F);
    CHECK(reduce::minimum.combine(nan, 1.0F) == 1.0F);
    CHECK(reduce::minimum.combine(1.0F, nan) == 1.0F);
    CHECK(std::isnan(reduce::maximum.combine(nan, nan)));
}
TEST_CASE("slices cover every element once and border on cache lines") {
    for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 1000U, 4099U}) {
        for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 64U}) {
            std::size_t next = 0;
            for (std::uint32_t r = 0; r < ranks; ++r) {
                const auto s = detail::slice_of(count, sizeof(float), r, ranks);
                CHECK(s.begin == next);
                CHECK((s.begin % 16 == 0 || s.begin == count));
                next = s.end;
            }
            CHECK(next == count);
        }
    }
}
TEST_CASE("a mean by a power of two rounds as the division does") {
    std::vector<double> a{1e-308, 3.0, 0x1.fffffffffffffp+1000}, b = a;
    for (double& x : a) x /= 8;
    detail::divide_block(b.data(), b.size(), 8);

    CHECK(a == b);
}
}  // TEST_SUITE("dist/reduction")
