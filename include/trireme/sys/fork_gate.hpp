#pragma once
// The fork gate: forking is safe when no thread can hold a lock that the child would inherit locked. Threads of
// ours are registered here and are parked, outside of user code, while a fork happens; any other thread is a reason
// to refuse, which the caller gets in words.
//
// The registry also knows what a child must not keep: descriptors whose end-of-file means something to a peer.

#include <trireme/core/bytes.hpp>
#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/sys/process.hpp>
#include <trireme/sys/wait.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trireme {

namespace detail {

/// What the gate knows of one of our threads. Lives on the thread's own line: entering user code costs one
/// exchange.
struct alignas(flag_line) gate_entry {
    std::atomic<std::uint32_t> busy{0};
    std::atomic<int> tid{0};
    char name[16]{};
};

struct gate_state {
    std::mutex lock;  // guards the two lists; never held while user code runs
    std::vector<gate_entry*> threads;
    std::vector<int> private_descriptors;  // closed in every child
    std::atomic<std::uint32_t> closed{0};  // a fork is under way: threads wait before they enter user code
};

inline thread_local gate_entry* this_gate_entry = nullptr;
inline thread_local bool inside_fork_here = false;  // it has the lock already

/// One object in the whole program, never destroyed: threads may outlive static destruction.
inline gate_state& gate() {
    static gate_state& g = []() -> gate_state& {
        auto& made = *new gate_state;
        // A plain fork() of the user's does not pass the gate. It must not catch the lock locked by another thread,
        // nor leave the child with entries of threads that it does not have.
        ::pthread_atfork(
            [] {
                if (!inside_fork_here) gate().lock.lock();
            },
            [] {
                if (!inside_fork_here) gate().lock.unlock();
            },
            [] {
                if (inside_fork_here) return;
                gate().threads.clear();
                gate().closed.store(0, std::memory_order_relaxed);
                this_gate_entry = nullptr;
                gate().lock.unlock();
            });
        return made;
    }();
    return g;
}

/// The threads of this process that are neither the caller nor registered: "name (tid)".
inline std::vector<std::string> foreign_threads(const gate_state& g) {
    std::vector<std::string> found;
    const auto self = static_cast<int>(::syscall(SYS_gettid));
    DIR* d = ::opendir("/proc/self/task");
    if (d == nullptr) return found;
    while (const dirent* e = ::readdir(d)) {
        const int tid = std::atoi(e->d_name);
        if (tid <= 0 || tid == self) continue;
        if (std::any_of(g.threads.begin(), g.threads.end(), [tid](const gate_entry* t) { return t->tid == tid; }))
            continue;
        char path[64], name[32] = "?";
        std::snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
        if (std::FILE* f = std::fopen(path, "re"); f != nullptr) {
            if (std::fgets(name, sizeof name, f) != nullptr) name[std::strcspn(name, "\n")] = 0;
            std::fclose(f);
        } else {
            continue;  // it ended meanwhile
        }
        found.push_back(std::string(name) + " (" + std::to_string(tid) + ")");
    }
    ::closedir(d);
    return found;
}

namespace say {
inline message foreign_threads_alive(const char* who, const std::vector<std::string>& threads) {
    std::string list;
    for (const auto& t : threads) list += (list.empty() ? "" : ", ") + t;
    return {std::string(who) + " cannot fork here: " + std::to_string(threads.size()) +
                " thread(s) of somebody else are alive, and may hold locks that the child would inherit locked",
            "pid " + std::to_string(::getpid()) + ", threads " + list,
            "make this object before those threads start, or use engine::threads"};
}
inline message thread_stays_busy(const char* who, const char* thread) {
    return {std::string(who) + " cannot fork now: the thread " + thread + " did not come to rest",
            "pid " + std::to_string(::getpid()), "fork while no loop or loader of this process is in user code"};
}
}  // namespace say

}  // namespace detail

/// Around every run of user code in a registered thread; elsewhere it does nothing.
/// Blocks  while another thread of the process forks
class user_section {
  public:
    user_section() noexcept {
        auto* const me = detail::this_gate_entry;
        if (me == nullptr) return;
        auto& closed = detail::gate().closed;
        for (;;) {
            me->busy.store(1, std::memory_order_seq_cst);  // (G) pairs with the gate's store of `closed`
            if (closed.load(std::memory_order_seq_cst) == 0) return;
            me->busy.store(0, std::memory_order_release);
            while (closed.load(std::memory_order_acquire) != 0) {
                futex_wait(closed, 1, deadline::in(std::chrono::milliseconds(50)));
            }
        }
    }
    ~user_section() {
        if (auto* const me = detail::this_gate_entry) me->busy.store(0, std::memory_order_release);
    }
    user_section(const user_section&) = delete;
    user_section& operator=(const user_section&) = delete;
};

