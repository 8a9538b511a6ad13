#pragma once
// The slot ring: batches made by many workers in shared slots, taken by one consumer, in order or as ready.
//
// Batch k lies in slot k mod S: the ring is the reorder window and the credit scheme at once. Workers pull. There
// is no lock, no free list and no queue that a dead process could leave broken: docs/how-it-works/ring.md.

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/shm/lease.hpp>
#include <trireme/shm/ring_layout.hpp>
#include <trireme/shm/steps.hpp>
#include <trireme/sys/wait.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace trireme {

/// In which order the consumer gets batches.
enum class delivery : std::uint32_t {
    in_order,  ///< 0, 1, 2, ...: the same on every run
    as_ready,  ///< whichever is complete first
};

struct ring_options {
    const char* name = "ring";
    ring_geometry geometry{};
    delivery order = delivery::in_order;
    std::chrono::nanoseconds spin{0};  ///< how long the consumer watches the words before it parks
    /// How long it parks at a time before it looks at its deadline and its watch. Waking does not depend on it: the
    /// protocol loses no wake-up, which the tests show by making this an hour.
    std::chrono::nanoseconds slice = std::chrono::milliseconds(50);
};

/// The consumer's side of a ring. The memory lives until the ring and every lease are gone.
///
/// Threads    one consumer; leases may be dropped on any thread
/// Processes  in the process that made it
template <class Backing, wait_policy Wait = wait::futex, step_hook Hook = no_steps>
class ring {
    static_assert(explain::wait_policy<Wait>());
    static_assert(Wait::reach == scope::processes || Backing::reach == scope::threads,
                  "trireme: this wait policy does not reach the processes that share the backing; use wait::futex");

  public:
    /// Throws  usage_error (a geometry that cannot be), system_error (no memory)
    explicit ring(const ring_options& options, Wait wait = {}, Hook hook = {})
        : options_(options), wait_(wait), hook_(hook), occupants_(options.geometry.slots) {
        validate(options);
        const auto bytes = static_cast<std::size_t>(detail::ring_memory::bytes_for(options.geometry));
        arena_ = std::make_shared<detail::ring_arena<Backing>>(options.name, bytes, options.geometry);
        // Waking costs the consumer as much as dozens of batches: it is done when a quarter of the slots is left
        // ready, and never more than every other time where there are few of them.
        low_water_ = (std::max)(std::uint32_t{1}, options.geometry.slots * 3 / 4);
        for (std::uint32_t s = 0; s < options.geometry.slots; ++s) occupants_[s].next = s;
    }

    detail::ring_memory memory() const noexcept { return arena_->memory; }
    Backing& backing() noexcept { return arena_->backing; }
    /// The memory, for those that must outlive the ring with it.
    std::shared_ptr<detail::ring_arena<Backing>> arena() const noexcept { return arena_; }
    const ring_geometry& geometry() const noexcept { return options_.geometry; }

    /// Opens as many batches as there are free slots, in the order in which they will be taken. `source(request)`
    /// fills in the next request and returns false when there are no more.
    template <class Source>
    void refill(Source&& source) {
        const std::uint32_t count = options_.geometry.slots;
        for (std::uint32_t tried = 0; tried < count; ++tried) {
            const std::uint32_t slot =
                options_.order == delivery::in_order ? memory().slot_of(next_open_) : (scan_ + tried) % count;
            if (!vacant(slot)) {
                if (options_.order == delivery::in_order) return;
                continue;
            }
            batch_request request;
            if (!source(request)) return;
            open(slot, request);
        }
        scan_ = (scan_ + 1) % count;
    }
    /// Batches that are opened and not taken yet.
    std::uint64_t in_flight() const noexcept { return in_flight_; }

