#include <trireme/sys/wait.hpp>

#include "../conformance/wait_policy_suite.hpp"

using namespace trireme;
using namespace std::chrono_literals;

TEST_SUITE("sys/wait") {
TEST_CASE("wait::spin conforms") { conformance::wait_policy_suite(wait::spin{}); }
TEST_CASE("wait::futex that parks at once conforms") { conformance::wait_policy_suite(wait::futex{}); }
TEST_CASE("wait::futex that spins first conforms") { conformance::wait_policy_suite(wait::futex{50us}); }
TEST_CASE("a number is not a wait policy") { CHECK_FALSE(wait_policy<int>); }
}  // TEST_SUITE("sys/wait")
