#pragma once
// Strong types for the small integers that are easy to swap: ranks, worlds, workers, slots.

#include <compare>
#include <cstdint>

namespace trireme {

namespace detail {
template <class Tag, class Int>
struct strong {
    Int value{};
    constexpr strong() = default;
    constexpr explicit strong(Int v) noexcept : value(v) {}
    friend constexpr auto operator<=>(strong, strong) = default;
};
}  // namespace detail

/// A process's place in the job, 0 .. world_size-1.
struct rank : detail::strong<struct rank_tag, std::uint32_t> {
    using strong::strong;
};
/// How many ranks the job has, at least 1.
struct world_size : detail::strong<struct world_size_tag, std::uint32_t> {
    using strong::strong;
};
/// How many ranks `launch` starts.
struct ranks : detail::strong<struct ranks_tag, std::uint32_t> {
    using strong::strong;
};
/// A loader worker's index, 0 .. workers-1; it stays the same over respawns.
struct worker_id : detail::strong<struct worker_tag, std::uint32_t> {
    using strong::strong;
};
/// A batch's sequence number in its ring; grows for as long as the ring lives.
struct batch_number : detail::strong<struct batch_tag, std::uint64_t> {
    using strong::strong;
};
/// How many slots a ring has, and into how many parts a batch is cut.
struct slots : detail::strong<struct slots_tag, std::uint32_t> {
    using strong::strong;
};
struct parts : detail::strong<struct parts_tag, std::uint32_t> {
    using strong::strong;
};

/// Which share of a whole this process takes: rank `index` of `count`.
struct shard {
    std::uint32_t index = 0;
    std::uint32_t count = 1;
    friend constexpr bool operator==(shard, shard) = default;
};

}  // namespace trireme
