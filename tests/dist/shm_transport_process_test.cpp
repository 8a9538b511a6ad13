#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include <trireme/dist/shm_transport.hpp>

#include "conformance/transport_suite.hpp"
#include "support/rank_processes.hpp"
#include "support/ranks.hpp"

using namespace std::chrono_literals;
using test::on_processes;
using test::silence;

namespace {
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
constexpr std::uint32_t group_sizes[] = {1, 2, 3, 4};
}  // namespace

TEST_SUITE("dist/shm_transport") {
TEST_CASE("every operation on every type gives the serial result in rank order, bit for bit") {
    for (const auto n : group_sizes)
        CHECK(on_processes(n, [](auto& t) { return conformance::every_type_and_operation(t); }) == silence(n));
}
TEST_CASE("so do buffers of more than a mebibyte, parts of buffers, and work in place") {
    for (const auto n : group_sizes) {
        CHECK(on_processes(n, [](auto& t) { return conformance::large_buffers(t); }) == silence(n));
        CHECK(on_processes(n, [](auto& t) { return conformance::parts_of_buffers(t); }) == silence(n));
        CHECK(on_processes(n, [](auto& t) { return conformance::in_place(t); }) == silence(n));
    }
}
TEST_CASE("operations on nothing, many under way, channels, numbers and barriers come out as documented") {
    for (const auto n : group_sizes) {
        CHECK(on_processes(n, [](auto& t) { return conformance::nothing_at_all(t); }) == silence(n));
        CHECK(on_processes(n, [](auto& t) { return conformance::many_under_way(t); }) == silence(n));
        CHECK(on_processes(n, [](auto& t) { return conformance::small_ones_under_way(t); }) == silence(n));
        CHECK(on_processes(n, [](auto& t) { return conformance::channels_are_independent(t); }) == silence(n));
        CHECK(on_processes(n, [](auto& t) { return conformance::numbers(t); }) == silence(n));
        CHECK(on_processes(n, [](auto& t) { return conformance::barriers_hold(t); }) == silence(n));
    }
}
TEST_CASE("different sizes are an error on every rank, later calls fail at once, and a fresh group works") {
    const auto said = test::on_worlds(2, [](trireme::world& w) {
        std::string text;
        {
            trireme::shm_transport t{w};
            std::vector<float> v(w.rank() == 0 ? 1000 : 998, 1.0F);
            try {
                t.all_reduce(v, trireme::reduce::sum);
            } catch (const trireme::mismatch_error& e) { text = e.what(); }
            for (const float x : v)
                if (x != 1.0F) text = "a buffer was changed";
            try {
                t.barrier();
                text += "went through";
            } catch (const trireme::mismatch_error& e) { text += e.what(); }
        }
        trireme::shm_transport fresh{w};
        std::vector<float> pair{1.0F, 2.0F};
        fresh.all_reduce(pair, trireme::reduce::sum);
        if (pair[1] != 4.0F) text = "the fresh group sums wrongly";
        w.barrier();
        return text;
    });

    REQUIRE(said.size() == 2);
    for (const auto& text : said) {
        CHECK(has(text, "operation 0 is all_reduce(sum) of 1000 float on rank 0"));
        CHECK(has(text, "all_reduce(sum) of 998 float on rank 1"));
        CHECK(has(text, "this group failed before"));
    }
}
TEST_CASE("allocations of different sizes are an error on every rank and leave the world in order") {
    const auto said = test::on_worlds(2, [](trireme::world& w) {
        trireme::shm_transport t{w};
        std::string text;
        try {
            static_cast<void>(t.allocate<float>(w.rank() == 0 ? 100 : 100'000));
        } catch (const trireme::mismatch_error& e) { text = e.what(); }
        w.barrier();
        return text;
    });

    REQUIRE(said.size() == 2);
    for (const auto& text : said) CHECK(has(text, "the ranks disagree about the size of shared memory"));
}
TEST_CASE("memory that is not there is an error on every rank, with the amount, and not a signal") {
    const auto said = test::on_worlds(2, [](trireme::world& w) {
        trireme::shm_transport t{w};
        std::string text;
        try {
            static_cast<void>(t.allocate<double>(std::size_t{1} << 45));  // 256 TiB a rank
        } catch (const trireme::system_error& e) { text = e.what(); }
        const auto still = t.allocate<float>(10);
        w.barrier();
        return still.size() == 10 ? text : std::string("unusable afterwards");
    });

    REQUIRE(said.size() == 2);
    for (const auto& text : said) CHECK(has(text, "cannot reserve 512 TiB of shared memory"));
}
TEST_CASE("transports come and go without a trace") {
    const auto said = test::on_worlds(2, [](trireme::world& w) {
        const auto once = [&] {
            trireme::shm_transport t{w};
            auto g = t.allocate<float>(100'000);
            t.all_reduce(g, trireme::reduce::sum);
            w.barrier();
        };
        once();
        const test::footprint before;
        for (int i = 0; i < 20; ++i) once();
        const test::footprint after;
        w.barrier();
        return after.descriptors == before.descriptors && after.shm == before.shm ? std::string() : after.text();
    });

    CHECK(said == silence(2));
}
}  // TEST_SUITE("dist/shm_transport")
