// The random numbers of a sample belong to the sample, not to whoever makes it.
#include <trireme/data/context.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <set>
#include <type_traits>

namespace {

using trireme::sample_context;
using trireme::worker_id;

std::uint64_t first_draw(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index, std::uint32_t worker = 0,
                         std::uint32_t attempt = 0) {
    sample_context context({.seed = seed, .epoch = epoch, .index = index}, worker_id{worker}, attempt);
    return context.rng()();
}

static_assert(
    std::uniform_random_bit_generator<std::remove_reference_t<decltype(std::declval<sample_context&>().rng())>>);
static_assert(std::is_trivially_copyable_v<sample_context>);

}  // namespace

TEST_SUITE("data/context") {
TEST_CASE("two epochs of 24 samples draw 48 different first numbers, and the same ones again") {
    std::set<std::uint64_t> draws;

    for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
        for (std::uint64_t index = 0; index < 24; ++index) draws.insert(first_draw(7, epoch, index));

    CHECK(draws.size() == 48);
    CHECK(draws.count(first_draw(7, 1, 23)) == 1);
}
TEST_CASE("worker and attempt change nothing about the numbers") {
    for (std::uint32_t worker = 0; worker < 4; ++worker)
        CHECK(first_draw(7, 1, 5, worker, worker) == first_draw(7, 1, 5));
}
TEST_CASE("seed, epoch and index all matter, also when they are swapped") {
    std::set<std::uint64_t> draws;

    for (std::uint64_t seed = 0; seed < 10; ++seed)
        for (std::uint64_t epoch = 0; epoch < 10; ++epoch)
            for (std::uint64_t index = 0; index < 10; ++index) draws.insert(first_draw(seed, epoch, index));

    CHECK(draws.size() == 1000);
}
TEST_CASE("asking for the generator again goes on, it does not start over") {
    sample_context context({.seed = 1, .epoch = 2, .index = 3});

    const std::uint64_t a = context.rng()(), b = context.rng()();

    CHECK(a != b);
    std::uniform_int_distribution<int> dice(1, 6);
    const int thrown = dice(context.rng());
    CHECK(thrown >= 1);
    CHECK(thrown <= 6);
}
TEST_CASE("the numbers do not change between releases") {
    CHECK(first_draw(42, 0, 0) == 0x534c'ec9c'47a9'c52aULL);
    CHECK(first_draw(42, 3, 59'999) == 0x3ee9'cda4'5e6e'6eb2ULL);
}
TEST_CASE("the context says which sample it is for and who makes it") {
    const sample_context context({.seed = 1, .epoch = 2, .index = 3}, worker_id{4}, 5);

    CHECK(context.seed() == 1);
    CHECK(context.epoch() == 2);
    CHECK(context.index() == 3);
    CHECK(context.worker() == worker_id{4});
    CHECK(context.attempt() == 5);
}
TEST_CASE("a stop is seen as soon as the word reaches its value, and never without a word") {
    std::atomic<std::uint32_t> phase{0};
    const sample_context watched({}, {}, 0, {.word = &phase, .at_least = 2});
    const sample_context alone({});

    CHECK_FALSE(watched.stop_requested());
    phase = 1;
    CHECK_FALSE(watched.stop_requested());
    phase = 2;
    CHECK(watched.stop_requested());
    phase = 3;
    CHECK(watched.stop_requested());
    CHECK_FALSE(alone.stop_requested());
}
}  // TEST_SUITE("data/context")
