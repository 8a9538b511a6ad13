#pragma once
// Limits that control groups put on the CPUs of this process: the quota of CPU time and the set of CPUs, version 1
// and version 2, over the whole path from the process's own group up to the root of what is visible.
//
// Everything is read below a root folder, so that a copied or made-up tree gives the answer of the machine it came
// from. Nothing here throws for what a file says: an unreadable limit is no limit, and a warning.

#include <trireme/sys/cpu_set.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

/// The tightest quota of CPU time. 2.5 means: 250 ms of CPU time in every 100 ms.
struct cpu_quota_reading {
    std::optional<double> cpus;           ///< nothing: no quota anywhere
    std::string file{};                   ///< the file that holds the tightest one
    std::vector<std::string> warnings{};  ///< each names a file whose text is not understood, and the text
};

/// The CPUs that the cpuset controller leaves.
struct cpuset_reading {
    std::optional<cpu_set> cpus;  ///< nothing: no such controller
    std::string file{};
    std::vector<std::string> warnings{};
};

namespace detail::cgroup {

/// The whole file, or nothing if it cannot be read.
inline std::optional<std::string> slurp(const std::string& path) {
    std::FILE* f = std::fopen(path.c_str(), "re");
    if (f == nullptr) return std::nullopt;
    std::string text;
    char block[4096];
    for (std::size_t n; (n = std::fread(block, 1, sizeof block, f)) > 0;) text.append(block, n);
    const bool failed = std::ferror(f) != 0;  // a directory opens, and fails to be read
    std::fclose(f);
    if (failed) return std::nullopt;
    return text;
}

inline std::string_view trimmed(std::string_view s) {
    const auto blank = " \t\r\n";
    const auto from = s.find_first_not_of(blank);
    return from == s.npos ? std::string_view{} : s.substr(from, s.find_last_not_of(blank) - from + 1);
}

/// Cuts the part before `sep` off `rest`.
inline std::string_view next(std::string_view& rest, char sep) {
    const auto at = rest.find(sep);
    const auto head = rest.substr(0, at);
    rest = at == rest.npos ? std::string_view{} : rest.substr(at + 1);
    return head;
}

/// Whether a comma-separated list has `word`.
inline bool lists(std::string_view list, std::string_view word) {
    while (!list.empty())
        if (next(list, ',') == word) return true;
    return false;
}

inline std::optional<long long> integer(std::string_view s) {
    long long n = 0;
    const auto r = std::from_chars(s.data(), s.data() + s.size(), n);
    if (r.ec != std::errc{} || r.ptr != s.data() + s.size()) return std::nullopt;
    return n;
}

/// mountinfo writes blanks, tabs, newlines and backslashes of a path as octal escapes.
inline std::string unescaped(std::string_view s) {
    std::string out;
    for (std::size_t i = 0; i < s.size(); ++i) {
        if (s[i] == '\\' && i + 3 < s.size() && s[i + 1] >= '0' && s[i + 1] <= '3') {
            out += static_cast<char>((s[i + 1] - '0') * 64 + (s[i + 2] - '0') * 8 + (s[i + 3] - '0'));
            i += 3;
        } else {
            out += s[i];
        }
    }
    return out;
}

/// One controller's hierarchy: where it is mounted, which group the mount shows as its top, and ours.
struct hierarchy {
    bool unified = false;  ///< version 2
    std::string mount;     ///< below the root folder, no slash at the end
    std::string top = "/";
    std::string group;

