// The loader with the engines that stay in this process: orders, tails, seams, errors, leases. TSan runs all of it.
#include <trireme/data/engine/caller.hpp>
#include <trireme/data/engine/threads.hpp>
#include <trireme/data/loader.hpp>

#include <doctest/doctest.h>

#include <mutex>
#include <set>
#include <stdexcept>

#include "../support/datasets.hpp"
#include "../support/processes.hpp"

using namespace trireme;
using namespace std::chrono_literals;
using test::scripted;

namespace {

template <class Loader>
std::vector<long> all_samples(Loader& l, std::uint64_t epoch) {
    std::vector<long> found;
    for (auto&& batch : l.epoch(epoch)) {
        for (const long s : test::samples_of(batch)) found.push_back(s);
    }
    return found;
}

struct recorder {
    std::vector<std::string>* lines;
    void operator()(const event& e) const noexcept { lines->push_back(e.text); }
};

}  // namespace

TEST_SUITE("data/loader") {
TEST_CASE("every engine that stays here yields the same bytes, with 1, 2 and 4 workers, for every tail and order") {
    for (const auto t : {tail::pad, tail::drop, tail::exact}) {
        const loader_options options{.batch_size = 7, .seed = 42, .shard = {1, 3}, .tail = t};
        loader reference{scripted{1000}, shuffled{}, engine::caller{}, options};
        std::vector<std::vector<std::uint64_t>> expected;
        for (std::uint64_t e = 0; e < 3; ++e) expected.push_back(test::epoch_bytes(reference, e));
        REQUIRE(expected[0].size() == reference.steps());
        CHECK(expected[0] != expected[1]);

        for (const std::uint32_t workers : {1U, 2U, 4U}) {
            loader other{scripted{1000}, shuffled{}, engine::threads{workers}, options};
            for (std::uint64_t e = 0; e < 3; ++e) CHECK(test::epoch_bytes(other, e) == expected[e]);
        }
    }
}

TEST_CASE("batches of any number of parts and bytes are made whole by every engine") {
    for (const std::uint32_t parts : {0U, 1U, 3U, 8U}) {
        for (const std::uint32_t rows : {1U, 8U, 20'000U}) {
            loader alone{scripted{50'000}, engine::caller{}, {.batch_size = rows, .timeout = 5s, .parts = parts}};
            loader pair{scripted{50'000}, engine::threads{2}, {.batch_size = rows, .timeout = 5s, .parts = parts}};
            alone.start(0);
            pair.start(0);
            for (int i = 0; i < 3; ++i) CHECK(test::bytes_of(alone.next()) == test::bytes_of(pair.next()));
        }
    }
}

TEST_CASE("without an order the samples come as they lie") {
    loader l{scripted{10}, {.batch_size = 4, .tail = tail::exact}};

    CHECK(all_samples(l, 0) == std::vector<long>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -1});
}

TEST_CASE("ranks take turns over the samples, and what pads is told apart (10 over 3, 2 over 5, 11 over 4)") {
    const auto lists = [](std::uint64_t n, std::uint32_t ranks, tail t) {
        std::vector<std::vector<long>> all;
        for (std::uint32_t r = 0; r < ranks; ++r) {
            loader l{scripted{n}, engine::caller{}, {.shard = {r, ranks}, .tail = t}};
            std::vector<long> mine;
            for (auto&& b : l.epoch(0)) mine.push_back(static_cast<long>(b.template get<"x">()(0, 0)));
            all.push_back(mine);
        }
        return all;
    };

    CHECK(lists(10, 3, tail::pad) == std::vector<std::vector<long>>{{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}});
    CHECK(lists(10, 3, tail::drop) == std::vector<std::vector<long>>{{0, 3, 6}, {1, 4, 7}, {2, 5, 8}});
    CHECK(lists(2, 5, tail::pad) == std::vector<std::vector<long>>{{0}, {1}, {0}, {1}, {0}});
    CHECK(lists(11, 4, tail::pad) == std::vector<std::vector<long>>{{0, 4, 8}, {1, 5, 9}, {2, 6, 10}, {3, 7, 0}});
    CHECK_THROWS_WITH_AS(lists(2, 5, tail::drop), doctest::Contains("2 samples"), usage_error);
    long sum = 0, count = 0;
    for (std::uint32_t r = 0; r < 3; ++r) {
        loader l{scripted{10}, engine::caller{}, {.shard = {r, 3}, .tail = tail::exact}};
        for (const long s : all_samples(l, 0)) sum += s >= 0 ? s : 0, count += s >= 0 ? 1 : 0;
    }
    CHECK(sum == 45);
    CHECK(count == 10);
}

TEST_CASE("random numbers belong to the sample: equal for any engine, different for other samples and epochs") {
    const auto draws = [](auto engine) {
        loader l{scripted{24}, engine, {.seed = 7}};
        std::vector<std::uint64_t> all;
        for (std::uint64_t e = 0; e < 2; ++e) {
            for (auto&& b : l.epoch(e)) all.push_back(b.template get<"draw">()(0));
        }
        return all;
    };

    const auto reference = draws(engine::caller{});

    CHECK(std::set(reference.begin(), reference.end()).size() == 48);
    CHECK(draws(engine::caller{}) == reference);
    CHECK(draws(engine::threads{4}) == reference);
}

TEST_CASE("a batch is made by two workers together when the trainer waits for it") {
    loader l{scripted{64, [](auto, auto&) { std::this_thread::sleep_for(2ms); }},
             engine::threads{2},
             {.batch_size = 16}};
    bool shared = false;

    for (auto&& b : l.epoch(0)) {
        std::set<std::uint32_t> makers;
        for (std::uint32_t p = 0; p < l.memory().geometry().parts; ++p) makers.insert(b.lease().maker(p));
        shared = shared || makers.size() == 2;
    }

    CHECK(shared);
}

TEST_CASE("breaking off an epoch and starting another gives just what a fresh loader gives, 200 times") {
    loader l{scripted{40}, shuffled{}, engine::threads{2}, {.batch_size = 4, .prefetch = 4}};
    loader fresh{scripted{40}, shuffled{}, engine::caller{}, {.batch_size = 4}};
    const auto before = test::footprint();

    for (std::uint64_t round = 0; round < 200; ++round) {
        int taken = 0;
        for ([[maybe_unused]] auto&& b : l.epoch(2 * round)) {
            if (++taken == 3) break;
        }
        CHECK(all_samples(l, 2 * round + 1) == all_samples(fresh, 2 * round + 1));
    }

    CHECK(test::footprint() == before);
}

TEST_CASE("the next epoch's first batches are there when the epoch ends, for epochs 0, 1, 2 and for 0, 0, 0") {
    for (const std::uint64_t distance : {1U, 0U}) {
        std::atomic<int> reads{0};
        loader l{scripted{8, [&reads](auto, auto&) { reads.fetch_add(1); }},
                 engine::threads{1},
                 {.batch_size = 2, .prefetch = 8}};
        all_samples(l, 0);
        all_samples(l, distance);
        const auto until = test::within(10s);
        while (reads.load() < 24 && !until.passed()) std::this_thread::sleep_for(1ms);

        CHECK(reads.load() >= 24);  // two epochs of 8, and the third before anybody asked
        const int ahead = reads.load();
        CHECK(all_samples(l, 2 * distance).size() == 8);
        CHECK(ahead >= 24);
    }
}

TEST_CASE("an exception in a sample comes out with worker, batch, sample, type and the beginning of its text") {
    struct shelf_error : std::runtime_error {
        shelf_error(const std::string& text, int) : std::runtime_error(text) {}
    };
    const auto bad = [](std::uint64_t i, auto&) {
        if (i == 13) throw shelf_error("disk gone on shelf 9" + std::string(200'000, '.'), 9);
    };
    for (const bool threads : {false, true}) {
        std::string text;
        int arrived = 0;
        const auto drive = [&](auto engine) {
            loader l{scripted{40, bad}, engine, {.batch_size = 4}};
            try {
                for ([[maybe_unused]] auto&& b : l.epoch(0)) ++arrived;
            } catch (const remote_error& e) { text = e.what(); }
            CHECK_THROWS_AS(all_samples(l, 1), remote_error);  // started again, it meets sample 13 again
        };

        threads ? drive(engine::threads{2}) : drive(engine::caller{});

        CHECK(arrived == 3);
        for (const char* part : {"sample 13", "batch 3", "worker", "shelf_error", "disk gone on shelf 9", "200020"})
            CHECK_MESSAGE(text.find(part) != std::string::npos, part << " is not in: " << text);
    }
}

TEST_CASE("anything can be thrown, and the loader starts again afterwards, a hundred times") {
    std::atomic<bool> armed{true};
    loader l{scripted{40,
                      [&armed](std::uint64_t i, auto&) {
                          if (i == 13 && armed) throw 42;
                      }},
             engine::threads{2},
             {.batch_size = 4}};

    for (int i = 0; i < 100; ++i)
        CHECK_THROWS_WITH_AS(all_samples(l, 0), doctest::Contains("unknown exception"), remote_error);

    armed = false;
    CHECK(all_samples(l, 1).size() == 40);
}

TEST_CASE("a sample of the wrong size is an error with both sizes, never a cut one") {
    struct ragged : scripted {
        void read(std::uint64_t index, row<schema> out, sample_context&) const {
            out.set<"draw">(index);
            out.set<"x">(std::vector<float>(index == 13 ? 4 : 3, 1.0F));
        }
    };
    loader l{ragged{{40}}, engine::threads{2}, {.batch_size = 4}};

    std::string text;
    try {
        all_samples(l, 0);
    } catch (const remote_error& e) { text = e.what(); }

    for (const char* part : {"sample 13", "3 elements", "4"})
        CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

TEST_CASE("told to skip, the loader masks the failed rows and goes on") {
    loader l{scripted{12,
                      [](std::uint64_t i, auto&) {
                          if (i % 5 == 0) throw std::runtime_error("no");
                      }},
             engine::threads{2},
             {.batch_size = 4, .on_error = on_error::skip}};

    CHECK(all_samples(l, 0) == std::vector<long>{-1, 1, 2, 3, 4, -1, 6, 7, 8, 9, -1, 11});
}

TEST_CASE("a start-up that throws is reported with its text by the first batch") {
    struct licensed : scripted {
        void start_up(worker_id) const { throw std::runtime_error("no licence"); }
    };
    for (const bool threads : {false, true}) {
        const auto first = [](auto engine) {
            loader l{licensed{{8}}, engine, {.batch_size = 4}};
            all_samples(l, 0);
        };
        CHECK_THROWS_WITH_AS((threads ? first(engine::threads{2}) : first(engine::caller{})),
                             doctest::Contains("no licence"), remote_error);
    }
}

TEST_CASE("one slow batch does not let more than the prefetched ones be begun, and as ready it comes late") {
    for (const auto order : {delivery::in_order, delivery::as_ready}) {
        std::mutex lock;
        std::set<std::uint64_t> begun;
        std::size_t delivered = 0, most = 0;
        loader l{scripted{64,
                          [&](std::uint64_t i, auto&) {
                              {
                                  const std::scoped_lock hold(lock);
                                  begun.insert(i);
                                  most = (std::max)(most, begun.size() - delivered);
                              }
                              std::this_thread::sleep_for(i == 0 ? 300ms : 1ms);
                          }},
                 engine::threads{4},
                 {.batch_size = 1, .prefetch = 8, .delivery = order}};
        std::vector<long> got;

        for (auto&& b : l.epoch(0)) {
            got.push_back(test::samples_of(b)[0]);
            const std::scoped_lock hold(lock);
            ++delivered;
            if (got.size() == 64) break;
        }

        CHECK(std::set(got.begin(), got.end()).size() == 64);
        if (order == delivery::in_order) {
            CHECK(std::is_sorted(got.begin(), got.end()));
            CHECK(most <= 8 + 1);  // one may be counted before its lease is dropped
        } else {
            CHECK(got.front() != 0);
        }
    }
}

TEST_CASE("a sample that never returns is a time-out that names it, and the thread is given up with a line") {
    std::vector<std::string> lines;
    static std::atomic<bool> release{false};
    {
        loader l{scripted{40,
                          [](std::uint64_t i, auto&) {
                              while (i == 20 && !release) std::this_thread::sleep_for(1ms);
                          }},
                 sequential{},
                 engine::threads{2},
                 {.batch_size = 4, .timeout = 200ms, .grace = 50ms},
                 recorder{&lines}};
        int arrived = 0;
        std::string text;
        try {
            for ([[maybe_unused]] auto&& b : l.epoch(0)) ++arrived;
        } catch (const timeout_error& e) { text = e.what(); }
        CHECK(arrived == 5);
        CHECK(text.find("sample 20 of batch 5") != std::string::npos);
        CHECK(text.find("worker") != std::string::npos);
    }
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("abandoned") != std::string::npos);
    release = true;
    std::this_thread::sleep_for(50ms);  // let it end before the program does
}

TEST_CASE("kept batches keep their content; with all slots kept the next request says so at once") {
    loader l{scripted{100}, engine::threads{2}, {.batch_size = 2, .prefetch = 4}};
    std::vector<decltype(l)::batch_type> kept;
    l.start(0);
    for (int i = 0; i < 4; ++i) kept.push_back(l.next());

    CHECK_THROWS_WITH_AS(static_cast<void>(l.next()), doctest::Contains("4 slots"), usage_error);

    for (std::size_t i = 0; i < 4; ++i)
        CHECK(test::samples_of(kept[i]) ==
              std::vector<long>{static_cast<long>(2 * i), static_cast<long>(2 * i + 1)});
    kept.erase(kept.begin());
    CHECK(test::samples_of(l.next()) == std::vector<long>{8, 9});
}

TEST_CASE("a batch may be moved out of the loop and outlive the loader") {
    test::scripted data{10};
    std::vector<batch<test::wide_schema>> kept;
    {
        loader l{data, {.batch_size = 2}};
        for (auto&& b : l.epoch(0)) {
            if (b.step() == 3) kept.push_back(std::move(b));
        }
    }

    CHECK(test::samples_of(kept.at(0)) == std::vector<long>{6, 7});
}

TEST_CASE("plans agree between ranks and differ when anything that matters differs") {
    const auto hash = [](std::uint64_t n, loader_options o) {
        loader l{scripted{n}, shuffled{}, engine::caller{}, o};
        return l.plan_hash();
    };
    const loader_options base{.batch_size = 4, .seed = 1, .shard = {0, 2}};

    CHECK(hash(100, base) == hash(100, {.batch_size = 4, .seed = 1, .shard = {1, 2}}));
    CHECK(hash(100, base) != hash(101, base));
    CHECK(hash(100, base) != hash(100, {.batch_size = 5, .seed = 1, .shard = {0, 2}}));
    CHECK(hash(100, base) != hash(100, {.batch_size = 4, .seed = 2, .shard = {0, 2}}));
    CHECK(hash(100, base) != hash(100, {.batch_size = 4, .seed = 1, .shard = {0, 2}, .tail = tail::drop}));
}

TEST_CASE("a loader can be destroyed at any moment") {
    const auto before = test::footprint();
    std::mt19937_64 random(test::seed());

    for (int i = 0; i < 50; ++i) {
        loader l{scripted{1000, [](auto, auto&) { std::this_thread::sleep_for(50us); }},
                 engine::threads{3},
                 {.batch_size = 8}};
        l.start(0);
        for (std::uint64_t k = random() % 5; k > 0; --k) static_cast<void>(l.next());
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    }

    CHECK(test::back_to(before));
}

TEST_CASE("what was chosen is said in one line") {
    loader l{scripted{1000}, shuffled{}, engine::threads{2}, {.batch_size = 64, .name = "train"}};

    const auto text = l.plan();

    for (const char* part :
         {"train", "1000 samples", "16 steps", "64 rows", "shuffled", "engine::threads", "2 worker"})
        CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}
}  // TEST_SUITE("data/loader")
