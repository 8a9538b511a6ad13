// A user's first file: one batch from a loader, one loop on a pool.
#include <trireme/trireme.hpp>

#include <cstdio>

struct squares {
    using schema = trireme::schema<trireme::field<"square", std::int64_t>>;

    std::uint64_t size() const { return 100; }
    void read(std::uint64_t index, trireme::row<schema> out, trireme::sample_context&) const {
        out.get<"square">() = static_cast<std::int64_t>(index * index);
    }
};

int main() {
    trireme::loader train{squares{}, trireme::engine::threads{.workers = 2}, {.batch_size = 10}};
    std::int64_t sum = 0;
    for (auto&& batch : train.epoch(0))
        for (const std::int64_t square : batch.get<"square">()) sum += square;

    trireme::pool pool{2};
    const std::int64_t again = trireme::parallel_reduce(
        pool, 0, 100, std::int64_t{0},
        [](int begin, int end) {
            std::int64_t part = 0;
            for (int i = begin; i < end; ++i) part += i * i;
            return part;
        },
        [](std::int64_t a, std::int64_t b) { return a + b; });

    std::printf("trireme %u.%u.%u: %lld\n", trireme::version.major_part, trireme::version.minor_part,
                trireme::version.patch_part, static_cast<long long>(sum));
    return sum == again && sum == 328350 ? 0 : 1;
}
