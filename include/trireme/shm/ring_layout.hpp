#pragma once
// What lies where in a ring's arena. Shared memory is a file format: magic, layout hash and geometry come first,
// every struct is trivially copyable and its size is asserted beside it.

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/core/version.hpp>
#include <trireme/shm/error_record.hpp>
#include <trireme/shm/word.hpp>
#include <trireme/sys/process.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

namespace trireme {

inline constexpr std::uint32_t max_parts = 8;      // their words share one line
inline constexpr std::uint32_t max_workers = 256;  // 8 bits of a word
inline constexpr std::uint32_t max_slots = 4096;

/// The shape of a ring, fixed for its life.
struct ring_geometry {
    std::uint32_t slots = 8;          ///< batches in flight, at least 1
    std::uint32_t parts = 1;          ///< shares into which a batch is cut, 1 to 8 and at most `rows`
    std::uint32_t workers = 1;        ///< workers that may ever claim, 1 to 256
    std::uint32_t rows = 1;           ///< samples of a batch
    std::uint64_t payload_bytes = 0;  ///< of one batch

    friend constexpr bool operator==(const ring_geometry&, const ring_geometry&) = default;

    /// Rows of part p: [first, last).
    constexpr std::uint32_t first_row(std::uint32_t part) const noexcept {
        return static_cast<std::uint32_t>(std::uint64_t{part} * rows / parts);
    }
    constexpr std::uint64_t slot_stride() const noexcept { return align_up(payload_bytes, page_bytes); }
};

/// What a batch's makers are told: written by the consumer before it opens the batch, read by whoever claims a
/// part.
struct batch_request {
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;  ///< the batch's place in its epoch
    std::uint64_t spare[4]{};
};
static_assert(sizeof(batch_request) == 48 && std::is_trivially_copyable_v<batch_request>);

/// In a recorder: no sample yet.
inline constexpr std::uint64_t no_sample = ~std::uint64_t{0};

/// What became of one row of a batch.
enum class row_state : std::uint8_t {
    valid,    ///< a sample of this epoch
    padding,  ///< a repeat, only there to fill the batch
    empty,    ///< nothing: zeroes
    skipped,  ///< its sample failed and the loader was told to skip such: zeroes
};

namespace detail {

inline constexpr std::uint32_t phase_running = 0, phase_stopping = 1;  // phases of a ring; they only grow
inline constexpr std::uint32_t ring_goes_on = 0,
                               ring_over = 1;  // of `fatal`; above: a worker writes the last words

struct ring_header {
    std::uint64_t magic = 0, layout_hash = 0;
    ring_geometry geometry;
    std::int32_t pid = 0;
};

struct ring_control {
    alignas(flag_line) std::atomic<std::uint64_t> floor{0};  // batches below it are cancelled
    std::atomic<std::uint32_t> phase{phase_running};
    std::atomic<std::uint32_t> fatal{ring_goes_on};            // over: `last_words` says why
    std::atomic<std::uint32_t> deaths{0};                      // of workers, all together
    alignas(flag_line) std::atomic<std::uint64_t> awaited{0};  // 0, or the batch that the consumer waits for + 1
    alignas(flag_line) std::atomic<std::uint32_t> consumer_bell{0};
    alignas(flag_line) std::atomic<std::uint32_t> workers_bell{0};
    alignas(flag_line)
        std::atomic<std::uint64_t> sleepers[max_workers / 64]{};  // a bit a worker: flagged, maybe parked
    alignas(flag_line) error_record last_words;
};
inline constexpr std::uint64_t awaits_any = ~std::uint64_t{0};

/// One worker's own line: the flight recorder, and what the reaper notes of its deaths.
struct worker_line {
    // written by the worker alone
    alignas(flag_line) std::atomic<std::uint32_t> incarnation{0};
    std::atomic<std::int32_t> pid{0};
    std::atomic<std::uint32_t> ready{0};  // finished its start-up
    std::atomic<stage> doing{stage::resting};
    std::atomic<std::uint64_t> batch{0};
    std::atomic<std::uint32_t> part{0};
    std::atomic<std::uint64_t> sample{0};
    std::atomic<std::uint64_t> since_ns{0};
    std::atomic<std::uint64_t> published{0};  // parts, over all incarnations
    // written by the reaper alone
    alignas(flag_line) std::atomic<std::uint32_t> deaths{0};
    std::atomic<std::int32_t> dead_pid{0};
    exit_status last_status;
    std::uint64_t dead_batch = 0, dead_sample = 0;
    std::uint32_t was_filling = 0;  // the death cost a claim
    std::uint32_t budget_used = 0;  // deaths since it last made progress
    std::uint64_t published_at_death = 0;
};

/// A slot's words and its request share two neighbouring lines: what a claim reads comes in one prefetch.
struct slot_head {
    alignas(flag_line) std::atomic<std::uint64_t> words[max_parts]{};
    batch_request request;
};
static_assert(sizeof(slot_head) == flag_line);

/// Trouble of one part: filled by its owner before FAILED, or by the reaper; read by the consumer after FAILED.
struct part_trouble {
    error_record record;
    std::uint64_t dead_sample = 0;  // the sample in hand at the last death, and how many died on just that one
    std::uint32_t deaths_on_it = 0;
};

/// Accessors over an arena; trivially copyable, so it can be handed to workers by value.
class ring_memory {
  public:
    static constexpr std::uint64_t magic = 0x7269'6e67'2e74'7269ULL;

