// The ring between threads and on one thread: claims, order, cancel, leases, wake-ups. TSan runs all of it.
#include <trireme/shm/backing/heap.hpp>
#include <trireme/shm/reaper.hpp>
#include <trireme/shm/ring.hpp>
#include <trireme/shm/ring_worker.hpp>
#include <trireme/sys/thread.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <vector>

#include "../support/processes.hpp"

using namespace trireme;
using namespace std::chrono_literals;

namespace {

using heap_ring = ring<backing::heap>;

ring_options shape(std::uint32_t slots, std::uint32_t parts, std::uint32_t workers, std::uint32_t rows = 8) {
    ring_options o;
    o.name = "test";
    o.geometry = {slots, parts, workers, rows, rows * sizeof(std::uint64_t)};
    return o;
}

/// Requests 0, 1, 2, ... up to an end.
struct counter {
    std::uint64_t next = 0, end = ~std::uint64_t{0};
    bool operator()(batch_request& r) {
        if (next == end) return false;
        r.step = next++;
        return true;
    }
};
const auto no_watch = [] {};

template <class Worker>
void fill_and_publish(Worker& worker, const part_claim& c) {
    const auto step_number = worker.memory().head(c.slot).request.step;
    auto* const rows = reinterpret_cast<std::uint64_t*>(worker.memory().payload(c.slot));
    for (auto i = c.first_row; i < c.last_row; ++i) rows[i] = step_number * 1000 + i;
    worker.publish(c, part_state::ready);
}
bool whole(const raw_lease& l, std::uint32_t rows) {
    const auto* const at = reinterpret_cast<const std::uint64_t*>(l.data());
    for (std::uint32_t i = 0; i < rows; ++i)
        if (at[i] != l.request().step * 1000 + i) return false;
    return true;
}
void work(const heap_ring& r, std::uint32_t w) {
    ring_worker<> worker(r.memory(), worker_id{w}, 1, scope::threads);
    for (;;) {
        part_claim c;
        const auto what = worker.next(c, deadline::in(10s));
        if (what == next_claim::stopping) return;
        if (what == next_claim::nothing_yet) continue;
        if (worker.cancelled(c))
            worker.publish(c, part_state::voided);
        else
            fill_and_publish(worker, c);
    }
}

}  // namespace

