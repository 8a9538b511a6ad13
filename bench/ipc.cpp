// Times messages between two processes through the slot ring, on the cases that the peers' programs use
// (peers/ipc): the same names, the same JSON lines. Each process consumes one ring and works for the other; a
// message is one filled slot. The processes are pinned to cores 0 and 1.
//
//   trireme            both sides spin                         trireme-futex   both spin 20 us, then sleep
//   trireme-in-place   nothing but 8 bytes of the slot is written or read: the hand-over alone
//
//   ipc [size...]      64B 4KiB 4MiB; all of them without arguments

#include <trireme/shm/backing/memfd.hpp>
#include <trireme/shm/ring.hpp>
#include <trireme/shm/ring_worker.hpp>
#include <trireme/sys/fork_gate.hpp>

#include "peers/common/bench.hpp"

namespace {

namespace tr = trireme;
using namespace std::chrono_literals;

struct size_case {
    const char* name;
    std::size_t bytes;
};
constexpr size_case sizes[] = {{"64B", 64}, {"4KiB", 4096}, {"4MiB", std::size_t{4} << 20}};

/// How long a side that gets no message waits before it gives up: the other one died.
constexpr auto patience = 60s;

template <class Wait>
using lane = tr::ring<tr::backing::memfd, Wait>;

template <class Wait>
lane<Wait> make_lane(std::size_t bytes, Wait wait, std::chrono::nanoseconds spin) {
    tr::ring_options options{.name = "bench", .spin = spin};
    options.geometry = {.slots = 8, .parts = 1, .workers = 1, .rows = 1, .payload_bytes = bytes};
    return lane<Wait>(options, wait);
}

/// What one of the two processes holds: the ring it takes from, and its worker's handle on the ring of the other.
template <class Wait>
class endpoint {
  public:
    endpoint(lane<Wait>& inbox, lane<Wait>& outbox, Wait wait, std::size_t touched)
        : inbox_(inbox),
          outbox_(outbox.memory(), tr::worker_id{0}, 1, tr::scope::threads, wait),
          touched_(touched) {
        open();
    }

    void send(const char* from) {
        tr::part_claim claim;
        if (outbox_.next(claim, tr::deadline::in(patience)) != tr::next_claim::claimed) leave("no slot came free");
        outbox_.begin(claim);
        std::memcpy(outbox_.memory().payload(claim.slot), from, touched_);
        outbox_.publish(claim, tr::part_state::ready);
    }
    void receive(char* to) {
        auto message = inbox_.try_take();
        if (!message) message = inbox_.take(tr::deadline::in(patience), [] {});
        std::memcpy(to, message->data(), touched_);
        message->release();
        open();
    }

  private:
    void open() {
        inbox_.refill([](tr::batch_request&) { return true; });
    }
    [[noreturn]] static void leave(const char* why) {
        std::fprintf(stderr, "bench_ipc: %s\n", why);
        ::_exit(9);
    }

    lane<Wait>& inbox_;
    tr::ring_worker<Wait> outbox_;
    std::size_t touched_;
};

template <class Wait>
void measure(const char* peer, const size_case& size, Wait wait, std::chrono::nanoseconds spin,
             std::size_t touched) {
    const bool large = size.bytes > (1U << 20);
    const int rounds = large ? 200 : 20000;
    const int count = large ? 200 : size.bytes > 1024 ? 50000 : 200000;
    constexpr int streams = 7;
    auto there = make_lane(size.bytes, wait, spin), back = make_lane(size.bytes, wait, spin);
    std::vector<char> out(size.bytes, 1), in(size.bytes, 2);

    there.backing().inherit(true), back.backing().inherit(true);
    auto other = tr::fork_child(
        "bench_ipc",
        [&] {
            pb::pin(1);
            endpoint<Wait> me(there, back, wait, touched);
            for (int k = 0; k < rounds; ++k) me.receive(in.data()), me.send(out.data());
            for (int r = 0; r < streams; ++r) {
                for (int k = 0; k < count; ++k) me.receive(in.data());
                me.send(out.data());
            }
            return 0;
        },
        tr::deadline::in(10s));

    pb::pin(0);
    endpoint<Wait> me(back, there, wait, touched);
    std::vector<double> times;
    for (int k = 0; k < rounds; ++k) {
        const auto since = pb::now_ns();
        me.send(out.data()), me.receive(in.data());
        if (k >= rounds / 10) times.push_back(static_cast<double>(pb::now_ns() - since) / 2e3);
    }
    pb::emit("ipc", peer, std::string("pingpong/") + size.name, times, "us");

    std::vector<double> rates;
    const bool moves_all = touched == size.bytes;
    for (int r = 0; r < streams; ++r) {
        const auto since = pb::now_ns();
        for (int k = 0; k < count; ++k) me.send(out.data());
        me.receive(in.data());
        const auto ns = static_cast<double>(pb::now_ns() - since);
        if (r > 0) rates.push_back(static_cast<double>(size.bytes) * count / ns);
    }
    const double messages = pb::quantile(rates, 0.5) * 1e6 / static_cast<double>(size.bytes);
    if (moves_all)
        pb::emit("ipc", peer, std::string("stream/") + size.name, rates, "GB/s",
                 pb::fmt(",\"kmsg_per_s\":%.1f", messages));
    const auto status = other.wait(tr::deadline::in(patience));
    if (!status || !status->success()) std::fprintf(stderr, "bench_ipc: the other process failed\n"), std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> wanted(argv + 1, argv + argc);
    for (const auto& size : sizes) {
        if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), size.name) == wanted.end()) continue;
        measure("trireme", size, tr::wait::spin{}, patience, size.bytes);
        measure("trireme-futex", size, tr::wait::futex{20us}, 20us, size.bytes);
        measure("trireme-in-place", size, tr::wait::spin{}, patience, 8);
    }
    return 0;
}
