// Times the pool on the cases that the peers' programs use (peers/threads/cases.hpp): the same names, the same JSON
// lines, "peer":"trireme". Two threads, the caller included.
//
//   threads [case...]      forkjoin fine triangle reduce nested idle paired; all of them without arguments
//
// `paired` alternates the pool and the bare bound (a spinning helper, one flag each way) in one process, because a
// virtual machine may move its CPUs between two programs: a line then crosses in 80 ns or in 300, and the ratio of
// two programs says more about that than about either.

#include <trireme/threads/parallel_for.hpp>
#include <trireme/threads/parallel_reduce.hpp>
#include <trireme/threads/pool.hpp>

#include <atomic>
#include <functional>
#include <thread>

#include "peers/threads/cases.hpp"

namespace {

struct adapter {
    static constexpr bool has_get = false, has_wait = false, has_nested = true;
    trireme::pool pool{trireme::pool_options{.threads = 2}};

    template <class F>
    void pf(std::size_t n, std::size_t grain, const F& f) {
        trireme::parallel_for(pool, trireme::blocked<std::size_t>{0, n, grain}, f);
    }
    template <class F>
    void pf1(std::size_t n, const F& f) {
        trireme::parallel_for(pool, trireme::schedule::dynamic{}, std::size_t{0}, n, f);
    }
    void submit_get(std::size_t) {}
    template <class F>
    void submit_wait(std::size_t, const F&) {}
    double sum(const float* p, std::size_t n) {
        return trireme::parallel_reduce(
            pool, trireme::blocked<std::size_t>{0, n, 65536}, 0.0,
            [p](std::size_t b, std::size_t e) { return cases::sum_range(p, b, e); }, std::plus<>{});
    }
    template <class F>
    void nested(std::size_t outer, std::size_t inner, const F& f) {
        trireme::parallel_for(pool, trireme::schedule::dynamic{}, std::size_t{0}, outer, [&](std::size_t i) {
            trireme::parallel_for(pool, std::size_t{0}, inner, [&](std::size_t j) { f(i, j); });
        });
    }
};

// The least that two threads can do, as in peers/threads/t_limit.cpp.
struct bound {
    struct alignas(128) flag {
        std::atomic<std::uint64_t> v{0};
    } go, done;
    std::size_t from = 0, to = 0;
    const void* context = nullptr;
    void (*call)(const void*, std::size_t, std::size_t) = nullptr;
    std::atomic<bool> stop{false};
    std::thread helper{[this] {
        for (std::uint64_t k = 0;; ++k) {
            while (go.v.load(std::memory_order_acquire) == k) {
                if (stop.load(std::memory_order_relaxed)) return;
                pb::relax();
            }
            call(context, from, to);
            done.v.store(k + 1, std::memory_order_release);
        }
    }};
    ~bound() {
        stop = true;
        helper.join();
    }
    template <class F>
    void pf(std::size_t n, std::size_t, const F& f) {
        context = &f;
        call = [](const void* c, std::size_t b, std::size_t e) { (*static_cast<const F*>(c))(b, e); };
        from = n / 2, to = n;
        const auto k = go.v.load(std::memory_order_relaxed) + 1;
        go.v.store(k, std::memory_order_release);
        f(0, n / 2);
        while (done.v.load(std::memory_order_acquire) != k) pb::relax();
    }
};

struct paired_case {
    const char* name;
    double us;  // of work in each half
    int reps;
    std::uint64_t gap_ns;
};
constexpr paired_case paired_cases[] = {
    {"forkjoin/hot", 0, 2000, 0},    {"forkjoin/cold", 0, 40, 1000000},   {"split5/hot", 5, 500, 0},
    {"split5/cold", 5, 40, 1000000}, {"split20/hot", 20, 200, 0},         {"split20/cold", 20, 40, 1000000},
    {"split100/hot", 100, 50, 0},    {"split100/cold", 100, 40, 1000000},
};

template <class A>
double median_us(A& a, const paired_case& c, double rate) {
    const auto steps = static_cast<std::uint64_t>(rate * c.us * 1000);
    const auto body = [steps](std::size_t b, std::size_t e) {
        for (; b < e; ++b) pb::keep(pb::chain(b, steps));
    };
    std::vector<double> v;
    for (int r = -c.reps / 10 - 1; r < c.reps; ++r) {
        if (c.gap_ns != 0) pb::spin_ns(c.gap_ns);
        const auto begin = pb::now_ns();
        a.pf(2, 1, body);
        if (r >= 0) v.push_back(static_cast<double>(pb::now_ns() - begin) / 1e3);
    }
    return pb::quantile(v, 0.5);
}

void paired(adapter& a, int rounds) {
    const double rate = pb::chain_rate();
    for (const auto& c : paired_cases) {
        std::vector<double> ours, least, ratio;
        for (int r = 0; r < rounds; ++r) {
            {
                bound b;
                least.push_back(median_us(b, c, rate));
            }
            ours.push_back(median_us(a, c, rate));
            ratio.push_back(ours.back() / least.back());
            ::usleep(4000);  // our helper is asleep when the bound's begins
        }
        const auto name = std::string(c.name) + "/paired";
        pb::emit(cases::B, "limit-spin", name, least, "us");
        pb::emit(cases::B, "trireme", name, ours, "us",
                 pb::fmt(",\"ratio_to_bound\":%.3f", pb::quantile(ratio, 0.5)));
    }
}

double cpu_ms(clockid_t clock) {
    timespec t{};
    ::clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// What the helpers burn in the 100 ms after a loop, while this thread sleeps.
void idle_cost(adapter& a) {
    std::vector<double> burned;
    for (int r = 0; r < 21; ++r) {
        a.pf(2, 1, [](std::size_t b, std::size_t) { pb::keep(b); });
        const double before = cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
        ::usleep(100000);
        burned.push_back(cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - before);
    }
    pb::emit(cases::B, "trireme", "idle_100ms_after_loop", burned, "ms of CPU time");
}

}  // namespace

int main(int argc, char** argv) {
    adapter a;
    const int status = cases::main_for(a, argc, argv, "trireme");
    if (cases::wanted(argc, argv, "idle")) idle_cost(a);
    if (cases::wanted(argc, argv, "paired")) paired(a, 25);
    return status;
}
