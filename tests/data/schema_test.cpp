// What the layout of a batch promises: every field dense, aligned and where the offset says; a hash that tells
// layouts apart.
#include <trireme/data/schema.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>

namespace {

using trireme::field;
using trireme::schema;

using image_label = schema<field<"image", std::uint8_t, 28, 28>, field<"label", std::int64_t>>;

struct point {
    float x, y, z;
};

static_assert(image_label::count == 2);
static_assert(image_label::names[0] == "image" && image_label::names[1] == "label");
static_assert(image_label::row_bytes<"image"> == 784 && image_label::row_bytes<"label"> == 8);
static_assert(image_label::sample_bytes == 792);
static_assert(image_label::find("label") == 1 && image_label::find("lab") == image_label::count);
static_assert(image_label::index_of<"label"> == 1);
static_assert(image_label::field_of<"image">::extents == std::array<std::size_t, 2>{28, 28});
static_assert(image_label::field_of<"label">::rank == 0 && image_label::field_of<"label">::elements == 1);

}  // namespace

TEST_SUITE("data/schema") {
TEST_CASE("fields follow each other, each dense and at a multiple of 64 bytes") {
    using s = schema<field<"a", std::uint8_t>, field<"b", double, 3>, field<"c", point, 2>, field<"d", bool>>;

    for (std::size_t batch = 1; batch < 200; ++batch) {
        const auto at = s::offsets(batch);
        const std::array<std::size_t, 4> row{1, 24, 24, 1};
        for (std::size_t i = 0; i < 4; ++i) {
            const std::size_t next = i + 1 < 4 ? at[i + 1] : s::bytes(batch);
            REQUIRE(at[i] % 64 == 0);
            REQUIRE(next >= at[i] + row[i] * batch);      // room for all rows
            REQUIRE(next < at[i] + row[i] * batch + 64);  // and nothing wasted
        }
        REQUIRE(s::bytes(batch) % 64 == 0);
    }
}
TEST_CASE("the three ways to ask for an offset agree") {
    for (const std::size_t batch : {1UL, 7UL, 64UL, 500UL}) {
        CHECK(image_label::offset<"image">(batch) == 0);
        CHECK(image_label::offset<"label">(batch) == image_label::offset_at<1>(batch));
        CHECK(image_label::offset<"label">(batch) == image_label::offsets(batch)[1]);
    }
    CHECK(image_label::offset<"label">(64) == 64 * 784);
    CHECK(image_label::bytes(64) == 64 * 784 + 64 * 8);
    CHECK(image_label::offset<"label">(1) == 832);  // 784 rounded up
}
TEST_CASE("a batch too large for any memory saturates instead of wrapping around") {
    constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();

    CHECK(image_label::bytes(most / 784) >= most - 128);
    CHECK(image_label::bytes(most) >= most - 128);
    CHECK(image_label::bytes(most / 2 + 1) >= most - 128);
    CHECK(image_label::bytes(most) % 64 == 0);
}
TEST_CASE("the hash is the same for the same fields and differs for any other list") {
    using same = schema<field<"image", std::uint8_t, 28, 28>, field<"label", std::int64_t>>;
    using other_name = schema<field<"image", std::uint8_t, 28, 28>, field<"labels", std::int64_t>>;
    using other_type = schema<field<"image", std::int8_t, 28, 28>, field<"label", std::int64_t>>;
    using other_size = schema<field<"image", std::uint8_t, 28, 28>, field<"label", std::int32_t>>;
    using other_extents = schema<field<"image", std::uint8_t, 14, 56>, field<"label", std::int64_t>>;
    using other_rank = schema<field<"image", std::uint8_t, 784>, field<"label", std::int64_t>>;
    using other_order = schema<field<"label", std::int64_t>, field<"image", std::uint8_t, 28, 28>>;
    using shorter = schema<field<"image", std::uint8_t, 28, 28>>;
    using floats = schema<field<"image", std::uint8_t, 28, 28>, field<"label", double>>;

    CHECK(image_label::hash() == same::hash());
    CHECK(image_label::hash() != other_name::hash());
    CHECK(image_label::hash() != other_type::hash());
    CHECK(image_label::hash() != other_size::hash());
    CHECK(image_label::hash() != other_extents::hash());
    CHECK(image_label::hash() != other_rank::hash());
    CHECK(image_label::hash() != other_order::hash());
    CHECK(image_label::hash() != shorter::hash());
    CHECK(image_label::hash() != floats::hash());
}
TEST_CASE("the hash of a layout does not change between releases") {
    CHECK(image_label::hash() == 0x55e5'04cd'd215'd878ULL);
}
}  // TEST_SUITE("data/schema")
