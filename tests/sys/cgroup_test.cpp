#include <trireme/sys/cgroup.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "support/fake_root.hpp"

using namespace trireme;
using test::fake_root;

namespace {

constexpr double none = -1;

struct layout {
    const char* name;
    const char* files;
    double cpus;   // none: no quota
    bool warning;  // one that names the file
};

// Each row is what some machine shows; the comment says which mistake it is there for.
constexpr layout layouts[] = {
    {"v2, a quota in the own group", "proc/self/cgroup=0::/a|sys/fs/cgroup/a/cpu.max=250000 100000", 2.5, false},
    {"v2, no limit", "proc/self/cgroup=0::/a|sys/fs/cgroup/a/cpu.max=max 100000", none, false},
    {"v2, the period is left out: 100 ms", "proc/self/cgroup=0::/a|sys/fs/cgroup/a/cpu.max=300000", 3.0, false},
    {"v2, a parent is tighter",  // the leaf alone says: no limit
     "proc/self/cgroup=0::/a/b|sys/fs/cgroup/a/cpu.max=200000 100000|sys/fs/cgroup/a/b/cpu.max=max 100000", 2.0,
     false},
    {"v2, the leaf is tighter",
     "proc/self/cgroup=0::/a/b|sys/fs/cgroup/a/cpu.max=800000 100000|sys/fs/cgroup/a/b/cpu.max=150000 100000", 1.5,
     false},
    {"v2, the group is the root of a namespace, with less than a CPU",
     "proc/self/cgroup=0::/|sys/fs/cgroup/cpu.max=50000 100000", 0.5, false},
    {"v2, a path out of the namespace stays inside the mount",
     "proc/self/cgroup=0::/../../other|sys/fs/cgroup/cpu.max=max 100000", none, false},
    {"v2, and finds the limit at the mount",
     "proc/self/cgroup=0::/../../other|sys/fs/cgroup/cpu.max=150000 100000|sys/other/cpu.max=50000 100000", 1.5,
     false},
    {"v2, colons in the name of the group",
     "proc/self/cgroup=0::/sys.slice/a:b.scope|sys/fs/cgroup/sys.slice/a:b.scope/cpu.max=400000 100000", 4.0,
     false},
    {"v1, a quota",
     "proc/self/cgroup=4:cpu,cpuacct:/docker/x|sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us=150000|"
     "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us=100000",
     1.5, false},
    {"v1, -1 is no limit",
     "proc/self/cgroup=4:cpu,cpuacct:/|sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us=-1|"
     "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us=100000",
     none, false},
    {"v1, a period of zero divides nothing",
     "proc/self/cgroup=4:cpu,cpuacct:/|sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us=100000|"
     "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us=0",
     none, true},
    {"v1, a parent is tighter",
     "proc/self/cgroup=4:cpu:/a/b|sys/fs/cgroup/cpu/a/cpu.cfs_quota_us=120000|"
     "sys/fs/cgroup/cpu/a/cpu.cfs_period_us=100000|sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us=-1|"
     "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us=100000",
     1.2, false},
    {"v1, the period cannot be read: 100 ms", "proc/self/cgroup=4:cpu:/|sys/fs/cgroup/cpu/cpu.cfs_quota_us=150000",
     1.5, false},
    {"v1, text that is no number",
     "proc/self/cgroup=4:cpu:/|sys/fs/cgroup/cpu/cpu.cfs_quota_us=many|sys/fs/cgroup/cpu/cpu.cfs_period_us=100000",
     none, true},
    {"both versions at once: the tighter holds",
     "proc/self/cgroup=4:cpu:/\\n0::/u|sys/fs/cgroup/cpu/cpu.cfs_quota_us=300000|"
     "sys/fs/cgroup/cpu/cpu.cfs_period_us=100000|sys/fs/cgroup/u/cpu.max=200000 100000",
     2.0, false},
    {"text that is no limit", "proc/self/cgroup=0::/a|sys/fs/cgroup/a/cpu.max=banana", none, true},
    {"no control groups", "proc/self/cgroup=", none, false},
    {"nothing at all", "etc/empty=", none, false},
};

// cpu.max as found in the field, below a group of its own.
constexpr layout texts[] = {
    {"max 100000", nullptr, none, false},
    {"50000 100000", nullptr, 0.5, false},
    {"150000 100000", nullptr, 1.5, false},
    {"200000 100000", nullptr, 2.0, false},
    {"400000 100000\n", nullptr, 4.0, false},
    {"", nullptr, none, false},
    {"max", nullptr, none, false},
    {"100000", nullptr, 1.0, false},
    {"abc 100000", nullptr, none, true},
    {"100000 0", nullptr, none, true},
    {"100000 x", nullptr, none, true},
    {"-5 100000", nullptr, none, true},
    {"99999999999999999999 100000", nullptr, none, true},
};

}  // namespace

