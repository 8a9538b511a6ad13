// Times the loader on the cases that the peers' programs use (peers/dataloader): the same names, the same way of
// measuring, the same JSON lines. "trireme" is engine::caller without workers and engine::forked with them,
// "trireme-threads" is engine::threads. Every dataset writes one sample a `read`.
//
//   dataloader DATA_DIR TOKEN_FILE [name...]     of cases (tiny image work tokens startup), workers (w0 w1 w2) and
//                                                engines (trireme trireme-threads); all without names
//   DATA_DIR holds Fashion-MNIST's training files, unpacked

#include <trireme/data/engine/caller.hpp>
#include <trireme/data/engine/forked.hpp>
#include <trireme/data/engine/threads.hpp>
#include <trireme/data/loader.hpp>

#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "peers/common/bench.hpp"

namespace {

namespace tr = trireme;

const char* const area = "dataloader";

std::vector<std::string> names;  // what was asked for

/// Whether `name` was asked for, or nothing of its kind was.
bool wanted(std::string_view name, std::initializer_list<std::string_view> kind) {
    const auto asked = [](std::string_view n) { return std::find(names.begin(), names.end(), n) != names.end(); };
    return asked(name) || std::none_of(kind.begin(), kind.end(), asked);
}
bool wanted_case(std::string_view name) { return wanted(name, {"tiny", "image", "work", "tokens", "startup"}); }
bool wanted_engine(std::string_view name) { return wanted(name, {"trireme", "trireme-threads"}); }

int repetitions() {
    const char* const text = std::getenv("PEERS_REPS");
    return text != nullptr ? std::atoi(text) : 5;
}

[[noreturn]] void give_up(const std::string& what) {
    std::fprintf(stderr, "bench_dataloader: %s\n", what.c_str());
    std::exit(3);
}

std::vector<std::uint8_t> elements_of(const std::string& path, std::size_t header) {
    std::ifstream file(path, std::ios::binary);
    std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.size() <= header) give_up("cannot read " + path);
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
    return bytes;
}

/// Fashion-MNIST in memory: 784 bytes and a label.
struct tiny {
    using schema = tr::schema<tr::field<"image", std::uint8_t, 784>, tr::field<"label", std::int64_t>>;
    const std::vector<std::uint8_t>* images;
    const std::vector<std::uint8_t>* labels;

    std::uint64_t size() const { return labels->size(); }
    void read(std::uint64_t i, tr::row<schema> out, tr::sample_context&) const {
        std::memcpy(out.get<"image">().data(), images->data() + i * 784, 784);
        out.set<"label">((*labels)[i]);
    }
};

/// A 3 x 224 x 224 image of one value, and its index.
struct image {
    using schema = tr::schema<tr::field<"image", std::uint8_t, 3, 224, 224>, tr::field<"index", std::int64_t>>;

    std::uint64_t size() const { return 3200; }
    void read(std::uint64_t i, tr::row<schema> out, tr::sample_context&) const {
        const auto pixels = out.get<"image">();
        std::memset(pixels.data(), static_cast<int>(i & 255), pixels.size());
        out.set<"index">(static_cast<std::int64_t>(i));
    }
};

/// 200 us of compute, 12 KiB copied, and the index.
struct work {
    using schema = tr::schema<tr::field<"data", std::uint8_t, 12288>, tr::field<"index", std::int64_t>>;
    std::uint64_t steps;
    const std::vector<std::uint8_t>* base;  // 64 rows

    std::uint64_t size() const { return 6400; }
    void read(std::uint64_t i, tr::row<schema> out, tr::sample_context&) const {
        pb::keep(pb::chain(i, steps));
        std::memcpy(out.get<"data">().data(), base->data() + (i & 63) * 12288, 12288);
        out.set<"index">(static_cast<std::int64_t>(i));
    }
};

/// A window of 1024 tokens of a mapped file, as T.
template <class T>
struct tokens {
    using schema = tr::schema<tr::field<"tokens", T, 1024>>;
    const std::uint16_t* from;
    std::uint64_t windows;

    std::uint64_t size() const { return 65536; }
    void read(std::uint64_t i, tr::row<schema> out, tr::sample_context&) const {
        const std::uint16_t* const window = from + (i * 2654435761ULL % windows) * 1024;
        const auto to = out.template get<"tokens">();
        if constexpr (sizeof(T) == 2) std::memcpy(to.data(), window, 2048);
        if constexpr (sizeof(T) != 2) std::copy(window, window + 1024, to.data());
    }
};

/// The batches of an epoch, one by one; what the consumer held before is dropped first, as a range-for does.
template <class Loader>
class epoch_of {
  public:
    epoch_of(Loader& from, std::uint64_t number) : from_(from) { from_.start(number), next(); }
    bool more() const { return static_cast<bool>(batch_); }
    void next() {
        batch_.release();
        batch_ = from_.next();
    }

  private:
    Loader& from_;
    typename Loader::batch_type batch_;
};

