#pragma once
// Worker processes: started, watched, replaced and ended by a zygote.
//
// The zygote is a single-threaded process forked when the workers are made. It forks them, so a worker can be
// replaced long after the trainer has threads and a GPU; it is their reaper, so a death is dealt with at once and
// without a thread in the trainer; and it watches the trainer, so that nobody outlives it.

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/sys/fork_gate.hpp>
#include <trireme/sys/process.hpp>
#include <trireme/sys/socket.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

namespace trireme {

struct worker_processes_options {
    const char* who = "workers";  ///< for messages: "engine::forked"
    std::uint32_t count = 1;
    std::chrono::nanoseconds grace = std::chrono::seconds(3);       ///< for leaving by themselves at shutdown
    std::chrono::nanoseconds fork_wait = std::chrono::seconds(10);  ///< for our own threads to come to rest
};

namespace detail {

/// A child must not run the trainer's handlers, nor die of the terminal's Ctrl-C before the trainer decides.
inline void reset_signals() noexcept {
    for (int s = 1; s < 32; ++s) {
        struct sigaction now {};
        if (::sigaction(s, nullptr, &now) != 0 || now.sa_handler == SIG_IGN || now.sa_handler == SIG_DFL) continue;
        ::signal(s, SIG_DFL);
    }
    ::signal(SIGINT, SIG_IGN);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// What runs in the zygote.
template <class Body, class OnDeath>
class zygote {
  public:
    zygote(const worker_processes_options& options, pid_t trainer, fd_ref link, Body& body, OnDeath& on_death)
        : options_(options),
          trainer_pid_(trainer),
          link_(link),
          body_(body),
          on_death_(on_death),
          workers_(options.count) {}

    int run() {
        ::prctl(PR_SET_NAME, "tri-zygote");
        reset_signals();
        trainer_ = pidfd::open(trainer_pid_);
        if (::getppid() != trainer_pid_) return 0;
        for (std::uint32_t w = 0; w < options_.count; ++w) start(w);
        bool told = false;
        deadline last = deadline::never();
        while (!told || living() > 0) {
            if (wait_for_news(last) && trainer_.dead()) return 0;  // the workers die with this process
            if (!told && told_to_stop()) {
                told = true;
                last = deadline::in(options_.grace);
            }
            if (told && last.passed()) {
                for (auto& w : workers_) w.process.send(SIGKILL);
                last = deadline::never();
            }
            for (std::uint32_t w = 0; w < options_.count; ++w) {
                const auto status = workers_[w].process.poll();
                if (!status || !workers_[w].process.valid()) continue;
                const pid_t pid = workers_[w].process.pid();
                workers_[w].process = child();
                if (!told && on_death_(worker_id{w}, pid, *status)) start(w);
            }
        }
        return 0;
    }

  private:
    struct one {
        child process;
        std::uint32_t incarnation = 0;
    };

    void start(std::uint32_t w) {
        auto& me = workers_[w];
        ++me.incarnation;
        const pid_t zygote_pid = ::getpid();
        std::fflush(nullptr);
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // sound: the zygote has one thread, which ends with it
            if (::getppid() != zygote_pid) ::_exit(1);
            char name[32];
            std::snprintf(name, sizeof name, "tri-worker-%u", w);
            ::prctl(PR_SET_NAME, name);
            prefer_for_oom_kill();
            const int status = body_(worker_id{w}, me.incarnation);
            std::fflush(stdout);
            ::_exit(status);
        }
        if (pid < 0) {
            // No memory or no process slot now: the others go on, and the death is reported like any other.
            static_cast<void>(on_death_(worker_id{w}, 0, exit_status{0, 71}));
            return;
        }
        me.process = child(pid, pidfd::open(pid));
    }
    static void prefer_for_oom_kill() noexcept {
        if (std::FILE* f = std::fopen("/proc/self/oom_score_adj", "we"); f != nullptr) {
            std::fputs("300", f);  // a worker can be replaced, the trainer cannot
            std::fclose(f);
        }
    }
    std::uint32_t living() const noexcept {
        std::uint32_t n = 0;
        for (const auto& w : workers_) n += w.process.valid() ? 1U : 0U;
        return n;
    }
    bool wait_for_news(deadline until) {
        polled_.clear();
        polled_.push_back({trainer_.descriptor().get(), POLLIN, 0});
        if (listening_) polled_.push_back({link_.get(), POLLIN, 0});
        for (const auto& w : workers_) {
            if (w.process.valid()) polled_.push_back({w.process.handle().descriptor().get(), POLLIN, 0});
        }
        // Every one of them is watched, so the wait ends with whatever can happen; the deadline is for the grace.
        const int n = ::poll(polled_.data(), static_cast<nfds_t>(polled_.size()),
                             until.is_never() ? -1 : poll_timeout(until));
        return n > 0;
    }
    bool told_to_stop() {
        std::array<std::byte, 8> word;
        std::size_t size = 0;
        const auto r = receive_message(link_, word, size, deadline::in(std::chrono::nanoseconds(0)));
        if (r == received::nothing) return false;
        listening_ = false;
        return true;
    }

    worker_processes_options options_;
    pid_t trainer_pid_;
    fd_ref link_;
    Body& body_;
    OnDeath& on_death_;
    std::vector<one> workers_;
    std::vector<pollfd> polled_;
    pidfd trainer_;
    bool listening_ = true;
};

}  // namespace detail

/// The trainer's handle on its worker processes.
///
/// Threads    one at a time                 Blocks  the destructor, at most grace + 2 s
/// Processes  `body(worker_id, incarnation) -> int` runs in each worker; `on_death(worker_id, pid, exit_status) ->
/// bool`
///            runs in the zygote after the kernel has confirmed a death and says whether to start that worker anew
/// Crash      the trainer's death ends all of them; the zygote's death ends the workers and shows as `lost()`
class worker_processes {
  public:
    worker_processes() noexcept = default;

