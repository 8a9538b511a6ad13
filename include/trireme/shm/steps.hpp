#pragma once
// The steps of the ring's protocol, by name. The Promela model labels its transitions with these names, a test
// compares the two lists, and the fault-injection test kills a worker at every one of them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

/// One observable moment of the protocol: just *after* the store, CAS or system call that the name says.
/// Workers and the reaper may be killed there; the consumer's steps are listed because the model has them too.
enum class step : std::uint8_t {
    // worker: claiming and filling
    worker_claimed,          ///< CAS OPEN(k) -> FILLING(me)
    worker_recorded,         ///< wrote batch, part and sample on its own line (flight recorder)
    worker_half_filled,      ///< wrote some of the part's payload, not all
    worker_filled,           ///< wrote all of the part's payload
    worker_published,        ///< CAS FILLING(me) -> READY, FAILED, or (below the floor) VOID
    worker_checked_batch,    ///< loaded the batch's other words: is it complete?
    worker_checked_awaited,  ///< loaded `awaited`: does the consumer wait for this batch?
    worker_rang,             ///< bumped the consumer's bell
    worker_woke,             ///< FUTEX_WAKE to the consumer
    // worker: parking
    worker_flagged,    ///< set its bit in the sleepers' mask
    worker_sampled,    ///< sampled the workers' bell
    worker_rechecked,  ///< looked for work once more after that
    worker_parked,     ///< came back from FUTEX_WAIT
    worker_unflagged,  ///< cleared its bit
    // reaper: after the kernel confirmed a death
    reaper_reclaimed,      ///< FILLING(dead) -> OPEN(attempt+1) or FAILED, one word
    reaper_cleared,        ///< cleared the dead worker's bit in the sleepers' mask
    reaper_rang_consumer,  ///< bumped the consumer's bell and woke it
    reaper_rang_workers,   ///< bumped the workers' bell and woke them
    // consumer
    consumer_requested,     ///< wrote the request of batch k
    consumer_opened,        ///< store OPEN(k), one word
    consumer_rang,          ///< bumped the workers' bell at low water or before parking, and woke them
    consumer_awaited,       ///< stored `awaited`
    consumer_sampled,       ///< sampled its bell
    consumer_rechecked,     ///< scanned the words once more
    consumer_parked,        ///< came back from FUTEX_WAIT
    consumer_took,          ///< saw every part done and took the batch
    consumer_raised_floor,  ///< cancel: raised the floor
    consumer_voided,        ///< cancel: CAS OPEN(< floor) -> VOID, one word
    consumer_stopped,       ///< shutdown: stored the stop phase and rang everybody
};

/// The names, in the order of the enumeration; the model's labels.
inline constexpr std::array<std::string_view, 29> step_names{
    "worker_claimed",       "worker_recorded",      "worker_half_filled",     "worker_filled",
    "worker_published",     "worker_checked_batch", "worker_checked_awaited", "worker_rang",
    "worker_woke",          "worker_flagged",       "worker_sampled",         "worker_rechecked",
    "worker_parked",        "worker_unflagged",     "reaper_reclaimed",       "reaper_cleared",
    "reaper_rang_consumer", "reaper_rang_workers",  "consumer_requested",     "consumer_opened",
    "consumer_rang",        "consumer_awaited",     "consumer_sampled",       "consumer_rechecked",
    "consumer_parked",      "consumer_took",        "consumer_raised_floor",  "consumer_voided",
    "consumer_stopped"};
static_assert(step_names.size() == static_cast<std::size_t>(step::consumer_stopped) + 1);

constexpr std::string_view name_of(step s) noexcept { return step_names[static_cast<std::size_t>(s)]; }

/// Watches the protocol go by. `no_steps` compiles to nothing; tests kill the process inside `at`.
///   at(step)   called right after the step; may not return
template <class S>
concept step_hook = requires(const S& s, step which) {
    { s.at(which) }
    noexcept;
};

struct no_steps {
    constexpr void at(step) const noexcept {}
};
static_assert(step_hook<no_steps>);

}  // namespace trireme
