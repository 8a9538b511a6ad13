// One-way messages between two forked processes, one pinned on each core.
//   pingpong/SIZE  half a round trip (us); the payload is copied in by the sender and copied
//                  out by the receiver in every peer
//   stream/SIZE    one way, as fast as it goes (GB/s and messages/s)
//   wake/*         what it costs to wake a sleeping process
// Peers: pipe, unix-stream, boost-mq, spsc-spin, spsc-futex (spin 20 us, then futex), cacheline.
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/interprocess/ipc/message_queue.hpp>
#include <memory>

#include "../common/bench.hpp"

namespace bi = boost::interprocess;
static const char* B = "ipc";

static void* shared(std::size_t n) {
  void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::memset(p, 0, n);
  return p;
}
static long futex(std::atomic<std::uint32_t>* a, int op, std::uint32_t v) {
  return syscall(SYS_futex, a, op, v, nullptr, nullptr, 0);
}
static void full_write(int fd, const char* p, std::size_t n) {
  while (n) {
    ssize_t k = write(fd, p, n);
    if (k <= 0) _exit(9);
    p += k, n -= std::size_t(k);
  }
}
static void full_read(int fd, char* p, std::size_t n) {
  while (n) {
    ssize_t k = read(fd, p, n);
    if (k <= 0) _exit(9);
    p += k, n -= std::size_t(k);
  }
}

struct Chan {  // one direction
  virtual void send(const char* p, std::size_t n) = 0;
  virtual void recv(char* p, std::size_t n) = 0;
  virtual ~Chan() = default;
};
struct Fd : Chan {
  int r, w;
  Fd(int r_, int w_) : r(r_), w(w_) {}
  void send(const char* p, std::size_t n) override { full_write(w, p, n); }
  void recv(char* p, std::size_t n) override { full_read(r, p, n); }
};
struct Mq : Chan {
  std::string name;
  std::unique_ptr<bi::message_queue> q;
  Mq(const char* nm, std::size_t n) : name(nm) {
    bi::message_queue::remove(nm);
    q = std::make_unique<bi::message_queue>(bi::create_only, nm, 8, n);
  }
  ~Mq() override { bi::message_queue::remove(name.c_str()); }
  void send(const char* p, std::size_t n) override { q->send(p, n, 0); }
  void recv(char* p, std::size_t n) override {
    bi::message_queue::size_type got;
    unsigned pr;
    q->receive(p, n, got, pr);
  }
};
struct Spsc : Chan {
  struct alignas(128) Ix {
    std::atomic<std::uint32_t> v;
  };
  struct Hdr {
    Ix head, tail, sleepers;
  };
  static constexpr std::uint32_t slots = 8;
  Hdr* h;
  char* d;
  std::size_t stride;
  bool fut;
  Spsc(std::size_t n, bool f) : stride((n + 127) / 128 * 128), fut(f) {
    h = static_cast<Hdr*>(shared(sizeof(Hdr)));
    d = static_cast<char*>(shared(stride * slots));
  }
  template <class C>
  void await(std::atomic<std::uint32_t>& a, C cond) {
    std::uint64_t end = 0;
    for (;;) {
      for (int k = 0; k < 50; ++k) {
        if (cond(a.load(std::memory_order_acquire))) return;
        pb::relax();
      }
      if (!fut) continue;
      auto now = pb::now_ns();
      if (!end) end = now + 20000;
      if (now < end) continue;
      h->sleepers.v.fetch_add(1);
      auto v = a.load();
      if (!cond(v)) futex(&a, FUTEX_WAIT, v);
      h->sleepers.v.fetch_sub(1);
    }
  }
  void publish(std::atomic<std::uint32_t>& a, std::uint32_t v) {
    if (fut) {
      a.store(v);
      if (h->sleepers.v.load()) futex(&a, FUTEX_WAKE, 1);
    } else {
      a.store(v, std::memory_order_release);
    }
  }
  void send(const char* p, std::size_t n) override {
    auto t = h->tail.v.load(std::memory_order_relaxed);
    await(h->head.v, [&](std::uint32_t x) { return t - x < slots; });
    std::memcpy(d + (t % slots) * stride, p, n);
    publish(h->tail.v, t + 1);
  }
  void recv(char* p, std::size_t n) override {
    auto x = h->head.v.load(std::memory_order_relaxed);
    await(h->tail.v, [&](std::uint32_t t) { return t != x; });
    std::memcpy(p, d + (x % slots) * stride, n);
    publish(h->head.v, x + 1);
  }
};

