// How an epoch is cut: who gets which sample when, and that all ranks agree.
#include <trireme/data/order.hpp>
#include <trireme/data/sampling.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace {

using trireme::sampling_plan;
using trireme::sequential;
using trireme::shuffled;
using trireme::tail;

sampling_plan plan(std::uint64_t n, std::uint64_t batch, std::uint32_t rank, std::uint32_t ranks, tail t) {
    return sampling_plan({.samples = n, .batch_size = batch, .shard = {.index = rank, .count = ranks}, .tail = t});
}

// The indices that a rank's filled rows hold over an epoch, in order.
template <class Order>
std::vector<std::uint64_t> rank_epoch(const sampling_plan& p, const Order& order) {
    std::vector<std::uint64_t> all, out(p.batch_size());
    for (std::uint64_t step = 0; step < p.steps(); ++step) {
        const std::size_t filled = p.fill(order, step, 0, out);
        CHECK(filled == p.filled_rows(step));
        all.insert(all.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(filled));
    }
    return all;
}

std::vector<std::uint64_t> one_by_one(std::uint64_t n, std::uint32_t rank, std::uint32_t ranks, tail t) {
    return rank_epoch(plan(n, 1, rank, ranks, t), sequential{}.bind(n, 0, 0));
}

std::string refusal(std::uint64_t n, std::uint64_t batch, std::uint32_t rank, std::uint32_t ranks, tail t) {
    try {
        static_cast<void>(plan(n, batch, rank, ranks, t));
    } catch (const trireme::usage_error& e) { return e.what(); }
    return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

using indices = std::vector<std::uint64_t>;

// Pure arithmetic: a plan can be made by the compiler.
static_assert(sampling_plan({.samples = 10, .batch_size = 2, .shard = {1, 3}, .tail = tail::pad}).steps() == 2);
static_assert(sampling_plan({.samples = 10, .batch_size = 2, .shard = {1, 3}, .tail = tail::drop}).steps() == 1);

}  // namespace

