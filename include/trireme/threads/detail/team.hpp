#pragma once
// The fork-join team behind a pool: helpers that wait for one word to change, run their part of a loop, and answer
// on a line of their own. No queue, no allocation and no system call in a loop, unless somebody sleeps.
//
// A loop is published by one store of `word_` (its number and how many take part). Each participant's part is
// claimed before it is run: by its helper, or, when the helper has not begun, by the caller, who has nothing else
// to do. So a helper that sleeps or was preempted costs the caller its help and not a wait.

#include <trireme/core/bytes.hpp>
#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/sys/affinity.hpp>
#include <trireme/sys/clock.hpp>
#include <trireme/sys/thread.hpp>
#include <trireme/sys/wait.hpp>
#include <trireme/threads/detail/first_exception.hpp>
#include <trireme/threads/detail/fork_count.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme::detail {

namespace say {
inline message forked_inside_a_loop(unsigned helper) {
    return {"a parallel loop cannot be finished in a forked child: its helper thread " + std::to_string(helper) +
                " exists in the parent only",
            "pid " + std::to_string(::getpid()),
            "leave the child by exec or _exit, or fork outside of loop bodies"};
}
}  // namespace say

class team {
  public:
    static constexpr unsigned most_threads = 1024;
    /// What describes a loop travels on the cache line that announces it, so it has to fit there.
    static constexpr std::size_t most_job_bytes = 40;
    /// Runs participant k's part of a loop for n. Finds the job by `job<Job>()`.
    using part_function = void (*)(team& self, unsigned k, unsigned n) noexcept;

    team() noexcept : born_(fork_count()) {}
    team(const team&) = delete;
    team& operator=(const team&) = delete;
    /// Nobody may be in a loop. In a forked child the helpers do not exist, and nothing is waited for.
    ~team() {
        if (!lost()) {
            word_.store(stop_word, std::memory_order_seq_cst);
            wake_sleepers(most_threads);
        }
        seats_.clear();  // joins
    }

    /// Whether the process was forked since this was made, so that the helpers are gone.
    bool lost() const noexcept { return fork_counter.load(std::memory_order_relaxed) != born_; }

    /// Takes the team for one loop; never waits. False when a loop has it: one of another thread, or the one whose
    /// body asks.
    bool try_lock() noexcept {
        return !busy_.load(std::memory_order_relaxed) && !busy_.exchange(true, std::memory_order_acquire);
    }
    void unlock() noexcept { busy_.store(false, std::memory_order_release); }

    /// With the team locked: helpers for `n` threads exist; thread k gets `cpus(k)`.
    template <class CpusOf>
    void ensure(unsigned n, std::chrono::nanoseconds spin, const CpusOf& cpus) {
        if (spin_ns_.load(std::memory_order_relaxed) != spin.count())
            spin_ns_.store(spin.count(), std::memory_order_relaxed);
        while (seats_.size() < n) add_seat(cpus(static_cast<unsigned>(seats_.size())));
    }

    /// With the team locked and `n` <= the threads ensured: runs part k of the job for k = 0 .. n-1, part 0 in the
    /// calling thread, and returns when all have run.
    /// Throws  the first exception that a part kept in `error()`; usage_error in a child that was forked by the job
    ///         itself, whose helpers are not there
    template <class Job>
    void run(unsigned n, part_function part, const Job& job) {
        static_assert(std::is_trivially_copyable_v<Job> && sizeof(Job) <= most_job_bytes);
        part_ = part;
        std::memcpy(job_, &job, sizeof job);
        const auto loop = ++loop_;
        word_.store(pack(loop, n), std::memory_order_seq_cst);  // (A) publishes the job; (S) before `asleep`
        const bool some_late = wake_sleepers(n);
        part(*this, 0, n);
        // A helper that was awake has begun by now, or does within half a microsecond. Looking without a pause in
        // between is rude to a neighbour on the same core, and short.
        patience left = some_late ? patience{1, 0} : patience{400, 64};
        for (unsigned k = 1; k < n; ++k) {
            const auto& done = seats_[k]->done;
            while (left.looks > 0 && done.load(std::memory_order_acquire) != loop) --left.looks;  // (C)
            if (left.looks == 0) finish(k, n, left);
        }
        error_.rethrow();
    }

    /// In a part: the job that `run` was given.
    template <class Job>
    Job job() const noexcept {
        Job copy{};
        std::memcpy(&copy, job_, sizeof copy);
        return copy;
    }
    first_exception& error() noexcept { return error_; }

    /// The word of participant k that a schedule may use to hand out its share. Only inside `run`, or locked.
    std::atomic<std::uint64_t>& share(unsigned k) noexcept { return seats_[k]->share; }

    /// What became of the helpers' CPUs, for those started so far, from thread 1 on.
    std::vector<binding> bindings() const {
        const std::scoped_lock hold(growing_);
        std::vector<binding> all;
        for (std::size_t k = 1; k < seats_.size(); ++k) all.push_back(seats_[k]->bound);
        return all;
    }

