// Times all_reduce of shm_transport on the cases of the peers' programs (peers/allreduce/sizes.hpp): the same
// names, the same JSON lines. With two ranks the bounds run in between, in the same processes on the same cores:
//
//   trireme                vectors from allocate(): reduced where they lie
//   trireme-staged         vectors of the rank's own: copied through staging slots
//   limit-zerocopy-odd  peers/allreduce/shm_limit.cpp, a bare loop and two spinning barriers over shared vectors,
//                       with the vectors an odd number of pages apart: 2^28 bytes, as there, cost it a factor of
//                       ten to a hundred on some processors
//
//   allreduce [ranks...]      default 2 4

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include <trireme/dist/launch.hpp>
#include <trireme/dist/shm_transport.hpp>

#include "peers/allreduce/sizes.hpp"

namespace {

constexpr std::size_t largest = std::size_t{256} << 20;
constexpr int turns = 5;

void* shared(std::size_t n) {
    return ::mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

/// The bound: what two ranks must at least do, with nothing around it.
struct bare {
    struct alignas(128) flag {
        std::atomic<std::uint64_t> v;
    };
    flag* flags = static_cast<flag*>(shared(4096));
    float* vec[2]{};

    bare() {
        vec[0] = static_cast<float*>(shared(2 * largest + 4096));
        vec[1] = vec[0] + (largest + 4096) / sizeof(float);
    }
    void barrier(unsigned r, std::uint64_t& bars) const {
        ++bars;
        flags[r].v.store(bars, std::memory_order_release);
        while (flags[1 - r].v.load(std::memory_order_acquire) < bars) pb::relax();
    }
    void all_reduce(unsigned r, std::size_t n, std::uint64_t& bars) const {
        barrier(r, bars);
        const std::size_t b = r != 0 ? n / 2 : 0, e = r != 0 ? n : n / 2;
        float *const a = vec[0], *const d = vec[1];
#pragma GCC ivdep
        for (std::size_t i = b; i < e; ++i) {
            const float t = a[i] + d[i];
            a[i] = t;
            d[i] = t;
        }
        barrier(r, bars);
    }
};

/// One way of summing a vector in place, with its samples.
template <class Run>
struct contender {
    const char* name;
    float* data;
    Run run;
    std::vector<double> us{};
    bool ok = true;
};
template <class Run>
contender(const char*, float*, Run) -> contender<Run>;

template <class C>
void warm_up(C& c, trireme::world& w, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) c.data[i] = static_cast<float>(w.rank() + 1);
    w.barrier();
    c.run(n);
    const auto expected = static_cast<float>(w.size() * (w.size() + 1) / 2);
    for (std::size_t i = 0; i < n; i += 97) c.ok = c.ok && c.data[i] == expected;
    w.barrier();
    for (std::size_t i = 0; i < n; ++i) c.data[i] = 0.0F;
    w.barrier();
    c.run(n);
}
template <class C>
void one_turn(C& c, trireme::world& w, std::size_t n, int iterations) {
    w.barrier();
    for (int k = 0; k < iterations; ++k) {
        const auto t0 = pb::now_ns();
        c.run(n);
        c.us.push_back(static_cast<double>(pb::now_ns() - t0) / 1e3);
    }
}

template <class... C>
void measure(trireme::world& w, C&... contenders) {
    for (const auto& s : ar::sizes) {
        const std::size_t n = s.bytes / sizeof(float);
        const int iterations = std::max(1, ar::iters(s, static_cast<int>(w.size())) / turns);
        (warm_up(contenders, w, n), ...);
        (contenders.us.clear(), ...);
        for (int turn = 0; turn < turns; ++turn) (one_turn(contenders, w, n, iterations), ...);
        if (w.rank() == 0)
            (ar::report(contenders.name, s, static_cast<int>(w.size()), contenders.us, contenders.ok), ...);
        w.barrier();
    }
}

int with_ranks(std::uint32_t p) {
    const bare limit;
    return trireme::launch(trireme::ranks{p}, [&](trireme::world& w) {
        if (p == 2) pb::pin(static_cast<int>(w.rank()));
        trireme::shm_transport t{w};
        const auto gradients = t.allocate<float>(largest / sizeof(float));
        std::vector<float> own(largest / sizeof(float));
        const auto sum = [&](std::span<float> v) { t.all_reduce(v, trireme::reduce::sum); };
        contender direct{"trireme", gradients.data(), [&](std::size_t n) { sum(gradients.first(n)); }};
        contender staged{"trireme-staged", own.data(), [&](std::size_t n) { sum(std::span(own).first(n)); }};
        if (p != 2) return measure(w, direct, staged);
        std::uint64_t bars = 0;
        contender bound{"limit-zerocopy-odd", limit.vec[w.rank()],
                        [&](std::size_t n) { limit.all_reduce(w.rank(), n, bars); }};
        measure(w, direct, bound, staged);
    });
}

}  // namespace

int main(int argc, char** argv) {
    ::setenv("OMP_NUM_THREADS", "1", 0);
    std::vector<std::uint32_t> ranks;
    for (int i = 1; i < argc; ++i) ranks.push_back(static_cast<std::uint32_t>(std::atoi(argv[i])));
    if (ranks.empty()) ranks = {2, 4};
    for (const auto p : ranks)
        if (const int status = with_ranks(p); status != 0) return status;
    return 0;
}
