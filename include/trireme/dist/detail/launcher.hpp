#pragma once
// The process that has started the ranks: waits for them, writes down how each ended where the survivors can read
// it, ends those that do not go by themselves, and says what happened, the culprit first.

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/core/observer.hpp>
#include <trireme/dist/detail/world_arena.hpp>
#include <trireme/sys/process.hpp>

namespace trireme {

/// The exit status of a rank that leaves because another one failed (EX_TEMPFAIL of sysexits.h: nothing wrong
/// here).
inline constexpr int survivor_status = 75;

struct launch_options {
    std::chrono::nanoseconds speak = std::chrono::seconds(1);  ///< for survivors, after the first failure
    std::chrono::nanoseconds grace = std::chrono::seconds(3);  ///< between SIGTERM and SIGKILL
};

}  // namespace trireme

namespace trireme::detail {

namespace say {
inline std::string rank_ended(std::uint32_t r, pid_t pid, exit_status s, bool forced) {
    std::string text = "rank " + std::to_string(r) + " (pid " + std::to_string(pid) + ") ";
    if (forced) return text + "did not leave by itself after another rank failed, and " + describe(s);
    if (s.signal == 0 && s.code == survivor_status) return text + "left with status 75 because another rank failed";
    return text + describe(s);
}
inline std::string threads_per_rank(unsigned threads, std::uint32_t ranks, std::uint32_t cpus) {
    return "OMP_NUM_THREADS=" + std::to_string(threads) + " for each of " + std::to_string(ranks) + " ranks on " +
           std::to_string(cpus) + " usable CPUs (it was not set)";
}
}  // namespace say

/// Waits for the ranks and returns what the launching program should exit with.
class launcher {
  public:
    launcher(world_arena arena, launch_options o) : arena_(arena), options_(o) {}

    void add(child rank) {
        arena_.enter(static_cast<std::uint32_t>(ranks_.size()), rank.pid());
        ranks_.push_back({std::move(rank), {}, false, false});
    }

    /// Blocks  until every rank has ended; once one has failed, for at most speak + grace and the time to kill
    int wait() {
        enum class phase { running, speaking, terminating, killed } now = phase::running;
        deadline next = deadline::never();
        while (std::any_of(ranks_.begin(), ranks_.end(), [](const entry& e) { return !e.over; })) {
            sleep_until_change(next);
            for (std::uint32_t r = 0; r < ranks_.size(); ++r)
                note(r, now == phase::terminating || now == phase::killed);
            const bool failed = std::any_of(ranks_.begin(), ranks_.end(),
                                            [](const entry& e) { return e.over && !e.status.success(); });
            if (now == phase::running && failed) {
                now = phase::speaking;
                next = deadline::in(options_.speak);
            } else if (now == phase::speaking && next.passed()) {
                now = phase::terminating;
                next = deadline::in(options_.grace);
                send(SIGTERM);
            } else if (now == phase::terminating && next.passed()) {
                now = phase::killed;
                next = deadline::never();
                send(SIGKILL);
            }
            report(false);
        }
        report(true);
        return status();
    }

  private:
    struct entry {
        child process;
        exit_status status;
        bool over;
        bool forced;
        bool told = false;
    };

    void sleep_until_change(deadline next) {
        std::vector<pollfd> p;
        for (const entry& e : ranks_)
            if (!e.over) p.push_back({e.process.handle().descriptor().get(), POLLIN, 0});
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(next.left()).count();
        ::poll(p.data(), p.size(), next.is_never() ? -1 : static_cast<int>(ms) + 1);
    }
    void note(std::uint32_t r, bool forced) {
        entry& e = ranks_[r];
        if (e.over) return;
        const auto status = e.process.poll();
        if (!status) return;
        e.status = *status;
        e.over = true;
        e.forced = forced && !status->success() && status->code != survivor_status;
        if (!e.status.success() && !survivor(e) && !e.forced && first_failed_ < 0)
            first_failed_ = static_cast<int>(r);
        roster_line& line = arena_.rank(r);
        line.status = *status;
        line.ended.store(1, std::memory_order_release);
    }
    static bool survivor(const entry& e) noexcept {
        return e.status.signal == 0 && e.status.code == survivor_status;
    }
    void send(int signal) {
        for (const entry& e : ranks_)
            if (!e.over) e.process.send(signal);
    }
    /// The rank whose failure came first: what the ranks recorded, if that rank has failed; else what was seen
    /// first.
    int culprit() const {
        if (const auto f = arena_.header().first.read(); f && f->about < ranks_.size()) {
            const entry& e = ranks_[f->about];
            if (e.over && !e.status.success() && !survivor(e)) return static_cast<int>(f->about);
            if (!e.over) return -1;  // it will fail in a moment
        }
        return first_failed_;
    }
    void report(bool all) {
        const int first = culprit();
        if (first >= 0) tell(static_cast<std::uint32_t>(first));
        if (first < 0 && !all) return;
        for (std::uint32_t r = 0; r < ranks_.size(); ++r) tell(r);
    }
    void tell(std::uint32_t r) {
        entry& e = ranks_[r];
        if (!e.over || e.told || e.status.success()) return;
        e.told = true;
        stderr_observer{}({severity::warning, "launch", say::rank_ended(r, e.process.pid(), e.status, e.forced)});
    }
    int status() const {
        if (const int c = culprit(); c >= 0) return ranks_[static_cast<std::size_t>(c)].status.shell_status();
        for (const entry& e : ranks_)
            if (!e.status.success()) return e.status.shell_status();
        return 0;
    }

    world_arena arena_;
    launch_options options_;
    std::vector<entry> ranks_;
    int first_failed_ = -1;
};

}  // namespace trireme::detail
