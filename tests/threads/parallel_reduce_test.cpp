#include <trireme/threads/parallel_for.hpp>
#include <trireme/threads/parallel_reduce.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace trireme;

namespace {
/// Numbers whose sum depends on the order.
std::vector<float> numbers(std::size_t n) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i)
        x[i] = std::sin(static_cast<float>(i) * 0.7F) * std::pow(10.0F, static_cast<float>(i % 9) - 4.0F);
    return x;
}
float sum(pool& p, const std::vector<float>& x, std::uint64_t grain) {
    return parallel_reduce(
        p, blocked{std::size_t{0}, x.size(), grain}, 0.0F,
        [&](std::size_t b, std::size_t e) {
            float s = 0;
            for (; b < e; ++b) s += x[b];
            return s;
        },
        std::plus<>{});
}
}  // namespace

TEST_SUITE("threads/parallel_reduce") {
TEST_CASE("the result has the same bits for any number of threads") {
    for (const std::size_t n : {1UL, 2UL, 255UL, 257UL, 10000UL, 100003UL}) {
        const auto x = numbers(n);
        for (const std::uint64_t grain : {1UL, 100UL, 1000000UL}) {
            pool one{1};
            const auto expected = std::bit_cast<std::uint32_t>(sum(one, x, grain));
            for (unsigned threads = 2; threads <= 7; ++threads) {
                CAPTURE(n);
                CAPTURE(threads);
                pool p{threads};
                for (int again = 0; again < 5; ++again)
                    CHECK(std::bit_cast<std::uint32_t>(sum(p, x, grain)) == expected);
            }
        }
    }
}
TEST_CASE("the same holds inside a loop, and while another thread has the pool") {
    const auto x = numbers(10000);
    pool p{3};
    const float expected = sum(p, x, 16);
    std::atomic<int> wrong{0};
    std::thread other([&] {
        for (int i = 0; i < 50; ++i) wrong += sum(p, x, 16) != expected;
    });
    parallel_for(p, 0, 20, [&](int) { wrong += sum(p, x, 16) != expected; });
    other.join();
    CHECK(wrong == 0);
}
TEST_CASE("results are combined in the order of the indices") {
    pool p{5};
    std::string expected;
    for (int i = 0; i < 300; ++i) expected += std::to_string(i) + ",";

    const auto joined = parallel_reduce(
        p, 0, 300, std::string{},
        [](int b, int e) {
            std::string s;
            for (; b < e; ++b) s += std::to_string(b) + ",";
            return s;
        },
        [](std::string a, const std::string& b) { return std::move(a) + b; });

    CHECK(joined == expected);
}
TEST_CASE("an empty range gives the identity, and each index is mapped once") {
    pool p{4};
    const auto count = [](long b, long e) { return e - b; };
    CHECK(parallel_reduce(p, 5L, 5L, 7L, count, std::plus<>{}) == 7);
    CHECK(parallel_reduce(p, 5L, -5L, 7L, count, std::plus<>{}) == 7);
    for (const long n : {1L, 255L, 256L, 257L, 511L, 100000L})
        CHECK(parallel_reduce(p, 0L, n, 0L, count, std::plus<>{}) == n);
}
TEST_CASE("large results and results that cannot be default-made are reduced too") {
    struct big {
        double v[64];
        explicit big(double x) { std::fill(std::begin(v), std::end(v), x); }
    };
    pool p{3};
    const auto total = parallel_reduce(
        p, 0, 1000, big(0), [](int b, int e) { return big(e - b); },
        [](big a, const big& b) {
            for (int k = 0; k < 64; ++k) a.v[k] += b.v[k];
            return a;
        });
    CHECK(total.v[0] == 1000);
    CHECK(total.v[63] == 1000);
}
TEST_CASE("an exception of the map reaches the caller") {
    pool p{3};
    CHECK_THROWS_AS(static_cast<void>(parallel_reduce(
                        p, 0, 1000, 0,
                        [](int b, int) -> int {
                            if (b > 500) throw std::string("no");
                            return b;
                        },
                        std::plus<>{})),
                    std::string);
    CHECK(parallel_reduce(
              p, 0, 1000, 0, [](int b, int e) { return e - b; }, std::plus<>{}) == 1000);
}
}  // TEST_SUITE("threads/parallel_reduce")
