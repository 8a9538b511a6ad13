#pragma once
// What is done about a dead worker: its claims are reopened, or reported once; everybody is woken to look again.

#include <trireme/shm/ring_layout.hpp>
#include <trireme/shm/steps.hpp>
#include <trireme/sys/process.hpp>
#include <trireme/sys/wait.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace trireme {

/// What becomes of the parts that a dead worker was filling, and of the worker.
enum class on_death : std::uint32_t {
    respawn,  ///< they are made again by another worker, and the worker is started anew
    raise,    ///< their batch fails with an error that names the worker
};

namespace detail {

inline constexpr std::uint32_t poison_deaths = 3;   // on one sample
inline constexpr std::uint32_t respawn_budget = 3;  // deaths of a worker without progress in between

/// Takes back what a dead worker was filling: OPEN with one more attempt, FAILED when three died on the same sample
/// (or at once under `on_death::raise`), VOID when the batch was cancelled. Notes the death on the worker's line.
template <class Hook>
void reclaim(const ring_memory& memory, std::uint32_t w, pid_t pid, exit_status status, on_death policy,
             const Hook& hook) noexcept {
    auto& control = memory.control();
    auto& line = memory.worker(w);
    const auto& g = memory.geometry();
    const std::uint64_t sample = line.sample.load(std::memory_order_relaxed);
    const bool was_reading = line.doing.load(std::memory_order_acquire) == stage::reading;
    line.dead_pid.store(static_cast<std::int32_t>(pid), std::memory_order_relaxed);
    line.last_status = status;
    line.dead_batch = line.batch.load(std::memory_order_relaxed);
    line.dead_sample = sample;
    line.was_filling = 0;
    const std::uint64_t floor = control.floor.load(std::memory_order_seq_cst);
    for (std::uint32_t s = 0; s < g.slots; ++s) {
        for (std::uint32_t p = 0; p < g.parts; ++p) {
            auto& cell = memory.word(s, p);
            auto word = part_word::decode(cell.load(std::memory_order_acquire));
            if (word.state != part_state::filling || word.worker != w) continue;
            line.was_filling = 1;
            line.dead_batch = word.batch;
            // The recorder names the sample only if the worker got as far as noting one of this very part.
            const bool named = was_reading && sample != no_sample &&
                               line.batch.load(std::memory_order_relaxed) == word.batch &&
                               line.part.load(std::memory_order_relaxed) == p;
            auto& trouble = memory.trouble(s, p);
            const bool same =
                named && word.attempt > 0 && trouble.deaths_on_it > 0 && trouble.dead_sample == sample;
            trouble.deaths_on_it = named ? (same ? trouble.deaths_on_it + 1 : 1) : 0;
            trouble.dead_sample = sample;
            word.attempt = static_cast<std::uint8_t>(word.attempt + 1);
            if (word.batch < floor) {
                word.state = part_state::voided;
            } else if (policy == on_death::raise || trouble.deaths_on_it >= poison_deaths || word.attempt >= 15) {
                auto& r = trouble.record;
                r = {};
                r.kind = static_cast<std::uint32_t>(errc::peer);
                r.worker = w;
                r.pid = static_cast<std::int32_t>(pid);
                r.signal = status.signal;
                r.sample = sample;
                std::string text =
                    "worker " + std::to_string(w) + " (pid " + std::to_string(pid) + ") " + describe(status);
                if (trouble.deaths_on_it >= poison_deaths)
                    text += ", the " + std::to_string(trouble.deaths_on_it) + "rd to die on this sample";
                r.text.assign(text);
                word.state = part_state::failed;
            } else {
                word.state = part_state::open;
            }
            word.worker = 0;
            word.incarnation = 0;
            cell.store(word.encode(), std::memory_order_seq_cst);
            hook.at(step::reaper_reclaimed);
            // A cancel may have passed this word while it was FILLING, after our look at the floor. Both sides
            // store first and look then, so one of them voids it (the model's mutant reaper-trusts-an-old-floor).
            if (word.state == part_state::open && word.batch < control.floor.load(std::memory_order_seq_cst)) {
                std::uint64_t seen = word.encode();
                word.state = part_state::voided;
                cell.compare_exchange_strong(seen, word.encode(), std::memory_order_seq_cst);
            }
        }
    }
    // If it died over its last words, they are nobody's.
    std::uint32_t unsaid = ring_over + 1 + w;
    control.fatal.compare_exchange_strong(unsaid, ring_goes_on, std::memory_order_seq_cst);
    control.sleepers[w / 64].fetch_and(~(std::uint64_t{1} << (w % 64)), std::memory_order_seq_cst);
    hook.at(step::reaper_cleared);
    line.doing.store(stage::resting, std::memory_order_relaxed);
    line.deaths.fetch_add(1, std::memory_order_release);
    control.deaths.fetch_add(1, std::memory_order_release);
}

/// Wakes the consumer and all workers, always: the dead one may have swallowed a wake.
template <class Wait, class Hook>
void ring_everybody(const ring_memory& memory, const Wait& wait, const Hook& hook) noexcept {
    ring_bell(memory.control().consumer_bell, wait);
    hook.at(step::reaper_rang_consumer);
    ring_bell(memory.control().workers_bell, wait);
    hook.at(step::reaper_rang_workers);
}

/// What is done after the kernel has confirmed that worker `w` is dead (and never on a time-out: a slow worker
/// still writes).
///
/// Threads  one reaper a ring         Processes  any that maps the ring
template <class Wait, class Hook>
void reap(const ring_memory& memory, std::uint32_t w, pid_t pid, exit_status status, on_death policy,
          const Wait& wait, const Hook& hook) noexcept {
    reclaim(memory, w, pid, status, policy, hook);
    ring_everybody(memory, wait, hook);
}

/// Whether a dead worker is started again: three deaths without progress in between are too many.
inline bool within_budget(worker_line& line) noexcept {
    const auto published = line.published.load(std::memory_order_relaxed);
    line.budget_used = published > line.published_at_death ? 1 : line.budget_used + 1;
    line.published_at_death = published;
    return line.budget_used <= respawn_budget;
}

/// Ends the ring with a reason, which the consumer throws at its next wait. The first reason stays, whole: two
/// workers may fail at once.
template <class Wait>
void end_ring(const ring_memory& memory, const error_record& why, const Wait& wait) noexcept {
    auto& control = memory.control();
    std::uint32_t none = ring_goes_on;
    if (control.fatal.compare_exchange_strong(none, ring_over + 1 + why.worker, std::memory_order_seq_cst)) {
        control.last_words = why;
        control.fatal.store(ring_over, std::memory_order_seq_cst);
    }
    ring_bell(control.consumer_bell, wait);
}

}  // namespace detail

}  // namespace trireme