    /// Takes the next batch: in order the oldest opened one, else any that is complete.
    ///
    /// Needs      at least one batch in flight (usage_error otherwise)
    /// Returns    a lease; the slot is opened again when the lease is dropped and `refill` is called
    /// Blocks     until every part of the batch is done or `until` passes. `watch()` is called once a slice (50 ms)
    /// and
    ///            may throw
    /// Throws     timeout_error, usage_error (the consumer holds the slot it waits for), whatever `watch` throws
    /// Memory     what a worker wrote before it published is visible after this returns
    /// Crash      killed between any two stores, a worker leaves parts that are redone, or reported once
    template <class Watch>
    [[nodiscard]] raw_lease take(deadline until, Watch&& watch) {
        std::uint64_t batch = 0;
        if (options_.order == delivery::in_order) {
            batch = next_take_;
            if (!memory().complete(batch))
                wait_for(batch + 1, until, watch, [&] { return memory().complete(batch); });
        } else {
            const auto found = [&] { return find_complete(batch); };
            if (!found()) wait_for(detail::awaits_any, until, watch, found);
        }
        hook_.at(step::consumer_took);
        return hand_out(batch);
    }
    /// A batch that can be taken now, without waiting.
    [[nodiscard]] std::optional<raw_lease> try_take() {
        std::uint64_t batch = next_take_;
        const bool there = options_.order == delivery::in_order ? in_flight_ > 0 && memory().complete(batch)
                                                                : find_complete(batch);
        if (!there) {
            pay_owed();  // a caller that only polls never parks (mutant owed-ring-not-paid-polling)
            return std::nullopt;
        }
        return hand_out(batch);
    }

    /// Waits until the next slot can be opened again: its last batch was cancelled and somebody still fills it, or
    /// it is leased, which only the consumer can end: usage_error, at once.
    template <class Watch>
    void wait_for_vacancy(deadline until, Watch&& watch) {
        if (options_.order == delivery::as_ready) {
            const auto any = [this] {
                for (std::uint32_t s = 0; s < options_.geometry.slots; ++s)
                    if (vacant(s)) return true;
                return false;
            };
            if (any()) return;
            if (leased() == options_.geometry.slots) throw usage_error(held_by_consumer(options_));
            return wait_for(detail::awaits_any, until, watch, any);
        }
        const std::uint32_t slot = memory().slot_of(next_open_);
        if (vacant(slot)) return;
        auto& o = occupants_[slot];
        if (o.phase == occupancy::leased) throw usage_error(held_by_consumer(options_));
        wait_for(o.batch + 1, until, watch, [&] { return vacant(slot); });
    }
    std::uint32_t leased() const noexcept {
        std::uint32_t n = 0;
        for (std::uint32_t s = 0; s < options_.geometry.slots; ++s)
            n += arena_->leased[s].load(std::memory_order_relaxed) != 0 ? 1U : 0U;
        return n;
    }

    /// Gives up every batch that is open or being filled; leases stay valid. Workers finish the sample in hand, at
    /// most; the slots come free as they do. Never waits.
    void cancel() noexcept {
        auto& control = memory().control();
        std::uint64_t floor = next_open_;
        for (const auto& o : occupants_)
            floor = (std::max)(floor, o.next > options_.geometry.slots - 1 ? o.next - options_.geometry.slots + 1
                                                                           : std::uint64_t{0});
        control.floor.store(floor, std::memory_order_seq_cst);
        hook_.at(step::consumer_raised_floor);
        for (std::uint32_t s = 0; s < options_.geometry.slots; ++s) {
            auto& o = occupants_[s];
            if (o.phase != occupancy::opened) continue;
            for (std::uint32_t p = 0; p < options_.geometry.parts; ++p) {
                auto seen = memory().word(s, p).load(std::memory_order_seq_cst);
                auto word = part_word::decode(seen);
                if (word.state != part_state::open) continue;
                word.state = part_state::voided;
                memory().word(s, p).compare_exchange_strong(seen, word.encode(), std::memory_order_seq_cst);
                hook_.at(step::consumer_voided);
            }
            o.phase = occupancy::cancelled;
        }
        for (auto& o : occupants_) {
            while (o.next < floor) o.next += options_.geometry.slots;
        }
        next_take_ = next_open_ = floor;
        in_flight_ = 0;
    }

