#pragma once
// Processes: a pollable handle that cannot be confused by pid reuse, children, and how an end is put into words.

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/sys/fd.hpp>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme {

/// How a process ended. Trivially copyable, so that it may travel through shared memory.
struct exit_status {
    std::int32_t signal = 0;  ///< the signal that killed it, or 0
    std::int32_t code = 0;    ///< its exit code, when no signal did

    /// What a shell reports: the code, or 128 + signal.
    constexpr int shell_status() const noexcept { return signal != 0 ? 128 + signal : code; }
    constexpr bool success() const noexcept { return signal == 0 && code == 0; }
    friend constexpr bool operator==(const exit_status&, const exit_status&) = default;

    static exit_status from_wait(int code, int status) noexcept {
        return code == CLD_EXITED ? exit_status{0, status} : exit_status{status, 0};
    }
};

/// "was killed by signal 9 (SIGKILL)", "exited with status 3".
inline std::string describe(exit_status s) {
    if (s.signal == 0) return "exited with status " + std::to_string(s.code);
    const char* name = ::sigabbrev_np(s.signal);
    return "was killed by signal " + std::to_string(s.signal) +
           (name != nullptr ? std::string(" (SIG") + name + ")" : "");
}

/// A handle on a process that becomes readable when it is dead, after the kernel has torn down its memory, so
/// none of its stores can arrive later. Works for processes that are not children.
class pidfd {
  public:
    pidfd() noexcept = default;
    explicit pidfd(fd handle) noexcept : fd_(std::move(handle)) {}

    /// Empty when there is no such process (any more).
    /// Throws  system_error (EMFILE, or a kernel before 5.3)
    static pidfd open(pid_t pid) {
        const auto number = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U));
        if (number < 0 && errno != ESRCH && errno != EINVAL)
            throw system_error({"cannot watch process " + std::to_string(pid), "pid " + std::to_string(::getpid()),
                                "raise the limit of open files (ulimit -n), or allow pidfd_open (Linux >= 5.3)"},
                               errno);
        return pidfd(fd(number));
    }

    bool valid() const noexcept { return fd_.valid(); }
    fd_ref descriptor() const noexcept { return fd_.ref(); }
    /// True once the process is dead; never waits. An empty handle counts as dead.
    bool dead() const noexcept { return !valid() || wait_dead(deadline((deadline::clock::time_point::min)())); }
    /// True once the process is dead, false when `until` came first.
    bool wait_dead(deadline until) const noexcept {
        if (!valid()) return true;
        for (;;) {
            pollfd p{fd_.get(), POLLIN, 0};
            const auto left = until.left();
            const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
            const int timeout = left.count() <= 0 ? 0 : static_cast<int>(ms >= 1'000'000 ? 1'000'000 : ms + 1);
            const int n = ::poll(&p, 1, timeout);
            if (n > 0) return true;
            if (n == 0 && until.left().count() <= 0) return false;
        }
    }
    void send(int signal) const noexcept { ::syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0U); }

    /// The exit status of a dead child, which is reaped by this; empty when it still runs or is nobody of ours.
    std::optional<exit_status> reap() const noexcept {
        siginfo_t info{};
        constexpr auto by_pidfd = static_cast<idtype_t>(3);  // P_PIDFD
        int result = 0;
        do result = ::waitid(by_pidfd, static_cast<id_t>(fd_.get()), &info, WEXITED | WNOHANG);
        while (result != 0 && errno == EINTR);
        if (result != 0 || info.si_pid == 0) return std::nullopt;
        return exit_status::from_wait(info.si_code, info.si_status);
    }

  private:
    fd fd_;
};

/// A child of this process: killed and reaped by the destructor if nobody waited for it.
/// Threads  one at a time
class child {
  public:
    child() noexcept = default;
    child(pid_t pid, pidfd handle) noexcept : pid_(pid), handle_(std::move(handle)) {}
    child(child&& other) noexcept
        : pid_(std::exchange(other.pid_, -1)), handle_(std::move(other.handle_)), status_(other.status_) {}
    child& operator=(child&& other) noexcept {
        if (this != &other) {
            end();
            pid_ = std::exchange(other.pid_, -1);
            handle_ = std::move(other.handle_);
            status_ = other.status_;
        }
        return *this;
    }
    child(const child&) = delete;
    child& operator=(const child&) = delete;
    ~child() { end(); }

    pid_t pid() const noexcept { return pid_; }
    bool valid() const noexcept { return pid_ > 0; }
    const pidfd& handle() const noexcept { return handle_; }
    void send(int signal) const noexcept {
        if (valid() && !status_) handle_.send(signal);
    }
    /// The status, once it ended; never waits.
    std::optional<exit_status> poll() noexcept {
        if (valid() && !status_) status_ = handle_.reap();
        return status_;
    }
    /// The status, or empty when `until` came first.
    std::optional<exit_status> wait(deadline until) noexcept {
        if (!valid()) return status_;
        while (!poll()) {
            if (!handle_.wait_dead(until)) return std::nullopt;
        }
        return status_;
    }
    /// SIGKILL and reap. Blocks until the kernel has torn it down (a process in uninterruptible sleep: 5 s at
    /// most).
    void end() noexcept {
        if (!valid()) return;
        if (!poll()) {
            send(SIGKILL);
            static_cast<void>(wait(deadline::in(std::chrono::seconds(5))));
        }
        pid_ = -1;
        handle_ = pidfd();
    }

  private:
    pid_t pid_ = -1;
    pidfd handle_;
    std::optional<exit_status> status_;
};

/// Start time of a process in clock ticks since boot, or 0: with the pid it names a process for good.
inline std::uint64_t process_start_time(pid_t pid) noexcept {
    char path[64], text[1024];
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
    std::FILE* f = std::fopen(path, "re");
    if (f == nullptr) return 0;
    const std::size_t n = std::fread(text, 1, sizeof text - 1, f);
    std::fclose(f);
    text[n] = 0;
    const char* at = std::strrchr(text, ')');  // the name may hold anything, parentheses included
    unsigned long long value = 0;
    for (int skip = 0; at != nullptr && skip < 20; ++skip) at = std::strchr(at + 1, ' ');
    if (at != nullptr) std::sscanf(at, "%llu", &value);
    return value;
}

}  // namespace trireme
