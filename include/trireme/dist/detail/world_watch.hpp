#pragma once
// The death watch of a world: a pidfd for every other rank, and the record of what failed first.

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/dist/detail/failure.hpp>
#include <trireme/dist/detail/watch.hpp>
#include <trireme/dist/detail/world_arena.hpp>
#include <trireme/sys/process.hpp>

namespace trireme::detail {

/// Threads  any; every channel of the world asks this
class world_watch {
  public:
    world_watch(world_arena arena, std::uint32_t me) : arena_(arena), me_(me), peers_(arena.ranks()) {}

    std::optional<failure> cause() const { return arena_.header().first.read(); }

    /// How rank `r` ended, empty while it lives or has not come yet.
    std::optional<std::string> dead(std::uint32_t r) {
        if (r == me_) return std::nullopt;
        const std::scoped_lock hold(lock_);
        roster_line& line = arena_.rank(r);
        if (line.ended.load(std::memory_order_acquire) == 0) {
            peer& p = peers_[r];
            if (!p.known) {
                p.pid = line.pid.load(std::memory_order_acquire);
                if (p.pid == 0) return std::nullopt;
                p.handle = pidfd::open(p.pid);
                // The number may have been given to another process between its end and our call.
                if (p.handle.valid() &&
                    process_start_time(p.pid) != line.start_time.load(std::memory_order_relaxed) &&
                    !p.handle.dead())
                    p.handle = pidfd();
                p.known = true;
            }
            if (p.handle.valid() && !p.handle.dead()) return std::nullopt;
            // The launcher writes how it ended as soon as it has reaped it, about now.
            if (arena_.header().launcher != 0)
                for (int i = 0; i < 100 && line.ended.load(std::memory_order_acquire) == 0; ++i) ::usleep(2000);
        }
        return "rank " + std::to_string(r) + " (pid " + std::to_string(line.pid.load(std::memory_order_relaxed)) +
               ") " + (line.ended.load(std::memory_order_acquire) != 0 ? describe(line.status) : "died");
    }

    /// The first failure of the job: this one, unless there is one.
    failure first(failure f) {
        if (arena_.header().first.write(f)) return f;
        auto earlier = cause();
        return earlier ? *std::move(earlier) : std::move(f);
    }

  private:
    struct peer {
        bool known = false;
        pid_t pid = 0;
        pidfd handle;
    };
    world_arena arena_;
    std::uint32_t me_;
    std::mutex lock_;
    std::vector<peer> peers_;
};
static_assert(watch<world_watch>);

}  // namespace trireme::detail
