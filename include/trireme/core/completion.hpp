#pragma once
// Completions: something was started and will be over; ask, or wait with a deadline.

#include <trireme/core/deadline.hpp>

#include <concepts>

namespace trireme {

/// Something under way.
///
///   done()       whether it is over; makes what progress it can, never waits; throws what it failed with
///   wait(until)  returns when it is over; throws what it failed with, or timeout_error
///
/// The compiler cannot check: once done() has answered true it stays true, and wait returns at once.
/// Reference model: completed, below.
template <class C>
concept completion = requires(C& c, deadline until) {
    { c.done() } -> std::same_as<bool>;
    { c.wait(until) } -> std::same_as<void>;
};

/// What was over before it could be asked about.
struct completed {
    bool done() const noexcept { return true; }
    void wait(deadline) const noexcept {}
};
static_assert(completion<completed>);

}  // namespace trireme