TEST_SUITE("shm/ring") {
TEST_CASE("a part is claimed by one worker only") {
    heap_ring r(shape(2, 1, 2));
    r.refill(counter{0, 1});
    ring_worker<> first(r.memory(), worker_id{0}, 1, scope::threads),
        second(r.memory(), worker_id{1}, 1, scope::threads);

    part_claim mine, other;

    CHECK(first.try_claim(mine));
    CHECK_FALSE(second.try_claim(other));  // nothing else was open
}

TEST_CASE("the parts of a batch cover its rows, once, whatever the numbers") {
    for (std::uint32_t rows = 1; rows <= 40; ++rows) {
        for (std::uint32_t parts = 1; parts <= (std::min)(rows, max_parts); ++parts) {
            const ring_geometry g{1, parts, 1, rows, 8};
            std::uint32_t next = 0;
            for (std::uint32_t p = 0; p < parts; ++p) {
                CHECK(g.first_row(p) == next);
                CHECK(g.first_row(p + 1) > g.first_row(p));
                next = g.first_row(p + 1);
            }
            CHECK(next == rows);
        }
    }
}

TEST_CASE("while the consumer waits, two workers make one batch together; while it does not, each makes its own") {
    heap_ring r(shape(4, 2, 2));
    r.refill(counter{0, 4});
    ring_worker<> a(r.memory(), worker_id{0}, 1, scope::threads), b(r.memory(), worker_id{1}, 1, scope::threads);
    part_claim from_a, from_b;

    REQUIRE(a.try_claim(from_a));
    REQUIRE(b.try_claim(from_b));
    CHECK(from_a.batch == 0);
    CHECK(from_b.batch == 1);
    part_claim rest;
    REQUIRE(a.try_claim(rest));
    CHECK(rest.batch == 0);  // the parts in hand first

    r.memory().control().awaited.store(2 + 1);
    part_claim hungry_a, hungry_b;
    REQUIRE(a.try_claim(hungry_a));
    REQUIRE(b.try_claim(hungry_b));
    CHECK(hungry_a.batch == 2);
    CHECK(hungry_b.batch == 2);
    CHECK(hungry_a.part != hungry_b.part);
}

TEST_CASE("batches come in order, whole and once, from any number of workers, slots and parts") {
    for (const auto& [slots, parts, workers] :
         {std::array<std::uint32_t, 3>{1, 1, 1}, {2, 1, 2}, {3, 4, 2}, {8, 8, 4}}) {
        CAPTURE(slots);
        CAPTURE(parts);
        heap_ring r(shape(slots, parts, workers));
        std::vector<registered_thread> threads;
        for (std::uint32_t w = 0; w < workers; ++w) threads.emplace_back("test-worker", [&r, w] { work(r, w); });
        counter source{0, 2000};
        std::uint64_t wrong = 0;

        for (std::uint64_t k = 0; k < 2000; ++k) {
            r.refill(source);
            const auto lease = r.take(test::within(30s), no_watch);
            wrong += lease.request().step != k || !whole(lease, 8) ? 1U : 0U;
        }

        r.stop();
        threads.clear();
        CHECK(wrong == 0);
        CHECK(r.in_flight() == 0);
    }
}

TEST_CASE("as ready, every batch comes once and none overtakes its own parts") {
    auto options = shape(4, 2, 3);
    options.order = delivery::as_ready;
    heap_ring r(options);
    std::vector<registered_thread> threads;
    for (std::uint32_t w = 0; w < 3; ++w) threads.emplace_back("test-worker", [&r, w] { work(r, w); });
    counter source{0, 2000};
    std::set<std::uint64_t> seen;
    std::uint64_t torn = 0;

    while (seen.size() < 2000) {
        r.refill(source);
        const auto lease = r.take(test::within(30s), no_watch);
        torn += whole(lease, 8) ? 0U : 1U;
        REQUIRE(seen.insert(lease.request().step).second);
    }

    r.stop();
    CHECK(torn == 0);
}

TEST_CASE("as ready, a straggler holds one slot and not every fourth batch") {
    auto options = shape(4, 1, 2);
    options.order = delivery::as_ready;
    heap_ring r(options);
    counter source{0, 40};
    r.refill(source);
    ring_worker<> slow(r.memory(), worker_id{0}, 1, scope::threads),
        quick(r.memory(), worker_id{1}, 1, scope::threads);
    part_claim kept, c;
    REQUIRE(slow.try_claim(kept));
    std::uint64_t got = 0;

    for (int i = 0; i < 39; ++i) {
        REQUIRE(quick.try_claim(c));
        fill_and_publish(quick, c);
        got += r.try_take().has_value() ? 1U : 0U;
        r.refill(source);
    }

    CHECK(got == 39);
    CHECK_FALSE(r.try_take());
    fill_and_publish(slow, kept);
    CHECK(r.try_take()->request().step == 0);
}

TEST_CASE("a cancelled batch is never taken, and its slot comes back when its fillers are done") {
    heap_ring r(shape(2, 2, 2));
    counter source;
    r.refill(source);
    ring_worker<> worker(r.memory(), worker_id{0}, 1, scope::threads);
    part_claim held, next;
    REQUIRE(worker.try_claim(held));

    r.cancel();
    source.next = 100;
    r.refill(source);  // only what is free: slot 0 waits for its filler
    CHECK(worker.cancelled(held));
    CHECK_FALSE(worker.try_claim(next));
    worker.publish(held, part_state::voided);
    r.refill(source);
    while (worker.try_claim(next)) fill_and_publish(worker, next);

    const auto first = r.take(test::within(5s), no_watch), second = r.take(test::within(5s), no_watch);
    CHECK(first.request().step == 100U);
    CHECK(second.request().step == 101);
}

TEST_CASE("cancelling again and again under load loses and repeats nothing") {
    heap_ring r(shape(4, 4, 3));
    std::vector<registered_thread> threads;
    for (std::uint32_t w = 0; w < 3; ++w) threads.emplace_back("test-worker", [&r, w] { work(r, w); });
    std::uint64_t wrong = 0;

    for (std::uint64_t round = 0; round < 300; ++round) {
        counter source{round * 100, ~std::uint64_t{0}};
        for (std::uint64_t k = 0; k < round % 7; ++k) {
            for (r.refill(source); r.in_flight() == 0; r.refill(source))
                r.wait_for_vacancy(test::within(30s), no_watch);
            const auto lease = r.take(test::within(30s), no_watch);
            wrong += lease.request().step != round * 100 + k || !whole(lease, 8) ? 1U : 0U;
        }
        r.cancel();
    }

    r.stop();
    CHECK(wrong == 0);
}

TEST_CASE("a consumer that keeps every lease gets an error at once, and goes on after dropping one") {
    heap_ring r(shape(2, 1, 1));
    counter source;
    ring_worker<> worker(r.memory(), worker_id{0}, 1, scope::threads);
    std::vector<raw_lease> kept;
    for (int i = 0; i < 2; ++i) {
        r.refill(source);
        part_claim c;
        REQUIRE(worker.try_claim(c));
        fill_and_publish(worker, c);
        kept.push_back(r.take(test::within(5s), no_watch));
    }
    r.refill(source);
    CHECK(r.in_flight() == 0);

    CHECK_THROWS_WITH_AS(r.wait_for_vacancy(deadline::in(1h), no_watch), doctest::Contains("2 slots"), usage_error);
    CHECK(whole(kept[0], 8));
    kept.erase(kept.begin());
    r.refill(source);
    CHECK(r.in_flight() == 1);
}

TEST_CASE("a lease outlives its ring") {
    raw_lease kept;
    {
        heap_ring r(shape(2, 1, 1));
        r.refill(counter{5, 6});
        ring_worker<> worker(r.memory(), worker_id{0}, 1, scope::threads);
        part_claim c;
        REQUIRE(worker.try_claim(c));
        fill_and_publish(worker, c);
        kept = r.take(test::within(5s), no_watch);
    }

    CHECK(whole(kept, 8));
}

TEST_CASE("waiting past the deadline names the batch, the worker and its sample") {
    heap_ring r(shape(2, 1, 1));
    r.refill(counter{7, 9});
    ring_worker<> worker(r.memory(), worker_id{0}, 1, scope::threads);
    part_claim c;
    REQUIRE(worker.try_claim(c));
    worker.begin(c);
    worker.record(4242);

    CHECK_THROWS_WITH_AS(static_cast<void>(r.take(deadline::in(60ms), no_watch)),
                         doctest::Contains("sample 4242 of batch 7"), timeout_error);
}

TEST_CASE("what the watch throws ends the wait") {
    heap_ring r(shape(2, 1, 1));
    r.refill(counter{});

    CHECK_THROWS_AS(static_cast<void>(r.take(deadline::in(1h),
                                             [] {
                                                 throw peer_error({"gone", "", ""});
                                             })),
                    peer_error);
}

TEST_CASE("geometries that cannot be are refused with their numbers") {
    CHECK_THROWS_WITH_AS(heap_ring(shape(0, 1, 1)), doctest::Contains("0 slots"), usage_error);
    CHECK_THROWS_WITH_AS(heap_ring(shape(2, 9, 1)), doctest::Contains("9 parts"), usage_error);
    CHECK_THROWS_WITH_AS(heap_ring(shape(2, 2, 1, 1)), doctest::Contains("2 parts"), usage_error);
    CHECK_THROWS_WITH_AS(heap_ring(shape(2, 1, 257)), doctest::Contains("257 workers"), usage_error);
}
}  // TEST_SUITE("shm/ring")

