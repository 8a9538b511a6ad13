#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <trireme/dist/thread_transport.hpp>

#include "conformance/transport_suite.hpp"
#include "support/ranks.hpp"

using namespace std::chrono_literals;
using test::on_threads;
using test::silence;

namespace {
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_SUITE("dist/thread_transport") {
TEST_CASE("every operation on every type gives the serial result in rank order, bit for bit") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::every_type_and_operation(t); }) == silence(n));
}
TEST_CASE("so do buffers of more than a mebibyte") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::large_buffers(t); }) == silence(n));
}
TEST_CASE("a part of a buffer is reduced and its neighbours are not") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::parts_of_buffers(t); }) == silence(n));
}
TEST_CASE("all_gather and reduce_scatter work in place") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::in_place(t); }) == silence(n));
}
TEST_CASE("operations on nothing leave the group in order") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::nothing_at_all(t); }) == silence(n));
}
TEST_CASE("a hundred operations may be under way, and be waited for from the last to the first") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::many_under_way(t); }) == silence(n));
}
TEST_CASE("small inputs of many operations under way are kept apart") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::small_ones_under_way(t); }) == silence(n));
}
TEST_CASE("a channel has a sequence of its own") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::channels_are_independent(t); }) == silence(n));
}
TEST_CASE("half types, order, wrapping and NaN come out as documented") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::numbers(t); }) == silence(n));
}
TEST_CASE("nobody passes a barrier before all have come") {
    for (const auto n : test::group_sizes)
        CHECK(on_threads(n, [](auto& t) { return conformance::barriers_hold(t); }) == silence(n));
}
TEST_CASE("different sizes are an error on every rank, with number and sizes, and change no buffer") {
    std::vector<std::vector<float>> data{std::vector<float>(1000, 1.0F), std::vector<float>(998, 1.0F)};

    const auto said = on_threads(2, [&](auto& t) {
        t.barrier();
        t.all_reduce(data[t.rank()], trireme::reduce::sum);
        return std::string("went through");
    });

    for (const auto& text : said) {
        CHECK(has(text, "operation 1 "));
        CHECK(has(text, "all_reduce(sum) of 1000 float on rank 0"));
        CHECK(has(text, "all_reduce(sum) of 998 float on rank 1"));
    }
    for (const auto& v : data) CHECK(v == std::vector<float>(v.size(), 1.0F));
}
TEST_CASE("different types, and different operations, are an error that names both") {
    const auto types = on_threads(2, [](auto& t) {
        std::vector<float> f(10);
        std::vector<double> d(10);
        if (t.rank() == 0)
            t.all_reduce(f, trireme::reduce::sum);
        else
            t.all_reduce(d, trireme::reduce::sum);
        return std::string();
    });
    const auto operations = on_threads(3, [](auto& t) {
        std::vector<float> f(10);
        if (t.rank() == 1)
            t.broadcast(f);
        else
            t.all_reduce(f, trireme::reduce::sum);
        return std::string();
    });
    const auto reductions = on_threads(2, [](auto& t) {
        std::vector<float> f(10);
        if (t.rank() == 1)
            t.all_reduce(f, trireme::reduce::mean);
        else
            t.all_reduce(f, trireme::reduce::sum);
        return std::string();
    });

    for (const auto& text : types) CHECK((has(text, "10 float on rank 0") && has(text, "10 double on rank 1")));
    for (const auto& text : operations)
        CHECK((has(text, "all_reduce(sum) of 10 float on ranks 0 and 2") &&
               has(text, "broadcast of 10 float from rank 0 on rank 1")));
    for (const auto& text : reductions) CHECK((has(text, "all_reduce(sum)") && has(text, "all_reduce(mean)")));
}
TEST_CASE("after a failure the group says so at once") {
    const auto said = on_threads(2, [](auto& t) {
        std::vector<float> v(t.rank() == 0 ? 1000 : 998);
        try {
            t.all_reduce(v, trireme::reduce::sum);
        } catch (const trireme::mismatch_error&) {
            if (!t.health()) return std::string("healthy");
        }
        t.barrier();
        return std::string("went through");
    });

    for (const auto& text : said)
        CHECK(has(text, "this group failed before: the ranks call different collectives"));
}
TEST_CASE("a rank that does not come is named when the deadline passes, and the others hear of it") {
    const auto said = on_threads(3, [](auto& t) {
        std::vector<float> v(1000);
        t.barrier();
        if (t.rank() == 2) std::this_thread::sleep_for(700ms);
        t.all_reduce(v, trireme::reduce::sum, trireme::deadline::in(t.rank() == 2 ? 10s : 200ms));
        return std::string("went through");
    });

    for (const auto& text : said)
        CHECK(has(text, "rank 2 did not join all_reduce(sum) of 1000 float (operation 1)"));
}
TEST_CASE("the default deadline is an option") {
    const auto said = on_threads(2,
                                 [](auto& t) {
                                     if (t.rank() == 0) t.barrier();
                                     if (t.rank() == 1) std::this_thread::sleep_for(1s);
                                     return std::string("went through");
                                 },
                                 {.timeout = 150ms});

    CHECK(has(said[0], "rank 1 did not join barrier (operation 0) within 0.1"));
}
TEST_CASE("a rank that closes its end is named by those that wait for it") {
    const auto said = on_threads(3, [](auto& t) {
        t.barrier();
        if (t.rank() == 1) return std::string("left");
        t.barrier();
        return std::string("went through");
    });

    CHECK(has(said[0], "rank 1 closed the group before joining barrier (operation 1)"));
    CHECK(has(said[2], "rank 1 closed the group before joining barrier (operation 1)"));
}
TEST_CASE("a rank that has finished an operation may leave while others still take its result") {
    const auto said = on_threads(4, [](auto& t) {
        std::vector<float> v(200'000, 1.0F);
        for (int k = 0; k < 20; ++k) t.all_reduce(v, trireme::reduce::mean);
        return std::string(v[77] == 1.0F ? "" : "wrong");
    });

    CHECK(said == silence(4));
}
TEST_CASE("abort ends the group for every rank with the reason") {
    const auto said = on_threads(2, [](auto& t) {
        t.barrier();
        if (t.rank() == 1) {
            t.abort("out of coffee");
            return std::string();
        }
        t.barrier();
        return std::string("went through");
    });

    CHECK(has(said[0], "rank 1 gave up: out of coffee"));
}
TEST_CASE("sizes that cannot fit are refused before anybody hears of them") {
    const auto said = on_threads(2, [](auto& t) {
        std::vector<float> in(3), out(5);
        std::string text;
        try {
            t.all_gather(in, out);
        } catch (const trireme::usage_error& e) { text = e.what(); }
        t.barrier();
        return text;
    });

    for (const auto& text : said) CHECK(has(text, "all_gather of 3 elements into 5 over 2 ranks"));
}
TEST_CASE("allocations of different sizes are an error on every rank") {
    const auto said = on_threads(2, [](auto& t) {
        static_cast<void>(t.template allocate<float>(t.rank() == 0 ? 100 : 100'000));
        return std::string("went through");
    });

    for (const auto& text : said) CHECK(has(text, "the ranks ask for different sizes"));
}
TEST_CASE("blocks of different ranks lie an odd number of pages apart") {
    std::vector<std::uintptr_t> at(4);
    const auto said = on_threads(4, [&](auto& t) {
        at[t.rank()] = reinterpret_cast<std::uintptr_t>(t.template allocate<float>(1 << 20).data());
        return std::string();
    });

    REQUIRE(said == silence(4));
    for (std::size_t r = 1; r < 4; ++r) CHECK((at[r] - at[r - 1]) % 8192 == 4096);
}
}  // TEST_SUITE("dist/thread_transport")
