// Orders are bijections, look random, and never change.
#include <trireme/data/order.hpp>

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

using trireme::sequential;
using trireme::shuffled;

bool soak() {
    const char* text = std::getenv("TRIREME_SOAK");
    return text != nullptr && std::string_view(text) == "1";
}

static_assert(trireme::order<shuffled> && trireme::order<sequential>);
static_assert(!trireme::order<int>);
static_assert(trireme::explain::order<shuffled>());
static_assert(std::is_trivially_copyable_v<shuffled::bound>);
static_assert(sizeof(shuffled::bound) <= 8448,
              "O(1) memory: a table of 8 KiB and keys, whatever the number of samples");

// All of 1 .. 3 and of 2^k - 1, 2^k, 2^k + 1.
std::vector<std::uint64_t> awkward_sizes(unsigned max_k) {
    std::vector<std::uint64_t> all{1, 2, 3};
    for (unsigned k = 2; k <= max_k; ++k)
        for (const std::uint64_t n : {(1ULL << k) - 1, 1ULL << k, (1ULL << k) + 1}) all.push_back(n);
    return all;
}

// Every index once, and the inverse leads back.
template <class Bound>
bool is_bijection(const Bound& order, std::uint64_t n, std::uint64_t inverse_step) {
    std::vector<bool> seen(n);
    for (std::uint64_t p = 0; p < n; ++p) {
        const std::uint64_t index = order.at(p);
        if (index >= n || seen[index]) return false;
        seen[index] = true;
        if (p % inverse_step == 0 && order.position_of(index) != p) return false;
    }
    return true;
}

// The network without the table that takes over below 4096, so that its smallest domains are tested as well.
class network {
  public:
    network(std::uint64_t n, std::uint64_t seed) : n_(n) { f_.bind(n, trireme::mix64(seed), 7); }
    std::uint64_t size() const { return n_; }
    std::uint64_t at(std::uint64_t p) const { return f_.forward(p); }
    std::uint64_t position_of(std::uint64_t i) const { return f_.backward(i); }

  private:
    std::uint64_t n_;
    trireme::detail::feistel f_;
};
// A bijection for odd factors and n a power of two, and what a shuffle must not be.
class affine {
  public:
    affine(std::uint64_t n, std::uint64_t seed)
        : n_(n), a_(trireme::mix64(seed) | 1), b_(trireme::mix64(seed + 1'000'000)) {}
    std::uint64_t at(std::uint64_t p) const { return (a_ * p + b_) & (n_ - 1); }

  private:
    std::uint64_t n_, a_, b_;
};
struct table {
    table(std::uint64_t n, std::uint64_t seed) : b(shuffled{}.bind(n, seed, 0)) {}
    std::uint64_t at(std::uint64_t p) const { return b.at(p); }
    shuffled::bound b;
};

// How many standard deviations a chi-square of these counts lies above what even chances give.
double z_score(std::span<const std::uint64_t> counts) {
    double total = 0, chi = 0;
    for (const std::uint64_t c : counts) total += static_cast<double>(c);
    const double expected = total / static_cast<double>(counts.size());
    for (const std::uint64_t c : counts) chi += std::pow(static_cast<double>(c) - expected, 2) / expected;
    const double freedom = static_cast<double>(counts.size()) - 1;
    return (chi - freedom) / std::sqrt(2 * freedom);
}

struct statistics {
    double first = 0, last = 0, adjacent = 0, fixed_mean = 0, fixed_variance = 0;
};

template <class Permutation>
statistics probe(std::uint64_t n, std::uint64_t seeds) {
    std::vector<std::uint64_t> first(n), last(n), adjacent(n - 1);
    double sum = 0, squares = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const Permutation order(n, seed);
        std::uint64_t before = order.at(0);
        double fixed = before == 0 ? 1 : 0;
        ++first[before];
        for (std::uint64_t p = 1; p < n; ++p) {
            const std::uint64_t index = order.at(p);
            ++adjacent[(index + n - before) % n - 1];
            fixed += index == p ? 1 : 0;
            before = index;
        }
        ++last[before];
        sum += fixed, squares += fixed * fixed;
    }
    const double mean = sum / static_cast<double>(seeds);
    return {z_score(first), z_score(last), z_score(adjacent), mean,
            squares / static_cast<double>(seeds) - mean * mean};
}

