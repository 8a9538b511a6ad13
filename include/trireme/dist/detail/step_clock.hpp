#pragma once
// How long a bucket may take: unless the user says so, 60 s in the first step, which loads and warms things up, and
// then max(30 s, 20 x the median of the last steps).

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <trireme/core/deadline.hpp>

namespace trireme::detail {

class step_clock {
  public:
    explicit step_clock(std::optional<std::chrono::nanoseconds> fixed) noexcept : fixed_(fixed) {}

    /// A step has ended.
    void step(deadline::clock::time_point now) noexcept {
        if (steps_++ != 0) last_[(steps_ - 2) % last_.size()] = now - before_;
        before_ = now;
    }
    std::chrono::nanoseconds timeout() const noexcept {
        using std::chrono::seconds;
        if (fixed_) return *fixed_;
        if (steps_ == 0) return seconds(60);
        auto sorted = last_;
        const auto n = static_cast<std::ptrdiff_t>((std::min)(steps_ - 1, last_.size()));
        if (n == 0) return seconds(60);
        std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
        return (std::max)(std::chrono::nanoseconds(seconds(30)), sorted[static_cast<std::size_t>(n / 2)] * 20);
    }

  private:
    std::optional<std::chrono::nanoseconds> fixed_;
    std::array<std::chrono::nanoseconds, 15> last_{};
    deadline::clock::time_point before_{};
    std::size_t steps_ = 0;
};

}  // namespace trireme::detail
