#pragma once
// The inner loops of reductions: one element of every source, in order, to every destination, in blocks that stay
// in the first cache.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <trireme/core/bytes.hpp>
#include <trireme/dist/reduction.hpp>

namespace trireme::detail {

/// Sources are added in order; the result goes to every destination. A destination may be one of the sources.
struct reduce_job {
    const std::byte* const* sources = nullptr;
    std::byte* const* destinations = nullptr;
    std::uint32_t source_count = 0;
    std::uint32_t destination_count = 0;
    std::uint32_t ranks = 1;  ///< what a mean divides by
    std::size_t count = 0;    ///< elements
};
using reduce_function = void (*)(const reduce_job&);

// Loops of a constant number of rounds over restricted pointers: that is what g++ -O2 vectorises.
inline constexpr std::size_t lane = 64;

template <class R, class T>
inline void accumulate_lane(accumulator_t<T>* __restrict acc, const T* __restrict x) noexcept {
    for (std::size_t i = 0; i < lane; ++i) acc[i] = R::combine(acc[i], static_cast<accumulator_t<T>>(x[i]));
}
template <class T>
inline void load_lane(accumulator_t<T>* __restrict acc, const T* __restrict x) noexcept {
    for (std::size_t i = 0; i < lane; ++i) acc[i] = static_cast<accumulator_t<T>>(x[i]);
}
template <class T>
inline void store_lane(T* __restrict out, const accumulator_t<T>* __restrict acc) noexcept {
    for (std::size_t i = 0; i < lane; ++i) out[i] = static_cast<T>(acc[i]);
}

/// Two sources that are also the two destinations: the commonest case, in one pass.
template <class R, class T>
inline void pair_lane(T* __restrict a, T* __restrict b, [[maybe_unused]] T scale) noexcept {
    for (std::size_t i = 0; i < lane; ++i) {
        T v = R::combine(a[i], b[i]);
        if constexpr (std::same_as<R, reduce::mean_of>) v = v * scale;
        a[i] = v;
        b[i] = v;
    }
}
template <class R, class T>
void reduce_pair(T* a, T* b, std::size_t n) noexcept {
    constexpr T scale = std::same_as<R, reduce::mean_of> ? static_cast<T>(0.5) : static_cast<T>(1);
    std::size_t i = 0;
    for (; i + lane <= n; i += lane) pair_lane<R>(a + i, b + i, scale);
    for (; i < n; ++i) {
        T v = R::combine(a[i], b[i]);
        if constexpr (std::same_as<R, reduce::mean_of>) v = v * scale;
        a[i] = v;
        b[i] = v;
    }
}

/// Divides by the number of ranks: by an exact reciprocal where there is one, which rounds in the same way.
template <class A>
void divide_block(A* acc, std::size_t n, std::uint32_t ranks) noexcept {
    const A by = static_cast<A>(ranks);
    if (std::has_single_bit(ranks)) {
        const A reciprocal = static_cast<A>(1) / by;
        for (std::size_t i = 0; i < n; ++i) acc[i] *= reciprocal;
    } else {
        for (std::size_t i = 0; i < n; ++i) acc[i] /= by;
    }
}

template <class R, class T>
void reduce_blocks(const reduce_job& job) noexcept {
    using A = accumulator_t<T>;
    const auto source = [&](std::uint32_t s) { return reinterpret_cast<const T*>(job.sources[s]); };
    const auto destination = [&](std::uint32_t d) { return reinterpret_cast<T*>(job.destinations[d]); };
    if constexpr (std::same_as<A, T>) {
        if (job.source_count == 2 && job.destination_count == 2 && job.ranks == 2 &&
            job.sources[0] == job.destinations[0] && job.sources[1] == job.destinations[1]) {
            reduce_pair<R>(destination(0), destination(1), job.count);
            return;
        }
    }
    constexpr std::size_t block = 4_KiB / sizeof(A);
    alignas(cache_line) A acc[block];
    [[maybe_unused]] alignas(cache_line) T narrow[block];
    for (std::size_t at = 0; at < job.count; at += block) {
        const std::size_t n = (std::min)(block, job.count - at);
        const std::size_t whole = n - n % lane;
        for (std::uint32_t s = 0; s < job.source_count; ++s) {
            const T* const x = source(s) + at;
            if (s == 0) {
                for (std::size_t i = 0; i < whole; i += lane) load_lane<T>(acc + i, x + i);
                for (std::size_t i = whole; i < n; ++i) acc[i] = static_cast<A>(x[i]);
            } else {
                for (std::size_t i = 0; i < whole; i += lane) accumulate_lane<R, T>(acc + i, x + i);
                for (std::size_t i = whole; i < n; ++i) acc[i] = R::combine(acc[i], static_cast<A>(x[i]));
            }
        }
        if constexpr (std::same_as<R, reduce::mean_of>) divide_block(acc, n, job.ranks);
        const std::byte* result = reinterpret_cast<const std::byte*>(acc);
        if constexpr (!std::same_as<A, T>) {
            for (std::size_t i = 0; i < whole; i += lane) store_lane<T>(narrow + i, acc + i);
            for (std::size_t i = whole; i < n; ++i) narrow[i] = static_cast<T>(acc[i]);
            result = reinterpret_cast<const std::byte*>(narrow);
        }
        for (std::uint32_t d = 0; d < job.destination_count; ++d)
            std::memcpy(destination(d) + at, result, n * sizeof(T));
    }
}

}  // namespace trireme::detail
