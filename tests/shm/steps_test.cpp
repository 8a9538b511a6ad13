#include <trireme/shm/steps.hpp>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace {

/// The enumerators of `step`, read from the header's text: the table of names must not be able to lag behind.
std::vector<std::string> enumerators() {
    std::ifstream file{TRIREME_TESTS_DIR "/../include/trireme/shm/steps.hpp"};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    const auto begin = text.find("enum class step");
    const auto end = text.find("};", begin);
    std::vector<std::string> names;
    std::istringstream lines{text.substr(begin, end - begin)};
    for (std::string line; std::getline(lines, line);) {  // "    worker_claimed,  ///< CAS OPEN(k) -> FILLING(me)"
        const auto first = line.find_first_not_of(' ');
        const auto comma = line.find(',');
        if (first == std::string::npos || line[first] == '/' || comma == std::string::npos) continue;
        names.push_back(line.substr(first, comma - first));
    }
    return names;
}

}  // namespace

TEST_SUITE("shm/steps") {
TEST_CASE("the names are the enumerators, in their order") {
    const auto written = enumerators();

    REQUIRE(written.size() == trireme::step_names.size());
    for (std::size_t i = 0; i < written.size(); ++i) {
        CHECK(written[i] == trireme::step_names[i]);
        CHECK(trireme::name_of(static_cast<trireme::step>(i)) == written[i]);
    }
}

TEST_CASE("every name says who takes the step, and no two are alike") {
    std::set<std::string> seen;

    for (const auto name : trireme::step_names) {
        CHECK((name.starts_with("worker_") || name.starts_with("reaper_") || name.starts_with("consumer_")));
        CHECK(seen.insert(std::string(name)).second);
    }
}

TEST_CASE("a hook that may throw is no hook") {
    struct throws {
        void at(trireme::step) const {}
    };
    static_assert(!trireme::step_hook<throws>);
    static_assert(trireme::step_hook<trireme::no_steps>);
}
}  // TEST_SUITE("shm/steps")
