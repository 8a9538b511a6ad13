#pragma once
// Who tells a waiting rank that its wait is in vain: a watch knows whether the job has failed and which ranks are
// dead.

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include <trireme/dist/detail/failure.hpp>

namespace trireme::detail {

/// What a channel asks between two slices of a wait.
///
///   cause()      the failure that the job as a whole has recorded, if any
///   dead(rank)   how that rank ended ("rank 1 (pid 4711) was killed by signal 9 (SIGKILL)"), empty while it lives
///   first(t)     records `t` for the job unless something is recorded already; returns what is recorded
///
/// The compiler cannot check: after dead(r) answered, no store of that rank arrives any more.
template <class W>
concept watch = requires(W& w, std::uint32_t r, failure t) {
    { w.cause() } -> std::same_as<std::optional<failure>>;
    { w.dead(r) } -> std::same_as<std::optional<std::string>>;
    { w.first(std::move(t)) } -> std::same_as<failure>;
};

/// For ranks that are threads of one process: they cannot die alone.
struct no_watch {
    std::optional<failure> cause() const { return std::nullopt; }
    std::optional<std::string> dead(std::uint32_t) const { return std::nullopt; }
    failure first(failure t) const { return t; }
};
static_assert(watch<no_watch>);

}  // namespace trireme::detail
