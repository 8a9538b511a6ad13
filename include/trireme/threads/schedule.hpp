#pragma once
// Which indices a loop visits (range, blocked), and how they are shared out among threads (schedule::).

#include <trireme/core/error.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace trireme {

/// The indices begin, begin + step, ... that lie before `end`; with a negative step, those that lie after it.
/// `range{10, 0, -3}` is 10 7 4 1. A step of 0 is an error when the loop starts.
template <std::integral Index>
struct range {
    Index begin{};
    Index end{};
    std::make_signed_t<Index> step = 1;
};
template <class Begin, class End>
range(Begin, End) -> range<std::common_type_t<Begin, End>>;
template <class Begin, class End, class Step>
range(Begin, End, Step) -> range<std::common_type_t<Begin, End>>;

/// The indices [begin, end), handed to the body in contiguous blocks of at least `grain` of them (one block may
/// hold less when there are fewer in all).
template <std::integral Index>
struct blocked {
    Index begin{};
    Index end{};
    std::uint64_t grain = 1;
};
template <class Begin, class End>
blocked(Begin, End) -> blocked<std::common_type_t<Begin, End>>;
template <class Begin, class End, class Grain>
blocked(Begin, End, Grain) -> blocked<std::common_type_t<Begin, End>>;

namespace schedule {

/// Contiguous blocks computed in advance, sizes differing by at most one: 10 indices in 4 blocks are 3, 3, 2, 2.
/// The same thread gets the same indices in every loop of that size, so its caches stay warm.
struct fixed {
    std::uint64_t blocks = 0;  ///< 0: one for each thread
};

/// Every thread starts with a contiguous share, takes from its front in runs that get shorter, and takes half of
/// what is left of another's when its own is used up. Right when some indices cost more than others.
struct dynamic {
    std::uint64_t grain = 1;  ///< the least number of indices taken at a time
};

}  // namespace schedule

/// How a loop is shared out: one of the types in schedule::.
template <class S>
concept schedule_policy = std::same_as<S, schedule::fixed> || std::same_as<S, schedule::dynamic>;

namespace detail {

namespace say {
inline message step_of_zero() {
    return {"a range with a step of 0 never ends", "", "use a step above or below zero"};
}
inline message begin_out_of_range(const std::string& begin) {
    return {"the loop begins at " + begin + ", which the type of its end cannot hold", "",
            "give both ends of the range the same type"};
}
}  // namespace say

/// n positions cut into contiguous blocks whose sizes differ by at most one, larger ones first.
struct cuts {
    struct block {
        std::uint64_t first, last;
    };
    std::uint64_t each = 0;    // size of the smaller blocks
    std::uint32_t larger = 0;  // how many have one more
    std::uint32_t number = 1;

    static constexpr std::uint64_t most = 0xffffffffU;

    constexpr cuts() = default;
    constexpr cuts(std::uint64_t n, std::uint64_t blocks) noexcept
        : number(static_cast<std::uint32_t>(blocks < most ? blocks : most)) {
        each = n / number;
        larger = static_cast<std::uint32_t>(n % number);
    }
    constexpr block operator[](std::uint64_t j) const noexcept {
        const auto first = j * each + (j < larger ? j : larger);
        return {first, first + each + (j < larger ? 1 : 0)};
    }
};

/// Which index is the k-th of a range. In unsigned arithmetic: the ends may be the ends of the type.
template <std::integral Index>
struct index_space {
    using natural = std::make_unsigned_t<Index>;
    Index begin{};
    natural step{};  // as the two's complement of a negative one, so that begin + k * step wraps to the right place

    constexpr index_space() = default;
    constexpr explicit index_space(range<Index> r) noexcept : begin(r.begin), step(static_cast<natural>(r.step)) {}
    constexpr Index at(std::uint64_t k) const noexcept {
        return static_cast<Index>(static_cast<natural>(begin) +
                                  static_cast<natural>(static_cast<natural>(k) * step));
    }
};

/// How many indices a range has.
/// Throws  usage_error for a step of 0
template <std::integral Index>
constexpr std::uint64_t count_of(range<Index> r) {
    using natural = std::make_unsigned_t<Index>;
    if (r.step == 0) throw usage_error(say::step_of_zero());
    if (r.step > 0 ? r.begin >= r.end : r.begin <= r.end) return 0;
    const auto from = static_cast<natural>(r.begin), to = static_cast<natural>(r.end);
    const auto way = static_cast<natural>(r.step > 0 ? to - from : from - to);
    const auto given = static_cast<natural>(r.step);
    const auto step = r.step > 0 ? given : static_cast<natural>(natural{0} - given);
    return std::uint64_t{static_cast<natural>(way - 1U)} / step + 1;
}

/// Both ends as one type; a begin that does not fit the common type is an error, not a wrap.
template <std::integral Begin, std::integral End>
constexpr range<std::common_type_t<Begin, End>> one_range(Begin begin, End end) {
    using Index = std::common_type_t<Begin, End>;
    if constexpr (std::is_signed_v<Begin> && !std::is_signed_v<Index>)
        if (begin < 0) throw usage_error(say::begin_out_of_range(std::to_string(begin)));
    if constexpr (std::is_signed_v<End> && !std::is_signed_v<Index>)
        if (end < 0) return {0, 0};
    return {static_cast<Index>(begin), static_cast<Index>(end)};
}

}  // namespace detail

}  // namespace trireme
