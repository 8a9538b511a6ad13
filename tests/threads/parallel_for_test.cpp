#include <trireme/threads/parallel_for.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace trireme;

namespace {

constexpr unsigned thread_counts[] = {1, 2, 3, 5, 20};

/// What a loop visited, in no order.
template <class Index>
class visits {
  public:
    void operator()(Index i) {
        const std::scoped_lock hold(lock_);
        all_.push_back(i);
    }
    std::vector<Index> sorted() {
        std::sort(all_.begin(), all_.end());
        return std::exchange(all_, {});
    }

  private:
    std::mutex lock_;
    std::vector<Index> all_;
};

struct own_error : std::runtime_error {
    using std::runtime_error::runtime_error;
    int detail = 42;
};

long sum_of_thousand(pool& p) {
    std::atomic<long> sum{0};
    parallel_for(p, 0, 1000, [&](int i) { sum += i; });
    return sum;
}

template <class Schedule>
void visits_each_once(Schedule how) {
    constexpr std::size_t n = 200000;
    for (const unsigned threads : thread_counts) {
        CAPTURE(threads);
        pool p{threads};
        std::vector<std::atomic<int>> count(n);

        parallel_for(p, how, std::size_t{0}, n, [&](std::size_t i) { count[i].fetch_add(1); });
        CHECK(std::all_of(count.begin(), count.end(), [](const auto& c) { return c == 1; }));

        parallel_for(p, how, blocked{std::size_t{0}, n, 7}, [&](std::size_t b, std::size_t e) {
            for (; b < e; ++b) count[b].fetch_add(1);
        });
        CHECK(std::all_of(count.begin(), count.end(), [](const auto& c) { return c == 2; }));

        parallel_for(p, how, range{n - 1, std::size_t{0}, -1}, [&](std::size_t i) { count[i].fetch_add(1); });
        CHECK(std::all_of(count.begin() + 1, count.end(), [](const auto& c) { return c == 3; }));
        CHECK(count[0] == 2);
    }
}

template <class Schedule>
void rethrows(Schedule how) {
    for (const unsigned threads : thread_counts) {
        CAPTURE(threads);
        pool p{threads};
        std::string text;
        int detail = 0;
        try {
            parallel_for(p, how, 0, 1000, [](int i) {
                if (i == 777) throw own_error("index 777");
            });
        } catch (const own_error& e) { text = e.what(), detail = e.detail; }
        CHECK(text == "index 777");
        CHECK(detail == 42);
        CHECK(sum_of_thousand(p) == 499500);

        std::atomic<int> calls{0};
        CHECK_THROWS_AS(parallel_for(p, how, 0, 1000, [&](int i) { ++calls, throw own_error(std::to_string(i)); }),
                        own_error);
        CHECK(calls >= 1);
        CHECK(calls <= static_cast<int>(threads));
        CHECK(sum_of_thousand(p) == 499500);

        CHECK_THROWS_AS(parallel_for(p, how, blocked{0, 1000, 10}, [](int, int) { throw 5; }), int);
        CHECK(sum_of_thousand(p) == 499500);
    }
}

}  // namespace