    std::unique_ptr<team> previous;  ///< in a forked child: the parent's, whose frames may still be on this stack

  private:
    static constexpr unsigned count_bits = 16;
    static constexpr std::uint64_t stop_word = (std::numeric_limits<std::uint64_t>::max)();
    static constexpr std::uint64_t pack(std::uint64_t loop, unsigned n) noexcept { return loop << count_bits | n; }
    static constexpr unsigned participants(std::uint64_t word) noexcept {
        return static_cast<unsigned>(word & ((1U << count_bits) - 1));
    }

    /// How long the caller gives the helpers together to begin, before it takes over what they have not.
    struct patience {
        int looks, pauses;
    };

    /// One participant. Three lines, because each has another writer in the hot path.
    struct seat {
        alignas(flag_line) std::atomic<std::uint64_t> claimed{0};  // last loop whose part was begun, by whomever
        alignas(flag_line) std::atomic<std::uint64_t> done{0};     // last loop whose part the helper finished
        alignas(flag_line) std::atomic<std::uint64_t> share{0};    // the schedule's
        alignas(flag_line) cpu_set cpus;
        binding bound;
        std::atomic<std::uint32_t> started{0};
        registered_thread thread;  // last: joined before the rest goes
    };

    [[gnu::noinline]] void add_seat(cpu_set cpus) {
        const std::scoped_lock hold(growing_);
        const auto k = static_cast<unsigned>(seats_.size());
        seats_.reserve(k + 1U);
        auto s = std::make_unique<seat>();
        if (k > 0) {
            s->cpus = std::move(cpus);
            char name[16];
            std::snprintf(name, sizeof name, "tri-c%02u", k);
            s->thread = registered_thread(
                name,
                [this, self = s.get(), k, seen = word_.load(std::memory_order_relaxed)] { help(*self, k, seen); });
            while (s->started.load(std::memory_order_acquire) == 0)
                futex_wait(s->started, 0, deadline::in(std::chrono::milliseconds(50)));
        }
        seats_.push_back(std::move(s));
    }

    /// A helper's life.
    void help(seat& me, unsigned k, std::uint64_t seen) {
        // A new thread has the mask of the one that started it, which may be bound to a single CPU.
        me.bound = thread_cpus() == me.cpus ? binding{me.cpus, me.cpus} : try_bind_this_thread(me.cpus);
        me.started.store(1, std::memory_order_release);
        futex_wake(me.started);
        idle_clock idle;
        for (;;) {
            seen = next_word(k, seen, idle);
            if (seen == stop_word) return;
            if (k >= participants(seen)) continue;  // this loop is for fewer threads
            idle.restart();  // even if the caller was faster: it is in need of us now, and may be again soon
            const std::uint64_t loop = seen >> count_bits;
            {
                // Before the claim: a helper that waits here for a fork to end must not keep a part from the
                // caller.
                const user_section running_user_code;
                std::uint64_t last = me.claimed.load(std::memory_order_relaxed);
                // (B) pairs with finish(): whoever moves `claimed` to `loop` runs the part
                if (last >= loop || !me.claimed.compare_exchange_strong(last, loop, std::memory_order_acq_rel))
                    continue;
                part_(*this, k, participants(seen));  // the claim holds the caller in run(): it is this loop's
            }
            me.done.store(loop, std::memory_order_seq_cst);  // (C) publishes the results; (D) before `awaited_`
            if (awaited_.load(std::memory_order_seq_cst) == k) {
                finished_.fetch_add(1, std::memory_order_release);
                futex_wake(finished_);
            }
            idle.restart();
        }
    }

    /// When a helper ran out of work. The clock is read only after a first round of polls found nothing.
    struct idle_clock {
        std::uint64_t since = 0;
        void restart() noexcept { since = 0; }
        bool longer_than(std::int64_t ns) noexcept {
            const auto now = now_ns();
            if (since == 0) since = now;
            return static_cast<std::int64_t>(now - since) >= ns;
        }
    };

    /// Waits until the word differs from `seen`: spins for the budget, by time, then sleeps.
    std::uint64_t next_word(unsigned k, std::uint64_t seen, idle_clock& idle) noexcept {
        const auto spin = spin_ns_.load(std::memory_order_relaxed);
        for (int polls = 64;; polls = (std::min)(2 * polls, 1024)) {  // a look at the clock delays the answer
            for (int i = 0; i < polls; ++i) {
                const auto now = word_.load(std::memory_order_acquire);  // (A) pairs with run
                if (now != seen) return now;
                if (spin <= 0) break;
                cpu_relax();
            }
            if (idle.longer_than(spin)) break;
        }
        auto& [asleep, rising] = naps_[k / 64];
        const std::uint64_t mine = std::uint64_t{1} << (k % 64);
        for (;;) {
            // (W) The bell is read before the bit is set: whoever takes the bit away rings afterwards, so either
            // the futex finds another value or the sleeper is woken.
            const auto bell = bell_.load(std::memory_order_acquire);
            asleep.fetch_or(mine, std::memory_order_seq_cst);   // (S) before the look at the word below
            if (word_.load(std::memory_order_seq_cst) == seen)  // (S) this sees the new word, or run sees the bit
                ::syscall(SYS_futex, &bell_, FUTEX_WAIT_BITSET_PRIVATE, bell, nullptr, nullptr, wake_bit(k));
            // If the bit is gone the caller has taken it, and toggles `rising` once, as this does: in either order
            // the two leave it as it was.
            if ((asleep.fetch_and(~mine, std::memory_order_acq_rel) & mine) == 0)
                rising.fetch_xor(mine, std::memory_order_relaxed);
            if (const auto now = word_.load(std::memory_order_acquire); now != seen) return now;
        }
    }

