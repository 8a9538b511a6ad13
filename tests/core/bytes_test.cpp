#include <trireme/core/bytes.hpp>

#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

using namespace trireme::literals;

TEST_SUITE("core/bytes") {
TEST_CASE("literals are binary units") {
    static_assert(1_KiB == 1024);
    static_assert(25_MiB == 25U * 1024 * 1024);
    static_assert(4_GiB == std::size_t{4} << 30);
}

TEST_CASE("a size is printed in the largest unit that leaves at least one") {
    CHECK(trireme::format_bytes(0) == "0 B");
    CHECK(trireme::format_bytes(512) == "512 B");
    CHECK(trireme::format_bytes(1023) == "1023 B");
    CHECK(trireme::format_bytes(1_KiB) == "1.0 KiB");
    CHECK(trireme::format_bytes(1_MiB + 512_KiB) == "1.5 MiB");
    CHECK(trireme::format_bytes(256_MiB) == "256 MiB");
    CHECK(trireme::format_bytes(4_GiB) == "4.0 GiB");
    CHECK(trireme::format_bytes((std::numeric_limits<std::uint64_t>::max)()) == "16.0 EiB");
}

TEST_CASE("aligning rounds up, and leaves multiples alone") {
    static_assert(trireme::align_up(0, 64) == 0);
    static_assert(trireme::align_up(1, 64) == 64);
    static_assert(trireme::align_up(64, 64) == 64);
    static_assert(trireme::align_up(65, 64) == 128);
    static_assert(trireme::align_up(4097, trireme::page_bytes) == 2 * trireme::page_bytes);
}
}  // TEST_SUITE("core/bytes")
