// Trains a multi-layer perceptron on Fashion-MNIST through all three banks of oars: loader workers fill a shared
// ring, compute runs on a placed pool, gradients are averaged between ranks while backward goes on.
//
// By default 2 ranks with 2 worker processes each; the weights do not depend on workers, engine or deaths of
// workers.

#include <trireme/data/engine/caller.hpp>
#include <trireme/data/engine/forked.hpp>
#include <trireme/data/engine/threads.hpp>
#include <trireme/data/loader.hpp>
#include <trireme/dist/ddp.hpp>
#include <trireme/dist/launch.hpp>
#include <trireme/dist/shm_transport.hpp>
#include <trireme/threads/placement.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "fashion_mnist.hpp"
#include "mlp.hpp"

#include <unistd.h>

namespace tr = trireme;
using example::fashion;

namespace {

struct settings {
    std::uint32_t ranks = 2, workers = 2, batch = 64;
    std::uint64_t epochs = 5, steps = 0, seed = 42;
    std::string engine = "forked", data = "/usr/share/datasets/fashion-mnist", scalar = "float";
    bool synthetic = false;
};

constexpr const char* usage = R"(train_fashion_mnist [option value]...
  --ranks N      processes that train together            2
  --workers N    loader workers of each rank              2
  --engine E     forked, threads or caller                forked
  --epochs N     passes over the training images          5
  --steps N      stop after so many steps (0: no)         0
  --batch N      images of a step, per rank               64
  --seed N       of weights and orders                    42
  --scalar S     float or double                          float
  --data DIR     folder of the four .gz files             /usr/share/datasets/fashion-mnist
  --synthetic    made-up images instead
)";

/// Reads a whole number or ends the program with a sentence.
std::uint64_t number(std::string_view option, const char* text, std::uint64_t least, std::uint64_t most) {
    char* end = nullptr;
    const auto n = std::strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != 0 || n < least || n > most) {
        std::fprintf(stderr, "train_fashion_mnist: %.*s takes a number from %llu to %llu, not \"%s\"\n",
                     static_cast<int>(option.size()), option.data(), static_cast<unsigned long long>(least),
                     static_cast<unsigned long long>(most), text);
        std::exit(2);
    }
    return n;
}