    /// Wakes those of the helpers 1 .. n-1 that sleep; no system call if none does. Whether one of them is not up
    /// yet, from this wake or an earlier one: it may take a while when its CPU has other work.
    bool wake_sleepers(unsigned n) noexcept {
        std::uint32_t bits = 0;
        std::uint64_t late = 0;
        for (unsigned from = 0; from < n; from += 64) {
            auto& [asleep, rising] = naps_[from / 64];
            const auto among = n - from < 64 ? (std::uint64_t{1} << (n - from)) - 1 : ~std::uint64_t{0};
            if (auto found = asleep.load(std::memory_order_seq_cst) & among; found != 0) {  // (S)
                found &= asleep.fetch_and(~found, std::memory_order_acq_rel);  // (W) each nap is ended by one wake
                rising.fetch_xor(found, std::memory_order_relaxed);
                bits |= static_cast<std::uint32_t>(found) | static_cast<std::uint32_t>(found >> 32);
            }
            late |= rising.load(std::memory_order_relaxed) & among;
        }
        if (bits != 0) ring(bits);
        return late != 0;
    }
    [[gnu::noinline]] void ring(std::uint32_t bits) noexcept {
        bell_.fetch_add(1, std::memory_order_release);
        ::syscall(SYS_futex, &bell_, FUTEX_WAKE_BITSET_PRIVATE, (std::numeric_limits<int>::max)(), nullptr, nullptr,
                  bits);
    }
    static constexpr std::uint32_t wake_bit(unsigned k) noexcept { return 1U << (k % 32); }

    /// The caller's end of participant k: waits for its helper, or runs the part if nobody has begun it.
    [[gnu::noinline]] void finish(unsigned k, unsigned n, patience& left) {
        seat& s = *seats_[k];
        for (; left.pauses > 0; --left.pauses) {
            if (s.done.load(std::memory_order_acquire) == loop_) return;  // (C) pairs with help
            cpu_relax();
        }
        // Only now, since the look takes the line from its helper, which then pays to get it back for the next
        // loop.
        std::uint64_t last = s.claimed.load(std::memory_order_relaxed);
        if (last != loop_ && s.claimed.compare_exchange_strong(last, loop_, std::memory_order_acq_rel)) {  // (B)
            part_(*this, k, n);
            return;
        }
        idle_clock waiting;
        do {
            for (int i = 0; i < 64; ++i) {
                if (s.done.load(std::memory_order_acquire) == loop_) return;
                cpu_relax();
            }
        } while (!waiting.longer_than(spin_ns_.load(std::memory_order_relaxed)));
        awaited_.store(k, std::memory_order_seq_cst);  // (D) before the look at `done` below
        for (;;) {
            const auto seen = finished_.load(std::memory_order_acquire);
            if (s.done.load(std::memory_order_seq_cst) == loop_) break;  // (D) either this sees it, or help sees k
            if (lost()) throw usage_error(say::forked_inside_a_loop(k));
            futex_wait(finished_, seen, deadline::in(std::chrono::milliseconds(50)));
        }
        awaited_.store(0, std::memory_order_relaxed);
    }

    // Written by the caller once a loop, read by every helper: the word and what it announces, on one line.
    alignas(flag_line) std::atomic<std::uint64_t> word_{0};
    part_function part_ = nullptr;
    std::byte job_[most_job_bytes]{};
    std::atomic<std::int64_t> spin_ns_{0};

    // The caller's own.
    alignas(flag_line) std::atomic<bool> busy_{false};
    std::uint64_t loop_ = 0;
    std::uint32_t born_;
    std::vector<std::unique_ptr<seat>> seats_;
    mutable std::mutex growing_;  // seats_ against bindings()

    // Rarely written: only when somebody throws or goes to sleep.
    alignas(flag_line) first_exception error_;
    struct nap {
        std::atomic<std::uint64_t> asleep{0};  // helpers that sleep, or are about to, and were not woken yet
        std::atomic<std::uint64_t> rising{0};  // helpers that were woken and have not noticed yet
    };
    std::array<nap, most_threads / 64> naps_{};
    std::atomic<std::uint32_t> awaited_{0};   // the participant whose end the sleeping caller waits for
    std::atomic<std::uint32_t> bell_{0};      // helpers sleep on this
    std::atomic<std::uint32_t> finished_{0};  // the caller sleeps on this
};

}  // namespace trireme::detail