    /// Throws  usage_error (foreign threads are alive), system_error (no process, no descriptor)
    template <class Body, class OnDeath>
    worker_processes(const worker_processes_options& options, Body body, OnDeath on_death) : options_(options) {
        auto [mine, theirs] = socket_pair();
        link_ = private_descriptor(std::move(mine));
        const pid_t trainer = ::getpid();
        const pid_t pid = fork_here(options.who, deadline::in(options.fork_wait));
        if (pid == 0) {
            int status = 70;
            try {
                status = detail::zygote(options, trainer, theirs.ref(), body, on_death).run();
            } catch (const std::exception& e) { std::fprintf(stderr, "%s\n", e.what()); }
            ::_exit(status);
        }
        try {
            zygote_ = child(pid, pidfd::open(pid));
        } catch (...) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
            throw;
        }
    }
    worker_processes(worker_processes&&) noexcept = default;
    worker_processes& operator=(worker_processes&&) noexcept = default;
    ~worker_processes() { stop(); }

    pid_t zygote_pid() const noexcept { return zygote_.pid(); }

    /// The zygote's status if it is dead, which it must not be before `stop`.
    std::optional<exit_status> lost() noexcept { return zygote_.valid() ? zygote_.poll() : std::nullopt; }

    /// Waits for the workers to leave, kills those that do not within the grace, reaps all. Idempotent.
    void stop() noexcept {
        if (!zygote_.valid()) return;
        const std::byte word[1]{};
        static_cast<void>(send_message(link_.ref(), word, deadline::in(std::chrono::milliseconds(100))));
        static_cast<void>(zygote_.wait(deadline::in(options_.grace + std::chrono::seconds(2))));
        zygote_.end();
        link_ = private_descriptor();
    }

  private:
    worker_processes_options options_;
    private_descriptor link_;
    child zygote_;
};

}  // namespace trireme
