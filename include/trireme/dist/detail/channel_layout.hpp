#pragma once
// What a channel looks like in shared memory. A channel is one sequence of collectives among the ranks of a group:
// every rank publishes operation n in its own ring of entries and counts, in counters that only it writes, how far
// it has come. Nothing is ever reset and nothing is locked, so a rank that dies leaves a readable state.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <trireme/core/bytes.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/core/version.hpp>
#include <trireme/dist/detail/failure.hpp>

namespace trireme::detail {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "flags in shared memory must be address-free");

/// Operation n of one rank. Everything but `seq` is written before `seq` is, and stays until the ring comes round.
struct alignas(flag_line) op_entry {
    static constexpr std::size_t inline_bytes = 88;

    std::atomic<std::uint64_t> seq;  ///< n + 1 once this is operation n
    std::uint64_t signature;         ///< operation, type, reduction, root: equal on every rank
    std::uint64_t count;             ///< elements: equal on every rank
    std::uint64_t place;    ///< where the input lies: 1 + segment in the upper 16 bits, offset; 0 = private
    std::uint32_t payload;  ///< 1 + bytes of input that lie in `bytes` or in the payload slot; 0 = none
    std::uint32_t reserved;
    std::byte bytes[inline_bytes];
};
static_assert(sizeof(op_entry) == flag_line && alignof(op_entry) == flag_line);

/// Counters of one rank, written by it alone. Monotone.
struct alignas(flag_line) rank_counters {
    std::atomic<std::uint64_t> done;  ///< operations that this rank has finished its part of
    std::byte pad1[flag_line - 8];
    std::atomic<std::uint64_t> put;     ///< staged chunks written
    std::atomic<std::uint64_t> worked;  ///< staged chunks combined
    std::byte pad2[flag_line - 16];
};
static_assert(sizeof(rank_counters) == 2 * flag_line);

/// Where one rank sleeps. `bell` is rung by others.
struct alignas(flag_line) rank_bell {
    std::atomic<std::uint32_t> bell;
    std::atomic<std::uint32_t> parked;  ///< 1 + the rank that this one waits for, 0 when awake
    std::atomic<std::uint32_t> left;    ///< 1 once this rank has closed its end, 2 if by an exception passing
    std::byte pad[flag_line - 12];
};
static_assert(sizeof(rank_bell) == flag_line);

struct alignas(flag_line) channel_header {
    std::uint64_t magic;
    std::uint64_t layout;
    failure_record aborted;
};

struct channel_options {
    std::size_t stage_bytes = 256_KiB;  ///< of a staging slot; four of them a rank
};

/// Where everything lies. A pure function of the number of ranks and the options.
struct channel_layout {
    static constexpr std::uint32_t entries = 64;         ///< operations in flight
    static constexpr std::uint32_t payload_slots = 16;   ///< of them with a small payload
    static constexpr std::size_t payload_bytes = 4_KiB;  ///< what counts as small
    // The parts of different ranks do not lie a power of two apart: ranks work at the same offset of all of them at
    // once, and a cache that is indexed by address bits would hold only few of them.
    static constexpr std::size_t skew = 1280;
    static constexpr std::size_t ring_stride = entries * sizeof(op_entry) + skew;
    static constexpr std::size_t payload_stride = payload_slots * payload_bytes + skew;
    static constexpr std::uint64_t magic = 0x656e6e6168437274ULL;

    std::uint32_t ranks = 1;
    std::size_t stage_bytes = 0;
    std::size_t counters = 0, bells = 0, rings = 0, payloads = 0, stages = 0, total = 0;

    constexpr explicit channel_layout(std::uint32_t rank_count, channel_options o = {})
        : ranks(rank_count), stage_bytes(align_up(o.stage_bytes, flag_line)) {
        counters = align_up(sizeof(channel_header), flag_line);
        bells = counters + ranks * sizeof(rank_counters);
        rings = bells + ranks * sizeof(rank_bell);
        payloads = align_up(rings + ranks * ring_stride, page_bytes);
        stages = payloads + ranks * payload_stride;
        total = align_up(stages + ranks * std::size_t{4} * stage_stride(), page_bytes);
    }
    constexpr std::size_t stage_stride() const noexcept { return stage_bytes + skew; }
    constexpr std::uint64_t hash() const noexcept {
        return hasher{}
            .add(version.major_part)
            .add(version.minor_part)
            .add(version.patch_part)
            .add(ranks)
            .add(stage_bytes)
            .add(total)
            .add(sizeof(op_entry))
            .add(sizeof(failure_record))
            .value();
    }
};

}  // namespace trireme::detail
