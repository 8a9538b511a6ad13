#pragma once
// How many workers an engine starts when it is not told, how long they spin, and where they may run.

#include <trireme/core/error.hpp>
#include <trireme/sys/affinity.hpp>
#include <trireme/threads/cpu_budget.hpp>
#include <trireme/threads/local_ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

namespace trireme::detail {

/// The CPUs of this process's job on this host, divided among the local ranks if a launcher says how many there
/// are.
inline std::uint32_t cpus_of_this_rank() {
    static const auto all = static_cast<std::uint32_t>((std::max)(1U, cpu_budget::discover().compute()));
    return (std::max)(1U, all / local_ranks());
}

/// All CPUs but the trainer's, at least one.
inline std::uint32_t default_workers() { return (std::max)(1U, cpus_of_this_rank() - 1U); }

/// About the cost of one wake when every worker and the trainer have a CPU each; otherwise whoever waits makes
/// room.
inline std::chrono::nanoseconds loader_spin(std::uint32_t workers) {
    return workers + 1 <= cpus_of_this_rank() ? std::chrono::microseconds(50) : std::chrono::microseconds(0);
}

/// Workers use the mask the process was started with, not the one core that a library pinned its main thread to.
inline void use_process_cpus() {
    if (thread_cpus() != process_cpus()) static_cast<void>(try_bind_this_thread(process_cpus()));
}

/// Throws usage_error when the CUDA driver is initialised in this process: a forked child could not use it, and
/// what the driver holds would be inherited in an undefined state. (Initialised, not only loaded:
/// NVIDIA/DALI#3671.)
inline void refuse_after_cuda(const char* who) {
    void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    using count_fn = int (*)(int*);
    const auto count = reinterpret_cast<count_fn>(::dlsym(library, "cuDeviceGetCount"));
    int devices = 0;
    constexpr int not_initialised = 3;  // CUDA_ERROR_NOT_INITIALIZED
    const bool alive = count != nullptr && count(&devices) != not_initialised;
    ::dlclose(library);
    if (alive)
        throw usage_error({std::string(who) + " cannot fork here: the CUDA driver is initialised in this process",
                           "pid " + std::to_string(::getpid()),
                           "make the loader before the first CUDA call, or use engine::threads"});
}

}  // namespace trireme::detail
