#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <trireme/dist/self.hpp>

#include "conformance/transport_suite.hpp"

TEST_SUITE("dist/self") {
TEST_CASE("with one rank, every operation returns its input") {
    trireme::self t;

    CHECK(conformance::every_type_and_operation(t) == "");
    CHECK(conformance::large_buffers(t) == "");
    CHECK(conformance::parts_of_buffers(t) == "");
    CHECK(conformance::in_place(t) == "");
    CHECK(conformance::nothing_at_all(t) == "");
    CHECK(conformance::many_under_way(t) == "");
    CHECK(conformance::small_ones_under_way(t) == "");
    CHECK(conformance::channels_are_independent(t) == "");
    CHECK(conformance::barriers_hold(t) == "");
}
TEST_CASE("a root that is not there, and sizes that cannot fit, are refused") {
    trireme::self t;
    std::vector<float> three(3), four(4);

    CHECK_THROWS_AS(t.broadcast(three, trireme::rank{1}), trireme::usage_error);
    CHECK_THROWS_AS(t.all_gather(three, four), trireme::usage_error);
    CHECK_THROWS_AS(t.reduce_scatter(three, four, trireme::reduce::sum), trireme::usage_error);
}
TEST_CASE("after abort every call says why") {
    trireme::self t;
    REQUIRE_FALSE(t.health());

    t.abort("enough");

    CHECK(t.health().value().find("enough") != std::string::npos);
    CHECK_THROWS_WITH_AS(t.barrier(), doctest::Contains("enough"), trireme::remote_error);
}
}  // TEST_SUITE("dist/self")
