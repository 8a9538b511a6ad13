#pragma once
// What every engine's worker does: turn a claimed part of a batch into rows.

#include <trireme/core/ids.hpp>
#include <trireme/data/context.hpp>
#include <trireme/data/dataset.hpp>
#include <trireme/data/loader_options.hpp>
#include <trireme/data/order.hpp>
#include <trireme/data/row.hpp>
#include <trireme/data/sampling.hpp>
#include <trireme/shm/ring_worker.hpp>
#include <trireme/sys/fork_gate.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <unistd.h>

namespace trireme::detail {

/// The recipe: shared by all workers, read only.
template <class Data, class Order>
struct recipe {
    const Data* data = nullptr;
    Order order;
    sampling_plan plan;
    std::uint64_t seed = 0;
    on_error errors = on_error::raise;
};

/// One worker's state around the recipe: the order of the epoch in hand.
template <class Data, class Order>
class batch_maker {
    using schema = typename Data::schema;
    using bound = decltype(std::declval<const Order&>().bind(1, 1, 1));

  public:
    explicit batch_maker(const recipe<Data, Order>& r) noexcept : recipe_(r) {}

    /// Makes the claimed part and publishes it. Anything that `read` throws ends in the part's error record.
    template <class Worker>
    void make(Worker& worker, const part_claim& claim) {
        auto& memory = worker.memory();
        const batch_request request = memory.head(claim.slot).request;
        if (worker.cancelled(claim)) return static_cast<void>(worker.publish(claim, part_state::voided));
        std::uint64_t sample = 0;
        try {
            if (!bound_ || bound_epoch_ != request.epoch) {
                bound_.emplace(recipe_.order.bind(recipe_.plan.samples(), recipe_.seed, request.epoch));
                bound_epoch_ = request.epoch;
            }
            worker.begin(claim);
            if (!fill(worker, claim, request, sample))
                return static_cast<void>(worker.publish(claim, part_state::voided));
        } catch (...) {
            auto& record = memory.trouble(claim.slot, claim.part).record;
            record = {};
            describe_current_exception(record);
            record.worker = worker.index();
            record.pid = static_cast<std::int32_t>(::getpid());
            record.sample = sample;
            return static_cast<void>(worker.publish(claim, part_state::failed));
        }
        worker.hook().at(step::worker_filled);
        worker.publish(claim, part_state::ready);
    }

    /// A worker's life: claim, make, until told to stop. `alive()` is asked once a slice and may end it.
    template <class Worker, class Alive>
    void run(Worker& worker, Alive&& alive) {
        part_claim claim;
        for (;;) {
            switch (worker.next(claim, deadline::in(std::chrono::milliseconds(250)))) {
                case next_claim::claimed: {
                    const user_section here;
                    make(worker, claim);
                    break;
                }
                case next_claim::stopping:
                    return;
                case next_claim::nothing_yet:
                    if (!alive()) return;
                    break;
            }
        }
    }

  private:
    /// False when the batch was cancelled meanwhile.
    template <class Worker>
    bool fill(Worker& worker, const part_claim& claim, const batch_request& request, std::uint64_t& sample) {
        auto& memory = worker.memory();
        const auto& plan = recipe_.plan;
        const auto states = memory.row_states(claim.slot);
        const auto valid = static_cast<std::uint32_t>(plan.valid_rows(request.step));
        std::byte* const base = memory.payload(claim.slot);
        const std::uint32_t rows = memory.geometry().rows;
        std::array<std::uint64_t, 64> indices;  // many at once: several times as fast as one by one
        for (std::uint32_t first = claim.first_row; first < claim.last_row;) {
            const auto wanted = (std::min)(std::uint32_t{indices.size()}, claim.last_row - first);
            const auto filled = static_cast<std::uint32_t>(
                plan.fill(*bound_, request.step, first, std::span(indices).first(wanted)));
            for (std::uint32_t i = 0; i < wanted; ++i) {
                const std::uint32_t at = first + i;
                const row<schema> out(base, rows, at);
                if (i >= filled) {
                    out.clear();
                    states[at] = row_state::empty;
                    continue;
                }
                sample = indices[i];
                worker.record(sample);
                states[at] = at < valid ? row_state::valid : row_state::padding;
                read(worker, claim, request, sample, out, states[at]);
                if (at == claim.first_row) worker.hook().at(step::worker_half_filled);
                if (worker.cancelled(claim) || worker.told_to_stop()) return false;
            }
            first += wanted;
        }
        return true;
    }

    template <class Worker>
    void read(Worker& worker, const part_claim& claim, const batch_request& request, std::uint64_t sample,
              const row<schema>& out, row_state& state) {
        sample_context context({recipe_.seed, request.epoch, sample}, worker_id{worker.index()}, claim.attempt,
                               stop_signal{&worker.memory().control().phase, phase_stopping});
        if (recipe_.errors == on_error::raise) return static_cast<void>(recipe_.data->read(sample, out, context));
        try {
            recipe_.data->read(sample, out, context);
        } catch (...) {
            out.clear();
            state = row_state::skipped;
        }
    }

    const recipe<Data, Order>& recipe_;
    std::optional<bound> bound_;
    std::uint64_t bound_epoch_ = 0;
};

/// A dataset may want to do something once in each worker, before its first sample: open files, seed a library.
template <class Data>
void start_up(const Data& data, worker_id w) {
    if constexpr (requires { data.start_up(w); }) data.start_up(w);
}

}  // namespace trireme::detail
