// IDX files: what is in them, and that no damaged file is read past its end or half believed.
#include <trireme/core/philox.hpp>
#include <trireme/data/idx.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

using trireme::idx_file;
using trireme::idx_type;

using bytes = std::vector<std::byte>;

void put32(bytes& out, std::uint32_t v) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::byte>(v >> shift));
}
// A well-formed file; the payload is 0, 1, 2, ...
bytes make(unsigned type, const std::vector<std::uint32_t>& extents, std::size_t element) {
    bytes out;
    put32(out, type << 8 | static_cast<std::uint32_t>(extents.size()));
    std::size_t n = element;
    for (const std::uint32_t e : extents) put32(out, e), n *= e;
    for (std::size_t i = 0; i < n; ++i) out.push_back(static_cast<std::byte>(i));
    return out;
}
std::string refusal(bytes b) {
    try {
        const idx_file f(std::move(b), "some.idx");
    } catch (const trireme::usage_error& e) { return e.what(); }
    return "";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("data/idx") {
TEST_CASE("a file says its type and extents and hands out its items") {
    const idx_file f(make(0x08, {3, 2, 4}, 1), "some.idx");

    CHECK(f.type() == idx_type::uint8);
    CHECK(f.extents() == std::vector<std::uint64_t>{3, 2, 4});
    CHECK(f.shape() == "3 x 2 x 4");
    CHECK(f.size() == 3);
    CHECK(f.item_elements() == 8);
    CHECK(f.payload().size() == 24);
    CHECK(f.item(2).size() == 8);
    CHECK(f.item(2)[0] == std::byte{16});
    CHECK(f.at<std::uint8_t>(23) == 23);
    CHECK(f.name() == "some.idx");
}
TEST_CASE("elements of more than one byte are turned into the machine's order") {
    bytes shorts = make(0x0B, {0}, 2), ints = make(0x0C, {0}, 4), floats = make(0x0D, {0}, 4),
          doubles = make(0x0E, {0}, 8);
    for (bytes* b : {&shorts, &ints, &floats, &doubles}) (*b)[7] = std::byte{1};
    shorts.push_back(std::byte{0xff}), shorts.push_back(std::byte{0xfe});
    put32(ints, 0x80000001U);
    put32(floats, std::bit_cast<std::uint32_t>(-1.5F));
    const auto d = std::bit_cast<std::uint64_t>(0.1);
    put32(doubles, static_cast<std::uint32_t>(d >> 32)), put32(doubles, static_cast<std::uint32_t>(d));

    CHECK(idx_file(shorts).at<std::int16_t>(0) == -2);
    CHECK(idx_file(ints).at<std::int32_t>(0) == -2147483647);
    CHECK(idx_file(floats).at<float>(0) == -1.5F);
    CHECK(idx_file(doubles).at<double>(0) == 0.1);
    CHECK(idx_file(make(0x09, {256}, 1)).at<std::int8_t>(255) == -1);
}
TEST_CASE("asking for another type or behind the end is refused") {
    const idx_file f(make(0x08, {3, 2}, 1), "some.idx");

    CHECK_THROWS_AS(f.at<float>(0), trireme::usage_error);
    CHECK_THROWS_AS(f.at<std::uint8_t>(6), trireme::usage_error);
    CHECK_THROWS_AS(f.item(3), trireme::usage_error);
    CHECK_NOTHROW(f.item(2));
}
TEST_CASE("a copy shares the bytes and outlives the original") {
    auto f = std::make_unique<idx_file>(make(0x08, {3}, 1));

    const idx_file copy = *f;
    const std::byte* before = f->payload().data();
    f.reset();

    CHECK(copy.payload().data() == before);
    CHECK(copy.at<std::uint8_t>(2) == 2);
}
TEST_CASE("bytes that belong to the caller are looked at in place") {
    const bytes b = make(0x08, {3}, 1);

    const idx_file f{std::span<const std::byte>(b)};

    CHECK(f.payload().data() == b.data() + 8);
}
TEST_CASE("every shorter version of a file is refused with its name and where it ends") {
    const bytes whole = make(0x08, {3, 2, 4}, 1);
    REQUIRE(refusal(whole).empty());

    for (std::size_t n = 0; n < whole.size(); ++n) {
        // In memory of its own and exactly that long, so that the address sanitizer sees a read past the end.
        const bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
        const std::string text = refusal(cut);
        CAPTURE(n);
        REQUIRE(has(text, "some.idx"));
        if (n < 16)
            REQUIRE(has(text, "ends at offset " + std::to_string(n)));
        else
            REQUIRE(
                has(text, "offset 16: the header promises 24 bytes of elements, found " + std::to_string(n - 16)));
    }
}
TEST_CASE("something behind the end is refused with both sizes") {
    bytes b = make(0x08, {3}, 1);
    b.push_back(std::byte{0});

    CHECK(has(refusal(b), "offset 8: the header promises 3 bytes of elements, found 4"));
}
TEST_CASE("a wrong magic, type or rank is refused with offset, expected and found") {
    bytes magic = make(0x08, {3}, 1), type = make(0x08, {3}, 1), rank = make(0x08, {3}, 1),
          gzip = make(0x08, {3}, 1);
    magic[1] = std::byte{1};
    type[2] = std::byte{0x0a};
    rank[3] = std::byte{0};
    gzip[0] = std::byte{0x1f}, gzip[1] = std::byte{0x8b};

    CHECK(has(refusal(magic), "offset 0: expected magic 0x0000TTDD (type, extents), found 0x00010801"));
    CHECK(has(refusal(type), "offset 2: expected an element type"));
    CHECK(has(refusal(type), "found 0x0a"));
    CHECK(has(refusal(rank), "offset 3: expected at least one extent, found 0"));
    CHECK(has(refusal(gzip), "trireme::zlib::gzip"));
}
TEST_CASE("extents whose product overflows do not pass for a small file") {
    bytes b;
    put32(b, 0x00000E04);
    for (int i = 0; i < 4; ++i) put32(b, 0x00010000);  // 2^64 elements of 8 bytes

    CHECK(has(refusal(b), "promises more than 2^64 bytes of elements, found 0"));
}
TEST_CASE("no file with random bytes in its header makes trouble") {
    trireme::philox random(42, 0);
    const bytes whole = make(0x08, {3, 2, 4}, 1);
    int accepted = 0;

    for (int round = 0; round < 20'000; ++round) {
        bytes b = whole;
        for (int i = 0; i < 3; ++i) b[random.below(16)] = static_cast<std::byte>(random.below(16));
        b.resize(random.below(b.size() + 1));
        try {
            const idx_file f(b, "some.idx");
            ++accepted;
            for (std::uint64_t i = 0; i < f.size() && i < 30; ++i) REQUIRE(f.item(i).size() <= f.payload().size());
        } catch (const trireme::usage_error&) {}
    }

    MESSAGE("accepted " << accepted << " of 20000");
}
TEST_CASE("a file that is not there is an error with its path") {
    try {
        static_cast<void>(idx_file::open("/nowhere/train-images.idx"));
        FAIL("opened");
    } catch (const trireme::system_error& e) { CHECK(has(e.what(), "/nowhere/train-images.idx")); }
}
}  // TEST_SUITE("data/idx")