void check_clean(const statistics& s) {
    CHECK(std::abs(s.first) < 4.0);
    CHECK(std::abs(s.last) < 4.0);
    CHECK(std::abs(s.adjacent) < 4.0);
    CHECK(std::abs(s.fixed_mean - 1.0) < 0.05);
    CHECK(std::abs(s.fixed_variance - 1.0) < 0.1);
}

std::vector<std::uint64_t> head(const shuffled::bound& order, std::size_t count) {
    std::vector<std::uint64_t> out(count);
    order.fill(0, 1, out);
    return out;
}

}  // namespace

TEST_SUITE("data/order") {
TEST_CASE("sequential is the identity") {
    const auto order = sequential{}.bind(10, 42, 3);

    std::array<std::uint64_t, 4> out{};
    order.fill(1, 2, out);

    CHECK(order.size() == 10);
    CHECK(order.at(7) == 7);
    CHECK(order.position_of(7) == 7);
    CHECK(out == std::array<std::uint64_t, 4>{1, 3, 5, 7});
}
TEST_CASE("a shuffle holds every index once and its inverse leads back, for all awkward sizes") {
    for (const std::uint64_t n : awkward_sizes(soak() ? 20 : 14)) {
        CAPTURE(n);
        REQUIRE(is_bijection(shuffled{}.bind(n, 42, 0), n, n <= 4097 ? 17 : 1));
        REQUIRE(is_bijection(shuffled{}.bind(n, 7, n), n, n <= 4097 ? 17 : 1));
    }
    REQUIRE(is_bijection(shuffled{}.bind(60'000, 42, 0), 60'000, 1));
    REQUIRE(is_bijection(shuffled{}.bind(65'537, 42, 0), 65'537, 1));
}
TEST_CASE("the network under it is a bijection for small domains too") {
    for (std::uint64_t n = 1; n <= 300; ++n) {
        CAPTURE(n);
        REQUIRE(is_bijection(network(n, n), n, 1));
    }
    for (const std::uint64_t n : awkward_sizes(soak() ? 20 : 12)) {
        CAPTURE(n);
        REQUIRE(is_bijection(network(n, 1), n, 1));
    }
}
TEST_CASE("many positions at once give what one by one gives") {
    for (const std::uint64_t n : {1ULL, 10ULL, 4096ULL, 4097ULL, 60'000ULL, 65'537ULL, 1ULL << 40}) {
        const auto order = shuffled{}.bind(n, 1, 2);
        for (const std::uint64_t stride : {1ULL, 2ULL, 7ULL}) {
            for (const std::size_t count : {0UL, 1UL, 3UL, 4UL, 5UL, 63UL, 64UL, 65UL, 200UL}) {
                const std::uint64_t first = 2;
                if (count > 0 && first + (count - 1) * stride >= n) continue;
                CAPTURE(n);
                CAPTURE(stride);
                CAPTURE(count);

                std::vector<std::uint64_t> out(count + 1, 4711);
                order.fill(first, stride, std::span(out).first(count));

                for (std::size_t i = 0; i < count; ++i) REQUIRE(out[i] == order.at(first + i * stride));
                REQUIRE(out[count] == 4711);  // nothing behind the end is written
            }
        }
    }
}
TEST_CASE("a whole epoch at once gives what one by one gives") {
    for (const std::uint64_t n : {4097ULL, 8191ULL, 8192ULL, 8193ULL, 60'000ULL}) {
        const auto order = shuffled{}.bind(n, 5, 6);

        const std::vector<std::uint64_t> all = head(order, n);

        for (std::uint64_t p = 0; p < n; ++p) REQUIRE(all[p] == order.at(p));
    }
}
TEST_CASE("a very large order binds without memory and leads back from anywhere") {
    for (const std::uint64_t n : {1ULL << 40, (1ULL << 40) + 1, (1ULL << 63) - 1, 1ULL << 63}) {
        CAPTURE(n);
        const auto order = shuffled{}.bind(n, 42, 1);

        for (const std::uint64_t p : {std::uint64_t{0}, std::uint64_t{1}, n / 3, n - 2, n - 1}) {
            const std::uint64_t index = order.at(p);
            CHECK(index < n);
            CHECK(order.position_of(index) == p);
        }
    }
}
TEST_CASE("more samples than 2^63 are refused with the number") {
    try {
        static_cast<void>(shuffled{}.bind((1ULL << 63) + 1, 0, 0));
        FAIL("bound");
    } catch (const trireme::usage_error& e) {
        CHECK(std::string_view(e.what()).find("9223372036854775809 samples") != std::string_view::npos);
    }
}
TEST_CASE("every epoch and every seed has an order of its own, and the same one each time") {
    for (const std::uint64_t n : {40ULL, 4096ULL, 60'000ULL}) {
        std::vector<std::vector<std::uint64_t>> heads;
        for (std::uint64_t seed = 0; seed < 8; ++seed)
            for (std::uint64_t epoch = 0; epoch < 8; ++epoch)
                heads.push_back(head(shuffled{}.bind(n, seed, epoch), 16));

        for (std::size_t i = 0; i < heads.size(); ++i)
            for (std::size_t j = 0; j < i; ++j) REQUIRE(heads[i] != heads[j]);
        CHECK(heads[9] == head(shuffled{}.bind(n, 1, 1), 16));
    }
}
TEST_CASE("a copy of a bound order gives the same answers") {
    const auto order = shuffled{}.bind(1000, 42, 0);

    const auto copy = order;

    CHECK(head(copy, 1000) == head(order, 1000));
}
TEST_CASE("orders do not change between releases") {
    const std::vector<std::uint64_t> ten = head(shuffled{}.bind(10, 42, 0), 10);
    const std::vector<std::uint64_t> table_limit = head(shuffled{}.bind(4096, 42, 1), 8);
    const std::vector<std::uint64_t> beyond = head(shuffled{}.bind(4097, 42, 1), 8);
    const std::vector<std::uint64_t> images = head(shuffled{}.bind(60'000, 42, 0), 8);
    const std::vector<std::uint64_t> next_epoch = head(shuffled{}.bind(60'000, 42, 1), 8);
    const std::vector<std::uint64_t> huge = head(shuffled{}.bind(1ULL << 40, 7, 3), 4);

    CHECK(ten == std::vector<std::uint64_t>{8, 5, 2, 1, 7, 4, 6, 0, 9, 3});
    CHECK(table_limit == std::vector<std::uint64_t>{1010, 1389, 780, 2874, 2138, 3278, 748, 399});
    CHECK(beyond == std::vector<std::uint64_t>{501, 3502, 451, 764, 989, 1298, 4012, 2931});
    CHECK(images == std::vector<std::uint64_t>{55227, 55105, 1768, 31556, 12672, 14624, 41981, 10028});
    CHECK(next_epoch == std::vector<std::uint64_t>{6782, 5890, 37176, 18762, 22097, 28588, 28802, 55357});
    CHECK(huge == std::vector<std::uint64_t>{150815192207, 463121115474, 720365464865, 294505042256});
}
TEST_CASE("first place, last place, neighbours and fixed points are as even as chance makes them") {
    SUBCASE("table of 100") { check_clean(probe<table>(100, 20'000)); }
    SUBCASE("table of 1000") { check_clean(probe<table>(1000, 4'000)); }
    SUBCASE("network over 100") { check_clean(probe<network>(100, 20'000)); }
    SUBCASE("network over 128") { check_clean(probe<network>(128, 20'000)); }
    SUBCASE("network over 129") { check_clean(probe<network>(129, 20'000)); }
    SUBCASE("network over 1000") { check_clean(probe<network>(1000, 4'000)); }
    SUBCASE("network over 1024") { check_clean(probe<network>(1024, 4'000)); }
}
TEST_CASE("the same statistics find an affine map out") {
    const statistics s = probe<affine>(128, 2'000);

    CHECK(s.adjacent > 1000.0);
    CHECK(std::abs(s.fixed_variance - 1.0) > 0.5);
}
TEST_CASE("samples at any distance in the epoch are unrelated") {
    constexpr std::uint64_t n = 60'000, bins = 256;
    std::vector<std::vector<std::uint64_t>> epochs;
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch) epochs.push_back(head(shuffled{}.bind(n, 42, epoch), n));

    for (const std::uint64_t d : {1ULL, 2ULL, 3ULL, 255ULL, 256ULL, 257ULL, 512ULL, 4096ULL}) {
        CAPTURE(d);
        std::array<std::uint64_t, bins> differences{}, curvatures{};
        for (const auto& e : epochs)
            for (std::uint64_t p = 0; p + 2 * d < n; ++p) {
                ++differences[(e[p + d] + n - e[p]) % n * bins / n];
                ++curvatures[(e[p] + e[p + 2 * d] + 2 * n - 2 * e[p + d]) % n * bins / n];
            }
        CHECK(std::abs(z_score(differences)) < 4.0);
        CHECK(std::abs(z_score(curvatures)) < 4.0);
    }
}
}  // TEST_SUITE("data/order")