static void measure(const char* peer, const char* sz, std::size_t n, Chan& ab, Chan& ba) {
  int rounds = n > (1u << 20) ? 200 : 20000;
  int count = n > (1u << 20) ? 200 : n > 1024 ? 50000 : 200000;
  pid_t pid = fork();
  std::vector<char> buf(n, 1), out(n, 2);
  if (pid == 0) {
    pb::pin(1);
    for (int k = 0; k < rounds; ++k) ab.recv(buf.data(), n), ba.send(buf.data(), n);
    for (int r = 0; r < 7; ++r) {
      for (int k = 0; k < count; ++k) ab.recv(buf.data(), n);
      ba.send(buf.data(), n);
    }
    _exit(0);
  }
  pb::pin(0);
  std::vector<double> v;
  for (int k = 0; k < rounds; ++k) {
    auto t0 = pb::now_ns();
    ab.send(out.data(), n), ba.recv(buf.data(), n);
    if (k >= rounds / 10) v.push_back(double(pb::now_ns() - t0) / 2e3);
  }
  pb::emit(B, peer, pb::fmt("pingpong/%s", sz), v, "us");
  v.clear();
  for (int r = 0; r < 7; ++r) {
    auto t0 = pb::now_ns();
    for (int k = 0; k < count; ++k) ab.send(out.data(), n);
    ba.recv(buf.data(), n);
    if (r) v.push_back(double(n) * count / double(pb::now_ns() - t0));
  }
  pb::emit(B, peer, pb::fmt("stream/%s", sz), v, "GB/s",
           pb::fmt(",\"kmsg_per_s\":%.1f", pb::quantile(v, 0.5) * 1e6 / double(n)));
  waitpid(pid, nullptr, 0);
}

static void cacheline() {
  struct alignas(128) L {
    std::atomic<std::uint64_t> v;
  };
  auto* l = static_cast<L*>(shared(2 * sizeof(L)));
  const int n = 200000;
  if (fork() == 0) {
    pb::pin(1);
    for (std::uint64_t k = 1; k <= n; ++k) {
      while (l[0].v.load(std::memory_order_acquire) != k) {
      }
      l[1].v.store(k, std::memory_order_release);
    }
    _exit(0);
  }
  pb::pin(0);
  std::vector<double> v;
  for (std::uint64_t k = 1; k <= n;) {
    auto t0 = pb::now_ns();
    for (int j = 0; j < 100; ++j, ++k) {
      l[0].v.store(k, std::memory_order_release);
      while (l[1].v.load(std::memory_order_acquire) != k) {
      }
    }
    v.push_back(double(pb::now_ns() - t0) / 200.0);
  }
  wait(nullptr);
  pb::emit(B, "cacheline", "one-way", v, "ns");
}

// Futex wake of a process asleep on the other core: cost to the waker, and until it runs.
static void wakes() {
  struct S {
    std::atomic<std::uint32_t> seq, ready;
    std::atomic<std::uint64_t> woke;
  };
  auto* s = static_cast<S*>(shared(sizeof(S)));
  for (int gap_us : {20, 100, 1000, 10000}) {
    s->seq = 0, s->ready = 0, s->woke = 0;
    const std::uint32_t n = 300;
    if (fork() == 0) {
      pb::pin(1);
      for (std::uint32_t k = 0; k < n; ++k) {
        s->ready.store(k + 1);
        while (s->seq.load() == k) futex(&s->seq, FUTEX_WAIT, k);
        s->woke.store(pb::now_ns());
      }
      _exit(0);
    }
    pb::pin(0);
    std::vector<double> cost, lat;
    for (std::uint32_t k = 0; k < n; ++k) {
      while (s->ready.load() != k + 1) {
      }
      pb::spin_ns(std::uint64_t(gap_us) * 1000);
      s->woke = 0;
      auto t0 = pb::now_ns();
      s->seq.store(k + 1);
      futex(&s->seq, FUTEX_WAKE, 1);
      auto t1 = pb::now_ns();
      std::uint64_t t2;
      while (!(t2 = s->woke.load())) {
      }
      cost.push_back(double(t1 - t0) / 1e3);
      lat.push_back(double(t2 - t0) / 1e3);
    }
    wait(nullptr);
    pb::emit(B, "futex", pb::fmt("wake-call/asleep%dus", gap_us), cost, "us");
    pb::emit(B, "futex", pb::fmt("wake-latency/asleep%dus", gap_us), lat, "us");
  }
}