    /// Tells every worker to leave. Never waits.
    void stop() noexcept {
        memory().control().phase.store(detail::phase_stopping, std::memory_order_seq_cst);
        detail::ring_bell(memory().control().workers_bell, wait_);
        hook_.at(step::consumer_stopped);
    }

    /// Wakes parked workers for what was opened since the last time. `take` does it before it waits.
    void pay_owed() noexcept {
        if (owed_ == 0) return;
        owed_ = 0;
        auto& control = memory().control();
        std::uint64_t sleeping = 0;
        for (auto& mask : control.sleepers) sleeping |= mask.load(std::memory_order_seq_cst);  // (D)
        if (sleeping == 0) return;
        detail::ring_bell(control.workers_bell, wait_);
        hook_.at(step::consumer_rang);
    }

    static message held_by_consumer(const ring_options& o) {
        return {"the next batch has no slot: the consumer holds the lease of the batch that lies in it",
                std::string("ring \"") + o.name + "\", " + std::to_string(o.geometry.slots) + " slots, pid " +
                    std::to_string(::getpid()),
                "drop or copy batches that are kept, or ask for more slots (loader_options::prefetch)"};
    }

  private:
    enum class occupancy : std::uint8_t { free, opened, leased, cancelled };
    struct occupant {
        occupancy phase = occupancy::free;
        std::uint64_t batch = 0;  // the batch that was opened last
        std::uint64_t next = 0;   // the number of the one to be opened next: grows by `slots`
    };

    static void validate(const ring_options& o) {
        const auto& g = o.geometry;
        const auto refuse = [&](const char* what, std::uint64_t value, std::uint64_t most) {
            throw usage_error({std::string("a ring of ") + std::to_string(value) + " " + what + " cannot be made",
                               std::string("ring \"") + o.name + "\"",
                               std::string("1 to ") + std::to_string(most) + " " + what});
        };
        if (g.slots < 1 || g.slots > max_slots) refuse("slots", g.slots, max_slots);
        if (g.rows < 1) refuse("rows", g.rows, 0xffffffffU);
        if (g.parts < 1 || g.parts > (std::min)(max_parts, g.rows))
            refuse("parts", g.parts, (std::min)(max_parts, g.rows));
        if (g.workers < 1 || g.workers > max_workers) refuse("workers", g.workers, max_workers);
    }

    /// Whether a slot can be opened; takes note of dropped leases and finished cancelled batches.
    bool vacant(std::uint32_t slot) noexcept {
        auto& o = occupants_[slot];
        if (o.phase == occupancy::leased && arena_->leased[slot].load(std::memory_order_acquire) == 0)  // (E) lease
            o.phase = occupancy::free;
        if (o.phase == occupancy::cancelled && memory().complete(o.batch)) o.phase = occupancy::free;
        return o.phase == occupancy::free;
    }

    void open(std::uint32_t slot, const batch_request& request) noexcept {
        auto& o = occupants_[slot];
        const std::uint64_t batch = o.next;
        auto& head = memory().head(slot);
        head.request = request;
        hook_.at(step::consumer_requested);
        const auto word = part_word{part_state::open, 0, 0, 0, batch & part_word::batch_mask}.encode();
        for (std::uint32_t p = 0; p < options_.geometry.parts; ++p) {
            head.words[p].store(word, std::memory_order_seq_cst);  // (C) publishes the request
            hook_.at(step::consumer_opened);
        }
        o.phase = occupancy::opened;
        o.batch = batch;
        o.next = batch + options_.geometry.slots;
        next_open_ = batch + 1;
        ++in_flight_;
        if (++owed_ >= low_water_) pay_owed();
    }

    bool find_complete(std::uint64_t& batch) const noexcept {
        for (const auto& o : occupants_) {
            if (o.phase == occupancy::opened && memory().complete(o.batch)) {
                batch = o.batch;
                return true;
            }
        }
        return false;
    }

