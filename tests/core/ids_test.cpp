#include <trireme/core/ids.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>

TEST_SUITE("core/ids") {
TEST_CASE("numbers of different kinds do not convert into each other or from bare integers") {
    static_assert(!std::convertible_to<std::uint32_t, trireme::rank>);
    static_assert(!std::convertible_to<trireme::rank, trireme::world_size>);
    static_assert(!std::constructible_from<trireme::world_size, trireme::rank>);
    static_assert(!std::equality_comparable_with<trireme::slots, trireme::parts>);
    static_assert(std::constructible_from<trireme::rank, std::uint32_t>);
}

TEST_CASE("numbers of one kind compare, start at zero and may lie in shared memory") {
    CHECK(trireme::rank{1} < trireme::rank{2});
    CHECK(trireme::batch_number{3} == trireme::batch_number{3});
    CHECK(trireme::rank{}.value == 0);
    CHECK(trireme::shard{} == trireme::shard{.index = 0, .count = 1});
    static_assert(std::is_trivially_copyable_v<trireme::batch_number> && sizeof(trireme::batch_number) == 8);
}
}  // TEST_SUITE("core/ids")
