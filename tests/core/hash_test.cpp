#include <trireme/core/hash.hpp>

#include <cstdint>

#include <doctest/doctest.h>

using trireme::hasher;

TEST_SUITE("core/hash") {
// The values were computed by a separate program. They are part of the format: two processes, or a checkpoint
// and the program that reads it, compare hashes. A change of any of them is a change of version.
TEST_CASE("the hash of a value is the same on every machine and in every version") {
    static_assert(trireme::mix64(1) == 0xb456bcfc34c2cb2cU);
    static_assert(hasher{}.value() == 0xbd0ed0d08a42a70cU);
    static_assert(hasher{}.add(std::uint64_t{42}).value() == 0x49fb2bf11b27aaa0U);
    static_assert(hasher{}.add("image").add(28).value() == 0x8e46fb446a34e1dbU);
}

TEST_CASE("order, borders between texts, and zeros count") {
    CHECK(hasher{}.add(1).add(2).value() != hasher{}.add(2).add(1).value());
    CHECK(hasher{}.add("ab").add("c").value() != hasher{}.add("a").add("bc").value());
    CHECK(hasher{}.add("").value() != hasher{}.value());
    CHECK(hasher{}.add(0).value() != hasher{}.value());
    CHECK(hasher{}.add(0).add(0).value() != hasher{}.add(0).value());
}

TEST_CASE("every bit of the input reaches about half of the output bits") {
    for (unsigned bit = 0; bit < 64; ++bit) {
        const auto flipped =
            hasher{}.add(1).value() ^ hasher {}.add(std::uint64_t{1} ^ (std::uint64_t{1} << bit)).value();

        CHECK(__builtin_popcountll(flipped) > 10);
    }
}
}  // TEST_SUITE("core/hash")
