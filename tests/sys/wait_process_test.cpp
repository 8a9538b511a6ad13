// The claim of wait policies that matters most: a wake reaches another process.
#include <trireme/sys/wait.hpp>

#include <doctest/doctest.h>

#include "../support/processes.hpp"

using namespace trireme;
using namespace std::chrono_literals;

TEST_SUITE("sys/wait_process") {
TEST_CASE("a process parked on a shared word is woken by another one, without a time-out's help") {
    struct page {
        std::atomic<std::uint32_t> word{0}, parked{0};
    };
    for (int round = 0; round < 20; ++round) {
        const test::shared_page<page> p;
        auto sleeper = fork_child(
            "test",
            [&] {
                p->parked.store(1);
                return wait::futex{}.until_different(p->word, 0, deadline::in(1h)) == 1 ? 0 : 1;
            },
            test::within(10s));
        while (p->parked.load() == 0) ::usleep(100);
        ::usleep(1000);
        p->word.store(1);
        wait::futex{}.wake_all(p->word);

        CHECK(sleeper.wait(test::within(30s)) == exit_status{0, 0});
    }
}

TEST_CASE("a killed sleeper leaves nothing behind that hangs the waker") {
    const test::shared_page<std::atomic<std::uint32_t>> word;
    auto sleeper = fork_child(
        "test", [&] { return static_cast<int>(wait::futex{}.until_different(*word, 0, deadline::in(1h))); },
        test::within(10s));
    ::usleep(5000);
    sleeper.end();

    wait::futex{}.wake_all(*word);

    CHECK(futex_wake(*word) == 0);
}
}  // TEST_SUITE("sys/wait_process")
