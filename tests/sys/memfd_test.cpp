#include <trireme/sys/memfd.hpp>

#include <trireme/shm/mapping.hpp>

#include <doctest/doctest.h>

#include <cstring>

#include <sys/mman.h>

using namespace trireme;

TEST_SUITE("sys/memfd") {
TEST_CASE("memory comes zeroed and of the size asked for") {
    const memfd file("test", 3 * page_bytes);
    const mapping view(file);

    CHECK(view.size() == 3 * page_bytes);
    for (std::size_t i = 0; i < view.size(); i += 512) CHECK(view.data()[i] == std::byte{0});
}

TEST_CASE("nobody can shrink or grow it afterwards") {
    const memfd file("test", page_bytes);

    CHECK(::ftruncate(file.descriptor().get(), 0) != 0);
    CHECK(::ftruncate(file.descriptor().get(), 1 << 20) != 0);
}

TEST_CASE("two views see the same bytes") {
    const memfd file("test", page_bytes);
    const mapping one(file), other(file);

    std::memcpy(one.data(), "hello", 5);

    CHECK(std::memcmp(other.data(), "hello", 5) == 0);
    CHECK(one.data() != other.data());
}

TEST_CASE("a part may be reserved later") {
    memfd file("test", std::size_t{1} << 36, page_bytes);  // 64 GiB of which one page is there

    file.commit(std::size_t{1} << 35, page_bytes);
    const mapping view(file);
    view.data()[std::size_t{1} << 35] = std::byte{1};

    CHECK(view.data()[std::size_t{1} << 35] == std::byte{1});
}

TEST_CASE("more than there is becomes an error with the bytes wanted, here and not as a signal later") {
    CHECK_THROWS_WITH_AS(memfd("test", std::size_t{1} << 62), doctest::Contains("4.0 EiB"), system_error);
}

TEST_CASE("warming keeps what is there") {
    const memfd file("test", 4 * page_bytes);
    const mapping view(file);
    view.data()[page_bytes] = std::byte{42};

    warm(view.data(), view.size());
    warm(view.data() + 100, 1);
    warm(view.data(), 0);

    CHECK(view.data()[page_bytes] == std::byte{42});
}
}  // TEST_SUITE("sys/memfd")
