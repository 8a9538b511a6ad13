#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <trireme/dist/ddp.hpp>
#include <trireme/dist/self.hpp>
#include <trireme/dist/thread_transport.hpp>

#include "support/ranks.hpp"

using namespace std::chrono_literals;
using namespace trireme;
using test::on_threads;
using test::silence;

// Every allocation of this program is counted, so that a test can say that there was none.
namespace {
std::atomic<long> allocations{0};
}
[[gnu::noinline]] void* operator new(std::size_t n) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    if (void* p = std::malloc(n == 0 ? 1 : n)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<param_spec> six() {
    std::vector<param_spec> all;
    for (const std::size_t n : {100U, 50U, 200U, 25U, 300U, 10U})
        all.push_back({.name = "p" + std::to_string(all.size()), .shape = {n}});
    return all;
}
constexpr ddp_options small_buckets{.buckets = {.first = 1000, .cap = 1000}};

/// Adds to every gradient and marks them in `order`.
template <class Ddp>
void backward(Ddp& d, float scale, const std::vector<std::size_t>& order = {5, 4, 3, 2, 1, 0}) {
    for (const std::size_t i : order) {
        for (float& g : d.template grad<float>(i)) g += scale * static_cast<float>(i + 1);
        d.ready(i);
    }
}
/// Whether every gradient i is `scale` times i + 1.
template <class Ddp>
bool all_are(Ddp& d, float scale) {
    for (std::size_t i = 0; i < d.count(); ++i)
        for (const float g : d.template grad<float>(i))
            if (g != scale * static_cast<float>(i + 1)) return false;
    return true;
}

/// The same body with either kind of progress.
template <class Body>
std::vector<std::string> with_each_progress(std::uint32_t n, Body body) {
    auto said = on_threads(n, [&](thread_transport& t) { return body(std::move(t), progress::in_caller{}); });
    const auto more = on_threads(n, [&](thread_transport& t) { return body(std::move(t), progress::thread{}); });
    said.insert(said.end(), more.begin(), more.end());
    return said;
}

}  // namespace

