#pragma once
// How long a rank spins before it parks.

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>

namespace trireme::detail {

/// The CPUs that a thread may run on, as a value that travels.
struct affinity_mask {
    cpu_set_t set;

    /// Of the calling thread. Empty when the kernel has more CPUs than fit: then nobody spins.
    static affinity_mask mine() noexcept {
        affinity_mask m;
        CPU_ZERO(&m.set);
        if (::sched_getaffinity(0, sizeof m.set, &m.set) != 0) CPU_ZERO(&m.set);
        return m;
    }
    std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(CPU_COUNT(&set)); }
    bool within(const affinity_mask& other) const noexcept {
        cpu_set_t both;
        CPU_AND(&both, &set, &other.set);
        return CPU_EQUAL(&both, &set) != 0;
    }
};

/// The CPUs that this thread may run on; at least 1.
inline std::uint32_t usable_cpus() noexcept { return (std::max)(1U, affinity_mask::mine().count()); }

/// Whether every rank can have a CPU to itself: inside the CPUs of each rank, no more ranks than CPUs. Ranks that
/// are pinned to one CPU each pass, ranks that are pinned to the same one do not.
inline bool everybody_has_a_cpu(std::span<const affinity_mask> ranks) noexcept {
    return std::all_of(ranks.begin(), ranks.end(), [&](const affinity_mask& m) {
        const auto inside =
            std::count_if(ranks.begin(), ranks.end(), [&](const affinity_mask& o) { return o.within(m); });
        return static_cast<std::uint32_t>(inside) <= m.count();
    });
}

/// About the cost of a park and a wake when every rank has a CPU; nothing when a spinner would take the CPU away
/// from the rank it waits for.
inline std::chrono::nanoseconds spin_budget(bool room) noexcept {
    return room ? std::chrono::microseconds(100) : std::chrono::microseconds(0);
}

}  // namespace trireme::detail
