#pragma once
// How an epoch is cut into steps, ranks and rows: pure arithmetic, the same on every rank, so that all ranks make
// the same number of steps and every sample goes where it should, whatever the number of ranks or workers.

#include <trireme/core/assert.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// What happens where the samples do not fill the last global batch.
enum class tail : std::uint8_t {
    pad,    ///< the batch is filled up with samples from the head of the epoch; those rows are not valid
    drop,   ///< the samples that do not fill a global batch are left out in this epoch
    exact,  ///< every sample once; rows without one are zero and not valid; equally many steps on all ranks
};

/// "pad", "drop", "exact".
constexpr std::string_view tail_name(tail t) noexcept {
    return t == tail::pad ? "pad" : t == tail::drop ? "drop" : "exact";
}

namespace detail::say {

inline message no_samples() {
    return {"the dataset has no samples", "sampling_plan, size() is 0",
            "check the path and the filter that made the dataset"};
}
inline message bad_batch_size(std::uint64_t batch_size) {
    return {"a batch of " + std::to_string(batch_size) + " samples is not possible", "sampling_plan",
            "give a batch size (per rank) from 1 to 2^32"};
}
inline message bad_shard(shard s) {
    return {"rank " + std::to_string(s.index) + " of " + std::to_string(s.count) + " does not exist",
            "sampling_plan, shard",
            "give .shard = {.index = rank, .count = ranks} with index < count, or world.shard()"};
}
inline message too_many_samples(std::uint64_t n) {
    return {"a dataset of " + std::to_string(n) + " samples is not possible, the largest has 2^63", "sampling_plan",
            "check what the dataset's size() returns; a negative number turns into a large one"};
}
inline message nothing_left_after_drop(std::uint64_t n, std::uint64_t batch_size, std::uint32_t ranks) {
    return {"tail::drop leaves no batch: " + std::to_string(n) + " samples do not fill one global batch of " +
                std::to_string(batch_size * ranks) + " (" + std::to_string(ranks) + " ranks, " +
                std::to_string(batch_size) + " each)",
            "sampling_plan", "fewer ranks, a smaller batch_size, or tail::pad or tail::exact"};
}

}  // namespace detail::say

/// What a plan is made from. `batch_size` is per rank.
struct sampling_options {
    std::uint64_t samples = 0;
    std::uint64_t batch_size = 1;
    trireme::shard shard = {};
    trireme::tail tail = trireme::tail::pad;
};

/// The steps of one epoch, as one rank sees them. With R ranks of B rows a global batch has G = R*B samples, and
/// row i of rank r at step t is the epoch's position t*G + i*R + r: the global batches depend on G only, not on R.
///
/// Threads    an immutable value
class sampling_plan {
  public:
    /// Throws     usage_error naming the numbers: no samples, a batch or shard that cannot be, nothing left (drop)
    constexpr explicit sampling_plan(const sampling_options& o) : o_(o) {
        constexpr std::uint64_t most = std::uint64_t{1} << 63;
        if (o.samples == 0) throw usage_error(detail::say::no_samples());
        if (o.samples > most) throw usage_error(detail::say::too_many_samples(o.samples));
        if (o.shard.index >= o.shard.count) throw usage_error(detail::say::bad_shard(o.shard));
        // 2^31 ranks times 2^32 rows stay below 2^63, so that no position overflows.
        if (o.batch_size == 0 || o.batch_size > std::uint64_t{1} << 32 || o.shard.count > std::uint32_t{1} << 31)
            throw usage_error(detail::say::bad_batch_size(o.batch_size));
        const std::uint64_t g = global_batch();
        steps_ = o.samples / g;
        if (o.tail != tail::drop && o.samples % g != 0) ++steps_;
        if (steps_ == 0)
            throw usage_error(detail::say::nothing_left_after_drop(o.samples, o.batch_size, o.shard.count));
    }

