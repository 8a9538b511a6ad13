#pragma once
// A world as one process holds it: the arena, its place in it, and the sockets over which descriptors travel.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/dist/detail/channel.hpp>
#include <trireme/dist/detail/spin_budget.hpp>
#include <trireme/dist/detail/world_arena.hpp>
#include <trireme/dist/detail/world_watch.hpp>
#include <trireme/dist/environment.hpp>
#include <trireme/shm/backing/heap.hpp>
#include <trireme/shm/mapping.hpp>
#include <trireme/sys/fork_gate.hpp>
#include <trireme/sys/socket.hpp>
#include <trireme/threads/local_ranks.hpp>

namespace trireme {

struct world_options {
    std::chrono::nanoseconds start_timeout = std::chrono::seconds(60);  ///< until every rank has joined
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);        ///< of a call that names no deadline
    std::chrono::nanoseconds spin = std::chrono::nanoseconds(-1);  ///< before a wait sleeps; negative: 100 us if
                                                                   ///< every local rank has a CPU, else none
};

}  // namespace trireme

namespace trireme::detail {

class world_state {
  public:
    /// `links`: on rank 0 one socket for every other rank (index = rank), else one, to rank 0.
    world_state(environment place, mapping arena, std::vector<private_descriptor> links, world_options o)
        : world_state(std::move(place), std::move(arena), backing::heap(), std::move(links), o) {}
    /// A world of one, in memory of its own.
    explicit world_state(world_options o)
        : world_state(environment{}, mapping(), backing::heap("world of one", world_layout(1).total), {}, o) {}
    world_state(const world_state&) = delete;
    world_state& operator=(const world_state&) = delete;

    const environment& place() const noexcept { return place_; }
    std::uint32_t rank() const noexcept { return place_.rank; }
    std::uint32_t size() const noexcept { return place_.size; }
    const world_options& options() const noexcept { return options_; }
    /// How long waits spin. Every rank calls it: where ranks are pinned, only all of them together know.
    std::chrono::nanoseconds settle_spin() {
        if (options_.spin.count() >= 0) return options_.spin;
        const affinity_mask mine = affinity_mask::mine();
        std::vector<affinity_mask> all(size());
        control_.run({{op_kind::all_gather, dtype::bytes, 0, 0},
                      sizeof mine,
                      reinterpret_cast<const std::byte*>(&mine),
                      sizeof mine,
                      reinterpret_cast<std::byte*>(all.data()),
                      nullptr});
        const auto spin = spin_budget(everybody_has_a_cpu(all));
        control_.set_spin(spin);
        return spin;
    }
    world_watch& watch() noexcept { return watch_; }
    channel<world_watch>& control() noexcept { return control_; }
    const world_arena& arena() const noexcept { return arena_; }
    std::string me() const { return speaker("world", rank(), size()); }

    /// The descriptor that rank 0 gives, on every rank; rank 0 passes it, the others an empty one.
    fd share(fd_ref mine, std::optional<deadline> until) {
        const deadline end = until ? *until : deadline::in(options_.timeout);
        ++shares_;
        if (rank() == 0) {
            const int number = mine.get();
            for (std::uint32_t r = 1; r < size(); ++r) {
                if (send_message(links_[r].ref(), std::as_bytes(std::span(&shares_, 1)), std::span(&number, 1),
                                 end))
                    continue;
                fail_link(r, end);
            }
            return fd(::fcntl(number, F_DUPFD_CLOEXEC, 0));
        }
        for (;;) {
            std::uint64_t number = 0;
            std::size_t length = 0;
            std::vector<fd> got;
            switch (receive_message(links_[0].ref(), std::as_writable_bytes(std::span(&number, 1)), length, got,
                                    end.slice(std::chrono::milliseconds(50)))) {
                case received::message:
                    if (number == shares_ && got.size() == 1) return std::move(got.front());
                    throw system_error({"a descriptor of rank 0 did not arrive", me(),
                                        "see whether the limit of open files is reached (ulimit -n)"},
                                       EMFILE);
                case received::closed:
                    fail_link(0, end);
                case received::nothing:
                    if (auto f = watch_.cause()) throw_failure(*f, me());
                    if (watch_.dead(0) || end.passed()) fail_link(0, end);
            }
        }
    }

    /// What this rank failed of; every other rank's next wait throws it.
    void fail(const std::string& text) noexcept {
        watch_.first({errc::remote, "rank " + std::to_string(rank()) + " failed: " + text,
                      "see the output of rank " + std::to_string(rank()), rank()});
    }

  private:
    world_state(environment place, mapping arena, backing::heap heap, std::vector<private_descriptor> links,
                world_options o)
        : place_(std::move(place)),
          options_(o),
          mapped_(std::move(arena)),
          heap_(std::move(heap)),
          links_(std::move(links)),
          arena_(mapped_.size() != 0 ? mapped_.data() : heap_.data(), place_.size),
          watch_(arena_, place_.rank),
          control_(arena_.channel(), arena_.layout().control, place_.rank,
                   channel_settings{"world", o.timeout,
                                    o.spin.count() >= 0 ? o.spin : spin_budget(place_.local_size <= usable_cpus())},
                   watch_) {
        if (mapped_.size() != 0) mapped_.inherit(false);  // workers that this rank forks have no business here
        arena_.enter(place_.rank, ::getpid());
        set_local_ranks(place_.local_size);  // loaders and pools divide the host's CPUs by it
    }
    [[noreturn]] void fail_link(std::uint32_t r, deadline end) {
        // A closed socket is seen a moment before the process behind it is dead.
        for (int i = 0; i < 50; ++i) {
            if (auto gone = watch_.dead(r)) {
                const failure f = watch_.first(say::peer_ended(r, *gone, "the exchange of shared memory", true));
                throw_failure(f, me());
            }
            if (end.passed()) break;
            ::usleep(2000);
        }
        if (end.passed())
            throw timeout_error(
                {"rank " + std::to_string(r) + " did not take part in the exchange of shared memory", me(),
                 "see what that rank is doing (it is alive), or raise the timeout"});
        throw_failure(watch_.first(say::peer_left({r}, "the exchange of shared memory")), me());
    }

    environment place_;
    world_options options_;
    mapping mapped_;
    backing::heap heap_;
    std::vector<private_descriptor> links_;
    world_arena arena_;
    world_watch watch_;
    channel<world_watch> control_;
    std::uint64_t shares_ = 0;
};

}  // namespace trireme::detail
