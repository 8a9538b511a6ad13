#include <trireme/core/philox.hpp>

#include <array>
#include <cstdint>
#include <random>

#include <doctest/doctest.h>

using trireme::philox;
using block = std::array<std::uint32_t, 4>;

TEST_SUITE("core/philox") {
// Known answers of Random123 1.14, tests/kat_vectors, philox4x32 10: counter words c0 c1 c2 c3, key words k0
// k1.
TEST_CASE("the block function gives the known answers of its authors") {
    static_assert(philox::block(0, 0, 0) == block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    static_assert(philox::block(~0ULL, ~0ULL, ~0ULL) == block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    static_assert(philox::block(0x299f31d0'a4093822, 0x03707344'13198a2e, 0x85a308d3'243f6a88) ==
                  block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the stream is the same for ever: two draws from each block, low words first") {
    philox random{0x123456789abcdef0, 7};

    CHECK(random() == 0x2b74fe69e2aedaf7U);
    CHECK(random() == 0xade5d4db9b175b0cU);
    CHECK(random() == 0x328be7671fdc6a16U);
    CHECK(random() == 0x9cbcc4fdbff8c872U);
}

TEST_CASE("streams of one key differ, and a copy draws what the original draws") {
    philox first{1, 0}, second{1, 1};
    philox copy = first;

    const auto drawn = first();

    CHECK(copy() == drawn);
    CHECK(second() != drawn);
}

TEST_CASE("uniform draws lie in [0, 1) and below(n) in [0, n), and both reach their ends") {
    philox random{42, 0};
    double lowest = 1, highest = 0;
    std::array<int, 3> seen{};

    for (int i = 0; i < 3000; ++i) {
        const double u = random.uniform();
        REQUIRE(u >= 0);
        REQUIRE(u < 1);
        lowest = u < lowest ? u : lowest;
        highest = u > highest ? u : highest;
        const auto k = random.below(3);
        REQUIRE(k < 3);
        ++seen[static_cast<std::size_t>(k)];
    }

    CHECK(lowest < 0.01);
    CHECK(highest > 0.99);
    for (int count : seen) CHECK(count > 900);  // 1000 expected, 3.9 standard deviations; the seed is fixed
    CHECK(random.below(1) == 0);
}

TEST_CASE("it is a generator for the distributions of the standard library") {
    static_assert(std::uniform_random_bit_generator<philox>);
    philox random{42, 0};

    const int die = std::uniform_int_distribution<int>{1, 6}(random);

    CHECK(die >= 1);
    CHECK(die <= 6);
}
}  // TEST_SUITE("core/philox")
