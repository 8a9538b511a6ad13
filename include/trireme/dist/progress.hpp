#pragma once
// Who reduces buckets while backward goes on: the caller, inside ready(), or a thread of ours.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/bytes.hpp>
#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/dist/bucket.hpp>
#include <trireme/dist/detail/bucket_queue.hpp>
#include <trireme/dist/detail/spin_budget.hpp>
#include <trireme/sys/futex.hpp>
#include <trireme/sys/thread.hpp>
#include <trireme/sys/wait.hpp>

namespace trireme::progress {

/// Every ready() starts the buckets that are full and reduces this rank's share of those that all peers have
/// started; finish() does the rest. Costs no thread; right when every CPU computes.
struct in_caller {
    template <class Channel>
    class driver {
      public:
        driver(Channel& c, std::byte* gradients) : queue_(c, gradients) {}
        void begin(const std::vector<bucket>& all) { queue_.begin(all), full_ = 0; }
        void full(std::size_t n) noexcept { full_ = n; }
        bool advance() { return queue_.advance(full_); }
        std::size_t reduced() const noexcept { return queue_.reduced(); }
        void finish(std::optional<deadline> until) {
            queue_.wait(full_, full_, until, [] { return false; });
        }

      private:
        detail::bucket_queue<Channel> queue_;
        std::size_t full_ = 0;
    };
};

/// A registered thread starts and reduces buckets as they become full. Right when the plan leaves it a CPU: it
/// sleeps while there is nothing to do, and spins only if there are two CPUs for every rank.
struct thread {
    template <class Channel>
    class driver {
      public:
        driver(Channel& c, std::byte* gradients) : channel_(&c), queue_(c, gradients) {
            const bool room = 2 * c.size() <= detail::usable_cpus();
            spin_ = room ? std::chrono::microseconds(100) : std::chrono::microseconds(0);
            if constexpr (requires { c.set_spin(spin_); }) c.set_spin(spin_);
            runner_ = registered_thread("trireme-ddp", [this] { run(); });
        }
        driver(const driver&) = delete;
        driver& operator=(const driver&) = delete;
        ~driver() {
            stop_.store(1, std::memory_order_seq_cst);
            bell();
            runner_.join();
        }

        void begin(const std::vector<bucket>& all) {  // the thread rests: nothing is full
            all_ = &all;
            reduced_.store(0, std::memory_order_relaxed);
            full_.store(0, std::memory_order_relaxed);
            step_.fetch_add(1, std::memory_order_release);
        }
        void full(std::size_t n) noexcept {
            full_.store(static_cast<std::uint32_t>(n), std::memory_order_seq_cst);
            bell();
        }
        bool advance() {
            rethrow();
            return false;
        }
        std::size_t reduced() const noexcept { return reduced_.load(std::memory_order_acquire); }
        void finish(std::optional<deadline> until) {
            const std::uint32_t target = full_.load(std::memory_order_relaxed);
            const wait::futex how{spin_};
            for (;;) {
                const std::uint32_t seen = reduced_.load(std::memory_order_seq_cst);
                rethrow();
                if (seen >= target) return;
                if (until && until->passed()) {
                    const std::string what = "bucket " + std::to_string(seen) + " of " +
                                             std::to_string(all_->size()) + " was not reduced in time";
                    channel_->abort(what);
                    throw timeout_error({what,
                                         "ddp, rank " + std::to_string(channel_->rank()) + " of " +
                                             std::to_string(channel_->size()),
                                         "a later deadline, or see what the other ranks do"});
                }
                const deadline slice = deadline::in(std::chrono::milliseconds(50));
                how.until_different(reduced_, seen, until && until->at() < slice.at() ? *until : slice);
            }
        }

      private:
        bool interrupted(std::uint32_t known) const noexcept {
            return full_.load(std::memory_order_seq_cst) != known || stop_.load(std::memory_order_seq_cst) != 0;
        }
        void bell() noexcept {
            bell_.fetch_add(1, std::memory_order_seq_cst);
            futex_wake(bell_);
            if constexpr (requires { channel_->nudge(); }) channel_->nudge();
        }
        void rethrow() {
            if (failed_.load(std::memory_order_acquire) != 0) std::rethrow_exception(error_);
        }
        void tell(std::size_t n) noexcept {
            reduced_.store(static_cast<std::uint32_t>(n), std::memory_order_seq_cst);
            futex_wake(reduced_);
        }
        void run() {
            std::uint32_t step = 0;
            while (stop_.load(std::memory_order_seq_cst) == 0) {
                const std::uint32_t heard = bell_.load(std::memory_order_seq_cst);
                if (const auto now = step_.load(std::memory_order_acquire);
                    now != step && full_.load(std::memory_order_seq_cst) != 0) {
                    step = now;
                    queue_.begin(*all_);
                }
                const std::uint32_t full = full_.load(std::memory_order_seq_cst);
                if (failed_.load(std::memory_order_relaxed) != 0 || step_.load(std::memory_order_acquire) != step ||
                    queue_.reduced() >= full) {
                    futex_wait(bell_, heard, deadline::in(std::chrono::seconds(1)));
                    continue;
                }
                try {
                    const std::size_t before = queue_.reduced();
                    // One bucket at a time, so that each is told as soon as it is reduced.
                    queue_.wait(before + 1, full, std::nullopt, [&] { return interrupted(full); });
                    if (queue_.reduced() != before) tell(queue_.reduced());
                } catch (...) {
                    error_ = std::current_exception();
                    failed_.store(1, std::memory_order_release);
                    futex_wake(reduced_);
                }
            }
        }

        Channel* channel_;
        detail::bucket_queue<Channel> queue_;  // the thread's
        const std::vector<bucket>* all_ = nullptr;
        std::chrono::nanoseconds spin_{0};
        std::exception_ptr error_;
        alignas(flag_line) std::atomic<std::uint32_t> bell_{0};
        std::atomic<std::uint32_t> full_{0};
        std::atomic<std::uint32_t> step_{0};
        std::atomic<std::uint32_t> stop_{0};
        alignas(flag_line) std::atomic<std::uint32_t> reduced_{0};
        std::atomic<std::uint32_t> failed_{0};
        registered_thread runner_;
    };
};

}  // namespace trireme::progress
