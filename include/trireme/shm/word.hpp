#pragma once
// The state of one part of a batch, in one 64-bit word, so that "who owns this" has an answer after a crash at any
// instruction.

#include <atomic>
#include <cstdint>

namespace trireme {

enum class part_state : std::uint8_t {
    idle,     ///< never opened
    open,     ///< wants to be filled; nobody writes the payload
    filling,  ///< its owner writes the payload
    ready,    ///< filled
    failed,   ///< user code threw, or died too often: the part's error record says what
    voided,   ///< cancelled before it was filled
};

/// A decoded word: `state:4 | attempt:4 | worker:8 | incarnation:8 | batch:40`.
/// Every transition is one CAS or one store; only the owner, or the reaper for an owner that the kernel has
/// confirmed dead, leaves `filling`. 40 bits are 10^12 batches, and a slot's batch only grows, so there is no ABA.
struct part_word {
    part_state state = part_state::idle;
    std::uint8_t attempt = 0;  ///< how many owners died on it, saturating at 15
    std::uint8_t worker = 0;
    std::uint8_t incarnation = 0;  ///< of the worker, modulo 256
    std::uint64_t batch = 0;

    static constexpr std::uint64_t batch_mask = (std::uint64_t{1} << 40) - 1;

    constexpr std::uint64_t encode() const noexcept {
        return (static_cast<std::uint64_t>(state) << 60) | (static_cast<std::uint64_t>(attempt & 15U) << 56) |
               (static_cast<std::uint64_t>(worker) << 48) | (static_cast<std::uint64_t>(incarnation) << 40) |
               (batch & batch_mask);
    }
    static constexpr part_word decode(std::uint64_t w) noexcept {
        return {static_cast<part_state>(w >> 60), static_cast<std::uint8_t>((w >> 56) & 15U),
                static_cast<std::uint8_t>(w >> 48), static_cast<std::uint8_t>(w >> 40), w & batch_mask};
    }
    constexpr bool done() const noexcept {
        return state == part_state::ready || state == part_state::failed || state == part_state::voided;
    }
    friend constexpr bool operator==(const part_word&, const part_word&) = default;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
              "trireme: shared memory needs lock-free 64-bit atomics");
static_assert(part_word::decode(part_word{part_state::filling, 3, 7, 9, 12345}.encode()) ==
              part_word{part_state::filling, 3, 7, 9, 12345});

}  // namespace trireme
