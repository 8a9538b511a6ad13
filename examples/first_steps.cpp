// The smallest job with all of it: two ranks, each with two worker processes that fill its batches.

#include <trireme/trireme.hpp>

#include <cstdio>

struct squares {  // a dataset: what a sample looks like, how many there are, and how to make one
    using schema = trireme::schema<trireme::field<"x", float>, trireme::field<"y", float>>;
    std::uint64_t size() const { return 1000; }
    void read(std::uint64_t i, trireme::row<schema> out, trireme::sample_context&) const {
        out.set<"x">(static_cast<float>(i));
        out.set<"y">(static_cast<float>(i * i));
    }
};

// [job]
int main() {
    return trireme::launch(trireme::ranks{2}, [](trireme::world& world) {
        const trireme::loader_options options{.batch_size = 50, .seed = 42, .shard = world.shard()};
        trireme::loader train{squares{}, trireme::shuffled{}, trireme::engine::forked{.workers = 2}, options};
        double sum = 0;
        for (auto&& batch : train.epoch(0)) {
            auto [x, y] = batch.fields();  // [50] floats each, read where the worker wrote them
            for (const float v : y) sum += v;
        }
        sum = world.sum(sum);
        if (world.rank() == 0) std::printf("%s\nsum of squares below 1000: %.0f\n", train.plan().c_str(), sum);
    });
}
// [/job]
