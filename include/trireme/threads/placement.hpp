#pragma once
// Placement: which CPUs each thread of a pool gets. Policies are types; a plan divides the CPUs of a host among the
// ranks on it first.
//
// The policies go by CPU number alone: neighbours are neighbouring numbers.

#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/sys/cpu_set.hpp>
#include <trireme/threads/cpu_budget.hpp>
#include <trireme/threads/pool_options.hpp>

#include <concepts>
#include <string>
#include <vector>

namespace trireme {

/// Who gives CPUs to threads.
///
///   cpus_for(usable, n)   n sets, for the threads 0 .. n-1; thread 0 is the one that calls the loops
///
/// The compiler cannot check: each set is a non-empty part of `usable`.
/// Reference model: placement::none below.
template <class P>
concept placement_policy = requires(const P& p, const cpu_set& usable, unsigned n) {
    { p.cpus_for(usable, n) } -> std::same_as<std::vector<cpu_set>>;
};

namespace detail::say {
inline message too_few_cpus(unsigned wanted, const cpu_set& usable) {
    return {std::to_string(wanted) + " threads with a CPU each are wanted, but only " +
                std::to_string(usable.count()) + (usable.count() == 1 ? " CPU is" : " CPUs are") + " allowed: {" +
                usable.text() + "}",
            "", "fewer threads, a wider mask for the process, or placement with .may_share = true"};
}
}  // namespace detail::say

namespace placement {

/// Every thread may run on every usable CPU; the kernel decides. Right when other work shares the CPUs.
struct none {
    std::vector<cpu_set> cpus_for(const cpu_set& usable, unsigned n) const { return {n, usable}; }
};
static_assert(placement_policy<none>);

/// One CPU a thread, the lowest numbers first: threads next to each other share what neighbouring CPUs share.
struct compact {
    bool may_share = true;  ///< more threads than CPUs: start again with the first CPU; false: an error

    /// Throws  usage_error naming both numbers, if the CPUs are too few and may not be shared
    std::vector<cpu_set> cpus_for(const cpu_set& usable, unsigned n) const {
        const unsigned have = usable.count();
        if (have == 0 || (n > have && !may_share)) throw usage_error(detail::say::too_few_cpus(n, usable));
        std::vector<cpu_set> cpus;
        for (unsigned k = 0; k < n; ++k) cpus.push_back({usable.nth(k % have)});
        return cpus;
    }
};
static_assert(placement_policy<compact>);

/// One CPU a thread, as far apart in number as the usable ones allow: each thread gets the caches of more CPUs.
struct spread {
    bool may_share = true;  ///< more threads than CPUs: start again with the first CPU; false: an error

    /// Throws  usage_error naming both numbers, if the CPUs are too few and may not be shared
    std::vector<cpu_set> cpus_for(const cpu_set& usable, unsigned n) const {
        const unsigned have = usable.count();
        if (n >= have) return compact{may_share}.cpus_for(usable, n);
        std::vector<cpu_set> cpus;
        for (unsigned k = 0; k < n; ++k) cpus.push_back({usable.nth(k * have / n)});
        return cpus;
    }
};
static_assert(placement_policy<spread>);

}  // namespace placement

namespace placement {

/// Divides what the host gives to this process's user among the ranks on the host, and says what each part gets.
///
/// Threads  a value
class plan {
  public:
    /// For rank `local.index` of the `local.count` on this host.
    explicit plan(shard local, const cpu_budget& host = cpu_budget::discover())
        : local_(local), mine_(host.share(local)) {}
    /// For whatever knows its place among the ranks of its host.
    template <class World>
    requires requires(const World& w) {
        { w.local_shard() } -> std::convertible_to<shard>;
    }
    explicit plan(const World& w) : plan(static_cast<shard>(w.local_shard())) {}

    const cpu_budget& budget() const noexcept { return mine_; }

    /// Options for the pool of this rank: a thread for each of its CPUs, placed by `how`.
    template <placement_policy Placement = none>
    pool_options compute(const Placement& how = {}) const {
        const unsigned n = mine_.compute();
        return {.threads = n, .cpus = how.cpus_for(mine_.usable, n), .cores = n};
    }

    /// "rank 0 of 2 on this host: 1 thread on CPUs 0, limited by the affinity mask, rank 0 of 2 here".
    std::string text() const {
        return "rank " + std::to_string(local_.index) + " of " + std::to_string(local_.count) +
               " on this host: " + mine_.text();
    }

  private:
    shard local_;
    cpu_budget mine_;
};

}  // namespace placement

}  // namespace trireme
