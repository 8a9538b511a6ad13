// Lower bounds for two processes (forked, one core each, spinning):
//   memcpy1 / memcpy2     copy bandwidth, one core alone and both at once (GB/s copied a core)
//   limit-zerocopy        both vectors lie in shared memory; each process sums its half and
//                         writes it to both vectors
//   limit-staged          private vectors; halves exchanged through warm 128 KiB shared slots
//                         (reduce-scatter and allgather fused, double-buffered)
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>

#include "sizes.hpp"

struct alignas(128) Flag {
  std::atomic<std::uint64_t> v;
};
struct Ctl {
  Flag bar[2], put[2], sum[2];
  double x[2];
};

static void* shared(std::size_t n) {
  void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::memset(p, 0, n);
  return p;
}
static void wait_ge(Flag& f, std::uint64_t v) {
  while (f.v.load(std::memory_order_acquire) < v) pb::relax();
}

int main() {
  constexpr std::size_t max = 256u << 20, slot = 128u << 10;
  auto* c = static_cast<Ctl*>(shared(sizeof(Ctl)));
  // A page more than needed: at a distance of a multiple of 256 MiB the same lines of two vectors put each other out
  // of the first-level cache on some CPUs (Zen 4), which makes this loop 8 times as slow.
  float* vec[2] = {static_cast<float*>(shared(max + 4096)), static_cast<float*>(shared(max + 4096))};
  char* st = static_cast<char*>(shared(8 * slot));  // [rank][put|sum][2]
  auto body = [&](int r) {
    pb::pin(r);
    std::uint64_t bars = 0;
    auto barrier = [&] {
      ++bars;
      c->bar[r].v.store(bars, std::memory_order_release);
      wait_ge(c->bar[1 - r], bars);
    };
    float* mine = static_cast<float*>(mmap(nullptr, max + 4096, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(mine, 0, max);
    float* priv2 = vec[r];
    // copy bandwidth
    for (int both = 0; both < 2; ++both) {
      for (std::size_t n : {std::size_t(128) << 10, std::size_t(1) << 20, max / 2}) {
        int it = n < (2u << 20) ? 400 : 8;
        std::vector<double> v;
        for (int k = 0; k < it; ++k) {
          barrier();
          if (both || r == 0) {
            auto t0 = pb::now_ns();
            std::memcpy(priv2, mine, n);
            pb::keep(priv2);
            v.push_back(double(n) / double(pb::now_ns() - t0));
          }
          barrier();
        }
        if (r == 0)
          pb::emit(ar::B, "memcpy", pb::fmt("%zuKiB/cores%d", n >> 10, both + 1), v, "GB/s");
      }
    }
    std::uint64_t puts = 0, sums = 0;
    for (int mode = 0; mode < 2; ++mode) {
      for (auto& s : ar::sizes) {
        std::size_t n = s.bytes / 4;
        auto zero = [&] {  // in place: mine half summed, written to both
          barrier();
          std::size_t b = r ? n / 2 : 0, e = r ? n : n / 2;
          float *a = vec[0], *d = vec[1];
#pragma GCC ivdep
          for (std::size_t i = b; i < e; ++i) {
            float t = a[i] + d[i];
            a[i] = t;
            d[i] = t;
          }
          barrier();
        };
        auto staged = [&] {
          std::size_t half = n / 2, per = slot / 4;
          float* own = mine + (r ? half : 0);         // the half this process sums
          float* oth = mine + (r ? 0 : half);         // the half the other one sums
          std::size_t chunks = (half + per - 1) / per;
          auto sl = [&](int rank, int kind, std::uint64_t k) {
            return reinterpret_cast<float*>(st + std::size_t(rank * 4 + kind * 2 + int(k & 1)) * slot);
          };
          std::uint64_t p0 = puts, s0 = sums;
          auto len = [&](std::size_t k) { return std::min(per, half - k * per); };
          auto put = [&](std::size_t k) {
            std::memcpy(sl(r, 0, p0 + k), oth + k * per, len(k) * 4);
            c->put[r].v.store(p0 + k + 1, std::memory_order_release);
          };
          auto take = [&](std::size_t k) {  // the other's sum of my `oth` half
            wait_ge(c->sum[1 - r], s0 + k + 1);
            std::memcpy(oth + k * per, sl(1 - r, 1, s0 + k), len(k) * 4);
          };
          if (chunks) put(0);
          for (std::size_t k = 0; k < chunks; ++k) {
            if (k + 1 < chunks) put(k + 1);
            wait_ge(c->put[1 - r], p0 + k + 1);
            const float* in = sl(1 - r, 0, p0 + k);
            float *out = sl(r, 1, s0 + k), *o = own + k * per;
            std::size_t m = len(k);
#pragma GCC ivdep
            for (std::size_t i = 0; i < m; ++i) {
              float t = o[i] + in[i];
              o[i] = t;
              out[i] = t;
            }
            c->sum[r].v.store(s0 + k + 1, std::memory_order_release);
            take(k);
          }
          puts += chunks;
          sums += chunks;
        };
        float* base = mode ? mine : vec[r];
        for (std::size_t i = 0; i < n; ++i) base[i] = float(r + 1);
        barrier();
        bool ok = true;
        mode ? staged() : zero();
        for (std::size_t i = 0; i < n; i += 97) ok = ok && base[i] == 3.f;
        barrier();
        for (std::size_t i = 0; i < n; ++i) base[i] = 0.f;
        std::vector<double> us;
        barrier();
        for (int k = 0; k < s.iters; ++k) {
          auto t0 = pb::now_ns();
          mode ? staged() : zero();
          us.push_back(double(pb::now_ns() - t0) / 1e3);
        }
        if (r == 0) ar::report(mode ? "limit-staged" : "limit-zerocopy", s, 2, us, ok);
        barrier();
      }
    }
  };
  for (int r = 0; r < 2; ++r)
    if (fork() == 0) {
      body(r);
      std::fflush(nullptr);
      _exit(0);
    }
  while (wait(nullptr) > 0) {
  }
}