    /// Steps of an epoch, the same on every rank.
    constexpr std::uint64_t steps() const noexcept { return steps_; }
    constexpr std::uint64_t samples() const noexcept { return o_.samples; }
    constexpr std::uint64_t batch_size() const noexcept { return o_.batch_size; }
    constexpr std::uint64_t global_batch() const noexcept { return o_.batch_size * o_.shard.count; }
    constexpr trireme::shard shard() const noexcept { return o_.shard; }
    constexpr trireme::tail tail() const noexcept { return o_.tail; }

    /// The place in the epoch that belongs to a row; may be samples() or more at the last step.
    constexpr std::uint64_t raw_position(std::uint64_t step, std::uint64_t row) const noexcept {
        return step * global_batch() + row * o_.shard.count + o_.shard.index;
    }

    /// How many rows of this rank's batch are valid, a prefix; fewer than the batch size at the last step only.
    constexpr std::uint64_t valid_rows(std::uint64_t step) const noexcept {
        TRIREME_ASSERT(step < steps_, "a step lies behind the end of the epoch");
        const std::uint64_t first = raw_position(step, 0);
        if (first >= o_.samples) return 0;
        const std::uint64_t rows = (o_.samples - 1 - first) / o_.shard.count + 1;
        return rows < o_.batch_size ? rows : o_.batch_size;
    }
    /// How many rows hold a sample: all of them but for `exact`, where the others are zero.
    constexpr std::uint64_t filled_rows(std::uint64_t step) const noexcept {
        return o_.tail == tail::exact ? valid_rows(step) : o_.batch_size;
    }
    /// Valid rows over all ranks at this step: what a mean over samples divides by.
    constexpr std::uint64_t global_valid_rows(std::uint64_t step) const noexcept {
        const std::uint64_t first = step * global_batch(), left = o_.samples - first;
        return left < global_batch() ? left : global_batch();
    }

    /// The position in the epoch whose sample goes into a filled row: padding rows begin again at the head.
    constexpr std::uint64_t position(std::uint64_t step, std::uint64_t row) const noexcept {
        TRIREME_ASSERT(row < filled_rows(step), "this row holds no sample");
        const std::uint64_t p = raw_position(step, row);
        return p < o_.samples ? p : p % o_.samples;
    }

    /// The samples of rows first_row, first_row + 1, ... of this rank's batch, under a bound order.
    ///
    /// Returns    how many of `out` hold a sample, a prefix: fewer than asked only at the last step of `exact`
    template <class BoundOrder>
    constexpr std::size_t fill(const BoundOrder& order, std::uint64_t step, std::uint64_t first_row,
                               std::span<std::uint64_t> out) const noexcept {
        TRIREME_ASSERT(order.size() == o_.samples, "the order is bound to another number of samples");
        TRIREME_ASSERT(first_row + out.size() <= o_.batch_size, "more rows than the batch has");
        const std::uint64_t valid = valid_rows(step);
        std::size_t done = 0;
        if (first_row < valid) {
            done = static_cast<std::size_t>(valid - first_row < out.size() ? valid - first_row : out.size());
            order.fill(raw_position(step, first_row), o_.shard.count, out.first(done));
        }
        if (o_.tail == tail::exact) return done;
        for (; done < out.size(); ++done) out[done] = order.at(position(step, first_row + done));
        return done;
    }

    /// What all ranks have to agree on before the first step; the rank itself is not part of it.
    constexpr std::uint64_t hash(std::uint64_t seed, std::string_view order_kind, std::uint64_t schema_hash,
                                 std::uint64_t dataset_fingerprint) const noexcept {
        return hasher()
            .add("trireme sampling 1")
            .add(o_.samples)
            .add(seed)
            .add(o_.batch_size)
            .add(o_.shard.count)
            .add(static_cast<std::uint64_t>(o_.tail))
            .add(order_kind)
            .add(schema_hash)
            .add(dataset_fingerprint)
            .value();
    }

  private:
    sampling_options o_;
    std::uint64_t steps_ = 0;
};

}  // namespace trireme
