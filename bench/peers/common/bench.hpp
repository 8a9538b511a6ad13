// Shared by every C++ peer benchmark: clock, statistics, one JSON line per case.
#pragma once
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace pb {

inline std::uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::uint64_t(t.tv_sec) * 1000000000ull + std::uint64_t(t.tv_nsec);
}

inline double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  double pos = q * double(v.size() - 1);
  std::size_t lo = std::size_t(pos), hi = std::min(lo + 1, v.size() - 1);
  return v[lo] + (v[hi] - v[lo]) * (pos - double(lo));
}

// extra: further JSON members, e.g. ",\"workers\":2" (may be empty).
inline void emit(const char* bench, const std::string& peer, const std::string& cas,
                 const std::vector<double>& samples, const char* unit,
                 const std::string& extra = "") {
  std::printf(
      "{\"bench\":\"%s\",\"peer\":\"%s\",\"case\":\"%s\",\"median\":%.6g,\"p10\":%.6g,"
      "\"p90\":%.6g,\"unit\":\"%s\",\"n\":%zu%s}\n",
      bench, peer.c_str(), cas.c_str(), quantile(samples, 0.5), quantile(samples, 0.1),
      quantile(samples, 0.9), unit, samples.size(), extra.c_str());
  std::fflush(stdout);
}

inline std::string fmt(const char* f, ...) {
  char b[512];
  va_list ap;
  va_start(ap, f);
  std::vsnprintf(b, sizeof b, f, ap);
  va_end(ap);
  return b;
}

inline void pin(int cpu) {
  cpu_set_t s;
  CPU_ZERO(&s);
  CPU_SET(std::size_t(cpu), &s);
  sched_setaffinity(0, sizeof s, &s);
}

inline double max_rss_mib(int who = RUSAGE_SELF) {
  rusage r;
  getrusage(who, &r);
  return double(r.ru_maxrss) / 1024.0;
}

template <class T>
inline void keep(T const& v) {
  asm volatile("" : : "r,m"(v) : "memory");
}

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A dependent multiply-xor chain: compute only, no memory. `iters` steps.
inline std::uint64_t chain(std::uint64_t x, std::uint64_t iters) {
  for (std::uint64_t i = 0; i < iters; ++i) {
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
  }
  return x;
}

// Steps of chain() per nanosecond on an idle core (best of several).
inline double chain_rate() {
  double best = 0;
  for (int r = 0; r < 9; ++r) {
    std::uint64_t t0 = now_ns();
    keep(chain(std::uint64_t(r) + 12345, 400000));
    std::uint64_t dt = now_ns() - t0;
    best = std::max(best, 400000.0 / double(dt));
  }
  return best;
}

inline void spin_ns(std::uint64_t ns) {
  std::uint64_t end = now_ns() + ns;
  while (now_ns() < end) relax();
}

}  // namespace pb
