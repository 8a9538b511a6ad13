#pragma once
// Which CPUs a thread may run on: asking, and binding that reports what really holds afterwards.

#include <trireme/core/error.hpp>
#include <trireme/sys/cpu_set.hpp>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <sched.h>
#include <unistd.h>

namespace trireme {

namespace detail {

/// The mask of thread `tid` (0: the calling one). Empty when the system does not tell.
inline cpu_set affinity_of(pid_t tid) {
    // A machine may have more CPUs than a cpu_set_t holds: EINVAL then, and a mask twice the size is tried.
    for (auto mask = cpu_set{}.to_sched(); mask.bytes() <= (cpu_set::max_cpu + 1) / 8;
         mask.words.resize(mask.words.size() * 2)) {
        if (::sched_getaffinity(tid, mask.bytes(), mask.get()) == 0) return cpu_set::from_sched(mask);
        if (errno != EINVAL) break;
    }
    return {};
}

namespace say {
inline message cpus_not_allowed(const cpu_set& asked, const cpu_set& allowed) {
    const auto missing = asked - allowed;
    return {"cannot bind to CPU " + missing.text() + ": this process may use CPUs {" + allowed.text() + "} only",
            "asked for {" + asked.text() + "}, pid " + std::to_string(::getpid()),
            "choose among the allowed CPUs, or start the process with a wider mask (taskset, cpuset, srun "
            "--cpus-per-task)"};
}
inline message binding_to_nothing() {
    return {"cannot bind a thread to an empty set of CPUs", "pid " + std::to_string(::getpid()),
            "name at least one CPU"};
}
}  // namespace say

}  // namespace detail

/// The CPUs that the calling thread may use now.
inline cpu_set thread_cpus() { return detail::affinity_of(0); }

/// The CPUs of the process: the mask that its main thread had when this was first called, which is before the
/// toolkit binds anything. Later binds of single threads do not narrow it, so that pools and children made
/// afterwards are not piled on one core. A program that binds its main thread itself calls this first.
inline const cpu_set& process_cpus() {
    static const cpu_set& first = *new cpu_set([] {
        auto mask = detail::affinity_of(::getpid());
        if (mask.empty()) mask = detail::affinity_of(0);
        if (mask.empty()) mask.insert(0);  // a system that does not tell: one CPU certainly exists
        return mask;
    }());
    return first;
}

/// What became of a request to bind a thread.
struct binding {
    cpu_set asked;
    cpu_set holds;      ///< read back afterwards
    std::string why{};  ///< why `holds` is not `asked`; empty when it is

    bool exact() const noexcept { return asked == holds; }
};

namespace detail {

/// Binds the calling thread without an opinion on whether the CPUs are allowed.
inline binding try_bind_this_thread(const cpu_set& wanted) {
    auto mask = wanted.to_sched();
    const int number = ::sched_setaffinity(0, mask.bytes(), mask.get()) == 0 ? 0 : errno;
    binding result{wanted, thread_cpus()};
    if (result.exact()) return result;
    if (number != 0)
        result.why = "sched_setaffinity refused {" + wanted.text() +
                     "}: " + std::generic_category().message(number) + " (errno " + std::to_string(number) + ")";
    else
        result.why = "the system left only {" + result.holds.text() + "} of {" + wanted.text() +
                     "}: the rest is offline or outside the cpuset";
    return result;
}

}  // namespace detail

/// Binds the calling thread to `wanted` and reads back what holds.
///
/// Returns  what was asked, what holds, and why the two differ if they do: a container may refuse the call
/// Throws   usage_error naming the CPUs of `wanted` that the process may not use, and those it may
/// Threads  changes the calling thread only; threads and processes it starts afterwards inherit the mask, but for
///          ours, which are given the mask of the process
inline binding bind_this_thread(const cpu_set& wanted) {
    const auto& allowed = process_cpus();
    if (wanted.empty()) throw usage_error(detail::say::binding_to_nothing());
    if (!allowed.contains(wanted)) throw usage_error(detail::say::cpus_not_allowed(wanted, allowed));
    return detail::try_bind_this_thread(wanted);
}

}  // namespace trireme