TEST_SUITE("sys/cgroup") {
TEST_CASE("the quota is the smallest along the whole path, in every layout") {
    for (const auto& row : layouts) {
        CAPTURE(row.name);
        const fake_root root(row.files);

        const auto got = cpu_quota(root.path());

        CHECK(got.cpus.value_or(none) == doctest::Approx(row.cpus));
        CHECK(got.warnings.size() == (row.warning ? 1 : 0));
        CHECK(got.file.empty() == !got.cpus.has_value());
        for (const auto& w : got.warnings) CHECK(w.find(root.path() + "/sys/fs/cgroup/") != std::string::npos);
    }
}
TEST_CASE("every text of cpu.max is a quota, no quota, or a warning with the file and the text") {
    for (const auto& row : texts) {
        CAPTURE(row.name);
        fake_root root("proc/self/cgroup=0::/a");
        root.put("sys/fs/cgroup/a/cpu.max", row.name);

        const auto got = cpu_quota(root.path());

        CHECK(got.cpus.value_or(none) == doctest::Approx(row.cpus));
        REQUIRE(got.warnings.size() == (row.warning ? 1 : 0));
        if (row.warning) {
            CHECK(got.warnings[0].find("sys/fs/cgroup/a/cpu.max says \"" + std::string(row.name) + "\"") !=
                  std::string::npos);
        }
    }
}
TEST_CASE("the file that holds the tightest quota is named") {
    const fake_root root(
        "proc/self/cgroup=0::/a/b|sys/fs/cgroup/a/cpu.max=200000 100000|sys/fs/cgroup/a/b/cpu.max=max 100000");
    CHECK(cpu_quota(root.path()).file == root.path() + "/sys/fs/cgroup/a/cpu.max");
    CHECK(cpu_quota(root.path() + "/").file == root.path() + "/sys/fs/cgroup/a/cpu.max");
}
TEST_CASE("mounts are where mountinfo says, with blanks in their options and octal escapes in their paths") {
    const fake_root v2(
        "proc/self/cgroup=0::/a|"
        "proc/self/mountinfo=25 1 8:1 / / rw - ext4 /dev/sda rw\\n"
        "30 25 0:26 / /my\\040groups/unified rw,nosuid shared:4 master:1 - cgroup2 none rw,comment=a b\\n|"
        "my groups/unified/a/cpu.max=150000 100000");
    CHECK(cpu_quota(v2.path()).cpus.value_or(none) == doctest::Approx(1.5));

    const fake_root v1(
        "proc/self/cgroup=7:cpuacct,cpu:/job|"
        "proc/self/mountinfo=30 25 0:26 / /cg/mem rw - cgroup none rw,memory\\n"
        "31 25 0:27 / /cg/cpu rw - cgroup none rw,cpu,cpuacct\\n|"
        "cg/cpu/job/cpu.cfs_quota_us=50000|cg/cpu/job/cpu.cfs_period_us=100000");
    CHECK(cpu_quota(v1.path()).cpus.value_or(none) == doctest::Approx(0.5));
}
TEST_CASE("a mount that shows only part of the tree is read from that part on") {
    // A container without a namespace of its own: the path is the host's, the mount shows the container's group.
    const fake_root root(
        "proc/self/cgroup=4:cpu:/docker/x/inner|"
        "proc/self/mountinfo=31 25 0:27 /docker/x /sys/fs/cgroup/cpu rw - cgroup none rw,cpu\\n|"
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us=250000|sys/fs/cgroup/cpu/cpu.cfs_period_us=100000|"
        "sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us=-1|sys/fs/cgroup/cpu/inner/cpu.cfs_period_us=100000");
    CHECK(cpu_quota(root.path()).cpus.value_or(none) == doctest::Approx(2.5));

    const fake_root other(  // /docker/xyz is not below /docker/x
        "proc/self/cgroup=4:cpu:/docker/xyz|"
        "proc/self/mountinfo=31 25 0:27 /docker/x /sys/fs/cgroup/cpu rw - cgroup none rw,cpu\\n|"
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us=-1|sys/fs/cgroup/cpuyz/cpu.cfs_quota_us=1000");
    CHECK_FALSE(cpu_quota(other.path()).cpus.has_value());
}
TEST_CASE("the cpuset is the effective one of the own group, or the nearest parent's that has one") {
    const fake_root v2(
        "proc/self/cgroup=0::/a/b|sys/fs/cgroup/a/cpuset.cpus.effective=0-31,128-159\\n|"
        "sys/fs/cgroup/a/b/cpuset.cpus.effective=\\n");
    const auto got = cpuset_cpus(v2.path());
    CHECK(got.cpus.value_or(cpu_set{}) == cpu_set::parse("0-31,128-159"));
    CHECK(got.file == v2.path() + "/sys/fs/cgroup/a/cpuset.cpus.effective");

    const fake_root v1("proc/self/cgroup=3:cpuset:/j|sys/fs/cgroup/cpuset/j/cpuset.cpus=2-3\\n");
    CHECK(cpuset_cpus(v1.path()).cpus.value_or(cpu_set{}) == cpu_set{2, 3});

    const fake_root bad("proc/self/cgroup=0::/|sys/fs/cgroup/cpuset.cpus.effective=0-x");
    CHECK_FALSE(cpuset_cpus(bad.path()).cpus.has_value());
    REQUIRE(cpuset_cpus(bad.path()).warnings.size() == 1);
    CHECK(cpuset_cpus(bad.path()).warnings[0].find("cpuset.cpus.effective says \"0-x\"") != std::string::npos);

    CHECK_FALSE(cpuset_cpus(fake_root("etc/empty=").path()).cpus.has_value());
}
TEST_CASE("this machine can be read") {
    CHECK(cpu_quota().warnings.empty());
    CHECK(cpuset_cpus().warnings.empty());
}
}  // TEST_SUITE("sys/cgroup")
