#pragma once
// What the processes of a world share: who is who, how they ended, what failed first, and a channel for small
// things. One memory file, made by the launcher or by rank 0.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <trireme/core/bytes.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/dist/detail/channel_layout.hpp>
#include <trireme/dist/detail/failure.hpp>
#include <trireme/sys/process.hpp>

namespace trireme::detail {

struct alignas(flag_line) roster_line {
    std::atomic<std::uint64_t> start_time;  ///< with the pid it names a process for good; written before the pid
    std::atomic<std::int32_t> pid;          ///< 0 until known
    std::atomic<std::uint32_t> ended;       ///< 1 once `status` is written, by the launcher
    exit_status status;
    std::byte pad[flag_line - 24];
};
static_assert(sizeof(roster_line) == flag_line);

struct alignas(flag_line) world_header {
    std::uint64_t magic;
    std::uint64_t layout;
    std::uint32_t ranks;
    std::int32_t launcher;  ///< pid of the process that reaps the ranks, 0 when they were started by hand
    failure_record first;   ///< what went wrong first in this job
};

struct world_layout {
    static constexpr std::uint64_t magic = 0x64726f7774697274ULL;

    channel_layout control;
    std::size_t roster = 0, channel = 0, total = 0;

    constexpr explicit world_layout(std::uint32_t ranks) : control(ranks, {4_KiB}) {
        roster = align_up(sizeof(world_header), flag_line);
        channel = align_up(roster + ranks * sizeof(roster_line), page_bytes);
        total = channel + control.total;
    }
    constexpr std::uint64_t hash() const noexcept {
        return hasher{}.add(control.hash()).add(channel).add(total).add(sizeof(world_header)).value();
    }
};

/// A view of the arena by name. Owns nothing.
class world_arena {
  public:
    world_arena(std::byte* base, std::uint32_t ranks) : base_(base), layout_(ranks) {}

    void initialise(std::int32_t launcher) const noexcept {
        header().magic = world_layout::magic;
        header().layout = layout_.hash();
        header().ranks = layout_.control.ranks;
        header().launcher = launcher;
    }
    const world_layout& layout() const noexcept { return layout_; }
    std::uint32_t ranks() const noexcept { return layout_.control.ranks; }
    world_header& header() const noexcept { return *reinterpret_cast<world_header*>(base_); }
    roster_line& rank(std::uint32_t r) const noexcept {
        return reinterpret_cast<roster_line*>(base_ + layout_.roster)[r];
    }
    std::byte* channel() const noexcept { return base_ + layout_.channel; }

    void enter(std::uint32_t r, pid_t pid) const noexcept {
        rank(r).start_time.store(process_start_time(pid), std::memory_order_relaxed);
        rank(r).pid.store(pid, std::memory_order_release);
    }

  private:
    std::byte* base_;
    world_layout layout_;
};

}  // namespace trireme::detail
