#include <doctest/doctest.h>

#include <map>
#include <string>

#include <unistd.h>

#include <trireme/dist/environment.hpp>

namespace {

using variables = std::map<std::string, std::string>;

std::optional<trireme::environment> read(const variables& v) {
    return trireme::detail::read_environment([&](const char* name) -> const char* {
        const auto at = v.find(name);
        return at == v.end() ? nullptr : at->second.c_str();
    });
}
variables good() {
    return {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
}
variables with(const std::string& name, const std::string& text) {
    variables v = good();
    v[name] = text;
    return v;
}
variables without(const std::string& name) {
    variables v = good();
    v.erase(name);
    return v;
}
std::string refusal(const variables& v) {
    try {
        static_cast<void>(read(v));
    } catch (const trireme::usage_error& e) { return e.what(); }
    return "accepted";
}

}  // namespace

TEST_SUITE("dist/environment") {
TEST_CASE("what torchrun sets is read") {
    variables v = good();
    v["LOCAL_RANK"] = "1";
    v["LOCAL_WORLD_SIZE"] = "2";

    const auto e = read(v).value();

    CHECK(e.rank == 1);
    CHECK(e.size == 2);
    CHECK(e.local_rank == 1);
    CHECK(e.local_size == 2);
    CHECK(e.meeting() == "127.0.0.1 port 29500");
}
TEST_CASE("without RANK and WORLD_SIZE nobody has launched us") {
    CHECK_FALSE(read({}));
    CHECK_FALSE(read({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}}));
}
TEST_CASE("a variable that is missing is named") {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
        CHECK(refusal(without(name)).find(std::string("the environment variable ") + name + " is not set") !=
              std::string::npos);
}
TEST_CASE("a variable that is wrong is named with its text") {
    const std::pair<const char*, const char*> wrong[] = {{"MASTER_PORT", "abc"},
                                                         {"MASTER_PORT", "70000"},
                                                         {"MASTER_PORT", "0"},
                                                         {"RANK", "2"},
                                                         {"RANK", "-1"},
                                                         {"RANK", "1x"},
                                                         {"RANK", ""},
                                                         {"WORLD_SIZE", "0"},
                                                         {"WORLD_SIZE", "two"},
                                                         {"LOCAL_RANK", "7"},
                                                         {"LOCAL_WORLD_SIZE", "1"},
                                                         {"MASTER_ADDR", "no-such-host.invalid"},
                                                         {"MASTER_ADDR", "192.0.2.1"}};
    for (const auto& [name, text] : wrong) {
        const std::string said = refusal(with(name, text));
        CAPTURE(said);
        CHECK(said.find(std::string("the environment variable ") + name + "=" + text) != std::string::npos);
    }
}
TEST_CASE("a folder for the meeting makes address and port unnecessary") {
    const auto e = read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TRIREME_STORE", "/tmp/job7"}}).value();

    CHECK(e.store == "/tmp/job7");
    CHECK(e.meeting() == "the folder /tmp/job7");
}
TEST_CASE("a job of one needs neither") {
    const auto e = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).value();

    CHECK(e.size == 1);
}
TEST_CASE("this host is known by its numbers and its name, without a name server") {
    char own[256]{};
    REQUIRE(::gethostname(own, sizeof own - 1) == 0);

    CHECK(trireme::detail::is_this_host("localhost"));
    CHECK(trireme::detail::is_this_host("127.0.0.1"));
    CHECK(trireme::detail::is_this_host(own));
    CHECK_FALSE(trireme::detail::is_this_host("no-such-host.invalid"));
    CHECK_FALSE(trireme::detail::is_this_host("192.0.2.1"));
}
}  // TEST_SUITE("dist/environment")
