#include <trireme/core/error.hpp>

#include <cerrno>
#include <ostream>
#include <string>

#include <doctest/doctest.h>

namespace {

trireme::message reserve_failed() {
    return {"cannot reserve 4.0 GiB for the batch ring", "ring \"train\", rank 3", "fewer slots"};
}

std::string text_of_usage_error() {
    try {
        throw trireme::usage_error{reserve_failed()};
    } catch (const std::exception& e) { return e.what(); }
}

}  // namespace

TEST_SUITE("core/error") {
TEST_CASE("a message has three parts, each on its line: what, where, try") {
    const std::string text = text_of_usage_error();

    CHECK(
        text.starts_with("trireme: cannot reserve 4.0 GiB for the batch ring\n"
                         "  where  ring \"train\", rank 3 ("));
    CHECK(text.ends_with(")\n  try    fewer slots"));
}

TEST_CASE("the where part ends with the file and line that threw") {
    const unsigned line = __LINE__ + 1;
    const trireme::timeout_error e{reserve_failed()};

    CHECK(std::string(e.what()).find("error_test.cpp:" + std::to_string(line) + ")") != std::string::npos);
    CHECK(e.where().line == line);
}

TEST_CASE("a place inside the headers is printed from the floor on, whatever folder they lie in") {
    CHECK(trireme::detail::short_file("/usr/include/trireme/shm/ring.hpp") == std::string("shm/ring.hpp"));
    CHECK(trireme::detail::short_file("/home/trireme/include/trireme/sys/fd.hpp") == std::string("sys/fd.hpp"));
    CHECK(trireme::detail::short_file("/home/user/train.cpp") == std::string("train.cpp"));
    CHECK(trireme::detail::short_file("train.cpp") == std::string("train.cpp"));
}

TEST_CASE("a message without a hint has no try line, and one without a where still names the file") {
    const trireme::usage_error e{{"what", "", ""}};

    const std::string text = e.what();

    CHECK(text.starts_with("trireme: what\n  where  ("));
    CHECK(text.find("try") == std::string::npos);
}

TEST_CASE("every kind has its own type and code, and all of them are trireme::error") {
    const trireme::usage_error usage{reserve_failed()};
    const trireme::timeout_error timeout{reserve_failed()};
    const trireme::peer_error peer{reserve_failed()};
    const trireme::remote_error remote{reserve_failed()};
    const trireme::mismatch_error mismatch{reserve_failed()};

    CHECK(usage.kind() == trireme::errc::usage);
    CHECK(timeout.kind() == trireme::errc::timeout);
    CHECK(peer.kind() == trireme::errc::peer);
    CHECK(remote.kind() == trireme::errc::remote);
    CHECK(mismatch.kind() == trireme::errc::mismatch);
    for (const trireme::error* e :
         std::initializer_list<const trireme::error*>{&usage, &timeout, &peer, &remote, &mismatch}) {
        CHECK(e->code().category() == trireme::error_category());
        CHECK(e->code().value() == static_cast<int>(e->kind()));
        CHECK(e->code().message() != "unknown");
        CHECK(e->parts().hint == "fewer slots");
    }
}

TEST_CASE("a system error carries errno as its code and its text in the first line") {
    const trireme::system_error e{{"cannot open the socket", "rank 1", "raise ulimit -n"}, EMFILE};

    CHECK(e.kind() == trireme::errc::system);
    CHECK(e.code() == std::errc::too_many_files_open);
    CHECK(e.parts().what == "cannot open the socket: Too many open files (errno " + std::to_string(EMFILE) + ")");
    CHECK(std::string(e.what()).starts_with("trireme: " + e.parts().what + "\n"));
}

TEST_CASE("an unknown code of ours has a message and does not crash") {
    CHECK(trireme::error_category().message(0) == "unknown");
    CHECK(trireme::error_category().message(99) == "unknown");
    CHECK(trireme::error_category().name() == std::string("trireme"));
}
}  // TEST_SUITE("core/error")
