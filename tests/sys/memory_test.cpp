#include <trireme/sys/memory.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

using namespace trireme;

namespace {

/// A folder that plays the root of a machine.
class made_up_root {
  public:
    made_up_root() : path_("/tmp/trireme-root-" + std::to_string(::getpid())) {}
    ~made_up_root() { std::filesystem::remove_all(path_); }
    void write(const std::string& file, const std::string& text) const {
        const auto at = std::filesystem::path(path_ + "/" + file);
        std::filesystem::create_directories(at.parent_path());
        std::ofstream(at) << text;
    }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace

TEST_SUITE("sys/memory") {
TEST_CASE("without control groups it is what the machine has available, swap included") {
    const made_up_root root;
    root.write("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 10 kB\nMemAvailable:   4000 kB\nSwapFree: 24 kB\n");

    const auto left = memory_left(root.path());

    CHECK(left.bytes == 4024 * 1024);
    CHECK(left.file.ends_with("/proc/meminfo"));
}

TEST_CASE("the tightest group on the way up decides, and cache that can be dropped counts as left (version 2)") {
    const made_up_root root;
    root.write("proc/meminfo", "MemAvailable: 8000000 kB\n");
    root.write("proc/self/cgroup", "0::/a/b\n");
    root.write("sys/fs/cgroup/a/memory.max", "1000000\n");
    root.write("sys/fs/cgroup/a/memory.current", "700000\n");
    root.write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 200000\n");
    root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
    root.write("sys/fs/cgroup/a/b/memory.current", "600000\n");

    const auto left = memory_left(root.path());

    CHECK(left.bytes == 500000);
    CHECK(left.file.ends_with("/a/memory.max"));
}

TEST_CASE("version 1 is read as well, and a group over its limit leaves nothing") {
    const made_up_root root;
    root.write("proc/meminfo", "MemAvailable: 8000000 kB\n");
    root.write("proc/self/cgroup", "9:memory:/docker/x\n");
    root.write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1000\n");
    root.write("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "2000\n");

    CHECK(memory_left(root.path()).bytes == 0);
}

TEST_CASE("what cannot be read is no limit") {
    const made_up_root root;
    root.write("proc/self/cgroup", "0::/a\n");
    root.write("sys/fs/cgroup/a/memory.max", "banana\n");
    root.write("sys/fs/cgroup/a/memory.current", "5\n");

    CHECK(memory_left(root.path()).file.empty());
    CHECK(memory_left("/nowhere").file.empty());
}

TEST_CASE("this machine says something") { CHECK_FALSE(memory_left().file.empty()); }
}  // TEST_SUITE("sys/memory")