// What a page costs when first touched, and what avoids it.
static void pages() {
  const std::size_t n = 64u << 20;
  struct K {
    const char* name;
    int flags, huge, populate;
  } kinds[] = {{"private-4k", MAP_PRIVATE, 0, 0},
               {"shared-4k", MAP_SHARED, 0, 0},
               {"private-thp", MAP_PRIVATE, 1, 0},
               {"shared-thp", MAP_SHARED, 1, 0},
               {"shared-map-populate", MAP_SHARED | MAP_POPULATE, 0, 0},
               {"private-populate-write", MAP_PRIVATE, 0, 1},
               {"shared-populate-write", MAP_SHARED, 0, 1}};
  for (auto& k : kinds) {
    std::vector<double> v, m;
    for (int r = 0; r < 5; ++r) {
      auto t0 = pb::now_ns();
      auto* p = static_cast<char*>(
          mmap(nullptr, n, PROT_READ | PROT_WRITE, k.flags | MAP_ANONYMOUS, -1, 0));
      if (k.huge) madvise(p, n, MADV_HUGEPAGE);
      if (k.populate) madvise(p, n, 23);  // MADV_POPULATE_WRITE
      for (std::size_t i = 0; i < n; i += 4096) p[i] = 1;
      v.push_back(double(pb::now_ns() - t0) / double(n / 4096));
      t0 = pb::now_ns();
      std::memset(p, r, n);
      m.push_back(double(n) / double(pb::now_ns() - t0));
      munmap(p, n);
    }
    pb::emit(B, "kernel", pb::fmt("first-touch/%s", k.name), v, "ns/4KiB",
             pb::fmt(",\"then_memset_gb_s\":%.1f", pb::quantile(m, 0.5)));
  }
  // The pages exist already; another process touches (or populates) its own mapping of them.
  for (int populate = 0; populate < 3; ++populate) {
    std::vector<double> v;
    for (int r = 0; r < 5; ++r) {
      int fd = memfd_create("peers", 0);
      if (ftruncate(fd, off_t(n))) return;
      auto* a = static_cast<char*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
      std::memset(a, 1, n);
      auto t0 = pb::now_ns();
      auto* b = static_cast<char*>(mmap(nullptr, n, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | (populate == 1 ? MAP_POPULATE : 0), fd, 0));
      if (populate == 2) madvise(b, n, 23);
      for (std::size_t i = 0; i < n; i += 4096) b[i] = 2;
      v.push_back(double(pb::now_ns() - t0) / double(n / 4096));
      munmap(a, n), munmap(b, n), close(fd);
    }
    pb::emit(B, "kernel", populate == 0   ? "second-mapping/touch"
                              : populate == 1 ? "second-mapping/map-populate"
                                              : "second-mapping/populate-write",
             v, "ns/4KiB");
  }
  std::vector<double> v;
  for (int r = 0; r < 50; ++r) {
    auto t0 = pb::now_ns();
    for (int k = 0; k < 1000; ++k) syscall(SYS_getppid);
    v.push_back(double(pb::now_ns() - t0) / 1000);
  }
  pb::emit(B, "kernel", "syscall", v, "ns");
  v.clear();
  for (int r = 0; r < 60; ++r) {
    auto t0 = pb::now_ns();
    if (fork() == 0) _exit(0);
    wait(nullptr);
    if (r >= 10) v.push_back(double(pb::now_ns() - t0) / 1e3);
  }
  pb::emit(B, "kernel", "fork+exit+wait", v, "us");
}

// ipc [bounds|peers]: what the machine does and the bare rings, or the libraries; both without an argument
int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const bool bounds = what != "peers", peers = what != "bounds";
  struct {
    const char* name;
    std::size_t n;
  } sizes[] = {{"64B", 64}, {"4KiB", 4096}, {"4MiB", 4u << 20}};
  if (bounds) pages(), cacheline(), wakes();
  for (auto& s : sizes) {
    if (bounds) {
      Spsc a(s.n, false), b(s.n, false);
      measure("spsc-spin", s.name, s.n, a, b);
    }
    if (bounds) {
      Spsc a(s.n, true), b(s.n, true);
      measure("spsc-futex", s.name, s.n, a, b);
    }
    if (!peers) continue;
    {
      int p[2], q[2];
      if (pipe(p) || pipe(q)) return 1;
      Fd a(p[0], p[1]), b(q[0], q[1]);
      measure("pipe", s.name, s.n, a, b);
    }
    {
      int p[2], q[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, p) || socketpair(AF_UNIX, SOCK_STREAM, 0, q)) return 1;
      Fd a(p[0], p[1]), b(q[0], q[1]);
      measure("unix-stream", s.name, s.n, a, b);
    }
    {
      Mq a("peers_mq_a", s.n), b("peers_mq_b", s.n);
      measure("boost-mq", s.name, s.n, a, b);
    }
  }
}
