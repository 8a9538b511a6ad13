#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include <trireme/dist/store.hpp>

namespace fs = std::filesystem;

namespace {
struct scratch {
    std::string path;
    scratch() {
        char name[] = "/tmp/trireme-store-XXXXXX";
        path = ::mkdtemp(name);
    }
    ~scratch() { fs::remove_all(path); }
};
}  // namespace

TEST_SUITE("dist/store") {
TEST_CASE("a value is what was set last, and absent before and after") {
    const scratch s;
    const trireme::file_store store(s.path + "/job");

    CHECK_FALSE(store.get("key"));
    store.set("key", "one");
    store.set("key", "two\n");
    CHECK(store.get("key") == "two\n");
    store.erase("key");
    CHECK_FALSE(store.get("key"));
}
TEST_CASE("the folder is made at need, and goes when it is empty") {
    const scratch s;
    {
        const trireme::file_store store(s.path + "/job");
        store.set("key", "value");
        store.erase("key");
        CHECK(fs::exists(s.path + "/job"));
    }
    CHECK_FALSE(fs::exists(s.path + "/job"));

    {
        const trireme::file_store store(s.path + "/job");
        store.set("key", "value");
    }
    CHECK(fs::exists(s.path + "/job/key"));
    CHECK(fs::directory_iterator(s.path + "/job") != fs::directory_iterator());
}
TEST_CASE("nothing but the value is left in the folder") {
    const scratch s;
    const trireme::file_store store(s.path + "/job");
    for (int i = 0; i < 10; ++i) store.set("key", std::to_string(i));

    std::size_t files = 0;
    for ([[maybe_unused]] const auto& e : fs::directory_iterator(store.folder())) ++files;

    CHECK(files == 1);
}
TEST_CASE("a folder that cannot be made is named") {
    CHECK_THROWS_WITH_AS(trireme::file_store("/proc/no-such-folder/job"),
                         doctest::Contains("/proc/no-such-folder/job"), trireme::system_error);
}
TEST_CASE("a user's folder that others may write to is refused") {
    const scratch s;
    const std::string folder = s.path + "/trireme-" + std::to_string(::getuid());
    REQUIRE(::mkdir(folder.c_str(), 0700) == 0);
    REQUIRE(::chmod(folder.c_str(), 0777) == 0);
    const char* const before = std::getenv("TMPDIR");
    const std::string kept = before != nullptr ? before : "";
    ::setenv("TMPDIR", s.path.c_str(), 1);

    CHECK_THROWS_WITH_AS(trireme::file_store::of_user("port-1"), doctest::Contains("is not this user's own"),
                         trireme::system_error);
    REQUIRE(::chmod(folder.c_str(), 0700) == 0);
    CHECK(trireme::file_store::of_user("port-1").folder() == folder + "/port-1");

    before != nullptr ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}
}  // TEST_SUITE("dist/store")
