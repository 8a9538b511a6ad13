#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <trireme/dist/launch.hpp>
#include <trireme/dist/shm_transport.hpp>

#include "support/rank_processes.hpp"

using namespace std::chrono_literals;
using trireme::ranks;
using trireme::world;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// What goes to standard error meanwhile.
class captured_stderr {
  public:
    captured_stderr() : file_(std::tmpfile()), before_(::dup(2)) { ::dup2(::fileno(file_), 2); }
    captured_stderr(const captured_stderr&) = delete;
    ~captured_stderr() {
        static_cast<void>(text());
        std::fclose(file_);
    }
    std::string text() {
        if (before_ >= 0) {
            std::fflush(stderr);
            ::dup2(before_, 2);
            ::close(before_);
            before_ = -1;
            std::string all(1 << 16, '\0');
            const auto n = ::pread(::fileno(file_), all.data(), all.size(), 0);
            all.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
            text_ = all;
        }
        return text_;
    }

  private:
    std::FILE* file_;
    int before_;
    std::string text_;
};

struct outcome {
    std::atomic<int> told[8];
    trireme::fixed_text<600> text[8];
    std::atomic<int> pid[8];
};

/// Loops over sums until something happens, or for `rounds`; writes down what this rank was told.
void sum_for_ever(world& w, outcome& o, std::size_t elements, int rounds = 2'000'000'000) {
    o.pid[w.rank()] = ::getpid();
    try {
        trireme::shm_transport t{w, {.timeout = 60s}};
        const auto data = t.allocate<float>(elements);
        for (int k = 0;; ++k) {
            if (k == rounds) throw std::runtime_error("disk gone on shelf 9");
            for (float& x : data) x = 1.0F;
            t.all_reduce(data, trireme::reduce::sum);
            for (const float x : data)
                if (x != static_cast<float>(w.size())) o.told[w.rank()] = 99;  // a wrong sum, as if it were right
        }
    } catch (const trireme::error& e) {
        o.text[w.rank()].assign(e.what());
        if (o.told[w.rank()] == 0) o.told[w.rank()] = static_cast<int>(e.kind());
        throw;
    }
}

constexpr int peer = static_cast<int>(trireme::errc::peer);

}  // namespace

