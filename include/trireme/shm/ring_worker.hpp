#pragma once
// The worker's side of a ring: claim a part of a batch, fill it, publish it; park when there is nothing to claim.

#include <trireme/core/deadline.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/shm/mapping.hpp>
#include <trireme/shm/ring_layout.hpp>
#include <trireme/shm/steps.hpp>
#include <trireme/sys/clock.hpp>
#include <trireme/sys/wait.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

namespace trireme {

/// One claimed part. A value: the ring's word knows the owner, and only this worker may act on it.
struct part_claim {
    std::uint64_t batch = 0;
    std::uint32_t slot = 0, part = 0;
    std::uint32_t first_row = 0, last_row = 0;  ///< rows [first, last) of the batch
    std::uint32_t attempt = 0;                  ///< how many workers died on it before
    std::uint64_t word = 0;                     ///< the FILLING word, for the publishing CAS
};

/// What `next` came back with.
enum class next_claim { claimed, stopping, nothing_yet };

/// The worker's handle on a ring, in the process (or thread) of that worker.
///
/// Threads    one thread a worker; any number of workers at once      Processes  as the ring's memory reaches
/// Crash      killed between any two instructions, a worker leaves at most one FILLING word, which the reaper
/// reopens
template <wait_policy Wait = wait::futex, step_hook Hook = no_steps>
class ring_worker {
  public:
    ring_worker(detail::ring_memory memory, worker_id me, std::uint32_t incarnation, scope reach, Wait wait = {},
                Hook hook = {})
        : memory_(memory),
          me_(me.value),
          incarnation_(incarnation),
          wait_(wait),
          hook_(hook),
          // Threads share the trainer's page tables; a process has its own and fills them while it has nothing to
          // do.
          warmed_(reach == scope::processes ? 0 : memory.geometry().slots) {
        auto& line = memory_.worker(me_);
        line.pid.store(static_cast<std::int32_t>(::getpid()), std::memory_order_relaxed);
        line.doing.store(stage::start_up, std::memory_order_relaxed);
        line.since_ns.store(now_ns(), std::memory_order_relaxed);
        line.incarnation.store(incarnation, std::memory_order_release);
    }

    /// The next part to fill. Waits for work in slices; `nothing_yet` after `until`, so that the caller can look
    /// whether its trainer lives.
    ///
    /// Returns  claimed (then `claim` holds it), stopping, or nothing_yet
    /// Blocks   until there is work, the ring stops, or `until`
    next_claim next(part_claim& claim, deadline until) noexcept {
        auto& control = memory_.control();
        memory_.worker(me_).doing.store(stage::resting, std::memory_order_relaxed);
        for (;;) {
            if (control.phase.load(std::memory_order_acquire) == detail::phase_stopping)
                return next_claim::stopping;
            if (try_claim(claim)) return next_claim::claimed;
            if (warm_next_slot()) continue;
            if (until.passed()) return next_claim::nothing_yet;
            rest(until);
        }
    }

    /// A claim without waiting; false when nothing is open.
    ///
    /// Order  while the consumer is waiting, the lowest open part, so that all help with the batch it waits for;
    /// else
    ///        the parts of the batch in hand, then a batch that nobody has touched, then help with the oldest
    bool try_claim(part_claim& claim) noexcept {
        const auto& g = memory_.geometry();
        const auto& control = memory_.control();
        const std::uint64_t floor = control.floor.load(std::memory_order_acquire);
        const std::uint64_t awaited = control.awaited.load(std::memory_order_relaxed);
        const bool hungry = awaited != 0;
        // Its request, its rows and its neighbours are in this core's caches.
        if (!hungry && in_hand_ && claim_in(memory_.slot_of(*in_hand_), floor, claim, in_hand_)) return true;
        in_hand_.reset();
        if (hungry && awaited != detail::awaits_any) cursor_ = awaited - 1;
        if (cursor_ < floor) cursor_ = floor;
        // A slot holds batch b and later b + slots, so `slots` steps from the cursor see every slot once.
        std::optional<std::uint64_t> help;
        for (std::uint64_t at = cursor_; at < cursor_ + g.slots; ++at) {
            const std::uint32_t slot = memory_.slot_of(at);
            if (hungry || g.parts == 1) {
                if (claim_in(slot, floor, claim)) return true;
            } else if (untouched(slot)) {
                if (claim_in(slot, floor, claim)) {
                    in_hand_ = claim.batch;
                    cursor_ = claim.batch + 1;
                    return true;
                }
            } else if (!help && any_open(slot, floor)) {
                help = at;
            }
        }
        for (std::uint64_t at = help.value_or(0); help && at < *help + g.slots; ++at) {
            if (claim_in(memory_.slot_of(at), floor, claim)) return true;
        }
        return false;
    }

    /// Notes on this worker's line what it begins: for messages, and for finding a sample that kills.
    void begin(const part_claim& claim) noexcept {
        auto& line = memory_.worker(me_);
        line.sample.store(no_sample, std::memory_order_relaxed);
        line.part.store(claim.part, std::memory_order_relaxed);
        line.batch.store(claim.batch, std::memory_order_relaxed);
        line.since_ns.store(now_ns(), std::memory_order_relaxed);
        line.doing.store(stage::reading, std::memory_order_release);
        hook_.at(step::worker_recorded);
    }
    /// Notes the sample in hand. One relaxed store: it is done for every sample.
    void record(std::uint64_t sample) noexcept {
        memory_.worker(me_).sample.store(sample, std::memory_order_relaxed);
    }

    /// The batch was cancelled meanwhile: publish it as voided, unfilled.
    bool cancelled(const part_claim& claim) const noexcept {
        return claim.batch < memory_.control().floor.load(std::memory_order_relaxed);
    }
    bool told_to_stop() const noexcept {
        return memory_.control().phase.load(std::memory_order_relaxed) == detail::phase_stopping;
    }

