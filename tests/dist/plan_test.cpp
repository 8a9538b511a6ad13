#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <trireme/dist/plan.hpp>

using namespace trireme;

namespace {

std::vector<param_spec> six() {
    std::vector<param_spec> all;
    for (const std::size_t n : {100U, 50U, 200U, 25U, 300U, 10U})
        all.push_back({.name = "p" + std::to_string(all.size()), .shape = {n}});
    return all;
}
std::vector<std::vector<std::uint32_t>> members(const plan& p) {
    std::vector<std::vector<std::uint32_t>> all;
    for (const auto& b : p.cuts()) all.push_back(b.parameters);
    return all;
}
using lists = std::vector<std::vector<std::uint32_t>>;

}  // namespace

TEST_SUITE("dist/plan") {
TEST_CASE("a bucket closes with the gradient that reaches the limit, in reverse order") {
    const plan p(six(), {.first = 1000, .cap = 1000});

    CHECK(members(p) == lists{{5, 4}, {3, 2, 1}, {0}});
    for (const auto& b : p.cuts()) CHECK(b.ranges.size() == 1);
}
TEST_CASE("the first bucket has a limit of its own") {
    CHECK(members(plan(six(), {.first = 1, .cap = 1'000'000})) == lists{{5}, {4, 3, 2, 1, 0}});
}
TEST_CASE("types do not share a bucket, and each has its part of the arena") {
    auto layout = six();
    layout[3].type = dtype::f16;
    layout[1].type = dtype::f64;
    const plan p(layout, {.first = 1000, .cap = 1000});

    for (const auto& b : p.cuts())
        for (const auto i : b.parameters) CHECK(layout[i].type == b.type);
    CHECK(members(p) == lists{{5, 4}, {3}, {1}, {2, 0}});
    const auto f64 = p.region(dtype::f64), f32 = p.region(dtype::f32), f16 = p.region(dtype::f16);
    CHECK(f64.begin == 0);
    CHECK(f64.end == f32.begin);
    CHECK(f32.end == f16.begin);
    CHECK(f16.end == p.bytes());
}
TEST_CASE("parameters are aligned and do not overlap, and ranges cover each of them once") {
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        std::vector<param_spec> layout;
        const dtype types[] = {dtype::f32, dtype::f64, dtype::f16, dtype::bf16};
        for (std::size_t i = 0, n = 1 + random() % 20; i < n; ++i)
            layout.push_back({.name = std::to_string(i),
                              .shape = {random() % 50, 1 + random() % 9},
                              .type = types[random() % 4]});
        plan p(layout, {.first = random() % 500, .cap = random() % 3000});
        if (round % 2 != 0) {
            std::vector<std::uint32_t> order(layout.size());
            std::iota(order.begin(), order.end(), 0U);
            std::shuffle(order.begin(), order.end(), random);
            p.cut(order);
        }

        std::vector<int> owner(p.bytes(), -1), covered(p.bytes(), 0);
        for (std::size_t i = 0; i < layout.size(); ++i) {
            CHECK(p.place(i) % plan::alignment == 0);
            for (std::size_t k = 0; k < layout[i].bytes(); ++k) {
                CHECK(owner[p.place(i) + k] == -1);
                owner[p.place(i) + k] = static_cast<int>(i);
            }
        }
        std::size_t named = 0;
        for (const auto& b : p.cuts()) {
            named += b.parameters.size();
            for (const auto r : b.ranges)
                for (std::size_t k = r.begin; k < r.end; ++k) ++covered[k];
        }
        CHECK(named == layout.size());
        for (std::size_t k = 0; k < p.bytes(); ++k) CHECK((owner[k] == -1 || covered[k] == 1));
        CHECK(std::none_of(covered.begin(), covered.end(), [](int c) { return c > 1; }));
    }
}
TEST_CASE("cutting anew in another order moves nothing, and touching ranges become one") {
    plan p(six(), {.first = 1000, .cap = 1000});
    std::vector<std::size_t> before, after;
    for (std::size_t i = 0; i < 6; ++i) before.push_back(p.place(i));

    p.cut({0, 1, 2, 3, 4, 5});

    for (std::size_t i = 0; i < 6; ++i) after.push_back(p.place(i));
    CHECK(before == after);
    CHECK(members(p) == lists{{0, 1, 2}, {3, 4}, {5}});
    CHECK(p.cuts()[0].ranges.size() == 1);
    CHECK(p.bucket_of(4) == 1);

    p.cut({0, 5, 1, 4, 2, 3});
    CHECK(members(p)[0] == std::vector<std::uint32_t>{0, 5, 1, 4});
    CHECK(p.cuts()[0].ranges.size() == 2);  // 5 and 4 touch, 1 and 0 touch
}
TEST_CASE("whatever differs changes the hash: name, shape, type, uses, order, limits") {
    const auto hash = [](auto change) {
        auto layout = six();
        change(layout);
        return plan(layout).hash();
    };
    const auto same = plan(six()).hash();

    CHECK(hash([](auto&) {}) == same);
    CHECK(hash([](auto& l) { l[2].name = "q"; }) != same);
    CHECK(hash([](auto& l) { l[2].shape = {100, 2}; }) != same);
    CHECK(hash([](auto& l) { l[2].type = dtype::f64; }) != same);
    CHECK(hash([](auto& l) { l[2].uses = 2; }) != same);
    CHECK(hash([](auto& l) { std::swap(l[0], l[1]); }) != same);
    CHECK(hash([](auto& l) { l.pop_back(); }) != same);
    CHECK(plan(six(), {.first = 5}).hash() != same);
}
TEST_CASE("a name given twice and a type without a mean are refused") {
    auto twice = six();
    twice[4].name = "p1";
    auto integer = six();
    integer[4].type = dtype::i32;

    CHECK_THROWS_WITH_AS(plan{twice}, doctest::Contains("two parameters are called 'p1'"), usage_error);
    CHECK_THROWS_WITH_AS(plan{integer}, doctest::Contains("'p4' [300] int32"), usage_error);
}
}  // TEST_SUITE("dist/plan")
