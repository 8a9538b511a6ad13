#include <trireme/sys/affinity.hpp>

#include <doctest/doctest.h>

#include <string>
#include <thread>

using namespace trireme;

TEST_SUITE("sys/affinity") {
TEST_CASE("a thread that binds itself is bound, and is told what holds") {
    const auto all = process_cpus();
    for (const unsigned cpu : all) {
        binding got;
        cpu_set seen;
        std::thread([&] {
            got = bind_this_thread(cpu_set{cpu});
            seen = thread_cpus();
        }).join();

        CHECK(got.exact());
        CHECK(got.why.empty());
        CHECK(seen == cpu_set{cpu});
    }
    CHECK(thread_cpus() == all);
}
TEST_CASE("the process's CPUs are those seen first, whatever a thread binds later") {
    const auto before = process_cpus();
    cpu_set inside;
    std::thread([&] {
        bind_this_thread(cpu_set{before.first()});
        inside = process_cpus();
    }).join();

    CHECK(inside == before);
    CHECK_FALSE(before.empty());
}
TEST_CASE("a CPU that the process may not use is an error naming it and the allowed ones") {
    const auto allowed = process_cpus();
    const unsigned absent = 4000;
    std::string text;
    try {
        bind_this_thread(allowed | cpu_set{absent});
    } catch (const usage_error& e) { text = e.what(); }

    CHECK(text.find("cannot bind to CPU 4000: this process may use CPUs {" + allowed.text() + "} only") !=
          std::string::npos);
    CHECK(thread_cpus() == allowed);
    CHECK_THROWS_AS(bind_this_thread(cpu_set{}), usage_error);
}
TEST_CASE("a request that the system refuses is reported and not believed") {
    binding got;
    std::thread([&] { got = detail::try_bind_this_thread(cpu_set{4000}); }).join();

    CHECK_FALSE(got.exact());
    CHECK(got.holds == process_cpus());
    CHECK(got.why.find("sched_setaffinity refused {4000}") != std::string::npos);
}
TEST_CASE("a request that the system fulfils in part says which part") {
    const auto one = cpu_set{process_cpus().first()};
    binding got;
    std::thread([&] { got = detail::try_bind_this_thread(one | cpu_set{4000}); }).join();

    CHECK(got.holds == one);
    CHECK(got.why.find("left only {" + one.text() + "} of") != std::string::npos);
}
}  // TEST_SUITE("sys/affinity")