/// A descriptor that no child forked through the gate keeps open, for as long as this lives.
class private_descriptor {
  public:
    private_descriptor() noexcept = default;
    explicit private_descriptor(fd owned) : fd_(std::move(owned)) {
        if (!fd_.valid()) return;
        const std::scoped_lock hold(detail::gate().lock);
        detail::gate().private_descriptors.push_back(fd_.get());
    }
    private_descriptor(private_descriptor&&) noexcept = default;
    private_descriptor& operator=(private_descriptor&& other) noexcept {
        if (this != &other) {
            forget();
            fd_ = std::move(other.fd_);
        }
        return *this;
    }
    ~private_descriptor() { forget(); }

    fd_ref ref() const noexcept { return fd_.ref(); }
    int get() const noexcept { return fd_.get(); }
    bool valid() const noexcept { return fd_.valid(); }

  private:
    void forget() noexcept {
        if (!fd_.valid()) return;
        {
            const std::scoped_lock hold(detail::gate().lock);
            std::erase(detail::gate().private_descriptors, fd_.get());
        }
        fd_.reset();
    }
    fd fd_;
};

/// Forks with every thread of ours parked outside user code. Returns what fork returns: 0 in the child, where only
/// the calling thread exists, the private descriptors are closed (but those in `keep`) and the registry is empty.
///
/// Blocks  until our own threads leave user code, at most until `until`
/// Throws  usage_error naming the foreign threads, or the thread of ours that stays busy; system_error (EAGAIN,
/// ENOMEM) Threads any; forks are serialised
inline pid_t fork_here(const char* who, deadline until, std::initializer_list<int> keep = {}) {
    auto& g = detail::gate();
    g.lock.lock();
    const auto reopen = [&g]() noexcept {
        g.closed.store(0, std::memory_order_release);
        futex_wake(g.closed);
        g.lock.unlock();
    };
    g.closed.store(1, std::memory_order_seq_cst);  // (G) pairs with user_section
    for (const auto* t : g.threads) {
        if (t == detail::this_gate_entry) continue;
        while (t->tid.load(std::memory_order_acquire) == 0)
            ::sched_yield();  // it is starting: it will be there at once
        while (t->busy.load(std::memory_order_seq_cst) != 0) {
            if (until.passed()) {
                const std::string name = t->name;
                reopen();
                throw usage_error(detail::say::thread_stays_busy(who, name.c_str()));
            }
            ::usleep(50);
        }
    }
    auto strangers = detail::foreign_threads(g);
    // A thread that was joined a moment ago may still be listed: the kernel wakes the joiner before it removes the
    // entry.
    for (int retry = 0; !strangers.empty() && retry < 20; ++retry) {
        ::usleep(500);
        strangers = detail::foreign_threads(g);
    }
    if (!strangers.empty()) {
        reopen();
        throw usage_error(detail::say::foreign_threads_alive(who, strangers));
    }
    std::fflush(nullptr);  // or the child would print what the parent has in its buffers once more
    detail::inside_fork_here = true;
    const pid_t pid = ::fork();
    detail::inside_fork_here = false;
    if (pid == 0) {
        for (const int number : g.private_descriptors) {
            if (std::find(keep.begin(), keep.end(), number) == keep.end()) ::close(number);
        }
        std::erase_if(g.private_descriptors,
                      [&](int number) { return std::find(keep.begin(), keep.end(), number) == keep.end(); });
        g.threads.clear();
        detail::this_gate_entry = nullptr;
        g.closed.store(0, std::memory_order_relaxed);
        g.lock.unlock();
        return 0;
    }
    const int number = errno;
    reopen();
    if (pid < 0)
        throw system_error({std::string(who) + " cannot fork", "pid " + std::to_string(::getpid()),
                            "see the limits of processes (ulimit -u, pids.max) and memory"},
                           number);
    return pid;
}

/// Forks a child that runs `body()` and leaves by `_exit` with what it returns (an int), after flushing stdio; an
/// exception that escapes is printed and gives status 1.
/// Crash  the child is killed when the thread that called this ends, or dies, if `die_with_parent`
template <class Body>
child fork_child(const char* who, Body&& body, deadline until, bool die_with_parent = true,
                 std::initializer_list<int> keep = {}) {
    const pid_t parent = ::getpid();
    const pid_t pid = fork_here(who, until, keep);
    if (pid == 0) {
        if (die_with_parent) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(1);  // it died before the line above
        }
        int status = 1;
        try {
            status = body();
        } catch (const std::exception& e) { std::fprintf(stderr, "%s\n", e.what()); } catch (...) {
            std::fprintf(stderr, "trireme: %s: an exception of unknown type escaped\n", who);
        }
        std::fflush(nullptr);
        ::_exit(status);
    }
    try {
        return child(pid, pidfd::open(pid));
    } catch (...) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        throw;
    }
}

}  // namespace trireme