TEST_SUITE("data/sampling") {
TEST_CASE("10 samples over 3 ranks, padded: four steps, the head repeats") {
    CHECK(one_by_one(10, 0, 3, tail::pad) == indices{0, 3, 6, 9});
    CHECK(one_by_one(10, 1, 3, tail::pad) == indices{1, 4, 7, 0});
    CHECK(one_by_one(10, 2, 3, tail::pad) == indices{2, 5, 8, 1});
}
TEST_CASE("10 samples over 3 ranks, dropped: three steps, sample 9 is never seen") {
    CHECK(one_by_one(10, 0, 3, tail::drop) == indices{0, 3, 6});
    CHECK(one_by_one(10, 1, 3, tail::drop) == indices{1, 4, 7});
    CHECK(one_by_one(10, 2, 3, tail::drop) == indices{2, 5, 8});
}
TEST_CASE("2 samples over 5 ranks, padded: one step, the set repeats more than once") {
    for (std::uint32_t rank = 0; rank < 5; ++rank) CHECK(one_by_one(2, rank, 5, tail::pad) == indices{rank % 2});
}
TEST_CASE("2 samples over 5 ranks, dropped: refused on every rank with both numbers") {
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
        const std::string text = refusal(2, 1, rank, 5, tail::drop);
        CHECK(has(text, "2 samples do not fill one global batch of 5 (5 ranks, 1 each)"));
    }
    CHECK(has(refusal(100, 64, 0, 2, tail::drop), "100 samples do not fill one global batch of 128"));
}
TEST_CASE("11 samples over 4 ranks, padded: three steps") {
    CHECK(one_by_one(11, 0, 4, tail::pad) == indices{0, 4, 8});
    CHECK(one_by_one(11, 1, 4, tail::pad) == indices{1, 5, 9});
    CHECK(one_by_one(11, 2, 4, tail::pad) == indices{2, 6, 10});
    CHECK(one_by_one(11, 3, 4, tail::pad) == indices{3, 7, 0});
}
TEST_CASE("an evaluation over 3 ranks counts each of 10 samples once, with pad and with exact") {
    for (const tail t : {tail::pad, tail::exact}) {
        std::uint64_t sum = 0, count = 0;
        for (std::uint32_t rank = 0; rank < 3; ++rank) {
            const auto p = plan(10, 1, rank, 3, t);
            const auto order = sequential{}.bind(10, 0, 0);
            for (std::uint64_t step = 0; step < p.steps(); ++step)
                for (std::uint64_t row = 0; row < p.valid_rows(step); ++row) {
                    sum += order.at(p.position(step, row));
                    ++count;
                }
        }
        CHECK(sum == 45);
        CHECK(count == 10);
    }
}
TEST_CASE("whatever the numbers, ranks make equally many steps and every sample goes where its tail says") {
    for (const std::uint64_t n : {1ULL, 2ULL, 7ULL, 10ULL, 63ULL, 64ULL, 65ULL, 1000ULL})
        for (const std::uint64_t batch : {1ULL, 2ULL, 7ULL, 64ULL})
            for (const std::uint32_t ranks : {1U, 2U, 3U, 5U})
                for (const tail t : {tail::pad, tail::drop, tail::exact}) {
                    const std::uint64_t g = batch * ranks;
                    if (t == tail::drop && n < g) continue;
                    CAPTURE(n);
                    CAPTURE(batch);
                    CAPTURE(ranks);
                    const std::string kind(trireme::tail_name(t));
                    CAPTURE(kind);
                    const auto order = shuffled{}.bind(n, 42, 1);

                    std::multiset<std::uint64_t> valid;
                    std::uint64_t rows = 0, global_valid = 0;
                    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
                        const auto p = plan(n, batch, rank, ranks, t);
                        REQUIRE(p.steps() == (t == tail::drop ? n / g : (n + g - 1) / g));
                        for (std::uint64_t step = 0; step < p.steps(); ++step) {
                            const std::uint64_t v = p.valid_rows(step);
                            REQUIRE(v <= p.filled_rows(step));
                            REQUIRE(p.filled_rows(step) == (t == tail::exact ? v : batch));
                            if (t == tail::drop || step + 1 < p.steps()) REQUIRE(v == batch);
                            for (std::uint64_t i = 0; i < v; ++i) valid.insert(order.at(p.position(step, i)));
                            rows += p.filled_rows(step);
                            if (rank == 0) global_valid += p.global_valid_rows(step);
                        }
                    }

                    const std::set<std::uint64_t> distinct(valid.begin(), valid.end());
                    REQUIRE(distinct.size() == valid.size());  // nothing valid twice
                    REQUIRE(valid.size() == (t == tail::drop ? n / g * g : n));
                    REQUIRE(global_valid == valid.size());
                    if (t == tail::pad) REQUIRE(rows == (n + g - 1) / g * g);
                    if (t == tail::exact) REQUIRE(rows == n);
                }
}
TEST_CASE("the global batches depend on their size only, not on the number of ranks") {
    const auto order = shuffled{}.bind(100, 7, 0);
    std::vector<std::vector<std::vector<std::uint64_t>>> by_ranks;

    for (const std::uint32_t ranks : {1U, 2U, 4U}) {
        std::vector<std::vector<std::uint64_t>> steps(plan(100, 8 / ranks, 0, ranks, tail::exact).steps());
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            const auto p = plan(100, 8 / ranks, rank, ranks, tail::exact);
            for (std::uint64_t step = 0; step < p.steps(); ++step)
                for (std::uint64_t row = 0; row < p.valid_rows(step); ++row)
                    steps[step].push_back(order.at(p.position(step, row)));
        }
        for (auto& s : steps) std::sort(s.begin(), s.end());
        by_ranks.push_back(steps);
    }

    CHECK(by_ranks[0] == by_ranks[1]);
    CHECK(by_ranks[0] == by_ranks[2]);
}
TEST_CASE("a part of a batch is filled like the whole") {
    for (const tail t : {tail::pad, tail::exact})
        for (std::uint32_t rank = 0; rank < 3; ++rank) {
            const auto p = plan(100, 16, rank, 3, t);
            const auto order = shuffled{}.bind(100, 42, 0);
            for (std::uint64_t step = 0; step < p.steps(); ++step) {
                std::vector<std::uint64_t> whole(16), parts;
                const std::size_t filled = p.fill(order, step, 0, whole);
                REQUIRE(filled == p.filled_rows(step));
                whole.resize(filled);
                for (std::uint64_t first = 0; first < 16; first += 5) {
                    std::vector<std::uint64_t> part(std::min<std::uint64_t>(5, 16 - first));
                    part.resize(p.fill(order, step, first, part));
                    parts.insert(parts.end(), part.begin(), part.end());
                }
                CHECK(parts == whole);
            }
        }
}
TEST_CASE("numbers that cannot be are refused and named") {
    CHECK(has(refusal(0, 1, 0, 1, tail::pad), "no samples"));
    CHECK(has(refusal(10, 0, 0, 1, tail::pad), "batch of 0 samples"));
    CHECK(has(refusal(10, 1, 3, 3, tail::pad), "rank 3 of 3 does not exist"));
    CHECK(has(refusal(10, 1, 0, 0, tail::pad), "rank 0 of 0 does not exist"));
    CHECK(has(refusal((1ULL << 63) + 1, 1, 0, 1, tail::pad), "9223372036854775809 samples"));
    CHECK(has(refusal(10, (1ULL << 32) + 1, 0, 1, tail::pad), "batch of 4294967297 samples"));
    CHECK(refusal(10, 1, 2, 3, tail::pad).empty());
}
TEST_CASE("the largest plan does not overflow") {
    const std::uint64_t n = 1ULL << 63;
    const auto p = plan(n, 1ULL << 32, (1U << 31) - 1, 1U << 31, tail::exact);

    CHECK(p.steps() == 1);
    CHECK(p.valid_rows(0) == 1ULL << 32);
    CHECK(p.raw_position(0, (1ULL << 32) - 1) == n - 1);

    const auto q = plan(n - 1, 1ULL << 32, (1U << 31) - 1, 1U << 31, tail::exact);
    CHECK(q.valid_rows(0) == (1ULL << 32) - 1);
}
TEST_CASE("the plan's hash is the same on all ranks and differs for any other plan") {
    const auto hash = [](std::uint32_t rank, std::uint64_t n = 100, std::uint64_t batch = 4,
                         std::uint32_t ranks = 4, tail t = tail::pad, std::uint64_t seed = 42,
                         std::string_view kind = "shuffled", std::uint64_t schema = 1,
                         std::uint64_t fingerprint = 2) {
        return plan(n, batch, rank, ranks, t).hash(seed, kind, schema, fingerprint);
    };

    CHECK(plan(60'000, 64, 0, 2, tail::pad).hash(42, "shuffled", 1, 2) == 0x4172'211b'8fdc'8b68ULL);  // for ever
    for (std::uint32_t rank = 1; rank < 4; ++rank) CHECK(hash(rank) == hash(0));
    CHECK(hash(0, 101) != hash(0));
    CHECK(hash(0, 100, 5) != hash(0));
    CHECK(hash(0, 100, 4, 5) != hash(0));
    CHECK(hash(0, 100, 4, 4, tail::exact) != hash(0));
    CHECK(hash(0, 100, 4, 4, tail::pad, 43) != hash(0));
    CHECK(hash(0, 100, 4, 4, tail::pad, 42, "sequential") != hash(0));
    CHECK(hash(0, 100, 4, 4, tail::pad, 42, "shuffled", 3) != hash(0));
    CHECK(hash(0, 100, 4, 4, tail::pad, 42, "shuffled", 1, 3) != hash(0));
}
}  // TEST_SUITE("data/sampling")