    /// Publishes the claim as `state` (ready, failed or voided), and rings the consumer if it waits for just this.
    /// False when the word was not this worker's any more, which a worker that lives never sees.
    bool publish(const part_claim& claim, part_state state) noexcept {
        auto& control = memory_.control();
        auto word = part_word::decode(claim.word);
        word.state = state;
        std::uint64_t expected = claim.word;
        auto& line = memory_.worker(me_);
        // (A) publishes the rows, and orders the store before the loads below: of two last publishers one sees both
        const bool mine = memory_.word(claim.slot, claim.part)
                              .compare_exchange_strong(expected, word.encode(), std::memory_order_seq_cst);
        hook_.at(step::worker_published);
        line.published.store(line.published.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        const bool all_done = memory_.complete(claim.batch);
        hook_.at(step::worker_checked_batch);
        if (all_done) {
            const auto awaited = control.awaited.load(std::memory_order_seq_cst);  // (B) pairs with ring::wait_for
            hook_.at(step::worker_checked_awaited);
            if (awaited == claim.batch + 1 || awaited == detail::awaits_any) {
                control.consumer_bell.fetch_add(1, std::memory_order_seq_cst);
                hook_.at(step::worker_rang);
                wait_.wake_all(control.consumer_bell);
                hook_.at(step::worker_woke);
            }
        }
        return mine;
    }

    detail::ring_memory& memory() noexcept { return memory_; }
    const Hook& hook() const noexcept { return hook_; }
    std::uint32_t index() const noexcept { return me_; }
    void set_ready() noexcept { memory_.worker(me_).ready.store(1, std::memory_order_release); }

  private:
    bool untouched(std::uint32_t slot) const noexcept {
        const auto& h = memory_.head(slot);
        for (std::uint32_t p = 0; p < memory_.geometry().parts; ++p) {
            if (part_word::decode(h.words[p].load(std::memory_order_relaxed)).state != part_state::open)
                return false;
        }
        return true;
    }
    bool any_open(std::uint32_t slot, std::uint64_t floor) const noexcept {
        const auto& h = memory_.head(slot);
        for (std::uint32_t p = 0; p < memory_.geometry().parts; ++p) {
            const auto w = part_word::decode(h.words[p].load(std::memory_order_seq_cst));
            if (w.state == part_state::open && w.batch >= floor) return true;
        }
        return false;
    }
    bool claim_in(std::uint32_t slot, std::uint64_t floor, part_claim& claim,
                  std::optional<std::uint64_t> only = std::nullopt) noexcept {
        const auto& g = memory_.geometry();
        auto& h = memory_.head(slot);
        for (std::uint32_t p = 0; p < g.parts; ++p) {
            std::uint64_t seen = h.words[p].load(std::memory_order_seq_cst);
            auto w = part_word::decode(seen);
            if (w.state != part_state::open || w.batch < floor || (only && w.batch != *only)) continue;
            w.state = part_state::filling;
            w.worker = static_cast<std::uint8_t>(me_);
            w.incarnation = static_cast<std::uint8_t>(incarnation_);
            const std::uint64_t mine = w.encode();
            // (C) pairs with the consumer's OPEN: the request is visible, and its last reads of the slot are over
            if (!h.words[p].compare_exchange_strong(seen, mine, std::memory_order_seq_cst)) continue;
            hook_.at(step::worker_claimed);
            claim = {w.batch, slot, p, g.first_row(p), g.first_row(p + 1), w.attempt, mine};
            if (!only && g.parts == 1) cursor_ = claim.batch + 1;
            return true;
        }
        return false;
    }

    /// Nothing to claim: flag, sample, look once more, park. In this order, or a wake is lost (the model's
    /// mutants).
    void rest(deadline until) noexcept {
        auto& control = memory_.control();
        auto& mask = control.sleepers[me_ / 64];
        const std::uint64_t bit = std::uint64_t{1} << (me_ % 64);
        mask.fetch_or(bit, std::memory_order_seq_cst);  // (D) pairs with ring::pay_owed
        hook_.at(step::worker_flagged);
        const std::uint32_t seen = control.workers_bell.load(std::memory_order_seq_cst);
        hook_.at(step::worker_sampled);
        const bool work =
            control.phase.load(std::memory_order_seq_cst) == detail::phase_stopping || anything_open();
        hook_.at(step::worker_rechecked);
        if (!work) {
            static_cast<void>(wait_.until_different(control.workers_bell, seen, until));
            hook_.at(step::worker_parked);
        }
        mask.fetch_and(~bit, std::memory_order_seq_cst);
        hook_.at(step::worker_unflagged);
    }
    bool anything_open() const noexcept {
        const std::uint64_t floor = memory_.control().floor.load(std::memory_order_seq_cst);
        for (std::uint32_t s = 0; s < memory_.geometry().slots; ++s) {
            if (any_open(s, floor)) return true;
        }
        return false;
    }
    /// With nothing to do, makes one more slot's pages present in this process. True when it did.
    bool warm_next_slot() noexcept {
        if (warmed_ >= memory_.geometry().slots) return false;
        warm(memory_.payload(warmed_), static_cast<std::size_t>(memory_.geometry().payload_bytes));
        ++warmed_;
        return true;
    }

    detail::ring_memory memory_;
    std::uint32_t me_, incarnation_;
    [[no_unique_address]] Wait wait_;
    [[no_unique_address]] Hook hook_;
    std::uint64_t cursor_ = 0;              // where the next look begins: behind the batch that was begun last
    std::optional<std::uint64_t> in_hand_;  // the batch whose parts this worker is going through
    std::uint32_t warmed_;
};

}  // namespace trireme
