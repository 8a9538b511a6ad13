#include <trireme/threads/local_ranks.hpp>
#include <trireme/threads/parallel_for.hpp>
#include <trireme/threads/pool.hpp>

#include <doctest/doctest.h>

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace trireme;

namespace {

int tid() { return static_cast<int>(::syscall(SYS_gettid)); }

/// The helpers of all pools in this process: kernel id and CPU time used, in ticks.
std::map<int, long> helpers() {
    std::map<int, long> found;
    DIR* d = ::opendir("/proc/self/task");
    REQUIRE(d != nullptr);
    while (const dirent* e = ::readdir(d)) {
        std::FILE* f = std::fopen((std::string("/proc/self/task/") + e->d_name + "/stat").c_str(), "re");
        if (f == nullptr) continue;
        char line[1024]{};
        const auto n = std::fread(line, 1, sizeof line - 1, f);
        std::fclose(f);
        const char* after = n > 0 ? std::strrchr(line, ')') : nullptr;
        long user = 0, kernel = 0;
        if (std::strstr(line, "(tri-c") != nullptr && after != nullptr &&
            std::sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &kernel) == 2)
            found[std::atoi(e->d_name)] = user + kernel;
    }
    ::closedir(d);
    return found;
}

std::size_t most_at_once(pool& p) {
    std::atomic<int> now{0}, most{0};
    parallel_for(p, schedule::dynamic{}, 0, 1000, [&](int) {
        const int running = ++now;
        for (int seen = most; seen < running && !most.compare_exchange_weak(seen, running);) {}
        std::this_thread::yield();
        --now;
    });
    return static_cast<std::size_t>(most.load());
}

std::set<int> threads_of_loops(pool& p, int loops) {
    std::set<int> ids;
    std::mutex lock;
    for (int round = 0; round < loops; ++round)
        parallel_for(p, 0, 8, [&](int) {
            const std::scoped_lock hold(lock);
            ids.insert(tid());
        });
    return ids;
}

template <class Error, class F>
std::string message_of(F&& f) {
    try {
        f();
    } catch (const Error& e) { return e.what(); }
    return "nothing thrown";
}

/// Makes every participant show up: none leaves before all have come.
template <class F>
void all_together(pool& p, F&& f) {
    const int n = static_cast<int>(p.num_threads());
    std::atomic<int> arrived{0};
    parallel_for(p, 0, n, [&](int i) {
        ++arrived;
        while (arrived < n) std::this_thread::yield();
        f(i);
    });
}

}  // namespace