TEST_SUITE("threads/parallel_for") {
TEST_CASE("the fixed schedule visits each index once, for any number of threads") {
    visits_each_once(schedule::fixed{});
}
TEST_CASE("the fixed schedule with a number of blocks visits each index once") {
    visits_each_once(schedule::fixed{.blocks = 13});
}
TEST_CASE("the dynamic schedule visits each index once, for any number of threads") {
    visits_each_once(schedule::dynamic{});
}
TEST_CASE("the dynamic schedule with a grain visits each index once") {
    visits_each_once(schedule::dynamic{.grain = 1000});
}

TEST_CASE("loops over nothing make no call, and strides visit what they say") {
    for (const unsigned threads : thread_counts) {
        pool p{threads};
        visits<int> seen;
        const auto note = [&](int i) { seen(i); };

        parallel_for(p, 0, -1, note);
        parallel_for(p, 5, 5, note);
        parallel_for(p, blocked{3, 1}, [&](int b, int) { seen(b); });
        CHECK(seen.sorted().empty());
        parallel_for(p, range{0, 10, 3}, note);
        CHECK(seen.sorted() == std::vector<int>{0, 3, 6, 9});
        parallel_for(p, schedule::dynamic{}, range{10, 0, -3}, note);
        CHECK(seen.sorted() == std::vector<int>{1, 4, 7, 10});
        CHECK_THROWS_AS(parallel_for(p, range{0, 10, 0}, note), usage_error);
        CHECK(seen.sorted().empty());
        parallel_for(p, std::int32_t{2147483640}, std::int32_t{2147483647}, note);
        CHECK(seen.sorted() ==
              std::vector<int>{2147483640, 2147483641, 2147483642, 2147483643, 2147483644, 2147483645, 2147483646});
    }
}
TEST_CASE("ten indices in four blocks are 3, 3, 2 and 2, on any number of threads") {
    for (const unsigned threads : thread_counts) {
        pool p{threads};
        visits<int> sizes;
        parallel_for(p, schedule::fixed{.blocks = 4}, blocked{0, 10}, [&](int b, int e) { sizes(e - b); });
        CHECK(sizes.sorted() == std::vector<int>{2, 2, 3, 3});
    }
    pool four{4};
    visits<int> sizes;
    parallel_for(four, blocked{0, 10}, [&](int b, int e) { sizes(e - b); });
    CHECK(sizes.sorted() == std::vector<int>{2, 2, 3, 3});
}
TEST_CASE("blocks have at least the grain") {
    pool p{5};
    for (const std::uint64_t grain : {1UL, 3UL, 100UL, 1000UL}) {
        visits<int> sizes;
        parallel_for(p, blocked{0, 100, grain}, [&](int b, int e) { sizes(e - b); });
        const auto all = sizes.sorted();
        CHECK(all.front() >= static_cast<int>((std::min)(grain, std::uint64_t{100})));
        CHECK(std::accumulate(all.begin(), all.end(), 0) == 100);
    }
}

TEST_CASE("the first exception reaches the caller with its type, and the pool goes on (fixed)") {
    rethrows(schedule::fixed{});
}
TEST_CASE("the first exception reaches the caller with its type, and the pool goes on (dynamic)") {
    rethrows(schedule::dynamic{});
}
TEST_CASE("an exception ends the other threads' parts before they have done as much again") {
    pool p{2};
    std::atomic<bool> thrown{false};
    std::atomic<long> after{0};
    // Each thread's part is half a million indices. One throws at its first; the other waits for that, so that
    // what it still does was done after the throw.
    CHECK_THROWS_AS(parallel_for(p, 0, 1000000,
                                 [&](int i) {
                                     if (i == 0) {
                                         thrown = true;
                                         throw own_error("first");
                                     }
                                     while (!thrown) std::this_thread::yield();
                                     ++after;
                                 }),
                    own_error);
    CHECK(after < 500000);
}
TEST_CASE("a body that is noexcept and one that is not do the same") {
    pool p{2};
    std::atomic<long> sum{0};
    parallel_for(p, 0, 1000, [&](int i) noexcept { sum += i; });
    parallel_for(p, schedule::dynamic{}, 0, 1000, [&](int i) noexcept { sum += i; });
    CHECK(sum == 2 * 499500);
}

TEST_CASE("loops inside loops give the right sums, three levels deep, on one thread and on two") {
    for (const unsigned threads : {1U, 2U, 3U}) {
        pool p{threads};
        std::atomic<long> total{0};
        std::atomic<int> wrong{0}, leaves{0};
        parallel_for(p, schedule::dynamic{}, 0, 10, [&](int) {
            const long inner = sum_of_thousand(p);
            if (inner != 499500) ++wrong;
            total += inner;
        });
        CHECK(wrong == 0);
        CHECK(total == 4995000);

        parallel_for(p, 0, 4, [&](int) {
            parallel_for(p, schedule::dynamic{}, 0, 4, [&](int) { parallel_for(p, 0, 4, [&](int) { ++leaves; }); });
        });
        CHECK(leaves == 64);
    }
}
TEST_CASE("an exception inside an inner loop reaches the caller of the outer one") {
    pool p{2};
    CHECK_THROWS_AS(parallel_for(p, 0, 4,
                                 [&](int) {
                                     parallel_for(p, 0, 4, [](int i) {
                                         if (i == 3) throw own_error("inner");
                                     });
                                 }),
                    own_error);
    CHECK(sum_of_thousand(p) == 499500);
}
TEST_CASE("two application threads use one pool at once, nested loops included") {
    for (const unsigned threads : {1U, 2U, 4U}) {
        pool p{threads};
        std::atomic<int> wrong{0};
        const auto work = [&] {
            for (int round = 0; round < 50; ++round) {
                std::atomic<long> total{0};
                parallel_for(p, schedule::dynamic{}, 0, 10, [&](int) { total += sum_of_thousand(p); });
                if (total != 4995000) ++wrong;
            }
        };
        std::thread other(work), third(work);
        work();
        other.join();
        third.join();
        CHECK(wrong == 0);
    }
}
TEST_CASE("loops follow each other as fast as they come, hot and after sleep") {
    pool_options options{.threads = 3};
    for (const int spin_us : {0, 50, 2000}) {
        options.spin = std::chrono::microseconds(spin_us);
        options.cores = 3;
        pool p{options};
        std::vector<long> slot(3 * 64);
        long expected = 0;
        for (int round = 0; round < 3000; ++round) {
            parallel_for(p, 0, 3, [&](int i) { slot[static_cast<std::size_t>(i) * 64] += round; });
            expected += 3L * round;
            if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        }
        CHECK(slot[0] + slot[64] + slot[128] == expected);
    }
}
TEST_CASE("a move-only, stateful body is called and not copied") {
    pool p{2};
    struct body {
        std::atomic<int> calls{0};
        body() = default;
        body(const body&) = delete;
        void operator()(int) { ++calls; }
    } f;
    parallel_for(p, 0, 10, f);
    CHECK(f.calls == 10);
}
}  // TEST_SUITE("threads/parallel_for")
