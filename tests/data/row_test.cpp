// Writing a sample into a row and reading the batch: what one side writes is what the other reads, and nothing else
// is touched.
#include <trireme/data/row.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using trireme::batch_fields;
using trireme::field;
using trireme::row;
using trireme::schema;

using sample = schema<field<"x", float, 3>, field<"label", std::int64_t>, field<"mask", std::uint8_t, 2, 2>>;

struct slot {
    explicit slot(std::size_t batch) : storage(sample::bytes(batch) + 64, std::byte{0xee}), rows(batch) {
        const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
        base = storage.data() + (64 - address % 64) % 64;
    }
    row<sample> at(std::size_t i) { return {base, rows, i}; }

    std::vector<std::byte> storage;
    std::size_t rows;
    std::byte* base;
};

static_assert(std::is_same_v<decltype(std::declval<row<sample>>().get<"x">()), std::span<float, 3>>);
static_assert(std::is_same_v<decltype(std::declval<row<sample>>().get<"label">()), std::int64_t&>);

std::size_t untouched(const slot& s) {
    std::size_t n = 0;
    for (const std::byte b : std::span(s.base, sample::bytes(s.rows))) n += b == std::byte{0xee} ? 1 : 0;
    return n;
}

}  // namespace

TEST_SUITE("data/row") {
TEST_CASE("what rows write is what the batch's fields show") {
    slot s(5);

    for (std::size_t i = 0; i < 5; ++i) {
        const auto r = s.at(i);
        const auto f = static_cast<float>(i);
        r.set<"x">({f, f + 0.25F, f + 0.5F});
        r.get<"label">() = static_cast<std::int64_t>(i) - 2;
        r.view<"mask">()(1, 0) = static_cast<std::uint8_t>(i);
    }

    const auto [x, label, mask] = batch_fields<sample>(s.base, 5).fields();
    for (std::size_t i = 0; i < 5; ++i) {
        CHECK(x(i, 1) == static_cast<float>(i) + 0.25F);
        CHECK(label(i) == static_cast<std::int64_t>(i) - 2);
        CHECK(mask(i, 1, 0) == i);
    }
    CHECK(batch_fields<sample>(s.base, 5).get<"label">()[4] == 2);
}
TEST_CASE("a row touches its own bytes only") {
    slot s(3);
    const std::size_t before = untouched(s);

    s.at(1).clear();

    CHECK(untouched(s) == before - sample::sample_bytes);
    const auto [x, label, mask] = batch_fields<sample>(s.base, 3).fields();
    CHECK(x(1, 2) == 0.0F);
    CHECK(label(1) == 0);
    CHECK(mask(1, 1, 1) == 0);
    CHECK(label(0) != 0);
    CHECK(label(2) != 0);
}
TEST_CASE("any range of the right length can be set") {
    slot s(1);
    const auto r = s.at(0);

    r.set<"x">(std::vector<float>{1, 2, 3});
    CHECK(r.get<"x">()[2] == 3.0F);
    r.set<"x">(std::list<float>{4, 5, 6});
    CHECK(r.get<"x">()[0] == 4.0F);
    const float plain[3] = {7, 8, 9};
    r.set<"x">(plain);
    CHECK(r.get<"x">()[1] == 8.0F);
    r.set<"mask">(std::array<std::uint8_t, 4>{1, 2, 3, 4});
    CHECK(r.view<"mask">()(1, 1) == 4);
    r.set<"label">(-7);
    CHECK(r.get<"label">() == -7);
}
TEST_CASE("a range of another length is refused with field, needed and given size, and nothing is written") {
    slot s(1);
    const std::size_t before = untouched(s);

    std::string text;
    try {
        s.at(0).set<"x">(std::vector<float>(4));
    } catch (const trireme::usage_error& e) { text = e.what(); }

    CHECK(text.find("\"x\" takes 3 elements, but was given 4") != std::string::npos);
    CHECK(untouched(s) == before);
    CHECK_THROWS_AS(s.at(0).set<"x">(std::list<float>{1, 2}), trireme::usage_error);
    CHECK_THROWS_AS(s.at(0).set<"mask">({1, 2, 3}), trireme::usage_error);
    CHECK(untouched(s) == before);
}
TEST_CASE("fewer rows can be shown than the slot is laid out for") {
    slot s(40);
    for (std::size_t i = 0; i < 40; ++i) s.at(i).get<"label">() = static_cast<std::int64_t>(i);

    const auto valid = batch_fields<sample>(s.base, 40).first(2);

    CHECK(valid.rows() == 2);
    CHECK(valid.get<"label">().size() == 2);
    CHECK(valid.get<"label">()(1) == 1);  // still where the layout for 40 rows has it
}
}  // TEST_SUITE("data/row")
