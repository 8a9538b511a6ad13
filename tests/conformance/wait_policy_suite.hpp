// What every wait policy has to do; a new policy is one line in tests/sys/wait_test.cpp.
#pragma once

#include <trireme/sys/thread.hpp>
#include <trireme/sys/wait.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>

namespace conformance {

template <trireme::wait_policy Wait>
void wait_policy_suite(const Wait& wait) {
    using trireme::deadline;
    using namespace std::chrono_literals;

    SUBCASE("a word that differs already is returned at once, with the value it has") {
        std::atomic<std::uint32_t> word{7};
        CHECK(wait.until_different(word, 6, deadline::in(1h)) == 7);
    }
    SUBCASE("a deadline that has passed ends the wait with the value as it is") {
        std::atomic<std::uint32_t> word{7};
        CHECK(wait.until_different(word, 7, deadline::in(0ns)) == 7);
        CHECK(wait.until_different(word, 7, deadline::in(5ms)) == 7);
    }
    SUBCASE("a change from another thread is seen, with what was written before it") {
        for (int round = 0; round < 50; ++round) {
            std::atomic<std::uint32_t> word{0};
            int payload = 0;
            trireme::registered_thread writer("test-writer", [&] {
                if (round % 2 == 0) std::this_thread::sleep_for(200us);  // so that half of the rounds park
                payload = round + 1;
                word.store(1, std::memory_order_release);
                wait.wake_all(word);
            });
            std::uint32_t seen = 0;
            while ((seen = wait.until_different(word, 0, deadline::in(10s))) == 0) {}
            CHECK(seen == 1);
            CHECK(payload == round + 1);
        }
    }
    SUBCASE("every waiter is woken") {
        std::atomic<std::uint32_t> word{0}, awake{0};
        std::vector<trireme::registered_thread> waiters;
        for (int i = 0; i < 4; ++i) {
            waiters.emplace_back("test-waiter", [&] {
                while (wait.until_different(word, 0, deadline::in(10s)) == 0) {}
                awake.fetch_add(1);
            });
        }
        std::this_thread::sleep_for(2ms);
        word.store(1, std::memory_order_release);
        wait.wake_all(word);
        waiters.clear();
        CHECK(awake.load() == 4);
    }
}

}  // namespace conformance
