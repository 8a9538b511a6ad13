#pragma once
// A batch in the consumer's hand: the slot is its own until the lease is dropped.

#include <trireme/shm/ring_layout.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace trireme {

namespace detail {

/// What a ring and its leases share: the memory, and a flag a slot.
template <class Backing>
struct ring_arena {
    ring_arena(const char* name, std::size_t bytes, const ring_geometry& g)
        : backing(name, bytes), memory(backing.data(), g), leased(new std::atomic<std::uint32_t>[g.slots]()) {
        memory.format();
    }
    Backing backing;
    ring_memory memory;
    std::unique_ptr<std::atomic<std::uint32_t>[]> leased;
};

}  // namespace detail

/// Untyped: bytes, row states and troubles of one batch. Move-only; several may be held; may outlive the ring.
///
/// Threads  may be dropped on another thread than it was taken on; the slot is opened again by the consumer's next
/// call
class raw_lease {
  public:
    raw_lease() noexcept = default;
    raw_lease(std::shared_ptr<void> arena, const detail::ring_memory& memory, std::uint32_t slot,
              std::uint64_t batch, std::atomic<std::uint32_t>* flag) noexcept
        : arena_(std::move(arena)), memory_(memory), slot_(slot), batch_(batch), flag_(flag) {}
    raw_lease(raw_lease&& other) noexcept
        : arena_(std::move(other.arena_)),
          memory_(other.memory_),
          slot_(other.slot_),
          batch_(other.batch_),
          flag_(std::exchange(other.flag_, nullptr)) {}
    raw_lease& operator=(raw_lease&& other) noexcept {
        if (this != &other) {
            release();
            arena_ = std::move(other.arena_);
            memory_ = other.memory_;
            slot_ = other.slot_;
            batch_ = other.batch_;
            flag_ = std::exchange(other.flag_, nullptr);
        }
        return *this;
    }
    ~raw_lease() { release(); }

    /// Gives the slot back. The memory must not be used afterwards.
    void release() noexcept {
        if (flag_ == nullptr) return;
        flag_->store(0, std::memory_order_release);  // (E) the consumer's reads come before the refill
        flag_ = nullptr;
        arena_.reset();
    }
    bool valid() const noexcept { return flag_ != nullptr; }

    std::byte* data() const noexcept { return memory_.payload(slot_); }
    const batch_request& request() const noexcept { return memory_.head(slot_).request; }
    std::uint64_t number() const noexcept { return batch_; }
    std::uint32_t slot() const noexcept { return slot_; }
    std::span<const row_state> row_states() const noexcept { return memory_.row_states(slot_); }

    /// The first part that failed, or null.
    const error_record* failure() const noexcept {
        for (std::uint32_t p = 0; p < memory_.geometry().parts; ++p) {
            const auto w = part_word::decode(memory_.word(slot_, p).load(std::memory_order_acquire));
            if (w.state == part_state::failed) return &memory_.trouble(slot_, p).record;
        }
        return nullptr;
    }
    /// The workers that made the parts, in part order: two of them may share a batch.
    std::uint32_t maker(std::uint32_t part) const noexcept {
        return part_word::decode(memory_.word(slot_, part).load(std::memory_order_relaxed)).worker;
    }

  private:
    std::shared_ptr<void> arena_;
    detail::ring_memory memory_;
    std::uint32_t slot_ = 0;
    std::uint64_t batch_ = 0;
    std::atomic<std::uint32_t>* flag_ = nullptr;
};

}  // namespace trireme