    raw_lease hand_out(std::uint64_t batch) noexcept {
        const std::uint32_t slot = memory().slot_of(batch);
        occupants_[slot].phase = occupancy::leased;
        arena_->leased[slot].store(1, std::memory_order_relaxed);
        next_take_ = batch + 1;
        --in_flight_;
        return raw_lease(arena_, arena_->memory, slot, batch, &arena_->leased[slot]);
    }

    template <class Watch, class Condition>
    void wait_for(std::uint64_t awaited, deadline until, Watch&& watch, Condition&& there) {
        pay_owed();
        if (options_.spin.count() > 0) {
            const auto enough = until.slice(options_.spin);
            do {
                for (int i = 0; i < 32; ++i) {
                    if (there()) return;
                    cpu_relax();
                }
            } while (!enough.passed());
        } else {
            // Whoever makes the batch may be waiting for this very core: giving it away costs less than being
            // woken.
            for (int i = 0; i < 16; ++i) {
                ::sched_yield();
                if (there()) return;
            }
        }
        auto& control = memory().control();
        for (;;) {
            control.awaited.store(awaited, std::memory_order_seq_cst);  // (B) pairs with ring_worker::publish
            hook_.at(step::consumer_awaited);
            const std::uint32_t seen = control.consumer_bell.load(std::memory_order_seq_cst);
            hook_.at(step::consumer_sampled);
            bool done = there();
            hook_.at(step::consumer_rechecked);
            if (!done) {
                // After the sample, so that an end that is noted later rings (mutant recheck-ignores-the-end).
                try {
                    watch();
                } catch (...) {
                    control.awaited.store(0, std::memory_order_relaxed);
                    throw;
                }
                static_cast<void>(wait_.until_different(control.consumer_bell, seen, until.slice(options_.slice)));
                hook_.at(step::consumer_parked);
                done = there();
            }
            control.awaited.store(0, std::memory_order_relaxed);
            if (done) return;
            if (until.passed()) throw timeout_error(describe_wait(awaited));
        }
    }

    /// Who keeps the consumer waiting: the recorder's lines of the workers that fill the awaited batch.
    message describe_wait(std::uint64_t awaited) const {
        std::string who;
        const std::uint64_t now = now_ns();
        for (std::uint32_t s = 0; s < options_.geometry.slots; ++s) {
            if (awaited != detail::awaits_any && memory().slot_of(awaited - 1) != s) continue;
            for (std::uint32_t p = 0; p < options_.geometry.parts; ++p) {
                const auto w = part_word::decode(memory().word(s, p).load(std::memory_order_acquire));
                if (w.state == part_state::open && awaited != detail::awaits_any)
                    who += "; part " + std::to_string(p) + " waits for a worker";
                if (w.state != part_state::filling) continue;
                const auto& line = memory().worker(w.worker);
                const auto age = now - (std::min)(now, line.since_ns.load(std::memory_order_relaxed));
                who += "; worker " + std::to_string(w.worker) + " (pid " + std::to_string(line.pid.load()) +
                       ") is in sample " + std::to_string(line.sample.load()) + " of batch " +
                       std::to_string(memory().head(s).request.step) + " since " + std::to_string(age / 1'000'000) +
                       " ms";
            }
        }
        const auto step_text =
            awaited == detail::awaits_any
                ? std::string("no batch")
                : "batch " + std::to_string(memory().head(memory().slot_of(awaited - 1)).request.step) + " did not";
        return {(awaited == detail::awaits_any ? "no batch was completed" : step_text + " arrive") +
                    " before the deadline" + who,
                std::string("ring \"") + options_.name + "\", pid " + std::to_string(::getpid()),
                "a longer loader_options::timeout, more workers, or look at that sample"};
    }

    ring_options options_;
    [[no_unique_address]] Wait wait_;
    [[no_unique_address]] Hook hook_;
    std::shared_ptr<detail::ring_arena<Backing>> arena_;
    std::vector<occupant> occupants_;
    std::uint64_t next_open_ = 0, next_take_ = 0, in_flight_ = 0;
    std::uint32_t owed_ = 0, low_water_ = 1, scan_ = 0;
};

}  // namespace trireme
