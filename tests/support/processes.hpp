// What tests that kill things share: shared pages, random moments with a printed seed, and what must be gone
// afterwards.
#pragma once

#include <trireme/core/deadline.hpp>
#include <trireme/shm/steps.hpp>
#include <trireme/sys/fork_gate.hpp>
#include <trireme/sys/process.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace test {

/// Hang guards are generous and multiplied by TRIREME_TEST_SLACK.
inline std::chrono::nanoseconds slack(std::chrono::nanoseconds base) {
    const char* const text = std::getenv("TRIREME_TEST_SLACK");
    const double factor = text != nullptr ? std::atof(text) : 1.0;
    return std::chrono::nanoseconds(
        static_cast<long long>(static_cast<double>(base.count()) * (factor > 1 ? factor : 1)));
}
inline trireme::deadline within(std::chrono::nanoseconds base) { return trireme::deadline::in(slack(base)); }

inline bool soak() { return std::getenv("TRIREME_SOAK") != nullptr; }
inline int rounds(int in_ci, int in_soak) { return soak() ? in_soak : in_ci; }

/// A seed of its own for each run, printed, or the one in TRIREME_TEST_SEED.
inline std::uint64_t seed() {
    static const std::uint64_t value = [] {
        const char* const text = std::getenv("TRIREME_TEST_SEED");
        const std::uint64_t s = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
        std::printf("TRIREME_TEST_SEED=%llu\n", static_cast<unsigned long long>(s));
        std::fflush(stdout);
        return s;
    }();
    return value;
}

/// A page that parent and children share; zeroed.
template <class T>
class shared_page {
  public:
    shared_page()
        : at_(new (::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {}
    ~shared_page() { ::munmap(at_, sizeof(T)); }
    shared_page(const shared_page&) = delete;
    T& operator*() const { return *at_; }
    T* operator->() const { return at_; }
    T* get() const { return at_; }

  private:
    T* at_;
};

/// Kills the process itself, with SIGKILL, at the n-th time it passes a step; once in all, over all processes.
struct death_plan {
    std::atomic<std::uint32_t> at{255};
    std::atomic<std::uint32_t> countdown{1};
    std::atomic<std::uint32_t> died{0};
    std::atomic<std::uint32_t> passed[trireme::step_names.size()]{};
};
struct die_at {
    death_plan* plan = nullptr;
    void at(trireme::step s) const noexcept {
        if (plan == nullptr) return;
        plan->passed[static_cast<std::size_t>(s)].fetch_add(1);
        if (plan->at.load() != static_cast<std::uint32_t>(s)) return;
        if (plan->countdown.fetch_sub(1) != 1) return;
        plan->died.store(1);
        ::kill(::getpid(), SIGKILL);
        for (;;) ::pause();
    }
};
static_assert(trireme::step_hook<die_at>);

/// The children and their descendants of this process, by pid, zombies included.
inline std::vector<pid_t> descendants() {
    std::vector<std::pair<pid_t, pid_t>> all;
    for (const auto& e : std::filesystem::directory_iterator("/proc")) {
        const std::string name = e.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        std::FILE* f = std::fopen(("/proc/" + name + "/stat").c_str(), "re");
        if (f == nullptr) continue;
        char text[512]{};
        const auto n = std::fread(text, 1, sizeof text - 1, f);
        std::fclose(f);
        const char* const at = n > 0 ? std::strrchr(text, ')') : nullptr;
        int parent = 0;
        char state = 0;
        if (at != nullptr && std::sscanf(at + 1, " %c %d", &state, &parent) == 2)
            all.emplace_back(static_cast<pid_t>(std::atoi(name.c_str())), static_cast<pid_t>(parent));
    }
    std::vector<pid_t> found{::getpid()};
    for (std::size_t i = 0; i < found.size(); ++i) {
        for (const auto& [pid, parent] : all)
            if (parent == found[i]) found.push_back(pid);
    }
    found.erase(found.begin());
    return found;
}

inline std::size_t entries(const char* folder) {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(folder)) ++n;
    return n;
}

/// What must be as before when something is over: descendants, descriptors, threads, /dev/shm.
struct footprint {
    std::size_t processes = descendants().size();
    std::size_t descriptors = entries("/proc/self/fd");
    std::size_t threads = entries("/proc/self/task");
    std::size_t shm = entries("/dev/shm");
    friend bool operator==(const footprint&, const footprint&) = default;
    std::string text() const {
        return std::to_string(processes) + " processes, " + std::to_string(descriptors) + " descriptors, " +
               std::to_string(threads) + " threads, " + std::to_string(shm) + " entries in /dev/shm";
    }
};

/// True once nothing more is there than before; waits a little for the kernel to finish its part.
inline bool back_to(const footprint& before) {
    const auto until = within(std::chrono::seconds(5));
    for (;;) {
        const footprint now;
        if (now == before) return true;
        if (until.passed()) {
            std::printf("before: %s\nnow:    %s\n", before.text().c_str(), now.text().c_str());
            return false;
        }
        ::usleep(5000);
    }
}

inline bool alive(pid_t pid) { return ::kill(pid, 0) == 0; }

/// A child of the test that runs `body` (no doctest macro in it) and is waited for.
template <class Body>
trireme::exit_status in_child(Body&& body, std::chrono::nanoseconds guard = std::chrono::seconds(60)) {
    auto c = trireme::fork_child("test", body, within(std::chrono::seconds(10)));
    const auto status = c.wait(within(guard));
    return status ? *status : trireme::exit_status{0, 255};
}

inline constexpr trireme::exit_status killed_by(int signal) { return {signal, 0}; }

}  // namespace test
