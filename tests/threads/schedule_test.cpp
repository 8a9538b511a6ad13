#include <trireme/threads/schedule.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

using namespace trireme;

namespace {
template <class Index>
std::vector<long long> visited(range<Index> r) {
    std::vector<long long> all;
    const detail::index_space space(r);
    for (std::uint64_t k = 0; k < detail::count_of(r); ++k) all.push_back(static_cast<long long>(space.at(k)));
    return all;
}
using list = std::vector<long long>;
}  // namespace

TEST_SUITE("threads/schedule") {
TEST_CASE("a range visits what the loop it stands for would visit, for small numbers of every kind") {
    for (int begin = -7; begin <= 7; ++begin)
        for (int end = -7; end <= 7; ++end)
            for (int step = -5; step <= 5; ++step) {
                if (step == 0) continue;
                list expected;
                if (step > 0)
                    for (int i = begin; i < end; i += step) expected.push_back(i);
                else
                    for (int i = begin; i > end; i += step) expected.push_back(i);

                CHECK(visited(range{begin, end, step}) == expected);
                CHECK(visited(range<std::int8_t>{static_cast<std::int8_t>(begin), static_cast<std::int8_t>(end),
                                                 static_cast<std::int8_t>(step)}) == expected);
            }
}
TEST_CASE("ranges at the ends of their type neither wrap nor stop early") {
    CHECK(visited(range{2147483640, 2147483647}).size() == 7);
    CHECK(visited(range{2147483640, 2147483647}).back() == 2147483646);
    CHECK(visited(range{2147483640, 2147483647, 5}) == list{2147483640, 2147483645});
    const auto low = (std::numeric_limits<std::int32_t>::min)();
    const auto high = (std::numeric_limits<std::int32_t>::max)();
    CHECK(detail::count_of(range{low, high}) == 4294967295U);
    CHECK(detail::count_of(range{high, low, low}) == 2);
    CHECK(detail::count_of(range<std::int32_t>{high, low, -1}) == 4294967295U);
    CHECK(visited(range{low, high, high}) == list{low, -1, 2147483646});
    CHECK(visited(range<std::uint8_t>{0, 255, 127}) == list{0, 127, 254});
    CHECK(visited(range<std::uint8_t>{255, 0, -128}) == list{255, 127});
    CHECK(detail::count_of(range<std::int64_t>{(std::numeric_limits<std::int64_t>::min)(),
                                               (std::numeric_limits<std::int64_t>::max)()}) ==
          (std::numeric_limits<std::uint64_t>::max)());
}
TEST_CASE("a step of zero is an error, an end before the begin is an empty range") {
    CHECK_THROWS_AS(static_cast<void>(detail::count_of(range{0, 10, 0})), usage_error);
    CHECK(detail::count_of(range{0, -1}) == 0);
    CHECK(detail::count_of(range{5, 5}) == 0);
    CHECK(detail::count_of(range{0, 5, -1}) == 0);
}
TEST_CASE("ends of different types meet in the common one, and a begin that does not fit is an error") {
    CHECK(detail::count_of(detail::one_range(0, std::size_t{5})) == 5);
    CHECK(detail::count_of(detail::one_range(std::size_t{3}, -1)) == 0);
    CHECK_THROWS_AS(static_cast<void>(detail::one_range(-1, std::size_t{5})), usage_error);
}
TEST_CASE("blocks are contiguous, cover everything, and differ by at most one: 10 in 4 are 3 3 2 2") {
    std::vector<std::uint64_t> sizes;
    for (std::uint64_t j = 0; j < 4; ++j)
        sizes.push_back(detail::cuts(10, 4)[j].last - detail::cuts(10, 4)[j].first);
    CHECK(sizes == std::vector<std::uint64_t>{3, 3, 2, 2});

    for (std::uint64_t n = 0; n < 40; ++n)
        for (std::uint64_t blocks = 1; blocks < 12; ++blocks) {
            std::uint64_t at = 0;
            for (std::uint64_t j = 0; j < blocks; ++j) {
                const auto c = detail::cuts(n, blocks)[j];
                CHECK(c.first == at);
                CHECK((c.last - c.first == n / blocks || c.last - c.first == n / blocks + 1));
                at = c.last;
            }
            CHECK(at == n);
        }
}
TEST_CASE("more blocks than fit 32 bits are as many as fit") {
    const detail::cuts many(std::uint64_t{1} << 40, std::uint64_t{1} << 36);
    CHECK(many.number == 4294967295U);
    CHECK(many[many.number - 1].last == std::uint64_t{1} << 40);
}
}  // TEST_SUITE("threads/schedule")
