#pragma once
// How many CPUs this process may count on: its affinity mask, and the tightest quota of CPU time above it. Every
// default number of threads comes from here.

#include <trireme/core/ids.hpp>
#include <trireme/sys/affinity.hpp>
#include <trireme/sys/cgroup.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

/// CPUs and CPU time that this process may use, and what limited them. A value: discover it once and hand parts on.
struct cpu_budget {
    cpu_set usable;               ///< affinity mask and cpuset, never empty
    std::optional<double> quota;  ///< CPUs' worth of time in each period; nothing: no quota
    std::string limited_by{};     ///< the mask or file that decides `compute()`
    std::vector<std::string> warnings{};

    /// Reads the limits of this process, or those of a copied tree of /proc and /sys under another `root`.
    ///
    /// Blocks  for some reads of small files        Throws  nothing but std::bad_alloc
    static cpu_budget discover(const std::string& root = "/");

    /// Threads for loops: the whole CPUs in the budget, rounded down and at least 1. A team with one thread more
    /// than its quota pays waits up to a whole period for that one.
    unsigned compute() const noexcept { return whole(std::floor(quota.value_or(cpus()))); }
    /// Threads or processes that mostly read and wait: rounded up.
    unsigned loading() const noexcept { return whole(std::ceil(quota.value_or(cpus()))); }

    /// The part of one of the ranks of this host: a contiguous part of the CPUs and an equal part of the quota.
    cpu_budget share(shard local) const;

    /// One line: "2 threads on CPUs 0-15, limited by a quota of 2.5 CPUs (/sys/fs/cgroup/a/cpu.max)".
    std::string text() const {
        const auto n = compute();
        return std::to_string(n) + (n == 1 ? " thread" : " threads") + " on CPUs " + usable.text() +
               ", limited by " + limited_by;
    }

  private:
    double cpus() const noexcept { return static_cast<double>((std::max)(1U, usable.count())); }
    unsigned whole(double n) const noexcept { return static_cast<unsigned>((std::clamp)(n, 1.0, cpus())); }
};

namespace detail {

/// A CPU list in a file, or in one line of it. Nothing if there is none, or with a warning if it cannot be read.
inline std::optional<cpu_set> cpus_in(const std::string& file, std::string_view line_name,
                                      std::vector<std::string>& warnings) {
    const auto text = cgroup::slurp(file);
    if (!text) return std::nullopt;
    std::string_view list = *text;
    if (!line_name.empty()) {
        std::string_view lines = *text;
        list = {};
        while (!lines.empty() && list.empty()) {
            auto line = cgroup::next(lines, '\n');
            if (cgroup::next(line, ':') == line_name) list = line;
        }
    }
    cpu_set cpus;
    if (const auto fault = parse_cpu_list(list, cpus)) {
        warnings.push_back(cgroup::say::not_understood(file, list, fault.why));
        return std::nullopt;
    }
    return cpus.empty() ? std::nullopt : std::optional(cpus);
}

inline std::string quota_text(double cpus) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", cpus);
    std::string_view s = text;  // at least one decimal, at most two
    return std::string(s.back() == '0' ? s.substr(0, s.size() - 1) : s);
}

}  // namespace detail

inline cpu_budget cpu_budget::discover(const std::string& given) {
    std::string root = given;
    while (!root.empty() && root.back() == '/') root.pop_back();
    cpu_budget b;
    auto online = detail::cpus_in(root + "/sys/devices/system/cpu/online", "", b.warnings);
    auto mask = std::optional(process_cpus());
    if (!root.empty()) {  // a tree's own mask, where it was copied with it
        mask = detail::cpus_in(root + "/proc/self/status", "Cpus_allowed_list", b.warnings);
        if (!mask) mask = online;
    }
    auto quota = cpu_quota(root);
    auto cpuset = cpuset_cpus(root);
    b.warnings.insert(b.warnings.end(), quota.warnings.begin(), quota.warnings.end());
    b.warnings.insert(b.warnings.end(), cpuset.warnings.begin(), cpuset.warnings.end());

    b.usable = mask ? *mask : process_cpus();
    // An empty intersection would be two readings at odds, not a process without CPUs.
    if (cpuset.cpus && !(*cpuset.cpus & b.usable).empty()) b.usable = *cpuset.cpus & b.usable;
    b.quota = quota.cpus;
    if (b.quota && *b.quota < b.cpus())
        b.limited_by = "a quota of " + detail::quota_text(*b.quota) + " CPUs (" + quota.file + ")";
    else if (online && b.usable == *online)
        b.limited_by = "the CPUs that are online";
    else if (cpuset.cpus && b.usable == *cpuset.cpus)
        b.limited_by = "the cpuset (" + cpuset.file + ")";
    else
        b.limited_by = "the affinity mask";
    return b;
}

inline cpu_budget cpu_budget::share(shard local) const {
    cpu_budget part = *this;
    if (local.count <= 1) return part;
    part.usable = usable.share(local);
    if (quota) part.quota = *quota / local.count;
    part.limited_by += ", rank " + std::to_string(local.index) + " of " + std::to_string(local.count) + " here";
    return part;
}

}  // namespace trireme
