// Uses each part once, as a user's file would, so that templates are instantiated under the strictest warnings:
// -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wnon-virtual-dtor
// -Woverloaded-virtual -Wundef -Werror. The check puts the include lines in front. Nobody runs it.

using namespace trireme::literals;

struct users_data {
    using schema =
        trireme::schema<trireme::field<"image", std::uint8_t, 28, 28>, trireme::field<"label", std::int64_t>>;

    std::uint64_t size() const { return 1000; }
    void read(std::uint64_t index, trireme::row<schema> out, trireme::sample_context& context) const {
        out.get<"label">() = static_cast<std::int64_t>(index + context.rng().below(2));
    }
};

bool uses_core();
long uses_data();
double uses_threads();
int uses_dist();

bool uses_core() {
    trireme::hasher hash;
    hash.add(trireme::align_up(1_KiB, trireme::cache_line)).add("text");
    trireme::philox random{hash.value(), 7};
    trireme::fixed_text<8> text;
    text.assign("too long a text");
    try {
        if (text.truncated()) throw trireme::usage_error{{"what", "where", "hint"}};
    } catch (const trireme::error& e) {
        trireme::stderr_observer{}({trireme::severity::note, "each_part", e.what()});
    }
    return random.below(2) == 0 && trireme::deadline::never().passed();
}

template <class Engine>
long sum_of_labels(Engine engine) {
    trireme::loader train{users_data{}, trireme::shuffled{}, engine, {.batch_size = 64, .seed = 42}};
    long sum = 0;
    for (auto&& batch : train.epoch(0)) {
        auto [image, label] = batch.fields();
        for (std::size_t i = 0; i < batch.valid_rows(); ++i) sum += static_cast<long>(label[i]);
    }
    return sum;
}

long uses_data() {
    return sum_of_labels(trireme::engine::caller{}) + sum_of_labels(trireme::engine::threads{.workers = 2}) +
           sum_of_labels(trireme::engine::forked{.workers = 2});
}

double uses_threads() {
    trireme::pool pool{trireme::placement::compact{}};
    std::vector<double> squares(1000);
    trireme::parallel_for(pool, 0, 1000, [&](int i) { squares[static_cast<std::size_t>(i)] = i * i; });
    return trireme::parallel_reduce(
        pool, std::size_t{0}, squares.size(), 0.0,
        [&](std::size_t begin, std::size_t end) {
            double sum = 0;
            for (std::size_t i = begin; i < end; ++i) sum += squares[i];
            return sum;
        },
        [](double a, double b) { return a + b; });
}

int uses_dist() {
    return trireme::launch(trireme::ranks{2}, [](trireme::world& world) {
        trireme::ddp net{trireme::shm_transport{world},
                         {{"weight", {10, 10}}, {"bias", {10}, trireme::dtype::f32}}};
        net.broadcast();
        for (float& g : net.grad<float>(0)) g += 1;
        net.ready(1);
        net.ready(0);
        net.finish();
    });
}
