#pragma once
// engine::forked: batches are made ahead by worker processes, which may crash, hang or leak without the trainer.

#include <trireme/data/detail/batch_maker.hpp>
#include <trireme/data/detail/worker_count.hpp>
#include <trireme/data/loader_options.hpp>
#include <trireme/shm/backing/memfd.hpp>
#include <trireme/shm/reaper.hpp>
#include <trireme/shm/ring.hpp>
#include <trireme/shm/ring_worker.hpp>
#include <trireme/shm/workers.hpp>
#include <trireme/sys/process.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace trireme::engine {

/// `workers` processes inherit the dataset copy-on-write and write into shared slots. They are forked, watched and
/// replaced by a zygote that is forked when the loader is made, so make the loader before foreign threads start and
/// before CUDA is initialised; where that cannot be, it refuses with the reason.
///
/// Hook   tests kill a worker at every step of the protocol; others leave it alone
template <step_hook Hook = no_steps>
struct basic_forked {
    static constexpr const char* name = "engine::forked";
    using backing = trireme::backing::memfd;

    std::uint32_t workers = 0;  ///< 0: what affinity and quota leave beside the trainer
    Hook hook{};

    std::uint32_t worker_count() const { return workers != 0 ? workers : detail::default_workers(); }
    static constexpr bool works_ahead = true;

    template <class Core>
    class crew {
      public:
        crew(const basic_forked& engine, ring<backing>& r, std::shared_ptr<const Core> core,
             const loader_options& options)
            : memory_(r.memory()), count_(engine.worker_count()) {
            detail::refuse_after_cuda(name);
            const auto memory = r.memory();
            const auto spin = detail::loader_spin(count_);
            const pid_t trainer = ::getpid();
            r.backing().inherit(true);
            const auto hide = [&r] { r.backing().inherit(false); };
            try {
                processes_ = worker_processes(
                    {.who = name, .count = count_, .grace = options.grace},
                    [memory, core, spin, trainer, hook = engine.hook](worker_id w, std::uint32_t incarnation) {
                        return work(memory, *core, w, incarnation, spin, trainer, hook);
                    },
                    [memory, policy = options.on_death, hook = engine.hook](worker_id w, pid_t pid,
                                                                            exit_status status) {
                        return bury(memory, w.value, pid, status, policy, hook);
                    });
            } catch (...) {
                hide();
                throw;
            }
            hide();
        }

        void help() const noexcept {}
        /// Throws  peer_error when the zygote, and with it every worker, is dead
        void watch() {
            if (const auto status = processes_.lost())
                throw peer_error(zygote_lost(processes_.zygote_pid(), *status));
        }
        bool ready() const noexcept {
            for (std::uint32_t w = 0; w < count_; ++w) {
                if (memory_.worker(w).ready.load(std::memory_order_acquire) == 0) return false;
            }
            return true;
        }
        std::optional<std::string> stop() noexcept {
            processes_.stop();
            return std::nullopt;
        }
        pid_t zygote_pid() const noexcept { return processes_.zygote_pid(); }

        static message zygote_lost(pid_t pid, exit_status status) {
            return {
                "the loader's zygote (pid " + std::to_string(pid) + ") " + describe(status) +
                    ", and with it all loader workers",
                "pid " + std::to_string(::getpid()),
                "look for whoever kills processes here (the kernel's log tells of the OOM killer); make the loader "
                "anew"};
        }

      private:
        static int work(const detail::ring_memory& memory, const Core& core, worker_id w, std::uint32_t incarnation,
                        std::chrono::nanoseconds spin, pid_t trainer, const Hook& hook) {
            ring_worker<wait::futex, Hook> worker(memory, w, incarnation, scope::processes, wait::futex{spin},
                                                  hook);
            try {
                detail::use_process_cpus();
                detail::start_up(core.data, w);
            } catch (...) {
                error_record record;
                detail::describe_current_exception(record);
                record.worker = w.value;
                record.pid = static_cast<std::int32_t>(::getpid());
                detail::end_ring(memory, record, wait::futex{});
                return start_up_failed;
            }
            worker.set_ready();
            const auto watched = pidfd::open(trainer);
            typename Core::maker maker(core.recipe);
            maker.run(worker, [&watched] { return !watched.dead(); });
            return 0;
        }

        /// In the zygote. True when the worker is to be started anew.
        static bool bury(const detail::ring_memory& memory, std::uint32_t w, pid_t pid, exit_status status,
                         on_death policy, const Hook& hook) {
            if (memory.control().fatal.load(std::memory_order_acquire) == detail::ring_over) return false;
            detail::reap(memory, w, pid, status, policy, wait::futex{}, hook);
            if (pid != 0 && detail::within_budget(memory.worker(w))) return true;
            error_record record;
            record.kind = static_cast<std::uint32_t>(errc::peer);
            record.worker = w;
            record.pid = static_cast<std::int32_t>(pid);
            record.signal = status.signal;
            record.sample = memory.worker(w).dead_sample;
            record.text.assign(pid == 0
                                   ? "worker " + std::to_string(w) + " could not be forked"
                                   : "worker " + std::to_string(w) + " (pid " + std::to_string(pid) + ") " +
                                         describe(status) + ", the " + std::to_string(detail::respawn_budget + 1) +
                                         "th death of this worker without progress in between");
            detail::end_ring(memory, record, wait::futex{});
            return false;
        }

        static constexpr int start_up_failed = 113;

        detail::ring_memory memory_;
        std::uint32_t count_;
        worker_processes processes_;
    };
};

using forked = basic_forked<>;

}  // namespace trireme::engine