TEST_SUITE("dist/launch") {
TEST_CASE("every rank runs the function, and the status is 0") {
    const test::footprint before;
    test::shared_page<outcome> page;

    const int status = trireme::launch(ranks{3}, [&](world& w) {
        page->pid[w.rank()] = ::getpid();
        page->told[w.rank()] = static_cast<int>(w.sum(1));
    });

    CHECK(status == 0);
    for (int r = 0; r < 3; ++r) {
        CHECK(page->told[r] == 3);
        CHECK(page->pid[r] != ::getpid());
    }
    CHECK(test::back_to(before));
}
TEST_CASE("the status of the function is the status of the job, and its rank is named") {
    captured_stderr errors;

    const int status = trireme::launch(ranks{3}, [](world& w) { return w.rank() == 1 ? 7 : 0; });

    CHECK(status == 7);
    CHECK(has(errors.text(), "rank 1 (pid "));
    CHECK(has(errors.text(), "exited with status 7"));
    CHECK_FALSE(has(errors.text(), "rank 0 (pid "));
}
TEST_CASE("a rank that is killed gives 137, survivors are told who and how, and leave with 75") {
    captured_stderr errors;
    test::shared_page<outcome> page;
    const test::footprint before;

    const int status = trireme::launch(ranks{3}, [&](world& w) {
        if (w.rank() == 1) std::thread([] { ::usleep(100'000), ::raise(SIGKILL); }).detach();
        sum_for_ever(w, *page, 1000);
    });

    CHECK(status == 137);
    CHECK(test::back_to(before));
    for (const int r : {0, 2}) {
        CHECK(page->told[r] == peer);
        CHECK(has(std::string(page->text[r].view()),
                  "rank 1 (pid " + std::to_string(page->pid[1]) + ") was killed by signal 9 (SIGKILL)"));
    }
    const std::string said = errors.text();
    CHECK(has(said, "trireme: launch: rank 1 (pid " + std::to_string(page->pid[1]) +
                        ") was killed by signal 9 (SIGKILL)"));
    for (const int r : {0, 2})
        CHECK(has(said, "rank " + std::to_string(r) + " (pid " + std::to_string(page->pid[r]) +
                            ") left with status 75 because another rank failed"));
    CHECK(said.find("launch: rank 1") < said.find("launch: rank 0"));
    CHECK(said.find("launch: rank 1") < said.find("launch: rank 2"));
}
TEST_CASE("a rank that dies of a wild pointer is named with its signal") {
    captured_stderr errors;
    test::shared_page<outcome> page;

    const int status = trireme::launch(ranks{3}, [&](world& w) {
        if (w.rank() == 2) {
            ::signal(SIGSEGV, SIG_DFL);  // a sanitizer has put its own handler there
            ::raise(SIGSEGV);
        }
        sum_for_ever(w, *page, 100);
    });

    CHECK(status == 128 + SIGSEGV);
    CHECK(has(std::string(page->text[0].view()), "was killed by signal 11 (SIGSEGV)"));
}
TEST_CASE("ranks killed at random moments of sums are always named, and nothing is left") {
    captured_stderr errors;
    std::mt19937_64 random(test::seed());
    const test::footprint before;
    int wrong = 0;
    std::string last;
    for (int round = 0; round < test::rounds(30, 200); ++round) {
        test::shared_page<outcome> page;
        const auto victim = static_cast<std::uint32_t>(random() % 3);
        const auto delay = std::chrono::microseconds(random() % 30'000);
        const std::size_t elements = round % 3 == 0 ? 10 : round % 3 == 1 ? 5000 : 262'144;

        const int status = trireme::launch(ranks{3}, [&](world& w) {
            if (w.rank() == victim)
                std::thread([delay] {
                    std::this_thread::sleep_for(delay);
                    ::raise(SIGKILL);
                }).detach();
            sum_for_ever(w, *page, elements);
        });

        wrong += status != 137;
        for (std::uint32_t r = 0; r < 3; ++r) {
            if (r == victim) continue;
            const std::string text(page->text[r].view());
            const bool named = has(text, "rank " + std::to_string(victim) + " (pid ") && has(text, "SIGKILL");
            if (page->told[r] != peer || !named) ++wrong, last = std::to_string(page->told[r]) + ": " + text;
        }
    }

    CHECK_MESSAGE(wrong == 0, last);
    CHECK(test::back_to(before));
}
TEST_CASE("a rank that exits before its first collective is named") {
    captured_stderr errors;
    test::shared_page<outcome> page;

    const int status = trireme::launch(ranks{3}, [&](world& w) {
        if (w.rank() == 1) ::_exit(0);
        sum_for_ever(w, *page, 1000);
    });

    CHECK(status == 75);
    for (const int r : {0, 2}) {
        const std::string text(page->text[r].view());
        CHECK(page->told[r] == peer);
        CHECK(has(text, "rank 1 (pid "));
        CHECK(has(text, "exited with status 0"));
    }
}
TEST_CASE("what a rank threw reaches the others as text, and its own status is 1") {
    captured_stderr errors;
    test::shared_page<outcome> page;

    const int status = trireme::launch(
        ranks{3}, [&](world& w) { sum_for_ever(w, *page, 1000, w.rank() == 1 ? 20 : 2'000'000'000); });

    CHECK(status == 1);
    for (const int r : {0, 2}) {
        CHECK(page->told[r] == static_cast<int>(trireme::errc::remote));
        CHECK(has(std::string(page->text[r].view()), "rank 1 failed: disk gone on shelf 9"));
    }
    CHECK(has(errors.text(), "trireme: rank 1 of 3 failed: disk gone on shelf 9"));
    CHECK(has(errors.text(), "launch: rank 1 (pid "));
    CHECK(has(errors.text(), "left with status 75"));
}
TEST_CASE("an exception that is no std::exception is an end like any other") {
    captured_stderr errors;

    CHECK(trireme::launch(ranks{2}, [](world& w) {
              if (w.rank() == 0) throw 42;
              w.barrier();
          }) == 1);
    CHECK(has(errors.text(), "an exception that is not a std::exception"));
}
TEST_CASE("ranks that do not go by themselves are ended, and not blamed") {
    captured_stderr errors;
    const test::footprint before;

    const int status = trireme::launch(ranks{3},
                                       [](world& w) {
                                           if (w.rank() == 1) {
                                               std::printf("boom-7\n");
                                               std::fflush(stdout);
                                               ::_exit(7);
                                           }
                                           ::signal(SIGTERM, SIG_IGN);
                                           for (;;) ::pause();
                                       },
                                       {.speak = 100ms, .grace = 200ms});

    CHECK(status == 7);
    CHECK(test::back_to(before));
    const std::string said = errors.text();
    CHECK(has(said, "launch: rank 1 (pid "));
    CHECK(has(said, "did not leave by itself after another rank failed, and was killed by signal 9 (SIGKILL)"));
    CHECK(said.find("exited with status 7") < said.find("did not leave by itself"));
}
TEST_CASE("ranks die with the process that launched them") {
    test::shared_page<outcome> page;
    auto launching = trireme::fork_child(
        "test",
        [&] {
            return trireme::launch(ranks{2}, [&](world& w) {
                page->pid[w.rank()] = ::getpid();
                w.barrier();
                page->told[w.rank()] = 1;
                for (;;) ::pause();
            });
        },
        test::within(10s));
    const auto until = test::within(20s);
    while ((page->told[0] == 0 || page->told[1] == 0) && !until.passed()) ::usleep(1000);
    REQUIRE(page->told[1] == 1);

    launching.send(SIGKILL);
    static_cast<void>(launching.wait(test::within(10s)));

    const auto gone = test::within(10s);
    while ((test::alive(page->pid[0]) || test::alive(page->pid[1])) && !gone.passed()) ::usleep(1000);
    CHECK_FALSE(test::alive(page->pid[0]));
    CHECK_FALSE(test::alive(page->pid[1]));
}
TEST_CASE(
    "OMP_NUM_THREADS is set in the ranks when it is unset, with a line that says so, and left when it is set") {
    ::unsetenv("OMP_NUM_THREADS");
    const auto variable = [](world&) {
        const char* t = std::getenv("OMP_NUM_THREADS");
        return std::string(t != nullptr ? t : "unset");
    };
    std::vector<std::string> unset, set, single;
    std::string line;
    {
        captured_stderr errors;
        unset = test::on_worlds(3, variable);
        line = errors.text();
    }
    {
        captured_stderr errors;
        single = test::on_worlds(1, variable);
        CHECK(errors.text().empty());
    }
    ::setenv("OMP_NUM_THREADS", "4", 1);
    {
        captured_stderr errors;
        set = test::on_worlds(2, variable);
        CHECK(errors.text().empty());
    }
    ::unsetenv("OMP_NUM_THREADS");

    const std::string each = std::to_string((std::max)(1U, trireme::detail::usable_cpus() / 3));
    CHECK(unset == std::vector<std::string>(3, each));
    CHECK(has(line, "OMP_NUM_THREADS=" + each + " for each of 3 ranks"));
    CHECK(single[0] == "unset");
    CHECK(set == std::vector<std::string>(2, "4"));
    CHECK(std::getenv("OMP_NUM_THREADS") == nullptr);
}
TEST_CASE("launch joins a job that is there already") {
    const char* const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    test::shared_page<outcome> page;
    std::vector<trireme::child> job;
    for (const char* rank : {"0", "1"})
        job.push_back(trireme::fork_child(
            "test",
            [&, rank] {
                const char* const values[] = {rank, "2", "localhost", "29523"};
                for (int i = 0; i < 4; ++i) ::setenv(names[i], values[i], 1);
                return trireme::launch(ranks{5}, [&](world& w) {
                    page->told[w.rank()] = static_cast<int>(w.size());
                    page->pid[w.rank()] = ::getpid();
                    return w.sum(1) == 2 ? 0 : 9;
                });
            },
            test::within(10s)));

    for (auto& c : job) CHECK(c.wait(test::within(30s)) == trireme::exit_status{0, 0});
    for (int r = 0; r < 2; ++r) {
        CHECK(page->told[r] == 2);
        CHECK(page->pid[r] == job[static_cast<std::size_t>(r)].pid());
    }
}
TEST_CASE("no ranks, foreign threads and a second world in a rank are refused") {
    CHECK_THROWS_AS(trireme::launch(ranks{0}, [](world&) {}), trireme::usage_error);

    std::atomic<bool> stop{false};
    std::thread stranger([&] {
        while (!stop) ::usleep(1000);
    });
    const test::footprint before;
    CHECK_THROWS_WITH_AS(trireme::launch(ranks{2}, [](world&) {}), doctest::Contains("launch cannot fork here"),
                         trireme::usage_error);
    CHECK(test::back_to(before));
    stop = true;
    stranger.join();

    const auto said = test::on_worlds(2, [](world&) {
        world second;
        return std::string("accepted");
    });
    REQUIRE(said.size() == 2);
    CHECK(has(said[1], "this process is rank 1 of 2 already"));
}
}  // TEST_SUITE("dist/launch")
