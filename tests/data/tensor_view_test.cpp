// What a typed look at a batch promises.
#include <trireme/data/tensor_view.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <type_traits>

namespace {

using trireme::tensor_view;

using batch_view = tensor_view<int, std::dynamic_extent, 3, 4>;

static_assert(std::is_trivially_copyable_v<batch_view>);
static_assert(std::is_convertible_v<batch_view, tensor_view<const int, std::dynamic_extent, 3, 4>>);
static_assert(!std::is_convertible_v<tensor_view<const int, std::dynamic_extent, 3, 4>, batch_view>);
static_assert(!std::is_convertible_v<batch_view, tensor_view<int, std::dynamic_extent, 4, 3>>);
static_assert(std::is_same_v<decltype(std::declval<batch_view>().row(0)), tensor_view<int, 3, 4>>);
static_assert(std::is_same_v<decltype(std::declval<tensor_view<int, 3, 4>>().row(0)), tensor_view<int, 4>>);
static_assert(std::is_same_v<decltype(std::declval<tensor_view<int, 4>>().row(0)), int&>);

}  // namespace

TEST_SUITE("data/tensor_view") {
TEST_CASE("elements lie in row-major order") {
    std::array<int, 24> memory{};
    std::iota(memory.begin(), memory.end(), 0);

    const batch_view v(memory.data(), 2);

    int expected = 0;
    for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t j = 0; j < 3; ++j)
            for (std::size_t k = 0; k < 4; ++k) CHECK(v(i, j, k) == expected++);
    CHECK(v(1, 2, 3) == 23);  // other integer types index as well
}
TEST_CASE("the sizes are the first extent at run time and the others from the type") {
    std::array<int, 24> memory{};

    const batch_view v(memory.data(), 2);

    CHECK(v.size() == 24);
    CHECK(v.size_bytes() == 96);
    CHECK(v.extents() == std::array<std::size_t, 3>{2, 3, 4});
    CHECK(v.extent(0) == 2);
    CHECK(v.extent(2) == 4);
    CHECK(batch_view::rank == 3);
    CHECK(batch_view::row_elements == 12);
    CHECK(v.span().size() == 24);
    CHECK_FALSE(v.empty());
    CHECK(v.first(0).empty());
}
TEST_CASE("a row is a view of one rank less, and of a vector the element itself") {
    std::array<int, 24> memory{};
    std::iota(memory.begin(), memory.end(), 0);
    const batch_view v(memory.data(), 2);

    v.row(1).row(2).row(3) = 99;

    CHECK(memory[23] == 99);
    CHECK(v.row(1)(0, 1) == 13);
    CHECK(v.row_span(1).front() == 12);
    CHECK(v.row_span(1).size() == 12);
}
TEST_CASE("a vector is a range of its elements") {
    std::array<int, 5> memory{1, 2, 3, 4, 5};

    const tensor_view<const int, std::dynamic_extent> v(memory.data(), 5);

    CHECK(std::accumulate(v.begin(), v.end(), 0) == 15);
    CHECK(v[4] == 5);
    int sum = 0;
    for (const int x : v.first(2)) sum += x;
    CHECK(sum == 3);
}
}  // TEST_SUITE("data/tensor_view")
