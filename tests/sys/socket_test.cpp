#include <trireme/sys/socket.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>

#include <sys/mman.h>

using namespace trireme;
using namespace std::chrono_literals;

namespace {
std::span<const std::byte> bytes_of(const char* s) { return std::as_bytes(std::span(s, std::strlen(s))); }
}  // namespace

TEST_SUITE("sys/socket") {
TEST_CASE("messages keep their borders") {
    auto [a, b] = socket_pair();
    std::array<std::byte, 64> buffer;
    std::size_t n = 0;

    CHECK(send_message(a.ref(), bytes_of("one"), deadline::in(1s)));
    CHECK(send_message(a.ref(), bytes_of("three"), deadline::in(1s)));

    CHECK(receive_message(b.ref(), buffer, n, deadline::in(1s)) == received::message);
    CHECK(n == 3);
    CHECK(receive_message(b.ref(), buffer, n, deadline::in(1s)) == received::message);
    CHECK(n == 5);
}

TEST_CASE("nothing until the deadline, the end of the connection, and a send to nobody are told apart") {
    auto [a, b] = socket_pair();
    std::array<std::byte, 64> buffer;
    std::size_t n = 0;

    CHECK(receive_message(b.ref(), buffer, n, deadline::in(5ms)) == received::nothing);
    a.reset();
    CHECK(receive_message(b.ref(), buffer, n, deadline::in(1s)) == received::closed);
    CHECK_FALSE(send_message(b.ref(), bytes_of("x"), deadline::in(1s)));  // and no SIGPIPE
}

TEST_CASE("a full connection ends at the deadline") {
    auto [a, b] = socket_pair();
    const std::string big(1000, 'x');

    int sent = 0;
    while (sent < 100'000 && send_message(a.ref(), bytes_of(big.c_str()), deadline::in(5ms))) ++sent;

    CHECK(sent > 0);
    CHECK(sent < 100'000);
}

TEST_CASE("a descriptor that is sent is the same file at the other end") {
    auto [a, b] = socket_pair();
    const fd file(::memfd_create("test", 0));
    CHECK(::write(file.get(), "hello", 5) == 5);
    std::array<std::byte, 8> buffer;
    std::size_t n = 0;
    std::vector<fd> got;

    CHECK(send_message(a.ref(), bytes_of("x"), std::array{file.get()}, deadline::in(1s)));
    CHECK(receive_message(b.ref(), buffer, n, got, deadline::in(1s)) == received::message);

    REQUIRE(got.size() == 1);
    char text[5];
    CHECK(::pread(got[0].get(), text, 5, 0) == 5);
    CHECK(std::memcmp(text, "hello", 5) == 0);
}

TEST_CASE("an abstract address is reached by its name, and is gone with its listener") {
    const std::string name = "trireme-test-" + std::to_string(::getpid());
    fd listener = listen_abstract(name);

    const fd client = connect_abstract(name);
    const fd server = accept_connection(listener.ref(), deadline::in(1s));

    CHECK(client.valid());
    CHECK(server.valid());
    CHECK(peer_pid(server.ref()) == ::getpid());
    CHECK_THROWS_AS(static_cast<void>(listen_abstract(name)), system_error);
    listener.reset();
    CHECK_FALSE(connect_abstract(name).valid());
}
}  // TEST_SUITE("sys/socket")
