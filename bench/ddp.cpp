// Times data-parallel training steps on the cases that the peers' program uses (peers/ddp): the same models, modes
// and JSON lines. Batch 64 a rank, one thread a rank, plain SGD, data in memory; matrix products by Eigen.
//
//   trireme-single    one process alone, nothing of ours but the pool
//   trireme-pair      two independent processes at once: contention, no communication
//   trireme-no_sync   ddp, gradients not exchanged         trireme-ddp   ddp over shared memory
//
//   ddp DATA_DIR [small|wide...]     DATA_DIR holds Fashion-MNIST's files, unpacked

#include <trireme/data/order.hpp>
#include <trireme/dist/ddp.hpp>
#include <trireme/dist/launch.hpp>
#include <trireme/dist/shm_transport.hpp>

#include <Eigen/Core>

#include <fstream>
#include <iterator>
#include <optional>
#include <span>

#include "../examples/mlp.hpp"
#include "peers/common/bench.hpp"

namespace {

namespace tr = trireme;
using model = example::mlp<float>;
using widths = std::vector<std::size_t>;

constexpr std::size_t batch = 64, pixels = 784;
constexpr float rate = 0.1F;

std::vector<std::uint8_t> elements_of(const std::string& path, std::size_t header) {
    std::ifstream file(path, std::ios::binary);
    std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.size() <= header) std::fprintf(stderr, "bench_ddp: cannot read %s\n", path.c_str()), std::exit(3);
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
    return bytes;
}

struct samples {
    std::vector<std::uint8_t> images, labels;
    samples(const std::string& folder, const std::string& part)
        : images(elements_of(folder + "/" + part + "-images-idx3-ubyte", 16)),
          labels(elements_of(folder + "/" + part + "-labels-idx1-ubyte", 8)) {}
    std::size_t size() const { return labels.size(); }
};

/// The rows of a step, gathered.
struct gathered {
    std::vector<std::uint8_t> images, labels;
    gathered() : images(batch * pixels), labels(batch) {}

    std::span<const std::uint8_t> span() const { return images; }
    std::uint8_t operator()(std::size_t row) const { return labels[row]; }

    void take(const samples& from, std::span<const std::uint64_t> rows) {
        for (std::size_t r = 0; r < rows.size(); ++r) {
            std::memcpy(images.data() + r * pixels, from.images.data() + rows[r] * pixels, pixels);
            labels[r] = from.labels[rows[r]];
        }
    }
};

/// Parameters and gradients in private memory, for the modes without ddp.
class plain {
  public:
    explicit plain(const std::vector<tr::param_spec>& layout) {
        for (const auto& p : layout) places_.push_back(size_), counts_.push_back(p.count()), size_ += p.count();
        parameters_.resize(size_), gradients_.resize(size_);
    }
    template <class T>
    std::span<T> param(std::size_t i) {
        return std::span(parameters_).subspan(places_[i], counts_[i]);
    }
    template <class T>
    std::span<T> grad(std::size_t i) {
        return std::span(gradients_).subspan(places_[i], counts_[i]);
    }
    template <class T>
    std::span<T> parameters() {
        return parameters_;
    }
    template <class T>
    std::span<T> gradients() {
        return gradients_;
    }

  private:
    std::size_t size_ = 0;
    std::vector<std::size_t> places_, counts_;
    std::vector<float> parameters_, gradients_;
};

template <class Net>
void update(Net& net) {
    const auto w = net.template parameters<float>();
    const auto g = net.template gradients<float>();
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * g[i];
}

std::vector<tr::param_spec> layout_of(const widths& w) {
    std::vector<tr::param_spec> all;
    for (std::size_t i = 0; i < 2 * (w.size() - 1); ++i)
        all.push_back({model::name_of(i), model::shape_of(w, i), tr::dtype::f32});
    return all;
}
std::size_t parameters_in(const widths& w) {
    std::size_t n = 0;
    for (const auto& p : layout_of(w)) n += p.count();
    return n;
}

/// One rank with its model; `mode` as in the file's first paragraph, without the prefix.
class trainer {
  public:
    trainer(tr::world& world, const widths& w, const std::string& mode)
        : mlp_(pool_, w, batch), wide_(w), synced_(mode == "ddp") {
        const auto layout = layout_of(w);
        if (mode == "ddp" || mode == "no_sync") {
            shared_.emplace(tr::shm_transport{world}, layout);
            mlp_.init(*shared_, 1);
            shared_->broadcast();
        } else {
            private_.emplace(layout);
            mlp_.init(*private_, 1);
        }
    }

    void step(const samples& data, std::span<const std::uint64_t> rows) {
        rows_.take(data, rows);
        mlp_.input(rows_);
        if (private_) {
            mlp_.forward(*private_);
            mlp_.backward(rows_, *private_, [](std::size_t) {});
            return update(*private_);
        }
        std::optional<net_type::no_sync_scope> alone;
        if (!synced_) alone.emplace(*shared_);
        mlp_.forward(*shared_);
        mlp_.backward(rows_, *shared_, [this](std::size_t i) { shared_->ready(i); });
        shared_->finish();
        update(*shared_);
    }
    /// Waited in finish() so far, in ms.
    double exposed_ms() const {
        return shared_ ? static_cast<double>(shared_->stats().exposed.count()) * 1e-6 : 0.0;
    }

