#pragma once
// Buckets: gradients that are reduced together. A bucket is a short list of ranges of the gradient arena, never a
// copy of anything.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <trireme/core/bytes.hpp>
#include <trireme/dist/reduction.hpp>

namespace trireme {

/// How gradients are cut into buckets: a bucket is closed by the gradient with which it reaches its limit, so it
/// may be larger than that by less than one gradient, and a gradient is never split. A small first bucket starts
/// the reduction early.
struct buckets {
    std::size_t first = 1_MiB;  ///< bytes, of the first bucket of each element type
    std::size_t cap = 25_MiB;   ///< bytes, of the others
    friend constexpr bool operator==(buckets, buckets) = default;
};

/// Bytes [begin, end) of the gradient arena, all of one element type.
struct arena_range {
    std::size_t begin = 0;
    std::size_t end = 0;
    friend constexpr bool operator==(arena_range, arena_range) = default;
};

struct bucket {
    dtype type = dtype::f32;
    std::vector<std::uint32_t> parameters;  ///< in the order in which they are expected
    std::vector<arena_range> ranges;        ///< ascending, merged where they touch
};

}  // namespace trireme