settings read_settings(int argc, char** argv) {
    settings s;
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        if (option == "--synthetic") {
            s.synthetic = true;
            continue;
        }
        if (option == "--help" || option == "-h") std::exit(std::fputs(usage, stdout) < 0 ? 1 : 0);
        const char* const value = i + 1 < argc ? argv[++i] : nullptr;
        const auto is = [&](std::string_view name) { return option == name && value != nullptr; };
        if (is("--ranks"))
            s.ranks = static_cast<std::uint32_t>(number(option, value, 1, 64));
        else if (is("--workers"))
            s.workers = static_cast<std::uint32_t>(number(option, value, 1, 256));
        else if (is("--epochs"))
            s.epochs = number(option, value, 1, 1'000'000);
        else if (is("--steps"))
            s.steps = number(option, value, 0, ~0ULL);
        else if (is("--batch"))
            s.batch = static_cast<std::uint32_t>(number(option, value, 1, 60'000));
        else if (is("--seed"))
            s.seed = number(option, value, 0, ~0ULL);
        else if (is("--engine"))
            s.engine = value;
        else if (is("--scalar"))
            s.scalar = value;
        else if (is("--data"))
            s.data = value;
        else {
            std::fprintf(stderr, "train_fashion_mnist: what is \"%s\"?\n%s", argv[i], usage);
            std::exit(2);
        }
    }
    const bool known = (s.engine == "forked" || s.engine == "threads" || s.engine == "caller") &&
                       (s.scalar == "float" || s.scalar == "double");
    if (!known) std::exit((std::fputs(usage, stderr), 2));
    return s;
}

double seconds_since(std::chrono::steady_clock::time_point t) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

/// One rank's life.
template <class Scalar, class Engine>
void train(tr::world& world, const settings& s, const fashion& images, const fashion& test_images, Engine engine) {
    // The loader comes first: its workers are forked before this rank has threads.
    tr::loader train{
        images,
        tr::shuffled{},
        engine,
        {.batch_size = s.batch, .seed = s.seed, .shard = world.shard(), .tail = tr::tail::drop, .name = "train"}};
    tr::loader test{
        test_images,
        tr::engine::caller{},
        {.batch_size = 500, .shard = world.shard(), .tail = tr::tail::exact, .prefetch = 2, .name = "test"}};
    world.agree("training data", train.plan_hash());

    tr::pool pool{tr::placement::plan(world).compute()};
    const std::vector<std::size_t> widths{784, 512, 512, 10};
    example::mlp<Scalar> model(pool, widths, s.batch), evaluator(pool, widths, 500);
    std::vector<tr::param_spec> layout;
    for (std::size_t i = 0; i < model.parameters(); ++i)
        layout.push_back({model.name_of(i), model.shape_of(widths, i), tr::dtype_of<Scalar>});
    tr::ddp net{tr::shm_transport{world}, layout};  // parameters and gradients in memory that peers reach
    model.init(net, s.seed);
    net.broadcast();
    example::sgd<Scalar> optimizer(Scalar(0.05), Scalar(0.9));
    const double total_steps = static_cast<double>(s.epochs * train.steps());

    const bool speaks = world.rank() == 0, terminal = ::isatty(STDOUT_FILENO) != 0;
    if (speaks)
        std::printf("%s\nddp: %zu parameters, %s of gradients in %zu buckets, %u rank(s)\n", train.plan().c_str(),
                    net.count(), tr::format_bytes(net.plan_of().bytes()).c_str(), net.plan_of().cuts().size(),
                    world.size());
    std::uint64_t steps = 0;
    double accuracy = 0;
    for (std::uint64_t epoch = 0; epoch < s.epochs && (s.steps == 0 || steps < s.steps); ++epoch) {
        const auto begin = std::chrono::steady_clock::now();
        const auto data_before = train.waited();
        const auto comm_before = net.stats().exposed;
        double loss = 0;
        std::uint64_t samples = 0;
        for (auto&& batch : train.epoch(epoch)) {
            const auto [image, label] = batch.fields();  // [batch, 28, 28] uint8, [batch] int64, read in place
            model.input(image);
            model.forward(net);
            loss += model.backward(label, net, [&](std::size_t parameter) { net.ready(parameter); });
            net.finish();
            optimizer.set_rate(static_cast<Scalar>(0.05 * (1.0 - static_cast<double>(steps) / total_steps)));
            optimizer.step(net, model.parameters());
            samples += batch.rows();
            if (speaks && terminal && batch.step() % 32 == 0) {
                std::printf("\repoch %llu  step %llu of %llu ", static_cast<unsigned long long>(epoch + 1),
                            static_cast<unsigned long long>(batch.step()),
                            static_cast<unsigned long long>(train.steps()));
                std::fflush(stdout);
            }
            if (++steps == s.steps) break;
        }
        const double seconds = seconds_since(begin);
        long hits = 0;
        for (auto&& batch : test.epoch(0)) {
            const auto [image, label] = batch.fields();
            evaluator.input(image);
            evaluator.forward(net);
            hits += evaluator.hits(label, batch.valid_rows());
        }
        accuracy = static_cast<double>(world.sum(hits)) / static_cast<double>(test.size());
        const double all_loss = world.sum(loss), all_samples = static_cast<double>(world.sum(samples));
        const auto share = [&](std::chrono::nanoseconds t) {
            return 100.0 * world.sum(std::chrono::duration<double>(t).count()) / (seconds * world.size());
        };
        const double data_wait = share(train.waited() - data_before),
                     comm = share(net.stats().exposed - comm_before);
        if (speaks)
            std::printf(
                "%sepoch %llu/%llu  loss %.4f  accuracy %.3f  %.0f samples/s  waiting for data %.1f%%  "
                "communication not hidden %.1f%%\n",
                terminal ? "\r" : "", static_cast<unsigned long long>(epoch + 1),
                static_cast<unsigned long long>(s.epochs), all_loss / all_samples, accuracy, all_samples / seconds,
                data_wait, comm);
        std::fflush(stdout);
    }
    // The ranks must have the same weights, to the last bit; agree says who has not.
    tr::hasher weights;
    for (std::size_t i = 0; i < model.parameters(); ++i) {
        const auto p = net.template param<Scalar>(i);
        weights.add(std::string_view(reinterpret_cast<const char*>(p.data()), p.size_bytes()));
    }
    world.agree("final weights", weights.value());
    if (speaks)
        std::printf("weights %016llx, the same on all ranks\ntest accuracy %.3f\n",
                    static_cast<unsigned long long>(weights.value()), accuracy);
}

template <class Scalar>
void train_with(tr::world& world, const settings& s, const fashion& images, const fashion& test) {
    if (s.engine == "forked")
        return train<Scalar>(world, s, images, test, tr::engine::forked{.workers = s.workers});
    if (s.engine == "threads")
        return train<Scalar>(world, s, images, test, tr::engine::threads{.workers = s.workers});
    train<Scalar>(world, s, images, test, tr::engine::caller{});
}

}  // namespace

int main(int argc, char** argv) {
    const settings s = read_settings(argc, argv);
    if (!s.synthetic && !fashion::is_in(s.data)) {
        std::fprintf(stderr,
                     "train_fashion_mnist: there are no Fashion-MNIST files in %s\n"
                     "  try    apt-get install dataset-fashion-mnist, or --data DIR, or --synthetic\n",
                     s.data.c_str());
        return 1;
    }
    try {
        // Read once, before the ranks are forked: they and their workers share these pages.
        const fashion images = s.synthetic ? fashion::synthetic(60'000) : fashion(s.data, "train");
        const fashion test = s.synthetic ? fashion::synthetic(10'000) : fashion(s.data, "t10k");
        return tr::launch(tr::ranks{s.ranks}, [&](tr::world& world) {
            s.scalar == "float" ? train_with<float>(world, s, images, test)
                                : train_with<double>(world, s, images, test);
        });
    } catch (const tr::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
