#pragma once
// What a dataset is told about the sample it makes, beside the index: epoch, random numbers that belong to the
// sample, who makes it, and whether anybody still wants it.

#include <trireme/core/hash.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/core/philox.hpp>

#include <atomic>
#include <cstdint>

namespace trireme {

/// Which sample of which epoch of which run: all that its random numbers depend on.
struct sample_key {
    std::uint64_t seed = 0;
    std::uint64_t epoch = 0;
    std::uint64_t index = 0;
    friend constexpr bool operator==(const sample_key&, const sample_key&) = default;
};

namespace detail {

// For one seed different epochs give different keys, and for one epoch different seeds do: mix64 is a bijection.
constexpr std::uint64_t fold_key(std::uint64_t seed, std::uint64_t epoch) noexcept {
    return mix64(mix64(seed ^ 0x7472697265'6d65ULL) + epoch * 0x9e3779b97f4a7c15ULL);
}

}  // namespace detail

/// How whoever runs a worker tells it to stop: `word` has reached `at_least`. A flag (0, 1) and a phase that only
/// grows both fit. The word may lie in shared memory.
struct stop_signal {
    const std::atomic<std::uint32_t>* word = nullptr;
    std::uint32_t at_least = 1;

    bool requested() const noexcept { return word != nullptr && word->load(std::memory_order_relaxed) >= at_least; }
};

/// Goes with every `read`. Made per sample; nothing in it outlives the call.
///
/// Threads    belongs to the call that got it
class sample_context {
  public:
    explicit sample_context(sample_key key, worker_id worker = {}, std::uint32_t attempt = 0,
                            stop_signal stop = {}) noexcept
        : key_(key),
          rng_(detail::fold_key(key.seed, key.epoch), key.index),
          stop_(stop),
          worker_(worker),
          attempt_(attempt) {}

    std::uint64_t index() const noexcept { return key_.index; }
    std::uint64_t epoch() const noexcept { return key_.epoch; }
    std::uint64_t seed() const noexcept { return key_.seed; }

    /// The sample's own random numbers: a function of seed, epoch and index, whatever the engine, the number of
    /// workers or ranks, and however often the sample is redone. Models std::uniform_random_bit_generator; call it
    /// by reference, a copy repeats what the original draws.
    philox& rng() noexcept { return rng_; }

    /// Who makes the sample. For messages and caches; a result must not depend on it.
    worker_id worker() const noexcept { return worker_; }
    /// How often this part of the batch was begun before, by workers that died.
    std::uint32_t attempt() const noexcept { return attempt_; }

    /// True when the batch is no longer wanted. A `read` that takes long should look, and may return at once then:
    /// what it has written is thrown away.
    bool stop_requested() const noexcept { return stop_.requested(); }

  private:
    sample_key key_;
    philox rng_;
    stop_signal stop_;
    worker_id worker_;
    std::uint32_t attempt_;
};

}  // namespace trireme
