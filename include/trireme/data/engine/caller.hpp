#pragma once
// engine::caller: batches are made where they are asked for, by the thread that asks. No worker, no wake, no copy.

#include <trireme/data/detail/batch_maker.hpp>
#include <trireme/data/loader_options.hpp>
#include <trireme/shm/backing/heap.hpp>
#include <trireme/shm/ring.hpp>
#include <trireme/shm/ring_worker.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace trireme::engine {

/// For cheap data, for debugging, and as the reference the other engines are compared with byte by byte.
struct caller {
    static constexpr const char* name = "engine::caller";
    using backing = trireme::backing::heap;

    std::uint32_t worker_count() const noexcept { return 1; }
    /// Nobody makes anything ahead, so nobody spins.
    static constexpr bool works_ahead = false;

    template <class Core>
    class crew {
      public:
        crew(const caller&, ring<backing>& r, std::shared_ptr<const Core> core, const loader_options&)
            : core_(std::move(core)), worker_(r.memory(), worker_id{0}, 1, scope::threads), maker_(core_->recipe) {
            start_up();
        }
        /// Makes the batch that is taken next, unless it is there.
        void help() {
            part_claim claim;
            while (worker_.try_claim(claim)) {
                maker_.make(worker_, claim);
                if (worker_.memory().complete(claim.batch)) return;
            }
        }
        void watch() const noexcept {}
        bool ready() const noexcept { return true; }
        std::optional<std::string> stop() noexcept { return std::nullopt; }

      private:
        void start_up() {
            try {
                detail::start_up(core_->data, worker_id{0});
            } catch (...) {
                error_record record;
                detail::describe_current_exception(record);
                record.pid = static_cast<std::int32_t>(::getpid());
                detail::end_ring(worker_.memory(), record, wait::futex{});
            }
        }

        std::shared_ptr<const Core> core_;
        ring_worker<> worker_;
        typename Core::maker maker_;
    };
};

}  // namespace trireme::engine
