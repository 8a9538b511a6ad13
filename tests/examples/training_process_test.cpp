// The numbers of the main job: ranks, pool and engine do not change what is learned.
#include <trireme/data/engine/caller.hpp>
#include <trireme/data/engine/forked.hpp>
#include <trireme/data/loader.hpp>
#include <trireme/dist/ddp.hpp>
#include <trireme/dist/launch.hpp>
#include <trireme/dist/shm_transport.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "../../examples/fashion_mnist.hpp"
#include "../../examples/mlp.hpp"
#include "../support/processes.hpp"

namespace {

namespace tr = trireme;
constexpr std::size_t most_weights = 784 * 64 + 64 + 64 * 10 + 10 + 64;

/// Where rank 0 leaves its weights, and every rank their hash.
template <class Scalar>
struct result {
    Scalar weights[most_weights];
    std::size_t count;
    std::uint64_t hashes[4];
};

template <class Scalar>
void train(result<Scalar>& out, std::uint32_t ranks, std::uint32_t batch, unsigned threads, std::uint64_t steps) {
    const auto images = example::fashion::synthetic(6'000);
    const int status = tr::launch(tr::ranks{ranks}, [&](tr::world& world) {
        tr::loader loader{images,
                          tr::shuffled{},
                          tr::engine::forked{.workers = 1},
                          {.batch_size = batch, .seed = 7, .shard = world.shard(), .tail = tr::tail::drop}};
        tr::pool pool{threads};
        const std::vector<std::size_t> widths{784, 64, 10};
        example::mlp<Scalar> model(pool, widths, batch);
        std::vector<tr::param_spec> layout;
        for (std::size_t i = 0; i < model.parameters(); ++i)
            layout.push_back({model.name_of(i), model.shape_of(widths, i), tr::dtype_of<Scalar>});
        tr::ddp net{tr::shm_transport{world}, layout};
        model.init(net, 42);
        net.broadcast();
        example::sgd<Scalar> optimizer(Scalar(0.05), Scalar(0.9));
        std::uint64_t done = 0;
        for (std::uint64_t epoch = 0; done < steps; ++epoch) {
            for (auto&& b : loader.epoch(epoch)) {
                const auto [image, label] = b.fields();
                model.input(image);
                model.forward(net);
                model.backward(label, net, [&](std::size_t p) { net.ready(p); });
                net.finish();
                optimizer.step(net, model.parameters());
                if (++done == steps) break;
            }
        }
        const auto w = net.template parameters<Scalar>();
        out.hashes[world.rank()] =
            tr::hasher{}.add(std::string_view(reinterpret_cast<const char*>(w.data()), w.size_bytes())).value();
        if (world.rank() == 0) {
            out.count = w.size();
            std::memcpy(out.weights, w.data(), w.size_bytes());
        }
    });
    CHECK(status == 0);
}

template <class Scalar>
double distance(const result<Scalar>& a, const result<Scalar>& b) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < a.count; ++i) {
        difference += std::pow(static_cast<double>(a.weights[i]) - static_cast<double>(b.weights[i]), 2);
        norm += std::pow(static_cast<double>(a.weights[i]), 2);
    }
    return std::sqrt(difference / norm);
}

}  // namespace

TEST_SUITE("examples/training") {
TEST_CASE_TEMPLATE("1 rank of 128 and 2 ranks of 64 learn the same in 200 steps", Scalar, double, float) {
    const test::shared_page<result<Scalar>> alone, pair, again, pooled;

    train(*alone, 1, 128, 1, 200);
    train(*pair, 2, 64, 1, 200);
    train(*again, 2, 64, 1, 200);
    train(*pooled, 2, 64, 2, 200);

    CHECK(alone->count == pair->count);
    CHECK(pair->hashes[0] == pair->hashes[1]);
    CHECK(pair->hashes[0] == again->hashes[0]);   // from run to run
    CHECK(pair->hashes[0] == pooled->hashes[0]);  // and for any number of threads
    CHECK(distance(*alone, *pair) < (std::is_same_v<Scalar, double> ? 1e-9 : 1e-3));
    CHECK(distance(*alone, *pair) > 0);  // rounding differs: were it 0, both would be the same run
}
}  // TEST_SUITE("examples/training")