    double accuracy(const samples& data) {
        model evaluator(pool_, wide_, batch);
        long hits = 0;
        std::vector<std::uint64_t> rows;
        for (std::uint64_t at = 0; at < data.size(); at += batch) {
            rows.clear();
            for (auto i = at; i < (std::min)(at + batch, std::uint64_t{data.size()}); ++i) rows.push_back(i);
            rows_.take(data, rows);
            evaluator.input(rows_);
            private_ ? evaluator.forward(*private_) : evaluator.forward(*shared_);
            hits += evaluator.hits(rows_, rows.size());
        }
        return 100.0 * static_cast<double>(hits) / static_cast<double>(data.size());
    }

  private:
    using net_type = tr::ddp<tr::shm_transport>;
    tr::pool pool_{tr::pool_options{.threads = 1}};
    model mlp_;
    widths wide_;
    bool synced_;
    gathered rows_;
    std::optional<plain> private_;
    std::optional<net_type> shared_;
};

void time_steps(tr::world& world, const std::string& name, const widths& w, const std::string& mode, int steps,
                const samples& data) {
    trainer me(world, w, mode);
    const auto order = tr::shuffled{}.bind(data.size(), 1, 0);
    std::vector<std::uint64_t> rows(batch);
    const auto step = [&](int k) {
        const auto at = (static_cast<std::uint64_t>(k) * world.size() + world.rank()) * batch % 59000;
        order.fill(at, 1, rows);
        me.step(data, rows);
    };
    for (int k = 0; k < 5; ++k) step(k);
    world.barrier();
    const double before = me.exposed_ms();
    std::vector<double> times;
    double sum = 0;
    for (int k = 0; k < steps; ++k) {
        const auto since = pb::now_ns();
        step(k);
        times.push_back(static_cast<double>(pb::now_ns() - since) / 1e6);
        sum += times.back();
    }
    if (world.rank() == 0)
        pb::emit("ddp", "trireme-" + mode, name + "/step", times, "ms",
                 pb::fmt(",\"ranks\":%u,\"params\":%zu,\"steps_per_s\":%.2f,\"exposed_ms\":%.4f", world.size(),
                         parameters_in(w), 1e3 * steps / sum, (me.exposed_ms() - before) / steps));
    world.barrier();
}

void one_epoch(tr::world& world, const std::string& name, const widths& w, const std::string& mode,
               const samples& data, const samples& test) {
    trainer me(world, w, mode);
    const auto order = tr::shuffled{}.bind(data.size(), 1, 0);
    std::vector<std::uint64_t> rows(batch);
    const std::uint64_t mine = data.size() / world.size();
    const auto since = pb::now_ns();
    for (std::uint64_t k = 0; k + batch <= mine; k += batch) {
        order.fill(k * world.size() + world.rank(), world.size(), rows);
        me.step(data, rows);
    }
    const double seconds = static_cast<double>(pb::now_ns() - since) * 1e-9;
    const double percent = me.accuracy(test);
    if (world.rank() == 0)
        pb::emit("ddp", "trireme-" + mode, name + "/accuracy_1epoch", {percent}, "%",
                 pb::fmt(",\"ranks\":%u,\"epoch_s\":%.3f", world.size(), seconds));
    world.barrier();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return std::fprintf(stderr, "usage: %s DATA_DIR [small|wide...]\n", argv[0]), 2;
    const std::vector<std::string> wanted(argv + 2, argv + argc);
    const char* const hurry = std::getenv("PEERS_QUICK");
    const int divisor = hurry != nullptr && *hurry == '1' ? 5 : 1;
    const samples train(argv[1], "train"), test(argv[1], "t10k");
    const struct {
        std::string name;
        widths layers;
        int steps;
    } models[] = {{"small", {pixels, 512, 512, 10}, 400}, {"wide", {pixels, 4096, 4096, 1024, 10}, 30}};
    ::setenv("OMP_NUM_THREADS", "1", 0);  // nothing here uses it; launch need not speak of it

    int status = 0;
    const auto run = [&status](std::uint32_t ranks, auto body) {
        if (status == 0) status = tr::launch(tr::ranks{ranks}, body);
    };
    for (const auto& m : models) {
        if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), m.name) == wanted.end()) continue;
        for (const std::string mode : {"single", "pair", "no_sync", "ddp"}) {
            run(mode == "single" ? 1 : 2,
                [&](tr::world& w) { time_steps(w, m.name, m.layers, mode, m.steps / divisor, train); });
        }
        if (m.name != "small") continue;
        for (const std::string mode : {"single", "ddp"}) {
            run(mode == "single" ? 1 : 2, [&](tr::world& w) { one_epoch(w, m.name, m.layers, mode, train, test); });
        }
    }
    return status;
}
