#include <trireme/sys/fork_gate.hpp>
#include <trireme/sys/socket.hpp>
#include <trireme/sys/thread.hpp>

#include <doctest/doctest.h>

#include <thread>

#include "../support/processes.hpp"

#include <fcntl.h>

using namespace trireme;
using namespace std::chrono_literals;

TEST_SUITE("sys/fork_gate") {
TEST_CASE("threads of ours that rest are no obstacle; those in user code are waited for") {
    std::atomic<int> turns{0};
    std::atomic<bool> leave{false};
    registered_thread busy("test-busy", [&] {
        while (!leave) {
            const user_section here;
            ::usleep(300);
            turns.fetch_add(1);
        }
    });
    while (turns.load() == 0) ::usleep(100);

    for (int i = 0; i < 30; ++i) CHECK(test::in_child([] { return 0; }) == exit_status{0, 0});

    const int before = turns.load();
    while (turns.load() == before) ::usleep(100);  // it went on afterwards
    leave = true;
}

TEST_CASE("while a fork is under way no thread of ours is in user code") {
    std::atomic<bool> leave{false};
    std::atomic<int> inside{0};
    registered_thread t("test-inside", [&] {
        while (!leave) {
            const user_section here;
            inside.store(1);
            ::usleep(50);
            inside.store(0);
        }
    });
    const test::shared_page<std::atomic<int>> seen;

    for (int i = 0; i < 50; ++i) {
        const pid_t pid = fork_here("test", test::within(10s));
        if (pid == 0) {
            seen->fetch_add(inside.load());
            ::_exit(0);
        }
        ::waitpid(pid, nullptr, 0);
    }

    leave = true;
    t.join();
    CHECK(seen->load() == 0);
}

TEST_CASE("a thread of ours that does not come to rest is named, and may go on") {
    std::atomic<bool> leave{false}, inside{false};
    registered_thread t("test-stuck", [&] {
        const user_section here;
        inside = true;
        while (!leave) ::usleep(100);
    });
    while (!inside) ::usleep(100);

    CHECK_THROWS_WITH_AS(fork_here("engine::forked", deadline::in(20ms)), doctest::Contains("test-stuck"),
                         usage_error);

    leave = true;
    t.join();
    CHECK(test::in_child([] { return 0; }) == exit_status{0, 0});
}

TEST_CASE("somebody else's thread is a reason to refuse, by name") {
    std::atomic<bool> leave{false};
    std::thread foreign([&] {
        ::pthread_setname_np(::pthread_self(), "not-ours");
        while (!leave) ::usleep(100);
    });
    ::usleep(2000);

    CHECK_THROWS_WITH_AS(fork_here("engine::forked", test::within(10s)), doctest::Contains("not-ours"),
                         usage_error);

    leave = true;
    foreign.join();
}

TEST_CASE("private descriptors are closed in children, the others are not") {
    auto [a, b] = socket_pair();
    const int open = b.get();
    private_descriptor mine(std::move(a));
    const int closed = mine.get();

    const auto status = test::in_child(
        [&] { return (::fcntl(closed, F_GETFD) < 0 ? 0 : 1) + (::fcntl(open, F_GETFD) >= 0 ? 0 : 2); });

    CHECK(status == exit_status{0, 0});
    CHECK(::fcntl(closed, F_GETFD) >= 0);
}

TEST_CASE("what is buffered is printed once, by the parent or by the child, not by both") {
    char path[] = "/tmp/trireme-test-XXXXXX";
    const int number = ::mkstemp(path);
    std::FILE* const out = ::fdopen(number, "w");
    std::fputs("before ", out);

    static_cast<void>(test::in_child([&] { return std::fputs("child ", out) < 0 ? 1 : 0; }));

    std::fputs("after", out);
    std::fclose(out);
    std::FILE* const in = std::fopen(path, "r");
    char text[64]{};
    static_cast<void>(std::fread(text, 1, sizeof text - 1, in));
    std::fclose(in);
    ::unlink(path);
    CHECK(std::string(text) == "before child after");
}

TEST_CASE("threads of ours are deaf to signals and carry their name") {
    std::string name(16, 0);
    sigset_t blocked{};
    registered_thread t("test-name", [&] {
        ::pthread_getname_np(::pthread_self(), name.data(), name.size());
        ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    });
    t.join();

    CHECK(std::string(name.c_str()) == "test-name");
    CHECK(::sigismember(&blocked, SIGINT) == 1);
    sigset_t here{};
    ::pthread_sigmask(SIG_SETMASK, nullptr, &here);
    CHECK(::sigismember(&here, SIGINT) == 0);  // the caller's mask is as before
}
}  // TEST_SUITE("sys/fork_gate")
