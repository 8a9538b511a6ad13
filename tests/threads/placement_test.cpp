#include <trireme/threads/placement.hpp>
#include <trireme/threads/pool.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace trireme;

namespace {
std::vector<std::string> lists(const std::vector<cpu_set>& sets) {
    std::vector<std::string> out;
    for (const auto& s : sets) out.push_back(s.text());
    return out;
}
using strings = std::vector<std::string>;

cpu_budget host(cpu_set cpus) { return {std::move(cpus), std::nullopt, "the test", {}}; }

struct two_of_four {
    shard local_shard() const { return {2, 4}; }
};
}  // namespace

TEST_SUITE("threads/placement") {
TEST_CASE("none leaves every thread every usable CPU") {
    CHECK(lists(placement::none{}.cpus_for({3, 5}, 3)) == strings{"3,5", "3,5", "3,5"});
}
TEST_CASE("compact gives one CPU a thread from the lowest on, and starts again when they are used up") {
    CHECK(lists(placement::compact{}.cpus_for(cpu_set::span(4, 11), 3)) == strings{"4", "5", "6"});
    CHECK(lists(placement::compact{}.cpus_for({1, 7}, 5)) == strings{"1", "7", "1", "7", "1"});
}
TEST_CASE("spread gives one CPU a thread as far apart as they are, and each once before any twice") {
    CHECK(lists(placement::spread{}.cpus_for(cpu_set::span(0, 15), 4)) == strings{"0", "4", "8", "12"});
    CHECK(lists(placement::spread{}.cpus_for(cpu_set::span(0, 3), 3)) == strings{"0", "1", "2"});
    CHECK(lists(placement::spread{}.cpus_for({1, 7}, 3)) == strings{"1", "7", "1"});
}
TEST_CASE("threads that want a CPU each and cannot have it are refused with both numbers") {
    std::string text;
    try {
        static_cast<void>(placement::compact{.may_share = false}.cpus_for({1}, 2));
    } catch (const usage_error& e) { text = e.what(); }

    CHECK(text.find("2 threads with a CPU each are wanted, but only 1 CPU is allowed: {1}") != std::string::npos);
    CHECK_THROWS_AS(static_cast<void>(placement::spread{.may_share = false}.cpus_for({1, 2}, 3)), usage_error);
    CHECK(placement::compact{.may_share = false}.cpus_for({1, 2}, 2).size() == 2);
}
TEST_CASE("a plan gives the ranks of a host disjoint CPUs and each as many threads") {
    const auto cpus = cpu_set::span(0, 6);
    cpu_set seen;
    unsigned threads = 0;
    for (std::uint32_t r = 0; r < 3; ++r) {
        const auto options = placement::plan(shard{r, 3}, host(cpus)).compute();
        CHECK(options.threads == options.cpus.size());
        CHECK(options.cores == options.threads);
        CHECK((seen & options.cpus[0]).empty());
        seen = seen | options.cpus[0];
        threads += options.threads;
    }
    CHECK(seen == cpus);
    CHECK(threads == 7);
}
TEST_CASE("a plan places the threads of a rank by a policy") {
    const placement::plan second(shard{1, 2}, host(cpu_set::span(0, 7)));
    CHECK(lists(second.compute(placement::compact{}).cpus) == strings{"4", "5", "6", "7"});
    CHECK(lists(second.compute(placement::none{}).cpus) == strings{"4-7", "4-7", "4-7", "4-7"});
}
TEST_CASE("a plan follows the quota: fewer threads than CPUs, all of which they may use") {
    auto limited = host(cpu_set::span(0, 7));
    limited.quota = 5.0;
    const auto options = placement::plan(shard{0, 2}, limited).compute();
    CHECK(options.threads == 2);
    CHECK(lists(options.cpus) == strings{"0-3", "0-3"});
}
TEST_CASE("a plan is made from whatever knows its place on the host, and prints itself") {
    CHECK(placement::plan(shard{0, 2}, host({0, 1})).text() ==
          "rank 0 of 2 on this host: 1 thread on CPUs 0, limited by the test, rank 0 of 2 here");
    CHECK(placement::plan(two_of_four{}).text().find("rank 2 of 4 on this host") == 0);
}
TEST_CASE("a pool made from a plan of this host has the threads of the plan") {
    pool p{placement::plan(shard{0, 1}).compute()};
    CHECK(p.num_threads() == cpu_budget::discover().compute());
}
}  // TEST_SUITE("threads/placement")
