#pragma once
// A batch in the trainer's hand: typed tensors over a slot, read in place.

#include <trireme/core/ids.hpp>
#include <trireme/data/row.hpp>
#include <trireme/data/schema.hpp>
#include <trireme/shm/lease.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

namespace trireme {

/// One batch. The slot under it belongs to the holder until the batch is dropped; several may be kept, as many as
/// the loader has slots. Move-only; may outlive the loader.
///
/// Shape    fields(): one tensor per field, [rows(), extents...], row-major; rows() is the batch size on every step
/// Threads  may be read from many, and dropped on another thread than it was taken on
template <sample_schema Schema>
class batch {
  public:
    batch() noexcept = default;
    batch(raw_lease lease, std::size_t rows) noexcept : lease_(std::move(lease)), rows_(rows) {}

    /// `auto [image, label] = batch.fields();`
    auto fields() const noexcept { return view().fields(); }
    /// `batch.get<"image">()`
    template <fixed_string Name>
    auto get() const noexcept {
        return view().template get<Name>();
    }
    /// Rows in memory: the batch size, whatever the step.
    std::size_t rows() const noexcept { return rows_; }
    /// Rows that hold a sample of this epoch: all, but at the last step and where samples were skipped.
    std::size_t valid_rows() const noexcept {
        const auto states = lease_.row_states();
        return static_cast<std::size_t>(std::count(states.begin(), states.end(), row_state::valid));
    }
    bool valid(std::size_t row) const noexcept { return lease_.row_states()[row] == row_state::valid; }
    row_state state(std::size_t row) const noexcept { return lease_.row_states()[row]; }

    std::uint64_t epoch() const noexcept { return lease_.request().epoch; }
    /// The batch's place in its epoch, 0 .. steps-1.
    std::uint64_t step() const noexcept { return lease_.request().step; }

    /// Gives the slot back before the batch dies; its memory must not be used afterwards.
    void release() noexcept { lease_.release(); }
    /// False once released or moved from.
    explicit operator bool() const noexcept { return lease_.valid(); }
    const raw_lease& lease() const noexcept { return lease_; }

  private:
    batch_fields<Schema> view() const noexcept { return batch_fields<Schema>(lease_.data(), rows_); }

    raw_lease lease_;
    std::size_t rows_ = 0;
};

}  // namespace trireme