TEST_SUITE("shm/reaper") {
TEST_CASE("a dead worker's part is made by another, once, with one more attempt") {
    heap_ring r(shape(2, 1, 3));
    r.refill(counter{0, 1});
    ring_worker<> dead(r.memory(), worker_id{0}, 1, scope::threads),
        second(r.memory(), worker_id{1}, 1, scope::threads), third(r.memory(), worker_id{2}, 1, scope::threads);
    part_claim lost, again, none;
    REQUIRE(dead.try_claim(lost));
    dead.begin(lost);
    dead.record(11);

    detail::reap(r.memory(), 0, 123, {9, 0}, on_death::respawn, wait::futex{}, no_steps{});

    REQUIRE(second.try_claim(again));
    CHECK(again.attempt == 1);
    CHECK_FALSE(third.try_claim(none));
    CHECK(r.memory().worker(0).dead_sample == 11);
}

TEST_CASE("what a dead worker had published stays") {
    heap_ring r(shape(2, 1, 2));
    r.refill(counter{0, 1});
    ring_worker<> dead(r.memory(), worker_id{0}, 1, scope::threads);
    part_claim c;
    REQUIRE(dead.try_claim(c));
    fill_and_publish(dead, c);

    detail::reap(r.memory(), 0, 123, {9, 0}, on_death::raise, wait::futex{}, no_steps{});

    CHECK(whole(r.take(test::within(5s), no_watch), 8));
}

TEST_CASE("three deaths on one sample are reported once, with the sample; on different samples they are not") {
    for (const bool same : {true, false}) {
        CAPTURE(same);
        heap_ring r(shape(2, 1, 1));
        r.refill(counter{0, 1});
        for (std::uint32_t life = 1; life <= 3; ++life) {
            ring_worker<> doomed(r.memory(), worker_id{0}, life, scope::threads);
            part_claim c;
            REQUIRE(doomed.try_claim(c));
            doomed.begin(c);
            doomed.record(same ? 77 : life);
            detail::reap(r.memory(), 0, 100 + static_cast<pid_t>(life), {11, 0}, on_death::respawn, wait::futex{},
                         no_steps{});
        }

        if (same) {
            const auto lease = r.take(test::within(5s), no_watch);
            REQUIRE(lease.failure() != nullptr);
            CHECK(lease.failure()->sample == 77);
            CHECK(std::string(lease.failure()->text.view()).find("signal 11") != std::string::npos);
        } else {
            CHECK_FALSE(r.try_take());
            ring_worker<> next(r.memory(), worker_id{0}, 4, scope::threads);
            part_claim c;
            CHECK(next.try_claim(c));
        }
    }
}

TEST_CASE("a cancelled part of a dead worker is not made again") {
    heap_ring r(shape(1, 1, 1));
    counter source{0, 2};
    r.refill(source);
    ring_worker<> dead(r.memory(), worker_id{0}, 1, scope::threads);
    part_claim c;
    REQUIRE(dead.try_claim(c));
    r.cancel();
    r.refill(source);
    CHECK(r.in_flight() == 0);

    detail::reap(r.memory(), 0, 123, {9, 0}, on_death::respawn, wait::futex{}, no_steps{});

    r.refill(source);
    CHECK(r.in_flight() == 1);
}

TEST_CASE("deaths with progress in between do not use up the budget; four without do") {
    heap_ring r(shape(2, 1, 1));
    auto& line = r.memory().worker(0);

    for (std::uint64_t i = 1; i <= 50; ++i) {
        line.published.store(i);
        CHECK(detail::within_budget(line));
    }
    CHECK(detail::within_budget(line));
    CHECK(detail::within_budget(line));
    CHECK_FALSE(detail::within_budget(line));
}
}  // TEST_SUITE("shm/reaper")
