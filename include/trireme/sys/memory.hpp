#pragma once
// How much memory there is to be had: reserving more does not fail, it wakes the OOM killer.

#include <trireme/sys/cgroup.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// Bytes that can still be used, and the file that says so.
struct memory_reading {
    std::uint64_t bytes = (std::numeric_limits<std::uint64_t>::max)();
    std::string file;  ///< empty: nothing could be read, and `bytes` means nothing
};

namespace detail::memory {

/// The number behind `key` in a file of lines "key   number [kB]".
inline std::optional<std::uint64_t> value_of(std::string_view text, std::string_view key) {
    for (std::string_view lines = text; !lines.empty();) {
        auto line = cgroup::next(lines, '\n');
        if (line.substr(0, key.size()) != key) continue;
        line.remove_prefix(key.size());
        if (line.empty() || (line[0] != ' ' && line[0] != ':')) continue;
        const auto first = line.find_first_of("0123456789");
        if (first == line.npos) return std::nullopt;
        std::uint64_t n = 0;
        for (std::size_t i = first; i < line.size() && line[i] >= '0' && line[i] <= '9'; ++i)
            n = n * 10 + static_cast<std::uint64_t>(line[i] - '0');
        return line.find("kB") != line.npos ? n * 1024 : n;
    }
    return std::nullopt;
}

/// What a group may still take: its limit less its use, plus the page cache that the kernel would drop for it.
inline std::optional<std::uint64_t> left_in_group(const std::string& folder, bool unified) {
    const auto limit = cgroup::slurp(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto usage = cgroup::slurp(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!limit || !usage) return std::nullopt;
    const auto most = cgroup::integer(cgroup::trimmed(*limit)), used = cgroup::integer(cgroup::trimmed(*usage));
    if (!most || !used || *most < 0 || *used < 0) return std::nullopt;  // "max"
    const auto stat = cgroup::slurp(folder + "/memory.stat");
    const auto cache = stat ? value_of(*stat, unified ? "inactive_file" : "total_inactive_file") : std::nullopt;
    const auto taken =
        static_cast<std::uint64_t>(*used) - (std::min)(static_cast<std::uint64_t>(*used), cache.value_or(0));
    const auto limit_bytes = static_cast<std::uint64_t>(*most);
    return limit_bytes > taken ? limit_bytes - taken : 0;
}

}  // namespace detail::memory

/// The smallest of what the machine has available and what is left in each control group above this process.
/// Blocks  for a few reads below `root`       Throws  nothing but std::bad_alloc
inline memory_reading memory_left(std::string root = "/") {
    namespace cg = detail::cgroup;
    while (!root.empty() && root.back() == '/') root.pop_back();
    memory_reading least;
    if (const auto text = cg::slurp(root + "/proc/meminfo")) {
        const auto available = detail::memory::value_of(*text, "MemAvailable");
        if (available)
            least = {*available + detail::memory::value_of(*text, "SwapFree").value_or(0), root + "/proc/meminfo"};
    }
    for (const auto& h : cg::hierarchies(root, "memory")) {
        for (const auto& folder : h.path()) {
            const auto left = detail::memory::left_in_group(folder, h.unified);
            if (left && *left < least.bytes)
                least = {*left, folder + (h.unified ? "/memory.max" : "/memory.limit_in_bytes")};
        }
    }
    return least;
}

}  // namespace trireme
