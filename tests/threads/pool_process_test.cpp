// What needs processes of its own: pools after fork, and pools in processes whose CPUs are limited from outside.

#include <trireme/sys/cgroup.hpp>
#include <trireme/threads/parallel_for.hpp>
#include <trireme/threads/pool.hpp>

#include <doctest/doctest.h>

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/processes.hpp"

using namespace trireme;

namespace {

long sum_of_thousand(pool& p) {
    std::atomic<long> sum{0};
    parallel_for(p, schedule::dynamic{}, 0, 1000, [&](int i) { sum += i; });
    return sum;
}

/// A child made by plain fork(), with threads of ours alive; it leaves with what `body` returns.
template <class Body>
pid_t plain_fork(Body&& body) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::alarm(static_cast<unsigned>(
        std::chrono::ceil<std::chrono::seconds>(test::slack(std::chrono::seconds(60))).count()));
    int status = 99;
    try {
        status = body();
    } catch (...) { status = 98; }
    ::_exit(status);
}
int status_of(pid_t pid) {
    int status = 0;
    if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// Runs this program anew for one test case, which is skipped otherwise, with `prepare` done before the exec. A
/// process that starts under a limit is what these cases are about, so forking is not enough.
template <class Prepare>
int rerun(const char* test_case, Prepare&& prepare) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        if (!prepare()) ::_exit(97);
        const std::string filter = std::string("-tc=") + test_case;
        ::execl("/proc/self/exe", "pool_process_test", filter.c_str(), "-ns", "-m", "-q", nullptr);
        ::_exit(96);
    }
    return status_of(pid);
}
bool taskset(unsigned cpu) {
    auto mask = cpu_set{cpu}.to_sched();
    return ::sched_setaffinity(0, mask.bytes(), mask.get()) == 0;
}

template <class F>
std::string complaint(F&& f) {
    try {
        f();
    } catch (const error& e) { return e.what(); }
    return "nothing thrown";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool write_file(const std::string& path, const std::string& text) {
    std::FILE* f = std::fopen(path.c_str(), "we");
    if (f == nullptr) return false;
    const bool ok = std::fputs(text.c_str(), f) >= 0;
    return std::fclose(f) == 0 && ok;
}

}  // namespace

