#include <trireme/core/fixed_string.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

namespace {
template <trireme::fixed_string Name>
struct named {
    static constexpr std::string_view name = Name.view();
};
}  // namespace

TEST_SUITE("core/fixed_string") {
TEST_CASE("a literal is a template argument, and equal text gives the same type") {
    static_assert(named<"image">::name == "image");
    static_assert(std::is_same_v<named<"image">, named<"image">>);
    static_assert(!std::is_same_v<named<"image">, named<"label">>);
    static_assert(trireme::fixed_string{"a"} == trireme::fixed_string{"a"});
    static_assert(!(trireme::fixed_string{"a"} == trireme::fixed_string{"ab"}));
}

TEST_CASE("text that fits is kept whole") {
    trireme::fixed_text<8> t;

    t.assign("12345678");

    CHECK(t.view() == "12345678");
    CHECK_FALSE(t.truncated());
    CHECK(t.full_length() == 8);
}

TEST_CASE("text that does not fit is cut at the capacity and says how long it was") {
    trireme::fixed_text<8> t;

    t.assign("123456789");

    CHECK(t.view() == "12345678");
    CHECK(t.truncated());
    CHECK(t.full_length() == 9);
}

TEST_CASE("a shorter text replaces a longer one and clears the mark") {
    trireme::fixed_text<8> t;
    t.assign("a much too long text");

    t.assign("ok");

    CHECK(t.view() == "ok");
    CHECK_FALSE(t.truncated());
    t.clear();
    CHECK(t.empty());
    CHECK(t.view().empty());
}

TEST_CASE("zero bytes inside the text are kept") {
    trireme::fixed_text<8> t;

    t.assign(std::string_view{"a\0b", 3});

    CHECK(t.view() == std::string_view{"a\0b", 3});
}

TEST_CASE("the view stays inside the struct, whatever bytes a dying process left there") {
    using text = trireme::fixed_text<8>;
    static_assert(std::is_trivially_copyable_v<text> && std::is_standard_layout_v<text>);
    text t;

    std::memset(static_cast<void*>(&t), 0xff, sizeof t);

    CHECK(t.view().size() == 8);
}
}  // TEST_SUITE("core/fixed_string")