TEST_SUITE("dist/ddp") {
TEST_CASE("gradients become their mean over the ranks, step after step, with either kind of progress") {
    for (const std::uint32_t n : {1U, 2U, 3U}) {
        const auto said = with_each_progress(n, [](thread_transport t, auto how) {
            ddp d{std::move(t), six(), small_buckets, how};
            const float mean = static_cast<float>(d.size() + 1) / 2;
            for (int step = 0; step < 20; ++step) {
                backward(d, static_cast<float>(d.rank() + 1));
                d.finish();
                if (!all_are(d, mean)) return "step " + std::to_string(step) + " is wrong";
                d.zero_gradients();
            }
            return std::string();
        });

        CHECK(said == silence(2 * n));
    }
}
TEST_CASE("alone, a gradient stays as it is") {
    ddp d{self{}, six()};

    backward(d, 2.0F);
    d.finish();

    CHECK(all_are(d, 2.0F));
    CHECK(d.stats().steps == 1);
}
TEST_CASE("parameters and gradients lie in order, aligned, with zeros between them") {
    ddp d{self{}, six()};
    CHECK(d.param<float>(2).size() == 200);
    CHECK(reinterpret_cast<std::uintptr_t>(d.grad<float>(3).data()) % 64 == 0);
    CHECK(d.index_of("p4") == 4);

    for (std::size_t i = 0; i < 6; ++i)
        for (float& x : d.param<float>(i)) x = 1.0F;

    const auto all = d.parameters<float>();
    CHECK(std::accumulate(all.begin(), all.end(), 0.0F) == 685.0F);
    CHECK(d.gradients<float>().size() == all.size());
    CHECK(d.parameters<double>().empty());
}
TEST_CASE("a parameter that is not there, or of another type, is refused by name") {
    ddp d{self{}, six()};

    CHECK_THROWS_WITH_AS(d.grad<double>(2), doctest::Contains("'p2' [200] float was asked for as double"),
                         usage_error);
    CHECK_THROWS_AS(d.param<float>(6), usage_error);
    CHECK_THROWS_AS(d.ready(6), usage_error);
    CHECK_THROWS_WITH_AS(d.index_of("p9"), doctest::Contains("'p9'"), usage_error);
}
TEST_CASE("broadcast gives every rank the parameters of rank 0") {
    const auto said = on_threads(3, [](thread_transport& t) {
        ddp d{std::move(t), six()};
        for (float& x : d.param<float>(1)) x = static_cast<float>(d.rank());
        if (d.rank() == 0)
            for (float& x : d.param<float>(4)) x = 7.0F;
        d.broadcast();
        for (const float x : d.param<float>(1))
            if (x != 0.0F) return std::string("p1");
        for (const float x : d.param<float>(4))
            if (x != 7.0F) return std::string("p4");
        return std::string();
    });

    CHECK(said == silence(3));
}
TEST_CASE("parameters that differ are found in the first step, on every rank, by name") {
    const auto said = on_threads(3, [](thread_transport& t) {
        ddp d{std::move(t), six()};
        d.param<float>(2)[199] = d.rank() == 2 ? 1.0F : 0.0F;
        backward(d, 1.0F);
        d.finish();
        return std::string("went through");
    });

    for (const auto& text : said) {
        CHECK(has(text, "'p2' [200] float of rank 2 is not that of rank 0"));
        CHECK(has(text, "call broadcast()"));
    }
}
TEST_CASE("different models are an error on every rank with the first difference") {
    struct wrong {
        const char* expected;
        void (*change)(std::vector<param_spec>&);
    };
    const wrong cases[] = {
        {"parameter 3 'p3' [25] float on rank 0, but parameter 3 'q' [25] float on rank 1",
         [](auto& l) { l[3].name = "q"; }},
        {"'p3' [25] float on rank 0, but parameter 3 'p3' [5, 5] float on rank 1",
         [](auto& l) {
             l[3].shape = {5, 5};
         }},
        {"'p3' [25] float on rank 0, but parameter 3 'p3' [25] double on rank 1",
         [](auto& l) { l[3].type = dtype::f64; }},
        {"parameter 0 'p0' [100] float on rank 0, but parameter 0 'p1' [50] float on rank 1",
         [](auto& l) { std::swap(l[0], l[1]); }},
        {"no further parameter on rank 0, but parameter 6 'extra' [3] float on rank 1",
         [](auto& l) { l.push_back({.name = "extra", .shape = {3}}); }},
        {"parameter 5 'p5' [10] float on rank 0, but no further parameter on rank 1",
         [](auto& l) { l.pop_back(); }},
    };
    for (const auto& w : cases) {
        const auto said = on_threads(3, [&](thread_transport& t) {
            auto layout = six();
            if (t.rank() == 1) w.change(layout);
            ddp d{std::move(t), layout};
            return std::string("went through");
        });

        for (const auto& text : said) CHECK_MESSAGE(has(text, w.expected), text);
    }
    const auto limits = on_threads(2, [](thread_transport& t) {
        const ddp_options o{.buckets = {.first = t.rank() == 0 ? 1000U : 2000U}};
        ddp d{std::move(t), six(), o};
        return std::string("went through");
    });
    for (const auto& text : limits) CHECK(has(text, "buckets{1000, "));
}
TEST_CASE("a gradient that is not marked is named at once, and the others are told") {
    const auto said = with_each_progress(2, [](thread_transport t, auto how) {
        ddp d{std::move(t), six(), small_buckets, how};
        backward(
            d, 1.0F,
            d.rank() == 1 ? std::vector<std::size_t>{5, 4, 2, 1, 0} : std::vector<std::size_t>{5, 4, 3, 2, 1, 0});
        d.finish();
        return std::string("went through");
    });

    for (const std::size_t i : {0U, 2U}) CHECK(has(said[i], "rank 1 gave up: the gradient of 'p3' [25] float"));
    for (const std::size_t i : {1U, 3U})
        CHECK(has(said[i], "the gradient of 'p3' [25] float was not marked ready before finish()"));
}
TEST_CASE("a gradient that is marked twice is named") {
    ddp d{self{}, six()};
    d.ready(4);

    CHECK_THROWS_WITH_AS(d.ready(4), doctest::Contains("'p4' [300] float was marked ready more often"),
                         usage_error);
}
TEST_CASE("a tied parameter is one entry, ready after its last use, with both gradients in it") {
    const auto said = with_each_progress(2, [](thread_transport t, auto how) {
        auto layout = six();
        layout[5].uses = 2;
        ddp d{std::move(t), layout, small_buckets, how};
        if (d.count() != 6) return std::string("not six entries");
        const float first = d.rank() == 0 ? 1.0F : 5.0F, second = d.rank() == 0 ? 2.0F : 6.0F;
        for (int step = 0; step < 3; ++step) {
            for (float& g : d.template grad<float>(5)) g += first;
            d.ready(5);
            for (const std::size_t i : {4U, 3U, 2U, 1U, 0U}) d.ready(i);
            for (float& g : d.template grad<float>(5)) g += second;
            d.ready(5);
            d.finish();
            for (const float g : d.template grad<float>(5))
                if (g != 7.0F) return std::string("not 7");
            d.zero_gradients();
        }
        return std::string();
    });

    CHECK(said == silence(4));
}
TEST_CASE("ranks may mark gradients in different orders") {
    const auto said = with_each_progress(3, [](thread_transport t, auto how) {
        ddp d{std::move(t), six(), small_buckets, how};
        const std::vector<std::vector<std::size_t>> orders{
            {5, 4, 3, 2, 1, 0}, {0, 1, 2, 3, 4, 5}, {2, 0, 5, 1, 3, 4}};
        for (int step = 0; step < 6; ++step) {
            backward(d, static_cast<float>(d.rank()), orders[d.rank()]);
            d.finish();
            if (!all_are(d, 1.0F)) return std::string("wrong");
            d.zero_gradients();
        }
        return std::string();
    });

    CHECK(said == silence(6));
}
TEST_CASE("after the first step buckets follow the order that rank 0 has seen, on every rank") {
    const auto said = on_threads(2, [](thread_transport& t) {
        ddp d{std::move(t), six(), small_buckets};
        backward(d, 1.0F,
                 d.rank() == 0 ? std::vector<std::size_t>{0, 5, 1, 4, 2, 3}
                               : std::vector<std::size_t>{5, 4, 3, 2, 1, 0});
        d.finish();
        const auto first = d.plan_of().cuts()[0].parameters;
        backward(d, 1.0F);
        d.finish();
        if (!all_are(d, 2.0F)) return std::string("wrong sums after the rebuild");
        return first == std::vector<std::uint32_t>{0, 5, 1, 4} ? std::string() : std::string("not rebuilt");
    });

    CHECK(said == silence(2));
}
TEST_CASE("types are mixed without sharing a bucket") {
    const auto said = on_threads(2, [](thread_transport& t) {
        auto layout = six();
        layout[3].type = dtype::f16;
        layout[1].type = dtype::bf16;
        layout[0].type = dtype::f64;
        ddp d{std::move(t), layout, small_buckets};
        const float mine = d.rank() == 0 ? 1.0F : 4.0F;
        for (half& g : d.grad<half>(3)) g = half(mine);
        for (bfloat16& g : d.grad<bfloat16>(1)) g = bfloat16(mine);
        for (double& g : d.grad<double>(0)) g = mine;
        for (const std::size_t i : {2U, 4U, 5U})
            for (float& g : d.grad<float>(i)) g = mine;
        for (std::size_t i = 6; i-- > 0;) d.ready(i);
        d.finish();
        for (const half g : d.grad<half>(3))
            if (g != 2.5F) return std::string("half");
        for (const bfloat16 g : d.grad<bfloat16>(1))
            if (g != 2.5F) return std::string("bfloat16");
        for (const double g : d.grad<double>(0))
            if (g != 2.5) return std::string("double");
        for (const float g : d.grad<float>(4))
            if (g != 2.5F) return std::string("float");
        return std::string();
    });

    CHECK(said == silence(2));
}
TEST_CASE("buckets are reduced before the last gradient is ready") {
    const auto said = with_each_progress(2, [](thread_transport t, auto how) {
        ddp d{std::move(t), six(), small_buckets, how};
        for (const std::size_t i : {5U, 4U, 3U, 2U, 1U}) d.ready(i);
        // The last layer of backward takes its time: the first two buckets are full.
        const auto until = deadline::in(20s);
        while (d.reduced() < 2 && !until.passed()) d.progress();
        if (d.reduced() != 2) return std::string("nothing happens during backward");
        d.ready(0);
        d.finish();
        if (d.stats().bucket_count != 3) return std::string("not three buckets");
        return d.stats().reduced_before_last_ready == 2
                   ? std::string()
                   : std::to_string(d.stats().reduced_before_last_ready) + " before the last";
    });

    CHECK(said == silence(4));
}
TEST_CASE(
    "in the caller, ready() alone starts a bucket, reduces this rank's share of it and sees that it is over") {
    const auto said = on_threads(2, [](thread_transport& t) {
        ddp d{std::move(t), six(), small_buckets};
        d.ready(5);
        d.ready(4);  // bucket 0 is full
        d.group().barrier();
        d.ready(3);  // all have started it
        d.group().barrier();
        d.ready(2);  // all have done their share
        const auto over = d.reduced();
        d.ready(1);
        d.ready(0);
        d.finish();
        return over == 1 ? std::string() : std::to_string(over) + " buckets were over";
    });

    CHECK(said == silence(2));
}
TEST_CASE("inside no_sync gradients add up on the rank, and the next step sends the sum") {
    const auto said = with_each_progress(2, [](thread_transport t, auto how) {
        ddp d{std::move(t), {{.name = "w", .shape = {1}}}, {}, how};
        const auto add = [&](float g) {
            d.template grad<float>(0)[0] += g;
            d.ready(0);
            d.finish();
        };
        const bool zero = d.rank() == 0;
        {
            const auto scope = d.no_sync();
            add(zero ? 1.0F : 3.0F);
        }
        if (d.template grad<float>(0)[0] != (zero ? 1.0F : 3.0F)) return std::string("something was sent");
        if (d.stats().reductions != 0) return std::string("a collective was made");
        add(zero ? 2.0F : 4.0F);
        if (d.template grad<float>(0)[0] != 5.0F) return std::string("not 5");
        if (d.stats().reductions != d.plan_of().cuts().size()) return std::string("not one collective a bucket");
        return std::string();
    });

    CHECK(said == silence(4));
}
TEST_CASE("nested no_sync scopes end with the outermost, and an exception ends them too") {
    const auto said = on_threads(2, [](thread_transport& t) {
        ddp d{std::move(t), {{.name = "w", .shape = {1}}}};
        const auto add = [&](float g) {
            d.grad<float>(0)[0] += g;
            d.ready(0);
            d.finish();
        };
        {
            const auto outer = d.no_sync();
            {
                const auto inner = d.no_sync();
                add(1.0F);
            }
            add(1.0F);
            if (d.stats().steps != 0) return std::string("the inner end switched it on");
        }
        try {
            const auto scope = d.no_sync();
            add(static_cast<float>(d.rank()));
            throw std::runtime_error("bad sample");
        } catch (const std::runtime_error&) {}
        add(0.0F);
        return d.grad<float>(0)[0] == 2.5F ? std::string() : std::to_string(d.grad<float>(0)[0]);
    });

    CHECK(said == silence(2));
}
TEST_CASE("a no_sync scope that is opened in the middle of a step is refused") {
    ddp d{self{}, six()};
    d.ready(5);

    CHECK_THROWS_WITH_AS(static_cast<void>(d.no_sync()), doctest::Contains("1 of 6 gradients are ready already"),
                         usage_error);
}
TEST_CASE("a user's collective may run while buckets are on their way") {
    const auto said = with_each_progress(2, [](thread_transport t, auto how) {
        ddp d{std::move(t), six(), small_buckets, how};
        for (int step = 0; step < 5; ++step) {
            std::vector<float> loss{static_cast<float>(d.rank())};
            for (const std::size_t i : {5U, 4U, 3U}) d.ready(i);
            d.group().all_reduce(loss, reduce::sum);
            for (const std::size_t i : {2U, 1U, 0U}) d.ready(i);
            d.finish();
            if (loss[0] != 1.0F) return std::string("wrong");
        }
        return std::string();
    });

    CHECK(said == silence(4));
}
TEST_CASE("a rank that does not come to the step is named when the deadline passes") {
    const auto said = with_each_progress(2, [](thread_transport t, auto how) {
        ddp d{std::move(t), six(), {.check_parameters = false}, how};
        if (d.rank() == 1) {
            std::this_thread::sleep_for(600ms);
            return std::string("late");
        }
        backward(d, 1.0F);
        d.finish(deadline::in(150ms));
        return std::string("went through");
    });

    for (const std::size_t i : {0U, 2U})
        CHECK_MESSAGE((has(said[i], "rank 1 did not join") || has(said[i], "was not reduced in time")), said[i]);
}
TEST_CASE("a steady step allocates nothing") {
    std::atomic<long> counted{-1};
    const auto said = on_threads(2, [&](thread_transport& t) {
        ddp d{std::move(t), six(), small_buckets};
        const auto step = [&] {
            backward(d, 1.0F);
            d.finish();
        };
        for (int i = 0; i < 3; ++i) step();
        d.group().barrier();
        const long before = allocations.load();
        d.group().barrier();
        for (int i = 0; i < 50; ++i) {
            for (const std::size_t p : {5U, 4U, 3U, 2U, 1U, 0U}) d.ready(p);
            d.finish();
        }
        d.group().barrier();
        if (d.rank() == 0) counted = allocations.load() - before;
        d.group().barrier();
        return std::string();
    });

    CHECK(said == silence(2));
    CHECK(counted == 0);
}
TEST_CASE("the time for a bucket grows with the steps and never below 30 s") {
    detail::step_clock c({});
    CHECK(c.timeout() == 60s);
    auto now = deadline::clock::time_point{};
    for (int i = 0; i < 10; ++i) c.step(now += 1ms);
    CHECK(c.timeout() == 30s);
    for (int i = 0; i < 20; ++i) c.step(now += 5s);
    CHECK(c.timeout() == 100s);
    CHECK(detail::step_clock(7s).timeout() == 7s);
}
}  // TEST_SUITE("dist/ddp")
