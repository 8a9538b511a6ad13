#pragma once
// Loops whose indices are shared out among the threads of a pool.

#include <trireme/threads/detail/loop_job.hpp>
#include <trireme/threads/pool.hpp>
#include <trireme/threads/schedule.hpp>

#include <concepts>
#include <memory>
#include <type_traits>

namespace trireme {

/// Calls f(i) once for each index of `indices`, in several threads at once, and returns when all calls have ended.
///
/// Blocks   until the loop is done. It does not wait for threads that are busy elsewhere: inside another loop's
///          body, or while another thread's loop has the pool, all calls are made here, in order
/// Throws   the first exception of a call, with its type; the others stop soon and what they throw is dropped.
///          usage_error for a step of 0; system_error when a helper thread cannot be started
/// Threads  f is called concurrently, at most once at a time in each of the pool's threads. A body marked noexcept
///          needs no look at the others' exceptions
/// Memory   what was written before is visible in f; what f wrote is visible after this returns
template <schedule_policy Schedule = schedule::fixed, std::integral Index, class F>
requires std::invocable<F&, Index>
void parallel_for(pool& p, Schedule how, range<Index> indices, F&& f) {
    const detail::each_index<Index, std::remove_reference_t<F>> body{detail::index_space(indices),
                                                                     std::addressof(f)};
    detail::run_loop(p, how, detail::count_of(indices), 1, body);
}
template <std::integral Index, class F>
requires std::invocable<F&, Index>
void parallel_for(pool& p, range<Index> indices, F&& f) { parallel_for(p, schedule::fixed{}, indices, f); }

/// Calls f(i) for each i in [begin, end); for none when end is before begin.
template <schedule_policy Schedule, std::integral Begin, std::integral End, class F>
requires std::invocable<F&, std::common_type_t<Begin, End>>
void parallel_for(pool& p, Schedule how, Begin begin, End end, F&& f) {
    parallel_for(p, how, detail::one_range(begin, end), f);
}
template <std::integral Begin, std::integral End, class F>
requires std::invocable<F&, std::common_type_t<Begin, End>>
void parallel_for(pool& p, Begin begin, End end, F&& f) {
    parallel_for(p, schedule::fixed{}, detail::one_range(begin, end), f);
}

/// Calls f(b, e) for contiguous blocks [b, e) that together are `indices`, each of at least `indices.grain`.
template <schedule_policy Schedule, std::integral Index, class F>
requires std::invocable<F&, Index, Index>
void parallel_for(pool& p, Schedule how, blocked<Index> indices, F&& f) {
    const range<Index> all{indices.begin, indices.end, 1};
    const detail::each_block<Index, std::remove_reference_t<F>> body{detail::index_space(all), std::addressof(f)};
    detail::run_loop(p, how, detail::count_of(all), indices.grain, body);
}
template <std::integral Index, class F>
requires std::invocable<F&, Index, Index>
void parallel_for(pool& p, blocked<Index> indices, F&& f) { parallel_for(p, schedule::fixed{}, indices, f); }

}  // namespace trireme
