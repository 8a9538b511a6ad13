#include <trireme/threads/cpu_budget.hpp>

#include <doctest/doctest.h>

#include <string>

#include "support/fake_root.hpp"

using namespace trireme;
using test::fake_root;

namespace {
/// A machine with CPUs 0-15, our group and whatever limits it.
std::string machine(const std::string& limits) {
    return "sys/devices/system/cpu/online=0-15\\n|proc/self/cgroup=4:cpu:/job\\n0::/job|" + limits;
}
}  // namespace

TEST_SUITE("threads/cpu_budget") {
TEST_CASE("without limits the budget is every CPU of the machine") {
    const fake_root root(machine("etc/none="));
    const auto b = cpu_budget::discover(root.path());

    CHECK(b.usable == cpu_set::span(0, 15));
    CHECK_FALSE(b.quota.has_value());
    CHECK(b.compute() == 16);
    CHECK(b.loading() == 16);
    CHECK(b.text() == "16 threads on CPUs 0-15, limited by the CPUs that are online");
}
TEST_CASE("a quota gives whole CPUs rounded down for compute and up for loading, and names its file") {
    const fake_root v2(machine("sys/fs/cgroup/job/cpu.max=250000 100000"));
    const auto two = cpu_budget::discover(v2.path());
    CHECK(two.compute() == 2);
    CHECK(two.loading() == 3);
    CHECK(two.limited_by == "a quota of 2.5 CPUs (" + v2.path() + "/sys/fs/cgroup/job/cpu.max)");

    const fake_root v1(machine("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us=150000"));
    const auto one = cpu_budget::discover(v1.path());
    CHECK(one.compute() == 1);
    CHECK(one.loading() == 2);
    CHECK(one.limited_by.find("a quota of 1.5 CPUs") == 0);
}
TEST_CASE("less than one CPU is one thread, and more than the machine has is the machine") {
    const fake_root half(machine("sys/fs/cgroup/job/cpu.max=50000 100000"));
    CHECK(cpu_budget::discover(half.path()).compute() == 1);
    CHECK(cpu_budget::discover(half.path()).quota.value_or(0) == doctest::Approx(0.5));

    const fake_root plenty(machine("sys/fs/cgroup/job/cpu.max=4000000 100000"));
    CHECK(cpu_budget::discover(plenty.path()).compute() == 16);
    CHECK(cpu_budget::discover(plenty.path()).limited_by == "the CPUs that are online");
}
TEST_CASE("with two CPUs every text of cpu.max gives a count between one and two") {
    struct expected {
        const char* text;
        unsigned threads;
        bool warning;
    };
    const expected rows[] = {{"max 100000", 2, false},    {"50000 100000", 1, false},  {"150000 100000", 1, false},
                             {"200000 100000", 2, false}, {"400000 100000", 2, false}, {"", 2, false},
                             {"max", 2, false},           {"100000", 1, false},        {"abc 100000", 2, true},
                             {"100000 0", 2, true}};
    for (const auto& row : rows) {
        CAPTURE(row.text);
        fake_root root("sys/devices/system/cpu/online=0-1|proc/self/cgroup=0::/a");
        root.put("sys/fs/cgroup/a/cpu.max", row.text);
        const auto b = cpu_budget::discover(root.path());

        CHECK(b.compute() == row.threads);
        REQUIRE(b.warnings.size() == (row.warning ? 1 : 0));
        if (row.warning) CHECK(b.warnings[0].find("/sys/fs/cgroup/a/cpu.max") != std::string::npos);
    }
}
TEST_CASE("a container on a large machine: quota on a parent, cpuset in the leaf, a mask that follows it") {
    const fake_root root(
        "sys/devices/system/cpu/online=0-255|proc/self/status=Name: x\\nCpus_allowed_list: 0-31,128-159\\n|"
        "proc/self/cgroup=0::/pods.slice/pod1/ctr.scope|"
        "proc/self/mountinfo=30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\\n|"
        "sys/fs/cgroup/pods.slice/cpu.max=max 100000|sys/fs/cgroup/pods.slice/pod1/cpu.max=1250000 100000|"
        "sys/fs/cgroup/pods.slice/pod1/ctr.scope/cpu.max=max 100000|"
        "sys/fs/cgroup/pods.slice/pod1/ctr.scope/cpuset.cpus.effective=0-31,128-159");
    const auto b = cpu_budget::discover(root.path());

    CHECK(b.warnings.empty());
    CHECK(b.usable.count() == 64);
    CHECK(b.quota.value_or(0) == doctest::Approx(12.5));
    CHECK(b.compute() == 12);
    CHECK(b.limited_by.find("pod1/cpu.max") != std::string::npos);

    const auto part = b.share(shard{1, 4});
    CHECK(part.usable == cpu_set::span(16, 31));
    CHECK(part.compute() == 3);
    CHECK(part.limited_by.find("rank 1 of 4 here") != std::string::npos);
}
TEST_CASE("a cpuset limits the CPUs, and a mask inside it limits further") {
    const fake_root set(machine("sys/fs/cgroup/job/cpuset.cpus.effective=4-7"));
    CHECK(cpu_budget::discover(set.path()).usable == cpu_set::span(4, 7));
    CHECK(cpu_budget::discover(set.path()).limited_by.find("the cpuset (") == 0);

    const fake_root mask(
        machine("sys/fs/cgroup/job/cpuset.cpus.effective=4-7|proc/self/status=Cpus_allowed_list: 6,9\\n"));
    CHECK(cpu_budget::discover(mask.path()).usable == cpu_set{6});
    CHECK(cpu_budget::discover(mask.path()).limited_by == "the affinity mask");
}
TEST_CASE("ranks share CPUs and quota, and none gets less than one thread") {
    const fake_root root(machine("sys/fs/cgroup/job/cpu.max=500000 100000"));
    const auto host = cpu_budget::discover(root.path());

    CHECK(host.share(shard{0, 1}).compute() == 5);
    CHECK(host.share(shard{0, 2}).compute() == 2);
    CHECK(host.share(shard{0, 2}).usable == cpu_set::span(0, 7));
    CHECK(host.share(shard{1, 2}).usable == cpu_set::span(8, 15));
    CHECK(host.share(shard{20, 32}).compute() == 1);
    CHECK(host.share(shard{20, 32}).usable == cpu_set{4});
}
TEST_CASE("this machine has a budget within its mask") {
    const auto b = cpu_budget::discover();

    CHECK(process_cpus().contains(b.usable));
    CHECK(b.compute() >= 1);
    CHECK(b.compute() <= b.usable.count());
    CHECK_FALSE(b.limited_by.empty());
}
}  // TEST_SUITE("threads/cpu_budget")
