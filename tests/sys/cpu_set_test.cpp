#include <trireme/sys/cpu_set.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using trireme::cpu_set;
using trireme::shard;

namespace {
std::vector<unsigned> members(const cpu_set& s) { return {s.begin(), s.end()}; }
std::string complaint(const char* list) {
    try {
        static_cast<void>(cpu_set::parse(list));
    } catch (const trireme::usage_error& e) { return e.what(); }
    return "accepted";
}
}  // namespace

TEST_SUITE("sys/cpu_set") {
TEST_CASE("a list of numbers, ranges and ranges with a step is read") {
    CHECK(members(cpu_set::parse("0")) == std::vector<unsigned>{0});
    CHECK(members(cpu_set::parse("0-3,8,10-14:2")) == std::vector<unsigned>{0, 1, 2, 3, 8, 10, 12, 14});
    CHECK(members(cpu_set::parse("3,1,1-2")) == std::vector<unsigned>{1, 2, 3});
    CHECK(members(cpu_set::parse("5-6:7")) == std::vector<unsigned>{5});
    CHECK(members(cpu_set::parse("0-65535:65535")) == std::vector<unsigned>{0, 65535});
}
TEST_CASE("blanks and the newline of a system file do not matter, and nothing is the empty set") {
    CHECK(cpu_set::parse(" 1 , 2-3\n") == cpu_set{1, 2, 3});
    CHECK(cpu_set::parse("").empty());
    CHECK(cpu_set::parse("\n").empty());
}
TEST_CASE("a list that cannot be read is refused with the position and the text") {
    CHECK(complaint("1,x").find("\"1,x\" cannot be read: a CPU number is expected at position 3") !=
          std::string::npos);
    CHECK(complaint("0-").find("end of the range is expected at position 3") != std::string::npos);
    CHECK(complaint("3-1").find("ends before it begins at position 1") != std::string::npos);
    CHECK(complaint("0-1:0").find("step must be between 1 and 65535 at position 5") != std::string::npos);
    CHECK(complaint("0-4:").find("step is expected at position 5") != std::string::npos);
    CHECK(complaint("1,").find("a CPU number is expected at position 3") != std::string::npos);
    CHECK(complaint("1,,2").find("at position 3") != std::string::npos);
    CHECK(complaint("1 2").find("a comma is expected at position 3") != std::string::npos);
    CHECK(complaint("-1").find("at position 1") != std::string::npos);
    CHECK(complaint("1:2").find("a comma is expected at position 2") != std::string::npos);
}
TEST_CASE("a number too large for any machine is refused before it costs memory") {
    CHECK(complaint("0-4294967295").find("too large at position 3") != std::string::npos);
    CHECK(complaint("99999999999999999999").find("too large at position 1") != std::string::npos);
    CHECK_THROWS_AS(cpu_set{70000}, trireme::usage_error);
}
TEST_CASE("a set prints as the shortest list, and that list reads back as the set") {
    CHECK(cpu_set{}.text().empty());
    CHECK(cpu_set{3}.text() == "3");
    CHECK(cpu_set{0, 1}.text() == "0-1");
    CHECK(cpu_set{0, 2, 3, 4, 200}.text() == "0,2-4,200");
    for (const char* list : {"0-31,128-159", "5", "63-64", "0,63-64,127-128"})
        CHECK(cpu_set::parse(list).text() == list);
}
TEST_CASE("sets are equal by content, whatever they held before") {
    cpu_set s{1, 500};
    s.erase(500);
    s.erase(9000);

    CHECK(s == cpu_set{1});
    CHECK(s.count() == 1);
}
TEST_CASE("union, intersection and difference work over different lengths") {
    const cpu_set low = cpu_set::span(0, 3), high{2, 3, 300};

    CHECK((low | high) == cpu_set{0, 1, 2, 3, 300});
    CHECK((low & high) == cpu_set{2, 3});
    CHECK((high & low) == cpu_set{2, 3});
    CHECK((high - low) == cpu_set{300});
    CHECK((low - high) == cpu_set{0, 1});
    CHECK((low & cpu_set{9}).empty());
    CHECK((low | high).contains(high));
    CHECK_FALSE(low.contains(high));
    CHECK(low.contains(3));
    CHECK_FALSE(low.contains(300));
}
TEST_CASE("members are counted, found by place and visited in order") {
    const auto s = cpu_set::parse("7,64,65,1000");

    CHECK(s.count() == 4);
    CHECK(s.first() == 7);
    CHECK(s.nth(0) == 7);
    CHECK(s.nth(3) == 1000);
    CHECK(members(s) == std::vector<unsigned>{7, 64, 65, 1000});
    CHECK(members(cpu_set{}).empty());
}
TEST_CASE("ranks that divide a set get every CPU once, in contiguous parts that differ by at most one") {
    for (const char* list : {"0-6", "3,5,9", "0-31,128-159", "1"})
        for (std::uint32_t ranks = 1; ranks <= cpu_set::parse(list).count(); ++ranks) {
            const auto whole = cpu_set::parse(list);
            cpu_set seen;
            for (std::uint32_t r = 0; r < ranks; ++r) {
                const auto part = whole.share(shard{r, ranks});
                CHECK((seen & part).empty());
                CHECK((part.count() == whole.count() / ranks || part.count() == whole.count() / ranks + 1));
                seen = seen | part;
            }
            CHECK(seen == whole);
        }
}
TEST_CASE("more ranks than CPUs get one CPU each, in turn") {
    const auto two = cpu_set{4, 6};
    CHECK(two.share(shard{0, 3}) == cpu_set{4});
    CHECK(two.share(shard{1, 3}) == cpu_set{6});
    CHECK(two.share(shard{2, 3}) == cpu_set{4});
    CHECK(cpu_set{}.share(shard{0, 3}).empty());
}
TEST_CASE("a set survives the way to the kernel's mask and back, beyond 1024 CPUs too") {
    const auto s = cpu_set::parse("0,63,1023,1024,4095");
    auto mask = s.to_sched();

    CHECK(CPU_ISSET_S(4095, mask.bytes(), mask.get()));
    CHECK_FALSE(CPU_ISSET_S(1, mask.bytes(), mask.get()));
    CHECK(cpu_set::from_sched(mask) == s);
    CHECK(cpu_set{}.to_sched().bytes() == sizeof(::cpu_set_t));
}
}  // TEST_SUITE("sys/cpu_set")
