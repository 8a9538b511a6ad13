#pragma once
// What a pool is made of.

#include <trireme/sys/cpu_set.hpp>

#include <chrono>
#include <vector>

namespace trireme {

/// Filled by hand or by a placement::plan.
struct pool_options {
    /// The caller included; 0: as many as the budget gives.
    unsigned threads = 0;
    /// CPUs of thread k. Thread 0 is whoever calls the loops and is never bound by the pool: bind it yourself to
    /// cpus[0] if you want. Empty: the CPUs of the process for all.
    std::vector<cpu_set> cpus{};
    /// How long a thread without work looks for the next loop before it sleeps. Applies while the pool's threads
    /// are not more than `cores`; with more threads they sleep at once, for spinning would keep others off.
    std::chrono::nanoseconds spin = std::chrono::milliseconds(2);
    /// CPUs that the pool may count on; 0: those of the budget.
    unsigned cores = 0;
};

}  // namespace trireme
