#include <trireme/core/deadline.hpp>

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using trireme::deadline;

TEST_SUITE("core/deadline") {
TEST_CASE("a deadline in the future has not passed and has time left") {
    const auto d = deadline::in(1h);

    CHECK_FALSE(d.passed());
    CHECK(d.left() > 0ns);
    CHECK(d.left() <= 1h);
}

TEST_CASE("a zero or negative duration gives a deadline that has passed") {
    CHECK(deadline::in(0ns).passed());
    CHECK(deadline::in(-1h).passed());
    CHECK(deadline::in((std::chrono::nanoseconds::min)()).passed());
}

TEST_CASE("the time left of a passed deadline is zero, also of the earliest moment there is") {
    CHECK(deadline::in(-1s).left() == 0ns);
    CHECK(deadline((deadline::clock::time_point::min)()).left() == 0ns);
    CHECK(deadline((deadline::clock::time_point::min)()).passed());
}

TEST_CASE("a very long duration saturates at never") {
    CHECK(deadline::in((std::chrono::nanoseconds::max)()).is_never());
    CHECK(deadline::in((std::chrono::nanoseconds::max)() - 1ns).is_never());
}

TEST_CASE("never does not pass and its time left is the longest there is") {
    const auto never = deadline::never();

    CHECK_FALSE(never.passed());
    CHECK(never.left() == (std::chrono::nanoseconds::max)());
}

TEST_CASE("a deadline passes by itself") {
    const auto d = deadline::in(1ms);

    std::this_thread::sleep_until(d.at());

    CHECK(d.passed());
}

TEST_CASE("a slice is never later than the whole wait") {
    const auto soon = deadline::in(1s);

    CHECK(soon.slice(1h) == soon);
    CHECK(deadline::never().slice(1s).at() < deadline::in(1h).at());
    CHECK(deadline::never().slice((std::chrono::nanoseconds::max)()).is_never());
}
}  // TEST_SUITE("core/deadline")
