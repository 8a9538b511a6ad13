#pragma once
// A pool of threads for loops: parallel_for and parallel_reduce run on it. The calling thread takes part, so a pool
// of n threads has n-1 helpers, started by the first loop that needs them.

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>
#include <trireme/sys/affinity.hpp>
#include <trireme/threads/cpu_budget.hpp>
#include <trireme/threads/detail/team.hpp>
#include <trireme/threads/local_ranks.hpp>
#include <trireme/threads/placement.hpp>
#include <trireme/threads/pool_options.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

namespace detail {

struct pool_access;

namespace say {
inline message bad_thread_count(const std::string& asked) {
    return {"a pool cannot have " + asked + " threads", "",
            "use 1 (the caller alone) to " + std::to_string(team::most_threads) + ", or no number for the default"};
}
inline message bad_pool_cpus(std::size_t sets, unsigned threads) {
    return {"a pool of " + std::to_string(threads) + " threads was given CPUs for " + std::to_string(sets), "",
            "give pool_options::cpus one set a thread, the caller's first, or none at all"};
}
}  // namespace say

}  // namespace detail

/// Threads that share the work of loops.
///
/// A loop inside a loop, and a loop while another thread's loop has the pool, runs in the calling thread alone: it
/// never waits for threads that are busy, so it cannot deadlock, and no thread more than the pool's is started.
///
/// Blocks     construction does not start a thread; the first loop starts those it needs; the destructor joins them
/// Threads    any thread may start loops; destroy it when none is running
/// Processes  after fork() the child's first loop starts threads of its own; the parent's pool is not affected
/// Crash      in a child of fork() the destructor waits for nobody
class alignas(cache_line) pool {
  public:
    /// As many threads as this process may use CPUs (cpu_budget), divided by the ranks of the job on this host;
    /// bound to no single CPU.
    pool() : pool(pool_options{}) {}

    /// Throws  usage_error for less than 1 thread
    template <std::integral Count>
    requires(!std::same_as<Count, bool>) explicit pool(Count threads)
        : pool(pool_options{.threads = counted(threads)}) {}

    /// Threads on CPUs chosen by a policy from those of the process: `pool{placement::compact{}}`.
    /// Throws  usage_error for what the policy cannot do
    template <placement_policy Placement>
    explicit pool(const Placement& how) : pool(how, default_threads()) {}
    template <placement_policy Placement, std::integral Count>
    pool(const Placement& how, Count threads)
        : pool(pool_options{.threads = counted(threads), .cpus = how.cpus_for(process_cpus(), counted(threads))}) {}

    /// Throws  usage_error naming the CPUs that the process may not use, or that the sets are not one a thread
    explicit pool(pool_options options) : options_(std::move(options)) {
        if (options_.threads == 0 || options_.cores == 0) {
            const auto budget = default_threads();
            if (options_.threads == 0)
                options_.threads = options_.cpus.empty() ? budget : static_cast<unsigned>(options_.cpus.size());
            if (options_.cores == 0) options_.cores = budget;
        }
        counted(options_.threads);
        if (!options_.cpus.empty() && options_.cpus.size() != options_.threads)
            throw usage_error(detail::say::bad_pool_cpus(options_.cpus.size(), options_.threads));
        for (const auto& cpus : options_.cpus) {
            if (cpus.empty()) throw usage_error(detail::say::binding_to_nothing());
            if (!process_cpus().contains(cpus))
                throw usage_error(detail::say::cpus_not_allowed(cpus, process_cpus()));
        }
        threads_.store(options_.threads, std::memory_order_relaxed);
        team_.store(new detail::team, std::memory_order_release);
    }
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;
    ~pool() { delete team_.load(std::memory_order_acquire); }

    /// Threads that a loop may use, the caller included.
    unsigned num_threads() const noexcept { return threads_.load(std::memory_order_relaxed); }

    /// Changes it for the loops that start afterwards, from any thread. Fewer: the others sleep and are kept, so
    /// that changing back starts none. More than the pool was made with: they get CPUs in turn, if CPUs were given.
    /// Throws  usage_error for less than 1; the old number stays
    template <std::integral Count>
    void set_num_threads(Count threads) {
        threads_.store(counted(threads), std::memory_order_relaxed);
    }

    /// What each helper started so far asked of the system, and got: thread 1 first.
    std::vector<binding> bindings() const { return team_.load(std::memory_order_acquire)->bindings(); }
    const pool_options& options() const noexcept { return options_; }

  private:
    friend struct detail::pool_access;

    static unsigned default_threads() { return (std::max)(1U, cpu_budget::discover().compute() / local_ranks()); }

    template <std::integral Count>
    static unsigned counted(Count n) {
        if (std::cmp_less(n, 1) || std::cmp_greater(n, detail::team::most_threads))
            throw usage_error(detail::say::bad_thread_count(std::to_string(n)));
        return static_cast<unsigned>(n);
    }

    const cpu_set& cpus_of(unsigned k) const {
        return options_.cpus.empty() ? process_cpus() : options_.cpus[k % options_.cpus.size()];
    }

    /// The team of this process: in a forked child a new one, while the parent's is kept until the pool goes,
    /// because the fork may have happened inside one of its loops.
    detail::team& current() {
        auto* const seen = team_.load(std::memory_order_acquire);
        return seen->lost() ? after_fork(seen) : *seen;
    }
    [[gnu::noinline]] detail::team& after_fork(detail::team* seen) {
        while (seen->lost()) {
            auto fresh = std::make_unique<detail::team>();
            fresh->previous.reset(seen);
            if (team_.compare_exchange_strong(seen, fresh.get(), std::memory_order_acq_rel))
                return *fresh.release();
            static_cast<void>(fresh->previous.release());  // another thread was first, and keeps it
        }
        return *seen;
    }

    pool_options options_;
    std::atomic<unsigned> threads_{1};
    std::atomic<detail::team*> team_{nullptr};
};

namespace detail {

/// The team of a pool for the length of one loop, or nobody.
class loop_team {
  public:
    loop_team() noexcept = default;
    loop_team(team* locked, unsigned n) noexcept : team_(locked), n_(n) {}
    loop_team(const loop_team&) = delete;
    loop_team& operator=(const loop_team&) = delete;
    ~loop_team() {
        if (team_ != nullptr) team_->unlock();
    }
    explicit operator bool() const noexcept { return team_ != nullptr; }
    unsigned size() const noexcept { return n_; }
    team* operator->() const noexcept { return team_; }

  private:
    team* team_ = nullptr;
    unsigned n_ = 1;
};

struct pool_access {
    /// Up to `useful` threads of the pool, helpers started; nobody if one is enough or the team has a loop.
    /// Throws  system_error when a helper cannot be started
    static loop_team enter(pool& p, std::uint64_t useful) {
        const unsigned wanted = p.num_threads();
        const auto n = static_cast<unsigned>((std::min)(std::uint64_t{wanted}, useful));
        if (n < 2) return {};
        team& t = p.current();
        if (!t.try_lock()) return {};
        try {
            t.ensure(n, wanted <= p.options_.cores ? p.options_.spin : std::chrono::nanoseconds(0),
                     [&p](unsigned k) -> const cpu_set& { return p.cpus_of(k); });
        } catch (...) {
            t.unlock();
            throw;
        }
        return {&t, n};
    }
};

}  // namespace detail

}  // namespace trireme
