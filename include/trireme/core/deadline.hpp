#pragma once
// Deadlines: absolute moments of the monotonic clock. Everything that may wait takes one, so that time-outs do not
// add up when a wait is made of several.

#include <chrono>

namespace trireme {

/// A moment on the steady clock by which something must have happened.
class deadline {
  public:
    using clock = std::chrono::steady_clock;

    constexpr explicit deadline(clock::time_point at) noexcept : at_(at) {}

    /// `d` from now. Negative durations give a deadline that has passed; very long ones saturate.
    static deadline in(std::chrono::nanoseconds d) noexcept {
        const auto now = clock::now();
        return d >= (clock::time_point::max)() - now ? never() : deadline(now + d);
    }
    /// The end of time. For waits that watch something else (a peer's death) and nothing but.
    static constexpr deadline never() noexcept { return deadline((clock::time_point::max)()); }

    constexpr clock::time_point at() const noexcept { return at_; }
    constexpr bool is_never() const noexcept { return at_ == (clock::time_point::max)(); }
    bool passed() const noexcept { return !is_never() && clock::now() >= at_; }

    /// Time left, zero once passed; for `never` a very long time.
    std::chrono::nanoseconds left() const noexcept {
        if (is_never()) return (std::chrono::nanoseconds::max)();
        const auto now = clock::now();  // compared first: a moment long past minus now would overflow
        return at_ <= now ? std::chrono::nanoseconds{0} : std::chrono::nanoseconds(at_ - now);
    }
    /// The earlier of this and `d` from now: one slice of a longer wait.
    deadline slice(std::chrono::nanoseconds d) const noexcept {
        const deadline s = in(d);
        return s.at_ < at_ ? s : *this;
    }
    friend constexpr bool operator==(deadline, deadline) = default;

  private:
    clock::time_point at_;
};

}  // namespace trireme
