#pragma once
// engine::threads: batches are made ahead by threads of this process. The default: C++ has no interpreter lock.

#include <trireme/core/observer.hpp>
#include <trireme/data/detail/batch_maker.hpp>
#include <trireme/data/detail/worker_count.hpp>
#include <trireme/data/loader_options.hpp>
#include <trireme/shm/backing/heap.hpp>
#include <trireme/shm/reaper.hpp>
#include <trireme/shm/ring.hpp>
#include <trireme/shm/ring_worker.hpp>
#include <trireme/sys/affinity.hpp>
#include <trireme/sys/thread.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::engine {

/// `workers` threads share the trainer's address space; `read` must be safe to call from all of them at once.
/// A read that never returns cannot be killed: after the grace its thread is abandoned with its memory, and a line
/// says so. Use engine::forked for code that may hang or crash.
struct threads {
    static constexpr const char* name = "engine::threads";
    using backing = trireme::backing::heap;

    std::uint32_t workers = 0;  ///< 0: what affinity and quota leave beside the trainer

    std::uint32_t worker_count() const { return workers != 0 ? workers : detail::default_workers(); }
    static constexpr bool works_ahead = true;

    template <class Core>
    class crew {
      public:
        crew(const threads& engine, ring<backing>& r, std::shared_ptr<const Core> core,
             const loader_options& options)
            : state_(std::make_shared<shared>(std::move(core), r.arena())), grace_(options.grace) {
            const std::uint32_t count = engine.worker_count();
            const auto spin = detail::loader_spin(count);
            threads_.reserve(count);
            for (std::uint32_t w = 0; w < count; ++w) {
                const std::string label = "tri-load-" + std::to_string(w);
                state_->running.fetch_add(1, std::memory_order_relaxed);
                try {
                    threads_.emplace_back(label.c_str(), [state = state_, w, spin] {
                        work(*state, w, spin);
                        state->running.fetch_sub(1, std::memory_order_release);
                        futex_wake(state->running);
                    });
                } catch (...) {
                    state_->running.fetch_sub(1, std::memory_order_relaxed);
                    r.stop();
                    static_cast<void>(stop());
                    throw;
                }
            }
        }
        ~crew() { static_cast<void>(stop()); }

        void help() const noexcept {}
        void watch() const noexcept {}
        bool ready() const noexcept { return state_->ready.load(std::memory_order_acquire) == threads_.size(); }

        /// Waits for the threads to leave, at most the grace. A sentence if some had to be abandoned.
        std::optional<std::string> stop() noexcept {
            const auto until = deadline::in(grace_);
            auto& running = state_->running;
            for (auto n = running.load(std::memory_order_acquire); n != 0 && !until.passed();
                 n = running.load(std::memory_order_acquire)) {
                futex_wait(running, n, until.slice(std::chrono::milliseconds(50)));
            }
            const auto stuck = running.load(std::memory_order_acquire);
            for (auto& t : threads_) stuck == 0 ? t.join() : t.abandon();
            threads_.clear();
            if (stuck == 0) return std::nullopt;
            return std::to_string(stuck) +
                   " loader thread(s) did not return from read within the grace and were "
                   "abandoned with their memory";
        }

      private:
        /// What a thread needs even when the loader has gone without it.
        struct shared {
            shared(std::shared_ptr<const Core> c, std::shared_ptr<detail::ring_arena<backing>> a)
                : core(std::move(c)), arena(std::move(a)) {}
            std::shared_ptr<const Core> core;
            std::shared_ptr<detail::ring_arena<backing>> arena;
            std::atomic<std::uint32_t> running{0}, ready{0};
        };

        static void work(shared& state, std::uint32_t w, std::chrono::nanoseconds spin) {
            ring_worker<> worker(state.arena->memory, worker_id{w}, 1, scope::threads, wait::futex{spin});
            typename Core::maker maker(state.core->recipe);
            try {
                const user_section here;
                detail::use_process_cpus();
                detail::start_up(state.core->data, worker_id{w});
            } catch (...) {
                error_record record;
                detail::describe_current_exception(record);
                record.worker = w;
                record.pid = static_cast<std::int32_t>(::getpid());
                return detail::end_ring(state.arena->memory, record, wait::futex{});
            }
            state.ready.fetch_add(1, std::memory_order_release);
            maker.run(worker, [] { return true; });
        }

        std::shared_ptr<shared> state_;
        std::vector<registered_thread> threads_;
        std::chrono::nanoseconds grace_;
    };
};

}  // namespace trireme::engine
