#pragma once
// A thread of ours: named, known to the fork gate, deaf to signals, joined by its owner.

#include <trireme/core/error.hpp>
#include <trireme/sys/fork_gate.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trireme {

/// Runs `body()` in a new thread. The body wraps each run of user code in a `user_section`, and rests outside of
/// one.
///
/// Throws  system_error when the system gives no thread
/// Threads signals of the process are delivered to other threads: this one blocks them all
/// Crash   in a forked child the thread does not exist; the destructor there joins nothing
class registered_thread {
  public:
    registered_thread() noexcept = default;

    template <class Body>
    registered_thread(const char* name, Body body)
        : entry_(std::make_unique<detail::gate_entry>()), home_(::getpid()) {
        std::snprintf(entry_->name, sizeof entry_->name, "%s", name);
        sigset_t all, before;
        ::sigfillset(&all);
        // The new thread inherits the mask of this instant; the caller's own is put back at once.
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        auto& g = detail::gate();
        try {
            // Held while the thread starts, so that no fork sees it between creation and registration.
            const std::scoped_lock hold(g.lock);
            thread_ = std::thread([entry = entry_.get(), body = std::move(body)]() mutable {
                entry->tid.store(static_cast<int>(::syscall(SYS_gettid)), std::memory_order_release);
                ::pthread_setname_np(::pthread_self(), entry->name);
                detail::this_gate_entry = entry;
                body();
                detail::this_gate_entry = nullptr;
            });
            g.threads.push_back(entry_.get());
        } catch (const std::system_error& e) {
            ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw system_error({std::string("cannot start the thread ") + name, "pid " + std::to_string(::getpid()),
                                "fewer threads, or a higher limit (ulimit -u, pids.max)"},
                               e.code().value());
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    registered_thread(registered_thread&& other) noexcept
        : entry_(std::move(other.entry_)), thread_(std::move(other.thread_)), home_(other.home_) {}
    registered_thread& operator=(registered_thread&& other) noexcept {
        if (this != &other) {
            join();
            entry_ = std::move(other.entry_);
            thread_ = std::move(other.thread_);
            home_ = other.home_;
        }
        return *this;
    }
    ~registered_thread() { join(); }

    bool joinable() const noexcept { return thread_.joinable(); }

    /// Waits for the body to return. The owner has told it to, or this blocks.
    void join() noexcept {
        if (!thread_.joinable()) return;
        if (::getpid() != home_) {  // a forked child: there is no such thread, and pthread_join would wait for ever
            new std::thread(std::move(thread_));
            static_cast<void>(entry_.release());
            return;
        }
        thread_.join();
        forget();
    }
    /// Gives up on a thread that is stuck in user code: it keeps its registration, and whatever it uses must
    /// outlive it.
    void abandon() noexcept {
        if (!thread_.joinable()) return;
        thread_.detach();
        static_cast<void>(entry_.release());
    }

  private:
    void forget() noexcept {
        const std::scoped_lock hold(detail::gate().lock);
        std::erase(detail::gate().threads, entry_.get());
    }

    std::unique_ptr<detail::gate_entry> entry_;
    std::thread thread_;
    pid_t home_ = 0;
};

}  // namespace trireme
