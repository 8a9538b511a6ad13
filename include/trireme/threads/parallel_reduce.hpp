#pragma once
// Reductions that give the same bits for any number of threads.

#include <trireme/threads/parallel_for.hpp>
#include <trireme/threads/pool.hpp>
#include <trireme/threads/schedule.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace trireme {

namespace detail {

/// Into how many chunks a reduction over n indices is cut: a matter of n and grain alone.
constexpr std::uint64_t reduction_chunks(std::uint64_t n, std::uint64_t grain) noexcept {
    return (std::min)(std::uint64_t{256}, (std::max)(std::uint64_t{1}, n / (std::max)(std::uint64_t{1}, grain)));
}

/// One partial result for each chunk; on the stack unless the results are large.
template <class T>
struct partial_results {
    static constexpr bool on_stack = sizeof(std::optional<T>) * 256 <= 32768;
    using storage =
        std::conditional_t<on_stack, std::array<std::optional<T>, 256>, std::unique_ptr<std::optional<T>[]>>;
    storage slots;
    explicit partial_results(std::uint64_t n) {
        if constexpr (!on_stack) slots = std::make_unique<std::optional<T>[]>(n);
    }
};

}  // namespace detail

/// Folds map(b, e) over blocks of `indices` with `combine`, starting from `identity`.
///
/// The blocks depend on the range and its grain alone (at most 256, of at least `grain` indices), and are combined
/// in the order of their indices: combine(... combine(combine(identity, r0), r1) ..., rn). So the result has the
/// same bits for any number of threads, for floating point too.
///
/// Returns  identity for an empty range
/// Blocks, Throws, Threads, Memory  as parallel_for; `combine` is called in this thread only
template <std::integral Index, class T, class Map, class Combine>
requires std::invocable<Map&, Index, Index> && std::convertible_to<std::invoke_result_t<Map&, Index, Index>, T>
[[nodiscard]] T parallel_reduce(pool& p, blocked<Index> indices, T identity, Map&& map, Combine&& combine) {
    const range<Index> all{indices.begin, indices.end, 1};
    const detail::index_space space(all);
    const auto count = detail::count_of(all);
    if (count == 0) return identity;
    const auto chunks = detail::reduction_chunks(count, indices.grain);
    const detail::cuts grid(count, chunks);
    detail::partial_results<T> parts(chunks);
    parallel_for(p, schedule::dynamic{}, std::uint64_t{0}, chunks, [&](std::uint64_t c) {
        const auto chunk = grid[c];
        parts.slots[c].emplace(std::invoke(map, space.at(chunk.first), space.at(chunk.last)));
    });
    T result = std::move(identity);
    for (std::uint64_t c = 0; c < chunks; ++c)
        result = std::invoke(combine, std::move(result), *std::move(parts.slots[c]));
    return result;
}
template <std::integral Begin, std::integral End, class T, class Map, class Combine>
requires std::invocable<Map&, std::common_type_t<Begin, End>, std::common_type_t<Begin, End>>
[[nodiscard]] T parallel_reduce(pool& p, Begin begin, End end, T identity, Map&& map, Combine&& combine) {
    const auto r = detail::one_range(begin, end);
    return parallel_reduce(p, blocked<decltype(r.begin)>{r.begin, r.end}, std::move(identity), map, combine);
}

}  // namespace trireme
