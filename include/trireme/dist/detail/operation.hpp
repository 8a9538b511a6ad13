#pragma once
// An operation as one rank asks for it, which part of it this rank does, and how it is cut into staged chunks. Pure
// functions over memory: no waiting, no sharing.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <trireme/dist/detail/channel_layout.hpp>
#include <trireme/dist/detail/reduce_block.hpp>
#include <trireme/dist/detail/say.hpp>

namespace trireme::detail {

/// `count` is elements of `data` (all_reduce, broadcast), of the input (all_gather) or of the output
/// (reduce_scatter). Where input and output are the same buffer, `in == out`.
struct request {
    op_signature signature;
    std::uint64_t count = 0;
    const std::byte* in = nullptr;
    std::size_t in_bytes = 0;
    std::byte* out = nullptr;
    reduce_function reduce = nullptr;

    /// Whether rank `r` contributes input.
    bool gives(std::uint32_t r) const noexcept {
        return signature.kind != op_kind::barrier && (signature.kind != op_kind::broadcast || signature.root == r);
    }
};

struct slice {
    std::size_t begin = 0, end = 0;
    constexpr std::size_t count() const noexcept { return end - begin; }
};
/// The elements that rank `r` owns: whole cache lines, so that two ranks never write to one line of a buffer.
/// `width` is a power of two.
constexpr slice slice_of(std::size_t count, std::size_t width, std::uint32_t r, std::uint32_t ranks) noexcept {
    const int shift = std::countr_zero(cache_line) - std::countr_zero(width);
    const std::size_t lines = (count + (std::size_t{1} << shift) - 1) >> shift;
    const auto border = [&](std::size_t i) { return (std::min)(count, (lines * i / ranks) << shift); };
    return {r == 0 ? 0 : border(r), r + 1 == ranks ? count : border(r + 1)};
}

inline void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

/// Makes this rank's result by reading the inputs of all ranks; writes nothing but `out`.
inline void pull(const request& q, const std::byte** sources, std::uint32_t me, std::uint32_t ranks) {
    const std::size_t width = size_of(q.signature.type);
    const std::size_t bytes = q.count * width;
    switch (q.signature.kind) {
        case op_kind::all_reduce:
            q.reduce({sources, &q.out, ranks, 1, ranks, q.count});
            break;
        case op_kind::reduce_scatter:
            for (std::uint32_t r = 0; r < ranks; ++r) sources[r] += me * bytes;
            q.reduce({sources, &q.out, ranks, 1, ranks, q.count});
            break;
        case op_kind::all_gather:
            for (std::uint32_t r = 0; r < ranks; ++r) copy(q.out + r * bytes, sources[r], bytes);
            break;
        case op_kind::broadcast:
            if (me != q.signature.root) copy(q.out, sources[q.signature.root], bytes);
            break;
        case op_kind::barrier:
            break;
    }
}

/// How an operation on private memory goes through slots of `stage_bytes`: `chunks` times put, work, take.
///
/// all_reduce       chunk k is a range of the vector; of it I put what others own, combine what I own, take the
/// rest reduce_scatter   chunk k is one range of every rank's part: the slot holds one piece for each rank
/// all_gather       chunk k is a range of the input
/// broadcast        the same, and only the root puts
struct staging_plan {
    std::uint64_t chunks = 0;
    std::size_t per_chunk = 0;  ///< elements: of a chunk, or of one rank's piece of it (reduce_scatter)
    std::uint32_t ranks = 1;

    staging_plan() = default;
    staging_plan(const request& q, std::uint32_t rank_count, std::size_t stage_bytes) : ranks(rank_count) {
        per_chunk = stage_bytes / size_of(q.signature.type);
        if (q.signature.kind == op_kind::reduce_scatter) per_chunk = (std::max)(per_chunk / ranks, std::size_t{1});
        chunks = (q.count + per_chunk - 1) / per_chunk;
    }

    slice elements(const request& q, std::uint64_t k) const noexcept {
        return {k * per_chunk, (std::min)(static_cast<std::size_t>(q.count), (k + 1) * per_chunk)};
    }

    void put(const request& q, std::uint64_t k, std::byte* slot, std::uint32_t me) const noexcept {
        const std::size_t w = size_of(q.signature.type);
        const slice c = elements(q, k);
        switch (q.signature.kind) {
            case op_kind::all_reduce:
                for (std::uint32_t r = 0; r < ranks; ++r) {
                    if (r == me) continue;
                    const slice s = slice_of(c.count(), w, r, ranks);
                    copy(slot + s.begin * w, q.in + (c.begin + s.begin) * w, s.count() * w);
                }
                break;
            case op_kind::reduce_scatter:
                for (std::uint32_t r = 0; r < ranks; ++r)
                    if (r != me) copy(slot + r * per_chunk * w, q.in + (r * q.count + c.begin) * w, c.count() * w);
                break;
            case op_kind::all_gather:
            case op_kind::broadcast:
                if (q.gives(me)) copy(slot, q.in + c.begin * w, c.count() * w);
                break;
            case op_kind::barrier:
                break;
        }
    }

    /// `slots[r]` is where rank r has put chunk k; `result` is my slot for what others take.
    void work(const request& q, std::uint64_t k, const std::byte** slots, std::byte* result,
              std::uint32_t me) const noexcept {
        const std::size_t w = size_of(q.signature.type);
        const slice c = elements(q, k);
        switch (q.signature.kind) {
            case op_kind::all_reduce: {
                const slice s = slice_of(c.count(), w, me, ranks);
                for (std::uint32_t r = 0; r < ranks; ++r)
                    slots[r] = r == me ? q.in + (c.begin + s.begin) * w : slots[r] + s.begin * w;
                std::byte* const to[] = {q.out + (c.begin + s.begin) * w, result + s.begin * w};
                q.reduce({slots, to, ranks, 2, ranks, s.count()});
                break;
            }
            case op_kind::reduce_scatter: {
                for (std::uint32_t r = 0; r < ranks; ++r)
                    slots[r] = r == me ? q.in + (me * q.count + c.begin) * w : slots[r] + me * per_chunk * w;
                std::byte* const to[] = {q.out + c.begin * w};
                q.reduce({slots, to, ranks, 1, ranks, c.count()});
                break;
            }
            case op_kind::all_gather:
                for (std::uint32_t r = 0; r < ranks; ++r)
                    copy(q.out + (r * q.count + c.begin) * w, r == me ? q.in + c.begin * w : slots[r],
                         c.count() * w);
                break;
            case op_kind::broadcast:
                if (me != q.signature.root) copy(q.out + c.begin * w, slots[q.signature.root], c.count() * w);
                break;
            case op_kind::barrier:
                break;
        }
    }

    /// `slots[r]` holds rank r's result of chunk k.
    void take(const request& q, std::uint64_t k, const std::byte** slots, std::uint32_t me) const noexcept {
        if (q.signature.kind != op_kind::all_reduce) return;
        const std::size_t w = size_of(q.signature.type);
        const slice c = elements(q, k);
        for (std::uint32_t r = 0; r < ranks; ++r) {
            if (r == me) continue;
            const slice s = slice_of(c.count(), w, r, ranks);
            copy(q.out + (c.begin + s.begin) * w, slots[r] + s.begin * w, s.count() * w);
        }
    }
};

}  // namespace trireme::detail
