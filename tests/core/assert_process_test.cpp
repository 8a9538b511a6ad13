#include <trireme/core/assert.hpp>

#include <csignal>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

namespace {

/// What a child writes to standard error while it runs `act`, and how it ended.
template <class Act>
std::pair<int, std::string> child(Act act) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        act();
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    char buffer[512];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(n));
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return {status, text};
}

}  // namespace

TEST_SUITE("core/assert") {
TEST_CASE("an assertion that holds does nothing, and evaluates its condition once") {
    int evaluated = 0;

    TRIREME_ASSERT(++evaluated == 1, "holds");

#if defined(NDEBUG)
    CHECK(evaluated == 0);
#else
    CHECK(evaluated == 1);
#endif
}

#if !defined(NDEBUG)
TEST_CASE("an assertion that fails says what, where and try, and aborts") {
    const auto [status, text] = child([] { TRIREME_ASSERT(1 + 1 == 3, "a lease was released twice"); });

    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
    CHECK(text.starts_with("trireme: a lease was released twice\n  where  "));
    CHECK(text.find("1 + 1 == 3") != std::string::npos);
    CHECK(text.find("\n  try    ") != std::string::npos);
}
#endif
}  // TEST_SUITE("core/assert")
