#include <trireme/sys/process.hpp>

#include <doctest/doctest.h>

#include "../support/processes.hpp"

using namespace trireme;
using namespace std::chrono_literals;

TEST_SUITE("sys/process") {
TEST_CASE("a child's status comes out as it was: a code, or the signal in words") {
    CHECK(test::in_child([] { return 7; }) == exit_status{0, 7});
    CHECK(test::in_child([]() -> int {
              ::kill(::getpid(), SIGKILL), ::pause();
              return 0;
          }) == test::killed_by(SIGKILL));
    CHECK(describe({9, 0}) == "was killed by signal 9 (SIGKILL)");
    CHECK(describe({0, 3}) == "exited with status 3");
    CHECK(exit_status{9, 0}.shell_status() == 137);
}

TEST_CASE("an exception that escapes from a child is its status 1, not a crash") {
    CHECK(test::in_child([]() -> int { throw std::runtime_error("on purpose"); }) == exit_status{0, 1});
}

TEST_CASE("a child that nobody waits for is ended and reaped with its handle") {
    const test::footprint before;
    pid_t pid = 0;
    {
        auto c = fork_child(
            "test", [] { return ::pause(); }, test::within(10s));
        pid = c.pid();
        CHECK(test::alive(pid));
        CHECK_FALSE(c.wait(deadline::in(10ms)));
    }

    CHECK_FALSE(test::alive(pid));
    CHECK(test::back_to(before));
}

TEST_CASE("a pidfd tells of the death of a process that is nobody's child") {
    struct page {
        std::atomic<pid_t> grandchild{0};
    };
    const test::shared_page<page> p;
    auto c = fork_child(
        "test",
        [&] {
            const pid_t pid = ::fork();
            if (pid == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;) ::pause();
            }
            p->grandchild.store(pid);
            return ::pause();
        },
        test::within(10s));
    while (p->grandchild.load() == 0) ::usleep(100);
    const auto watched = pidfd::open(p->grandchild.load());

    CHECK_FALSE(watched.dead());
    ::kill(p->grandchild.load(), SIGKILL);

    CHECK(watched.wait_dead(test::within(10s)));
    CHECK(pidfd::open(p->grandchild.load()).dead() == watched.dead());
}

TEST_CASE("a process that never was is dead") {
    CHECK(pidfd::open(0x3fffffff).dead());
    CHECK(process_start_time(0x3fffffff) == 0);
    CHECK(process_start_time(::getpid()) > 0);
    CHECK(process_start_time(::getpid()) == process_start_time(::getpid()));
}
}  // TEST_SUITE("sys/process")