    static std::uint64_t hash_of(const ring_geometry& g) noexcept {
        return hasher{}
            .add(version.major_part)
            .add(version.minor_part)
            .add(sizeof(ring_control))
            .add(sizeof(worker_line))
            .add(sizeof(slot_head))
            .add(sizeof(part_trouble))
            .add(g.slots)
            .add(g.parts)
            .add(g.workers)
            .add(g.rows)
            .add(g.payload_bytes)
            .value();
    }

    ring_memory() noexcept = default;
    ring_memory(std::byte* base, const ring_geometry& g) noexcept : base_(base), g_(g) {
        std::uint64_t at = align_up(sizeof(ring_header), flag_line);
        const auto take = [&at](std::uint64_t bytes, std::uint64_t to) {
            at = align_up(at, to);
            const auto start = at;
            at += bytes;
            return start;
        };
        control_ = take(sizeof(ring_control), flag_line);
        workers_ = take(sizeof(worker_line) * g.workers, flag_line);
        heads_ = take(sizeof(slot_head) * g.slots, flag_line);
        rows_ = take(std::uint64_t{row_stride()} * g.slots, flag_line);
        troubles_ = take(sizeof(part_trouble) * g.slots * g.parts, flag_line);
        payload_ = take(g.slot_stride() * g.slots, page_bytes);
        total_ = align_up(at, page_bytes);
    }
    static std::uint64_t bytes_for(const ring_geometry& g) noexcept { return ring_memory(nullptr, g).total_; }

    /// Writes the header. By the creator, once. The memory is zeroed, and zero is the initial state of all the
    /// rest: to construct it again would touch every page before the first batch.
    void format() const noexcept {
        auto* const h = new (base_) ring_header;
        h->layout_hash = hash_of(g_);
        h->geometry = g_;
        h->pid = static_cast<std::int32_t>(::getpid());
        h->magic = magic;
    }

    const ring_geometry& geometry() const noexcept { return g_; }
    ring_control& control() const noexcept { return *reinterpret_cast<ring_control*>(base_ + control_); }
    worker_line& worker(std::uint32_t w) const noexcept {
        return reinterpret_cast<worker_line*>(base_ + workers_)[w];
    }
    slot_head& head(std::uint32_t slot) const noexcept {
        return reinterpret_cast<slot_head*>(base_ + heads_)[slot];
    }
    std::atomic<std::uint64_t>& word(std::uint32_t slot, std::uint32_t part) const noexcept {
        return head(slot).words[part];
    }
    part_trouble& trouble(std::uint32_t slot, std::uint32_t part) const noexcept {
        return reinterpret_cast<part_trouble*>(base_ + troubles_)[slot * g_.parts + part];
    }
    std::span<row_state> row_states(std::uint32_t slot) const noexcept {
        return {reinterpret_cast<row_state*>(base_ + rows_ + std::uint64_t{row_stride()} * slot), g_.rows};
    }
    std::byte* payload(std::uint32_t slot) const noexcept { return base_ + payload_ + g_.slot_stride() * slot; }
    std::uint32_t slot_of(std::uint64_t batch) const noexcept {
        return static_cast<std::uint32_t>(batch % g_.slots);
    }

    /// Every part of `batch` is done. Seq_cst loads: publishers and the consumer each look after their own store.
    bool complete(std::uint64_t batch) const noexcept {
        const auto& h = head(slot_of(batch));
        for (std::uint32_t p = 0; p < g_.parts; ++p) {
            const auto w = part_word::decode(h.words[p].load(std::memory_order_seq_cst));
            if (w.batch != (batch & part_word::batch_mask) || !w.done()) return false;
        }
        return true;
    }

    std::span<std::byte> bytes() const noexcept { return {base_, static_cast<std::size_t>(total_)}; }

  private:
    std::uint32_t row_stride() const noexcept { return static_cast<std::uint32_t>(align_up(g_.rows, cache_line)); }

    std::byte* base_ = nullptr;
    ring_geometry g_;
    std::uint64_t control_ = 0, workers_ = 0, heads_ = 0, rows_ = 0, troubles_ = 0, payload_ = 0, total_ = 0;
};

/// Bumps a bell and wakes whoever sleeps on it. The bump comes first: a sleeper that sampled before it will not
/// sleep.
template <class Wait>
void ring_bell(std::atomic<std::uint32_t>& bell, const Wait& wait) noexcept {
    bell.fetch_add(1, std::memory_order_seq_cst);
    wait.wake_all(bell);
}

}  // namespace detail

}  // namespace trireme