    /// The folders from our own group up to the mount. A group outside the mount (a path with "..", as another
    /// namespace shows it) leaves the mount alone.
    std::vector<std::string> path() const {
        std::string inner = group;
        if (top != "/") {
            const bool below =
                inner.compare(0, top.size(), top) == 0 && (inner.size() == top.size() || inner[top.size()] == '/');
            inner = below ? inner.substr(top.size()) : std::string{};
        }
        if ((inner + "/").find("/../") != inner.npos) inner.clear();
        while (!inner.empty() && inner.back() == '/') inner.pop_back();
        std::vector<std::string> folders;
        for (;;) {
            folders.push_back(mount + inner);
            if (inner.empty()) return folders;
            inner.resize(inner.rfind('/') == inner.npos ? 0 : inner.rfind('/'));
        }
    }
};

/// The hierarchies that carry `controller`, from the two tables of /proc. A tree without mountinfo is taken to
/// have the usual mounts.
inline std::vector<hierarchy> hierarchies(const std::string& root, std::string_view controller) {
    const auto groups = slurp(root + "/proc/self/cgroup");
    if (!groups) return {};
    const auto mounts = slurp(root + "/proc/self/mountinfo");
    std::vector<hierarchy> found;
    for (std::string_view lines = *groups; !lines.empty();) {
        auto line = next(lines, '\n');  // "4:cpu,cpuacct:/docker/x"; the path may have colons itself
        const auto id = next(line, ':');
        const auto controllers = next(line, ':');
        const bool unified = id == "0" && controllers.empty();
        if (line.empty() || (!unified && !lists(controllers, controller))) continue;
        hierarchy h;
        h.unified = unified;
        h.group = line;
        if (!mounts) {
            h.mount = root + "/sys/fs/cgroup" + (unified ? "" : "/" + std::string(controllers));
            found.push_back(std::move(h));
            continue;
        }
        for (std::string_view rows = *mounts; !rows.empty();) {
            // "33 32 0:28 /top /mount/point rw,... optional... - type source super,options"
            auto row = next(rows, '\n');
            for (int skipped = 0; skipped < 3; ++skipped) next(row, ' ');
            const auto top = next(row, ' '), point = next(row, ' ');
            const auto dash = row.find(" - ");
            if (dash == row.npos) continue;
            row.remove_prefix(dash + 3);
            const auto type = next(row, ' ');
            next(row, ' ');
            if (unified ? type != "cgroup2" : type != "cgroup" || !lists(trimmed(row), controller)) continue;
            h.top = unescaped(top);
            h.mount = root + unescaped(point);
            found.push_back(h);
            break;  // further mounts show the same groups
        }
    }
    return found;
}

namespace say {
inline std::string not_understood(const std::string& file, std::string_view text, const char* why) {
    return file + " says \"" + std::string(trimmed(text)) + "\": " + why + "; ignored";
}
}  // namespace say

/// "250000 100000", "max 100000", "max", "300000". Nothing: no limit.
inline std::optional<double> quota_v2(const std::string& file, std::string_view text,
                                      std::vector<std::string>& warnings) {
    auto rest = trimmed(text);
    const auto all = rest;
    if (rest.empty()) return std::nullopt;
    const auto quota = next(rest, ' ');
    if (quota == "max") return std::nullopt;
    const auto us = integer(quota);
    const auto period = rest.empty() ? std::optional<long long>(100000) : integer(trimmed(rest));
    if (!us || !period || *us <= 0 || *period <= 0) {
        warnings.push_back(say::not_understood(file, all, "not a quota and a period above zero"));
        return std::nullopt;
    }
    return static_cast<double>(*us) / static_cast<double>(*period);
}

/// The pair of cpu.cfs_quota_us (-1: no limit) and cpu.cfs_period_us.
inline std::optional<double> quota_v1(const std::string& folder, std::string_view quota,
                                      std::vector<std::string>& warnings) {
    const auto us = integer(trimmed(quota));
    if (!us) {
        if (!trimmed(quota).empty())
            warnings.push_back(say::not_understood(folder + "/cpu.cfs_quota_us", quota, "not a number"));
        return std::nullopt;
    }
    if (*us <= 0) return std::nullopt;
    const auto text = slurp(folder + "/cpu.cfs_period_us");
    const auto period = text ? integer(trimmed(*text)) : std::optional<long long>(100000);
    if (!period || *period <= 0) {
        warnings.push_back(say::not_understood(folder + "/cpu.cfs_period_us", *text, "not a period above zero"));
        return std::nullopt;
    }
    return static_cast<double>(*us) / static_cast<double>(*period);
}

}  // namespace detail::cgroup

/// The smallest quota of CPU time on the way from this process's group up to the root: a group's limit binds all
/// that is below it, and the leaf often says "max" while a parent does not.
/// Blocks  for a few reads below `root`       Throws  nothing but std::bad_alloc
inline cpu_quota_reading cpu_quota(std::string root = "/") {
    namespace cg = detail::cgroup;
    while (!root.empty() && root.back() == '/') root.pop_back();
    cpu_quota_reading least;
    for (const auto& h : cg::hierarchies(root, "cpu"))
        for (const auto& folder : h.path()) {
            const auto file = folder + (h.unified ? "/cpu.max" : "/cpu.cfs_quota_us");
            const auto text = cg::slurp(file);
            if (!text) continue;  // the real root has no such file
            const auto here =
                h.unified ? cg::quota_v2(file, *text, least.warnings) : cg::quota_v1(folder, *text, least.warnings);
            if (here && (!least.cpus || *here < *least.cpus)) least.cpus = *here, least.file = file;
        }
    return least;
}

/// The CPUs that the cpuset controller leaves to this process's group: the effective ones where the kernel shows
/// them, which has taken all parents into account.
/// Blocks  for a few reads below `root`       Throws  nothing but std::bad_alloc
inline cpuset_reading cpuset_cpus(std::string root = "/") {
    namespace cg = detail::cgroup;
    while (!root.empty() && root.back() == '/') root.pop_back();
    cpuset_reading result;
    for (const auto& h : cg::hierarchies(root, "cpuset")) {
        const char* effective = h.unified ? "/cpuset.cpus.effective" : "/cpuset.effective_cpus";
        for (const auto& folder : h.path()) {
            auto file = folder + effective;
            auto text = cg::slurp(file);
            if (!text) file = folder + "/cpuset.cpus", text = cg::slurp(file);
            if (!text || cg::trimmed(*text).empty()) continue;  // not set here: the parent's holds
            cpu_set cpus;
            if (const auto fault = detail::parse_cpu_list(*text, cpus)) {
                result.warnings.push_back(cg::say::not_understood(file, *text, fault.why));
                continue;
            }
            result.cpus = result.cpus ? *result.cpus & cpus : cpus;
            result.file = file;
            break;
        }
    }
    return result;
}

}  // namespace trireme