TEST_SUITE("threads/pool_process") {
TEST_CASE("after fork the child's pool starts anew, and the parent's goes on") {
    pool p{3};
    for (int round = 0; round < 100; ++round) {
        REQUIRE(sum_of_thousand(p) == 499500);
        const pid_t child = plain_fork([&] {
            const bool right = sum_of_thousand(p) == 499500 && sum_of_thousand(p) == 499500;
            return right ? 7 : 1;
        });
        CHECK(sum_of_thousand(p) == 499500);
        CHECK(status_of(child) == 7);
    }
    CHECK(sum_of_thousand(p) == 499500);
}
TEST_CASE("a forked child may destroy the pool, used or not, and make another") {
    auto p = std::make_unique<pool>(3);
    CHECK(sum_of_thousand(*p) == 499500);
    const pid_t unused = plain_fork([&] {
        p.reset();
        pool q{2};
        return sum_of_thousand(q) == 499500 ? 7 : 1;
    });
    const pid_t used = plain_fork([&] {
        const bool right = sum_of_thousand(*p) == 499500;
        p.reset();
        return right ? 7 : 1;
    });
    CHECK(status_of(unused) == 7);
    CHECK(status_of(used) == 7);
    CHECK(sum_of_thousand(*p) == 499500);
}
TEST_CASE("grandchildren have pools too") {
    pool p{2};
    CHECK(sum_of_thousand(p) == 499500);
    const pid_t child = plain_fork([&] {
        if (sum_of_thousand(p) != 499500) return 1;
        const int inner = status_of(plain_fork([&] { return sum_of_thousand(p) == 499500 ? 7 : 1; }));
        return inner == 7 && sum_of_thousand(p) == 499500 ? 7 : 2;
    });
    CHECK(status_of(child) == 7);
}
TEST_CASE("a fork while another thread's loop is running hurts neither side") {
    pool p{3};
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread busy([&] {
        while (!stop) wrong += sum_of_thousand(p) != 499500;
    });
    for (int round = 0; round < test::rounds(30, 200); ++round) {
        const pid_t child = plain_fork([&] {
            // The team was locked by a thread that is not here: the child has a team of its own.
            return sum_of_thousand(p) == 499500 ? 7 : 1;
        });
        CHECK(status_of(child) == 7);
    }
    stop = true;
    busy.join();
    CHECK(wrong == 0);
}
TEST_CASE("a child forked inside a loop body cannot finish that loop, and is told so instead of hanging") {
    pool p{2};
    std::atomic<int> arrived{0};
    std::atomic<pid_t> child{0};
    std::atomic<bool> forked{false};
    const pid_t parent = ::getpid();
    std::string told;
    try {
        parallel_for(p, 0, 2, [&](int i) {
            ++arrived;
            while (arrived < 2) std::this_thread::yield();  // both parts are begun: nobody can take one over
            if (i == 0) {
                child = ::fork();
                if (child == 0) ::alarm(60);
                forked = true;
            }
            while (!forked) std::this_thread::yield();  // nor is the helper's part ended when the child is made
        });
    } catch (const usage_error& e) { told = e.what(); }
    if (::getpid() != parent)
        ::_exit(has(told, "cannot be finished in a forked child") && sum_of_thousand(p) == 499500 ? 7 : 1);

    CHECK(told.empty());
    CHECK(status_of(child) == 7);
}
TEST_CASE("the fork gate finds the helpers at rest, and its child has a pool") {
    pool p{3};
    for (int round = 0; round < 20; ++round) {
        CHECK(sum_of_thousand(p) == 499500);
        const auto status = test::in_child([&] { return sum_of_thousand(p) == 499500 ? 7 : 1; });
        CHECK(status == exit_status{0, 7});
    }
}

TEST_CASE("(in a process of one CPU) defaults, automatic and explicit placement follow the mask" *
          doctest::skip()) {
    const auto mine = process_cpus();
    REQUIRE(mine.count() == 1);
    const unsigned cpu = mine.first();
    const auto list = "{" + mine.text() + "}";
    const unsigned other = cpu == 0 ? 1 : 0;

    CHECK(pool{}.num_threads() == 1);
    CHECK(cpu_budget::discover().limited_by == "the affinity mask");
    pool bound(placement::compact{}, 2);
    CHECK(sum_of_thousand(bound) == 499500);
    REQUIRE(bound.bindings().size() == 1);
    CHECK(bound.bindings()[0].holds == mine);

    const auto pinned_to = [](cpu_set cpus) {
        return complaint([&] { pool p{pool_options{.threads = 1, .cpus = {cpus}}}; });
    };
    CHECK(has(pinned_to({other}),
              "cannot bind to CPU " + std::to_string(other) + ": this process may use CPUs " + list + " only"));
    CHECK(has(pinned_to({cpu, other}), "cannot bind to CPU " + std::to_string(other) + ":"));
    CHECK(has(pinned_to({7}), "cannot bind to CPU 7:"));
    CHECK(pinned_to({cpu}) == "nothing thrown");
    CHECK(has(complaint([] { pool p(placement::compact{.may_share = false}, 2); }),
              "2 threads with a CPU each are wanted, but only 1 CPU is allowed: " + list));
    CHECK(has(complaint([&] { bind_this_thread({other}); }), "cannot bind to CPU " + std::to_string(other)));
}
TEST_CASE("a process that was started on one CPU stays on it") {
    for (const unsigned cpu : process_cpus())
        CHECK(rerun("(in a process of one CPU)*", [&] { return taskset(cpu); }) == 0);
}

TEST_CASE("(in a process whose first question comes from a bound thread) the main thread's mask counts" *
          doctest::skip()) {
    const auto all = thread_cpus();
    cpu_set seen;
    std::thread([&] {
        taskset(all.first());
        seen = process_cpus();
    }).join();
    CHECK(seen == all);
    CHECK(process_cpus() == all);
}
TEST_CASE("a thread that the user bound before the first use of the toolkit does not narrow the process") {
    CHECK(rerun("(in a process whose first question comes from a bound thread)*", [] { return true; }) == 0);
}

TEST_CASE("(in a process without room for threads) the loop fails with a name and a number, and the pool lives" *
          doctest::skip()) {
    pool p{4};
    const auto text = complaint([&] { parallel_for(p, 0, 100, [](int) {}); });
    CHECK(has(text, "cannot start the thread tri-c01"));
    CHECK(has(text, "errno 11"));
    p.set_num_threads(1);
    CHECK(sum_of_thousand(p) == 499500);
    // With the limit lifted the same pool starts its threads.
    rlimit limit{};
    ::getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NPROC, &limit);
    p.set_num_threads(4);
    CHECK(sum_of_thousand(p) == 499500);
}
TEST_CASE("threads that the system does not give are an error and not the end") {
    if (::getuid() != 0) {
        MESSAGE("left out: needs a user id without processes, so root");
        return;
    }
    const int status = rerun("(in a process without room for threads)*", [] {
        rlimit limit{};
        ::getrlimit(RLIMIT_NPROC, &limit);
        limit.rlim_cur = 1;
        // Root is not bound by the limit, and a user id that nobody else has runs just this process.
        return ::setrlimit(RLIMIT_NPROC, &limit) == 0 && ::setresuid(54321, 54321, 54321) == 0;
    });
    if (status == 96) {
        MESSAGE("left out: another user may not run this program");
        return;
    }
    CHECK(status == 0);
}

TEST_CASE("(in a group with a quota of 1.5 CPUs) the pool has one thread" * doctest::skip()) {
    const auto quota = cpu_quota();
    CHECK(quota.cpus.value_or(0) == doctest::Approx(1.5));
    CHECK(has(quota.file, "trireme-test-"));
    const auto budget = cpu_budget::discover();
    CHECK(budget.compute() == 1);
    CHECK(pool{}.num_threads() == 1);
    if (budget.usable.count() > 1) CHECK(has(budget.limited_by, "a quota of 1.5 CPUs (" + quota.file + ")"));
}
TEST_CASE("a real control group's quota is found") {
    const bool v1 = ::access("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", F_OK) == 0 ||
                    ::access("/sys/fs/cgroup/cpu/tasks", F_OK) == 0;
    const std::string group =
        std::string("/sys/fs/cgroup/") + (v1 ? "cpu/" : "") + "trireme-test-" + std::to_string(::getpid());
    if (::mkdir(group.c_str(), 0755) != 0) {
        MESSAGE("left out: no group can be made at " << group << ": " << std::strerror(errno));
        return;
    }
    const bool limited =
        v1 ? write_file(group + "/cpu.cfs_quota_us", "150000") : write_file(group + "/cpu.max", "150000 100000");
    if (limited)
        CHECK(rerun("(in a group with a quota of 1.5 CPUs)*", [&] {
                  return write_file(group + (v1 ? "/tasks" : "/cgroup.procs"), std::to_string(::getpid()));
              }) == 0);
    else
        MESSAGE("left out: no quota can be set in " << group);
    ::rmdir(group.c_str());
}
}  // TEST_SUITE("threads/pool_process")
