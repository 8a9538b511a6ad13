#pragma once
// What a loader can be told.

#include <trireme/core/ids.hpp>
#include <trireme/data/sampling.hpp>
#include <trireme/shm/reaper.hpp>
#include <trireme/shm/ring.hpp>

#include <chrono>
#include <cstdint>

namespace trireme {

/// What happens when a dataset's `read` throws.
enum class on_error : std::uint32_t {
    raise,  ///< the batch's turn comes, and `remote_error` names worker, batch, sample and text
    skip,   ///< the row is zeroed and marked `row_state::skipped`; the epoch goes on
};

/// Options of a `loader`, filled by designated initialisers; every default is a sensible one.
struct loader_options {
    std::uint32_t batch_size = 1;             ///< rows of a batch, per rank
    std::uint64_t seed = 0;                   ///< of the order and of the samples' generators
    trireme::shard shard = {};                ///< this rank's share: world.shard()
    trireme::tail tail = trireme::tail::pad;  ///< of the last global batch
    std::uint32_t prefetch = 0;               ///< slots; 0: 4 MiB worth, 4 to 64, 2 a worker and 1
    std::chrono::nanoseconds timeout = std::chrono::seconds(120);  ///< for one batch
    std::chrono::nanoseconds grace = std::chrono::seconds(3);      ///< for workers to leave at shutdown
    trireme::on_error on_error = trireme::on_error::raise;
    trireme::on_death on_death = trireme::on_death::respawn;  ///< of a worker process
    trireme::delivery delivery = trireme::delivery::in_order;
    std::uint32_t parts = 0;      ///< shares of a batch; 0: by workers and rows
    const char* name = "loader";  ///< for messages
};

}  // namespace trireme
