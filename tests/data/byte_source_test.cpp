// Reading a whole file: what is not a readable file of acceptable size is an error that names it.
#include <trireme/data/byte_source.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace {

// A directory that goes away with its files.
struct scratch {
    scratch() {
        const char* base = std::getenv("TMPDIR");
        path = std::string(base != nullptr ? base : "/tmp") + "/trireme-test-XXXXXX";
        REQUIRE(::mkdtemp(path.data()) != nullptr);
    }
    ~scratch() {
        for (const std::string& f : files) static_cast<void>(::unlink(f.c_str()));
        static_cast<void>(::rmdir(path.c_str()));
    }
    std::string file(const std::string& name, const std::string& text) {
        files.push_back(path + "/" + name);
        std::FILE* f = std::fopen(files.back().c_str(), "wb");
        REQUIRE(f != nullptr);
        CHECK(std::fwrite(text.data(), 1, text.size(), f) == text.size());
        std::fclose(f);
        return files.back();
    }
    std::string path;
    std::vector<std::string> files;
};

std::string refusal(const std::string& path, std::uint64_t limit = 1 << 20) {
    try {
        static_cast<void>(trireme::plain_file{.max_bytes = limit}.load(path));
    } catch (const trireme::error& e) { return e.what(); }
    return "";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("data/byte_source") {
TEST_CASE("a file comes back byte for byte") {
    scratch dir;
    std::string text;
    for (int i = 0; i < 100'000; ++i) text.push_back(static_cast<char>(i * 7));
    const std::string path = dir.file("a", text);

    const std::vector<std::byte> bytes = trireme::plain_file{}.load(path);

    REQUIRE(bytes.size() == text.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) REQUIRE(bytes[i] == static_cast<std::byte>(text[i]));
    CHECK(trireme::plain_file{}.load(dir.file("empty", "")).empty());
}
TEST_CASE("a file that is not there is a system error with its path and reason") {
    scratch dir;

    const std::string text = refusal(dir.path + "/missing");

    CHECK(has(text, "cannot open " + dir.path + "/missing"));
    CHECK(has(text, "No such file"));
    CHECK_THROWS_AS(trireme::plain_file{}.load(dir.path + "/missing"), trireme::system_error);
}
TEST_CASE("a directory or a pipe is refused, and opening the pipe does not wait for a writer") {
    scratch dir;
    dir.files.push_back(dir.path + "/pipe");
    REQUIRE(::mkfifo(dir.files.back().c_str(), 0600) == 0);

    CHECK(has(refusal(dir.path), "not a regular file"));
    CHECK(has(refusal(dir.files.back()), "not a regular file"));
}
TEST_CASE("a file above the limit is refused with both sizes") {
    scratch dir;
    const std::string path = dir.file("a", std::string(1001, 'x'));

    CHECK(has(refusal(path, 1000), "has 1001 bytes, more than the limit of 1000"));
    CHECK(refusal(path, 1001).empty());
}
}  // TEST_SUITE("data/byte_source")
