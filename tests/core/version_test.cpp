#include <trireme/core/version.hpp>

#include <doctest/doctest.h>

TEST_SUITE("core/version") {
TEST_CASE("the macros and the constant say the same") {
    static_assert(trireme::version.major_part == TRIREME_VERSION_MAJOR);
    static_assert(trireme::version.minor_part == TRIREME_VERSION_MINOR);
    static_assert(trireme::version.patch_part == TRIREME_VERSION_PATCH);
}
}  // TEST_SUITE("core/version")