template <class Loader>
void measure(const char* peer, const std::string& name, Loader& loader, std::size_t batch, std::size_t workers,
             const std::string& extra) {
    std::vector<double> rates, seconds;
    std::uint64_t number = 0;
    for (int r = 0; r <= repetitions(); ++r) {
        epoch_of epoch(loader, number++);
        const auto since = pb::now_ns();
        std::size_t batches = 0;
        for (epoch.next(); epoch.more(); epoch.next()) ++batches;
        const double s = static_cast<double>(pb::now_ns() - since) * 1e-9;
        if (r == 0) continue;
        rates.push_back(static_cast<double>(batches) / s);
        seconds.push_back(s / static_cast<double>(batches));
    }
    pb::emit(area, peer, name, rates, "batches/s",
             pb::fmt(",\"workers\":%zu,\"batch\":%zu,\"samples_per_s\":%.0f,\"rss_mib\":%.1f", workers, batch,
                     pb::quantile(rates, 0.5) * static_cast<double>(batch), pb::max_rss_mib()) +
                 extra);
    if (workers == 0) return;

    // What next() takes while the workers are ahead of a consumer that spins.
    const auto gap = static_cast<std::uint64_t>((std::max)(pb::quantile(seconds, 0.5) * 4, 0.0002) * 1e9);
    std::vector<double> waits;
    epoch_of epoch(loader, number++);
    for (int k = 0; k < 8; ++k) epoch.next();
    const auto until = pb::now_ns() + 2'000'000'000;  // 80 at least, for p99 more where they are cheap
    for (int k = 0; (k < 80 || (k < 2000 && pb::now_ns() < until)) && epoch.more(); ++k) {
        pb::spin_ns(gap);
        const auto since = pb::now_ns();
        epoch.next();
        waits.push_back(static_cast<double>(pb::now_ns() - since) / 1e3);
    }
    while (epoch.more()) epoch.next();
    pb::emit(area, peer, name + "/next", waits, "us",
             pb::fmt(",\"workers\":%zu,\"gap_us\":%.0f,\"p99\":%.6g", workers, static_cast<double>(gap) / 1e3,
                     pb::quantile(waits, 0.99)));
}

template <class Use>
void with_each_engine(std::size_t workers, Use&& use) {
    const auto count = static_cast<std::uint32_t>(workers);
    if (workers == 0) return use("trireme", tr::engine::caller{});
    if (wanted_engine("trireme")) use("trireme", tr::engine::forked{count});
    if (wanted_engine("trireme-threads")) use("trireme-threads", tr::engine::threads{count});
}

template <class Data>
void throughput(const std::string& name, const Data& data, std::uint32_t batch, std::size_t workers,
                const std::string& extra = "") {
    with_each_engine(workers, [&](const char* peer, const auto& engine) {
        tr::loader loader(data, tr::shuffled{}, engine, {.batch_size = batch, .seed = 1});
        measure(peer, name + "/w" + std::to_string(workers), loader, batch, workers, extra);
    });
}

void startup(const tiny& data, std::size_t workers) {
    with_each_engine(workers, [&](const char* peer, const auto& engine) {
        std::vector<double> first, restart;
        for (int r = 0; r < 10; ++r) {
            auto since = pb::now_ns();
            tr::loader loader(data, tr::shuffled{}, engine, {.batch_size = 64, .seed = 1});
            epoch_of one(loader, 0);
            first.push_back(static_cast<double>(pb::now_ns() - since) / 1e6);
            while (one.more()) one.next();
            since = pb::now_ns();
            epoch_of other(loader, 1);
            restart.push_back(static_cast<double>(pb::now_ns() - since) / 1e6);
            while (other.more()) other.next();
        }
        pb::emit(area, peer, pb::fmt("startup/first/w%zu", workers), first, "ms");
        pb::emit(area, peer, pb::fmt("startup/restart-persistent/w%zu", workers), restart, "ms");
    });
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s DATA_DIR TOKEN_FILE [name...]\n", argv[0]);
        return 2;
    }
    names.assign(argv + 3, argv + argc);

    const auto images = elements_of(std::string(argv[1]) + "/train-images-idx3-ubyte", 16);
    const auto labels = elements_of(std::string(argv[1]) + "/train-labels-idx1-ubyte", 8);
    const tiny fashion{&images, &labels};

    const int file = ::open(argv[2], O_RDONLY | O_CLOEXEC);
    struct stat about {};
    if (file < 0 || ::fstat(file, &about) != 0) give_up(std::string("cannot open ") + argv[2]);
    const auto bytes = static_cast<std::size_t>(about.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) give_up(std::string("cannot map ") + argv[2]);
    const auto* const text = static_cast<const std::uint16_t*>(mapped);

    const std::vector<std::uint8_t> base(std::size_t{64} * 12288);
    for (const std::size_t workers : {0U, 1U, 2U}) {
        if (!wanted("w" + std::to_string(workers), {"w0", "w1", "w2"})) continue;
        if (wanted_case("tiny")) throughput("tiny", fashion, 64, workers);
        if (wanted_case("image")) throughput("image", image{}, 32, workers);
        if (wanted_case("work")) {
            const auto steps = static_cast<std::uint64_t>(pb::chain_rate() * 200000);
            throughput("work", work{steps, &base}, 64, workers, ",\"work_us\":200.0");
        }
        if (wanted_case("tokens")) {
            throughput("tokens-i64", tokens<std::int64_t>{text, bytes / 2048}, 16, workers);
            throughput("tokens-u16", tokens<std::uint16_t>{text, bytes / 2048}, 16, workers);
        }
        if (wanted_case("startup")) startup(fashion, workers);
    }
    return 0;
}