TEST_SUITE("threads/pool") {
TEST_CASE("no thread is started before a loop needs one, and none remains after the pool") {
    {
        pool p{3};
        CHECK(helpers().empty());
        parallel_for(p, 0, 1, [](int) {});
        parallel_for(p, 0, 0, [](int) {});
        CHECK(helpers().empty());
        parallel_for(p, 0, 2, [](int) {});
        CHECK(helpers().size() == 1);  // two indices need one helper
        parallel_for(p, 0, 100, [](int) {});
        CHECK(helpers().size() == 2);
    }
    CHECK(helpers().empty());
}
TEST_CASE("the default is the budget shared by the ranks here, and a pool of one thread is the caller alone") {
    const auto mine = cpu_budget::discover().compute();
    CHECK(pool{}.num_threads() == (std::max)(1U, mine / local_ranks()));
    const auto ranks_before = local_ranks();
    set_local_ranks(2 * mine);
    CHECK(pool{}.num_threads() == 1);  // two ranks a CPU
    CHECK(pool{placement::compact{}}.num_threads() == 1);
    set_local_ranks(ranks_before);
    pool one{1};
    CHECK(threads_of_loops(one, 10) == std::set<int>{tid()});
    CHECK(helpers().empty());
}
TEST_CASE("a loop uses the caller and never more threads than the pool has") {
    for (const unsigned n : {1U, 2U, 4U}) {
        pool p{n};
        CHECK(most_at_once(p) <= n);
        const auto ids = threads_of_loops(p, 200);
        CHECK(ids.size() <= n);
        CHECK(ids.count(tid()) == 1);
        std::set<int> all;
        std::mutex lock;
        all_together(p, [&](int) {
            const std::scoped_lock hold(lock);
            all.insert(tid());
        });
        CHECK(all.size() == n);
    }
}
TEST_CASE("setting the number of threads holds for the loops that follow, and starts no thread twice") {
    pool p{2};
    p.set_num_threads(3);
    CHECK(p.num_threads() == 3);
    const auto ids = threads_of_loops(p, 1000);
    CHECK(ids.size() <= 3);

    p.set_num_threads(2);  // the third is still awake, and must not join in
    std::atomic<int> calls{0};
    int expected = 0;
    for (int round = 0; round < 2000; ++round) {
        parallel_for(p, 0, 5, [&](int) { ++calls; });
        expected += 5;
    }
    CHECK(calls == expected);
    CHECK(threads_of_loops(p, 500).size() <= 2);

    p.set_num_threads(1);
    CHECK(p.num_threads() == 1);
    CHECK(most_at_once(p) == 1);
    CHECK(threads_of_loops(p, 100) == std::set<int>{tid()});

    std::set<int> ever;
    for (int round = 0; round < 10000; ++round) {
        p.set_num_threads(std::array{2, 4, 1}[static_cast<std::size_t>(round % 3)]);
        parallel_for(p, 0, 4, [](int) {});
        if (round % 1000 < 3)
            for (const auto& [id, ticks] : helpers()) ever.insert(id);
    }
    CHECK(ever.size() == 3);  // the caller is the fourth
}
TEST_CASE("zero or fewer threads are an error, and the old number stays") {
    pool p{2};
    CHECK(message_of<usage_error>([&] { p.set_num_threads(0); }).find("a pool cannot have 0 threads") !=
          std::string::npos);
    CHECK(message_of<usage_error>([&] { p.set_num_threads(-5); }).find("a pool cannot have -5 threads") !=
          std::string::npos);
    CHECK_THROWS_AS(p.set_num_threads(1000000), usage_error);
    CHECK(p.num_threads() == 2);
    CHECK_THROWS_AS(pool{0}, usage_error);
    CHECK_THROWS_AS(pool{-5}, usage_error);
}
TEST_CASE("helpers sleep when the spin budget is used up, whatever wakes them in between") {
    const long ticks_per_second = ::sysconf(_SC_CLK_TCK);
    pool_options options{.threads = 3, .spin = std::chrono::milliseconds(2), .cores = 3};
    pool p{options};
    all_together(p, [](int) {});
    const auto before = helpers();
    REQUIRE(before.size() == 2);

    constexpr int wakes = 20;
    for (int i = 0; i < wakes; ++i) {
        parallel_for(p, 0, 3, [](int) {});
        std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }

    // 20 wakes of at most 2 ms are 40 ms; 500 ms would have been burned by a helper that never sleeps.
    for (const auto& [id, ticks] : helpers()) {
        REQUIRE(before.count(id) == 1);
        CHECK((ticks - before.at(id)) * 1000 / ticks_per_second <= 2 * wakes * 2 + 40);
    }
}
TEST_CASE("with more threads than CPUs nobody spins") {
    const long ticks_per_second = ::sysconf(_SC_CLK_TCK);
    pool p{pool_options{.threads = 4, .spin = std::chrono::seconds(10), .cores = 2}};
    all_together(p, [](int) {});
    const auto before = helpers();

    std::this_thread::sleep_for(std::chrono::milliseconds(300));

    for (const auto& [id, ticks] : helpers()) CHECK((ticks - before.at(id)) * 1000 / ticks_per_second <= 100);
}
TEST_CASE("a helper that sleeps is woken, and takes part again") {
    pool p{pool_options{.threads = 2, .spin = std::chrono::nanoseconds(0), .cores = 2}};
    for (int round = 0; round < 50; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        all_together(p, [](int) {});  // would never end if one did not come
    }
}
TEST_CASE("naps that end and begin while a loop is announced lose no helper") {
    for (const int spin_us : {0, 1, 5}) {
        pool p{pool_options{.threads = 3, .spin = std::chrono::microseconds(spin_us), .cores = 3}};
        for (int round = 0; round < 300; ++round) {
            for (int i = 0; i < 20; ++i) {
                p.set_num_threads(2 + i % 2);
                parallel_for(p, 0, 3, [](int) {});
            }
            p.set_num_threads(3);
            all_together(p, [](int) {});  // would never end if one slept on
        }
    }
}
TEST_CASE("helpers run on the CPUs of the process, not on those the caller was bound to") {
    const auto all = process_cpus();
    std::vector<cpu_set> masks(3);
    std::thread([&] {
        bind_this_thread(cpu_set{all.first()});
        pool p{3};
        all_together(p, [&](int i) { masks[static_cast<std::size_t>(i)] = thread_cpus(); });
        for (const auto& b : p.bindings()) CHECK(b.exact());
    }).join();

    CHECK(masks[0] == cpu_set{all.first()});  // the caller's own mask is left alone
    CHECK(masks[1] == all);
    CHECK(masks[2] == all);
}
TEST_CASE("helpers are bound to the CPUs that a policy gives them") {
    const auto all = process_cpus();
    const auto n = all.count() + 1;
    const auto expected = placement::compact{}.cpus_for(all, n);
    pool p(placement::compact{}, n);
    std::vector<cpu_set> masks(n);
    all_together(p, [&](int i) { masks[static_cast<std::size_t>(i)] = thread_cpus(); });

    for (unsigned k = 1; k < n; ++k) CHECK(masks[k] == expected[k]);
    CHECK(masks[0] == all);
    REQUIRE(p.bindings().size() == n - 1);
    for (unsigned k = 1; k < n; ++k) CHECK(p.bindings()[k - 1].holds == expected[k]);
}
TEST_CASE("placement that cannot be is refused before any thread starts") {
    const auto all = process_cpus();
    CHECK(message_of<usage_error>([] {
              pool p{pool_options{.threads = 2, .cpus = {{4000}, {4001}}}};
          }).find("cannot bind to CPU 4000: this process may use CPUs {" + all.text() + "} only") !=
          std::string::npos);
    CHECK(message_of<usage_error>([&] {
              pool p{pool_options{.threads = 3, .cpus = {all, all}}};
          }).find("a pool of 3 threads was given CPUs for 2") != std::string::npos);
    CHECK_THROWS_AS((pool{pool_options{.threads = 1, .cpus = {cpu_set{}}}}), usage_error);
    CHECK_THROWS_AS(pool(placement::compact{.may_share = false}, all.count() + 1), usage_error);
    CHECK(helpers().empty());
}
TEST_CASE("signals of the process are not delivered to helpers, and the caller's mask stays") {
    sigset_t before, after;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
    pool p{2};
    std::atomic<int> blocked{0};
    const int caller = tid();
    all_together(p, [&](int) {
        sigset_t mine;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
        if (tid() != caller && ::sigismember(&mine, SIGINT) == 1 && ::sigismember(&mine, SIGCHLD) == 1) ++blocked;
    });
    ::pthread_sigmask(SIG_SETMASK, nullptr, &after);

    CHECK(blocked == 1);
    for (int s = 1; s < 32; ++s) CHECK(::sigismember(&before, s) == ::sigismember(&after, s));
}
TEST_CASE("many pools come and go") {
    for (int round = 0; round < 100; ++round) {
        pool p{3};
        std::atomic<int> sum{0};
        parallel_for(p, 0, 10, [&](int i) { sum += i; });
        CHECK(sum == 45);
    }
    CHECK(helpers().empty());
}
TEST_CASE("the number of threads may be changed from inside a loop and from another thread") {
    pool p{2};
    std::atomic<bool> stop{false};
    std::thread other([&] {
        for (int n = 1; !stop; n = n % 4 + 1) p.set_num_threads(n);
    });
    long total = 0;
    for (int round = 0; round < 2000; ++round) {
        std::atomic<long> sum{0};
        parallel_for(p, schedule::dynamic{}, 0, 100, [&](int i) {
            if (i == 50) p.set_num_threads(3);
            sum += i;
        });
        total += sum;
    }
    stop = true;
    other.join();
    CHECK(total == 2000L * 4950);
}
}  // TEST_SUITE("threads/pool")
