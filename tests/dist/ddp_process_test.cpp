#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include <trireme/core/hash.hpp>
#include <trireme/core/philox.hpp>
#include <trireme/dist/ddp.hpp>
#include <trireme/dist/self.hpp>
#include <trireme/dist/shm_transport.hpp>

#include "support/rank_processes.hpp"

using namespace std::chrono_literals;
using namespace trireme;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A least-squares model of a few layers' worth of parameters: its gradient for sample `s` is a function of the
/// parameters and of s.
std::vector<param_spec> layout() {
    std::vector<param_spec> all;
    for (const std::size_t n : {1000U, 7U, 3000U, 1U, 517U}) all.push_back({"w" + std::to_string(all.size()), {n}});
    return all;
}
template <class Ddp>
void init(Ddp& d) {
    std::uint64_t k = 0;
    for (std::size_t i = 0; i < d.count(); ++i)
        for (float& w : d.template param<float>(i)) w = static_cast<float>(philox(7, k++).uniform() - 0.5);
}
template <class Ddp>
void add_gradient(Ddp& d, std::size_t i, std::uint64_t sample) {
    const auto w = d.template param<float>(i);
    const auto g = d.template grad<float>(i);
    for (std::size_t k = 0; k < w.size(); ++k) {
        const auto target =
            static_cast<float>(static_cast<double>(mix64(sample * 131 + i * 17 + k) % 1000) / 1000.0);
        g[k] += w[k] - target;
    }
}
/// `steps` steps of gradient descent on samples step * batch ... , this rank taking its share. The last parameters.
template <class Ddp>
std::uint64_t train(Ddp& d, std::uint64_t steps, std::uint64_t batch) {
    init(d);
    d.broadcast();
    for (std::uint64_t step = 0; step < steps; ++step) {
        d.zero_gradients();
        for (std::size_t i = d.count(); i-- > 0;) {
            for (std::uint64_t s = d.rank(); s < batch; s += d.size()) add_gradient(d, i, step * batch + s);
            d.ready(i);
        }
        d.finish();
        const auto w = d.template parameters<float>();
        const auto g = d.template gradients<float>();
        for (std::size_t k = 0; k < w.size(); ++k) w[k] -= 0.01F * g[k];
    }
    const auto w = d.template parameters<float>();
    return detail::hash_bytes(reinterpret_cast<const std::byte*>(w.data()), w.size_bytes());
}

}  // namespace

TEST_SUITE("dist/ddp_process") {
TEST_CASE("weights have the same bits on every rank, from run to run, with either kind of progress") {
    std::vector<std::string> all;
    for (int run = 0; run < 2; ++run) {
        const auto in_caller = test::on_worlds(2, [](world& w) {
            ddp d{shm_transport{w}, layout(), {.buckets = {.first = 4096, .cap = 8192}}};
            return std::to_string(train(d, 50, 8));
        });
        const auto by_thread = test::on_worlds(2, [](world& w) {
            ddp d{shm_transport{w}, layout(), {.buckets = {.first = 100, .cap = 100}}, progress::thread{}};
            return std::to_string(train(d, 50, 8));
        });
        all.insert(all.end(), in_caller.begin(), in_caller.end());
        all.insert(all.end(), by_thread.begin(), by_thread.end());
    }

    CHECK(all == std::vector<std::string>(8, all[0]));
    CHECK_FALSE(all[0].empty());
}
TEST_CASE("two ranks with half of the batch each train as one rank does") {
    ddp one{self{}, layout()};
    static_cast<void>(train(one, 100, 8));
    struct weights_of_rank_1 {
        float value[8192];
    };
    test::shared_page<weights_of_rank_1> page;

    const auto said = test::on_worlds(2, [&](world& w) {
        ddp d{shm_transport{w}, layout()};
        // The mean over two ranks of sums over four is half of the sum over eight.
        init(d);
        for (std::uint64_t step = 0; step < 100; ++step) {
            d.zero_gradients();
            for (std::size_t i = d.count(); i-- > 0;) {
                for (std::uint64_t s = d.rank(); s < 8; s += 2) add_gradient(d, i, step * 8 + s);
                d.ready(i);
            }
            d.finish();
            const auto weights = d.parameters<float>();
            const auto g = d.gradients<float>();
            for (std::size_t k = 0; k < weights.size(); ++k) weights[k] -= 0.02F * g[k];
        }
        const auto weights = d.parameters<float>();
        if (w.rank() == 1) std::memcpy(page->value, weights.data(), weights.size_bytes());
        return std::string();
    });

    REQUIRE(said == std::vector<std::string>(2));
    const auto expected = one.parameters<float>();
    double difference = 0, norm = 0;
    for (std::size_t k = 0; k < expected.size(); ++k) {
        difference += std::pow(static_cast<double>(expected[k]) - static_cast<double>(page->value[k]), 2);
        norm += std::pow(static_cast<double>(expected[k]), 2);
    }
    CHECK(std::sqrt(difference) <= 1e-5 * std::sqrt(norm));
}
TEST_CASE("a rank killed at a random moment of a step is named with its signal, and nothing is left") {
    std::mt19937_64 random(test::seed());
    const test::footprint before;
    int wrong = 0;
    std::string last;
    for (int round = 0; round < test::rounds(30, 200); ++round) {
        const auto victim = static_cast<std::uint32_t>(random() % 2);
        const auto delay = random() % 30'000;
        const bool by_thread = round % 2 != 0;
        int status = 0;
        const auto said = test::on_worlds(
            2,
            [&](world& w) {
                if (w.rank() == victim)
                    std::thread([delay] {
                        ::usleep(static_cast<useconds_t>(delay));
                        ::raise(SIGKILL);
                    }).detach();
                const ddp_options small{.buckets = {.first = 4096, .cap = 8192}};
                if (by_thread) {
                    ddp d{shm_transport{w}, layout(), small, progress::thread{}};
                    static_cast<void>(train(d, 1'000'000, 2));
                } else {
                    ddp d{shm_transport{w}, layout(), small};
                    static_cast<void>(train(d, 1'000'000, 2));
                }
                return std::string("went through");
            },
            &status);
        const std::string& text = said[1 - victim];
        if (status != 137 || !has(text, "rank " + std::to_string(victim) + " (pid ") || !has(text, "SIGKILL"))
            ++wrong, last = std::to_string(status) + ": " + text;
    }

    CHECK_MESSAGE(wrong == 0, last);
    CHECK(test::back_to(before));
}
TEST_CASE("an object that failed can be followed by another one") {
    const auto said = test::on_worlds(2, [](world& w) {
        std::string text;
        try {
            ddp d{shm_transport{w}, layout()};
            for (std::size_t i = w.rank(); i < d.count(); ++i) d.ready(i);
            d.finish();
        } catch (const error& e) { text = e.what(); }
        ddp d{shm_transport{w}, layout()};
        static_cast<void>(train(d, 2, 2));
        w.barrier();
        return text;
    });

    REQUIRE(said.size() == 2);
    CHECK(has(said[0], "rank 1 gave up: the gradient of 'w0' [1000] float was not marked ready"));
    CHECK(has(said[1], "the gradient of 'w0' [1000] float was not marked ready before finish()"));
}
}  // TEST_SUITE("dist/ddp_process")
