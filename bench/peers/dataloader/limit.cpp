// What the samples themselves cost: each worker (a forked process) writes complete
// batches straight into a warm slot of its own, with no loader, no hand-over and no
// consumer. The upper bound of any loader on this machine.
// usage: limit DATA_DIR(unpacked idx files) TOKEN_FILE [case...]
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>

#include "../common/bench.hpp"

static void go(const char* name, std::size_t slot_bytes, std::size_t batches, int workers,
               int batch, bool warm, const std::function<void(std::size_t, char*)>& fill) {
  // `fill(b, slot)` writes batch b; with `warm` one pass goes before the clock starts, so that
  // the source is mapped. Slots: 4 a worker, shared memory, written once before.
  struct Ctl {
    volatile int ready[2], start;
    double secs[2];
  };
  auto* ctl = static_cast<Ctl*>(
      mmap(nullptr, sizeof(Ctl), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<double> rates;
  for (int rep = 0; rep < 7; ++rep) {
    std::memset(ctl, 0, sizeof *ctl);
    for (int w = 0; w < workers; ++w) {
      if (fork() == 0) {
        std::size_t n = 4 * slot_bytes;
        auto* m = static_cast<char*>(
            mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        std::memset(m, 1, n);
        for (std::size_t b = std::size_t(w); warm && b < batches; b += std::size_t(workers))
          fill(b, m + (b / std::size_t(workers) % 4) * slot_bytes), pb::keep(m);
        ctl->ready[w] = 1;
        while (!ctl->start) pb::relax();
        auto t0 = pb::now_ns();
        for (std::size_t b = std::size_t(w); b < batches; b += std::size_t(workers))
          fill(b, m + (b / std::size_t(workers) % 4) * slot_bytes), pb::keep(m);
        ctl->secs[w] = double(pb::now_ns() - t0) * 1e-9;
        _exit(0);
      }
    }
    for (int w = 0; w < workers; ++w)
      while (!ctl->ready[w]) usleep(100);
    ctl->start = 1;
    while (wait(nullptr) > 0) {
    }
    double s = std::max(ctl->secs[0], ctl->secs[1]);
    if (rep) rates.push_back(double(batches) / s);
  }
  pb::emit("dataloader", "limit", pb::fmt("%s/w%d", name, workers), rates, "batches/s",
           pb::fmt(",\"workers\":%d,\"batch\":%d,\"samples_per_s\":%.0f", workers, batch,
                   pb::quantile(rates, 0.5) * batch));
}

static std::vector<char> slurp(const std::string& p, std::size_t off) {
  std::ifstream f(p, std::ios::binary);
  std::vector<char> v((std::istreambuf_iterator<char>(f)), {});
  if (v.size() <= off) std::exit(3);
  v.erase(v.begin(), v.begin() + std::ptrdiff_t(off));
  return v;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  auto x = slurp(std::string(argv[1]) + "/train-images-idx3-ubyte", 16);
  auto y = slurp(std::string(argv[1]) + "/train-labels-idx1-ubyte", 8);
  std::vector<std::uint32_t> perm(y.size());
  std::iota(perm.begin(), perm.end(), 0u);
  std::shuffle(perm.begin(), perm.end(), std::mt19937(1));
  int fd = open(argv[2], O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st)) return 3;
  auto* tok = static_cast<const std::uint16_t*>(
      mmap(nullptr, std::size_t(st.st_size), PROT_READ, MAP_SHARED, fd, 0));
  std::size_t windows = std::size_t(st.st_size) / 2048;
  double rate = pb::chain_rate();
  auto want = [&](const char* c) {
    return argc == 3 || std::find(argv + 3, argv + argc, std::string(c)) != argv + argc;
  };
  for (int w : {1, 2}) {
    if (want("tiny")) go("tiny", 64 * (784 + 8), 40 * 937, w, 64, true, [&](std::size_t b, char* o) {
      b %= 937;
      auto* lab = reinterpret_cast<std::int64_t*>(o + 64 * 784);
      for (std::size_t k = 0; k < 64; ++k) {
        auto i = perm[b * 64 + k];
        std::memcpy(o + k * 784, &x[i * 784], 784);
        lab[k] = y[i];
      }
    });
    if (want("image")) go("image", 32 * 3 * 224 * 224, 4000, w, 32, false, [&](std::size_t b, char* o) {
      for (std::size_t k = 0; k < 32; ++k) std::memset(o + k * 150528, int(b + k) & 255, 150528);
    });
    if (want("work")) go("work", 64 * 12288, 200, w, 64, false, [&](std::size_t b, char* o) {
      for (std::size_t k = 0; k < 64; ++k) {
        pb::keep(pb::chain(b, std::uint64_t(rate * 200000)));
        std::memset(o + k * 12288, int(k), 12288);
      }
    });
    if (want("tokens")) go("tokens-i64", 16 * 8192, 32768, w, 16, true, [&](std::size_t b, char* o) {
      auto* q = reinterpret_cast<std::int64_t*>(o);
      for (std::size_t k = 0; k < 16; ++k) {
        auto* p = tok + ((b * 16 + k) * 2654435761ull % windows) * 1024;
        for (int j = 0; j < 1024; ++j) q[k * 1024 + std::size_t(j)] = p[j];
      }
    });
    if (want("tokens")) go("tokens-u16", 16 * 2048, 65536, w, 16, true, [&](std::size_t b, char* o) {
      for (std::size_t k = 0; k < 16; ++k)
        std::memcpy(o + k * 2048, tok + ((b * 16 + k) * 2654435761ull % windows) * 1024, 2048);
    });
  }
}
