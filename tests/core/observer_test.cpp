#include <trireme/core/observer.hpp>

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace {

struct keeper {
    std::vector<std::string>* heard;
    void operator()(const trireme::event& e) const noexcept {
        heard->push_back(std::string(e.source) + ": " + e.text);
    }
};
struct throws {
    void operator()(const trireme::event&) const {}
};
struct deaf {};

}  // namespace

TEST_SUITE("core/observer") {
TEST_CASE("a callable that takes an event and cannot throw is an observer") {
    static_assert(trireme::observer<keeper>);
    static_assert(!trireme::observer<throws>);
    static_assert(!trireme::observer<deaf>);
    static_assert(!trireme::observer<int>);
    std::vector<std::string> heard;

    keeper{&heard}({trireme::severity::warning, "loader", "worker 1 was respawned"});

    CHECK(heard == std::vector<std::string>{"loader: worker 1 was respawned"});
}
}  // TEST_SUITE("core/observer")
