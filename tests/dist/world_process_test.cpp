#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include <trireme/dist/shm_transport.hpp>
#include <trireme/dist/world.hpp>

#include "support/rank_processes.hpp"

using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct scratch {
    std::string path;
    scratch() {
        char name[] = "/tmp/trireme-world-XXXXXX";
        path = ::mkdtemp(name);
    }
    ~scratch() { fs::remove_all(path); }
    bool empty() const { return fs::directory_iterator(path) == fs::directory_iterator(); }
};

using variables = std::vector<std::pair<std::string, std::string>>;

/// Processes that are started one by one, as from a shell, each with its own variables.
class by_hand {
  public:
    template <class Body>
    void start(const variables& v, Body body) {
        auto* const text = &page_->text[children_.size()];
        children_.push_back(trireme::fork_child(
            "test",
            [&] {
                for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TRIREME_STORE"})
                    ::unsetenv(name);
                for (const auto& [name, value] : v) ::setenv(name.c_str(), value.c_str(), 1);
                try {
                    text->assign(body());
                    return 0;
                } catch (const trireme::error& e) {
                    text->assign(e.what());
                    return 1;
                }
            },
            test::within(10s)));
    }
    std::vector<std::string> said() {
        std::vector<std::string> all;
        for (std::size_t i = 0; i < children_.size(); ++i) {
            ended_ = ended_ && children_[i].wait(test::within(40s)).has_value();
            all.emplace_back(page_->text[i].view());
        }
        return all;
    }
    bool ended() const { return ended_; }
    trireme::child& process(std::size_t i) { return children_[i]; }

  private:
    test::shared_page<test::said_by_ranks> page_;
    std::vector<trireme::child> children_;
    bool ended_ = true;
};

variables in_folder(const std::string& folder, int rank, int size) {
    return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(size)}, {"TRIREME_STORE", folder}};
}
std::string some_work() {
    trireme::world w;
    trireme::shm_transport t{w};
    std::vector<float> v(5000, 1.0F);
    t.all_reduce(v, trireme::reduce::sum);
    auto g = t.allocate<double>(1000);
    g[999] = w.rank();
    t.all_reduce(g, trireme::reduce::maximum);
    const long sum = w.sum(static_cast<long>(w.rank()) + 1);
    w.barrier();
    return std::to_string(sum) + " " + std::to_string(v[4999] + static_cast<float>(g[999]));
}
trireme::world_options soon(std::chrono::nanoseconds t) { return {.start_timeout = t}; }

}  // namespace

TEST_SUITE("dist/world") {
TEST_CASE("alone, a process is a world of one") {
    trireme::world w;

    CHECK(w.rank() == 0);
    CHECK(w.size() == 1);
    CHECK(w.shard() == trireme::shard{0, 1});
    CHECK(w.sum(41) == 41);
    CHECK(w.broadcast(1.5) == 1.5);
    CHECK(w.gather(7) == std::vector<int>{7});
    CHECK_NOTHROW(w.barrier());
    CHECK_NOTHROW(w.agree("plan", 1));
}
TEST_CASE("small things are summed, spread and gathered") {
    const auto said = test::on_worlds(3, [](trireme::world& w) {
        const auto r = w.rank();
        if (w.sum(r + 1.5) != 7.5) return std::string("sum");
        if (w.largest(static_cast<int>(r)) != 2 || w.smallest(static_cast<int>(r)) != 0)
            return std::string("extremes");
        if (w.broadcast(r * 10, trireme::rank{2}) != 20) return std::string("broadcast");
        struct pair {
            int a;
            double b;
        };
        const auto all = w.gather(pair{static_cast<int>(r), 0.5});
        for (std::uint32_t q = 0; q < 3; ++q)
            if (all[q].a != static_cast<int>(q)) return std::string("gather");
        if (w.shard() != trireme::shard{r, 3} || w.local_shard() != trireme::shard{r, 3})
            return std::string("shard");
        w.barrier();
        return std::string();
    });

    CHECK(said == std::vector<std::string>(3));
}
TEST_CASE("a plan that differs is an error on every rank that names the ranks") {
    const auto said = test::on_worlds(3, [](trireme::world& w) {
        w.agree("loader plan", 5);
        std::string text;
        try {
            w.agree("loader plan", w.rank() == 1 ? 7U : 5U);
        } catch (const trireme::mismatch_error& e) { text = e.what(); }
        w.barrier();  // the world goes on
        return text;
    });

    REQUIRE(said.size() == 3);
    for (const auto& text : said)
        CHECK(has(text, "the ranks disagree about the loader plan: rank 1 has another one than ranks 0 and 2"));
}
TEST_CASE("a descriptor of rank 0 reaches every rank") {
    const auto said = test::on_worlds(3, [](trireme::world& w) {
        std::FILE* f = w.rank() == 0 ? std::tmpfile() : nullptr;
        if (f != nullptr) {
            std::fputs("hello", f);
            std::fflush(f);
        }
        const trireme::fd got = w.share_fd(trireme::fd_ref(f != nullptr ? ::fileno(f) : -1));
        char text[8]{};
        const auto n = ::pread(got.get(), text, 5, 0);
        w.barrier();
        return n == 5 ? std::string(text) : std::string("nothing");
    });

    CHECK(said == std::vector<std::string>(3, "hello"));
}
TEST_CASE("processes started by hand meet in a folder and leave it empty") {
    const scratch s;
    const test::footprint before;
    {
        by_hand job;
        for (int r : {2, 0, 1}) job.start(in_folder(s.path + "/job", r, 3), some_work);

        CHECK(job.said() == std::vector<std::string>(3, "6 5.000000"));
    }
    CHECK(s.empty());
    CHECK(test::back_to(before));
}
TEST_CASE("processes started by hand meet at an address and a port") {
    const scratch s;
    ::setenv("TMPDIR", s.path.c_str(), 1);
    by_hand job;
    for (int r : {1, 0})
        job.start({{"RANK", std::to_string(r)},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "127.0.0.1"},
                   {"MASTER_PORT", "29517"},
                   {"LOCAL_RANK", std::to_string(r)},
                   {"LOCAL_WORLD_SIZE", "2"}},
                  some_work);

    CHECK(job.said() == std::vector<std::string>(2, "3 3.000000"));
    CHECK(s.empty());
    ::unsetenv("TMPDIR");
}
TEST_CASE("traces of dead jobs do no harm") {
    const scratch s;
    const std::string folder = s.path + "/job";
    for (const char* trace : {"0123456789abcdef\n", "rubbish", ""}) {
        fs::create_directory(folder);
        std::ofstream(folder + "/rank0") << trace;
        by_hand job;
        for (int r : {0, 1}) job.start(in_folder(folder, r, 2), some_work);

        CHECK(job.said() == std::vector<std::string>(2, "3 3.000000"));
    }
    // A rank 0 that was killed while it waited.
    {
        by_hand job;
        job.start(in_folder(folder, 0, 2), some_work);
        while (!fs::exists(folder + "/rank0")) ::usleep(1000);
        job.process(0).send(SIGKILL);
        static_cast<void>(job.said());
        CHECK(fs::exists(folder + "/rank0"));
    }
    by_hand job;
    for (int r : {1, 0}) job.start(in_folder(folder, r, 2), some_work);

    CHECK(job.said() == std::vector<std::string>(2, "3 3.000000"));
    CHECK(s.empty());
}
TEST_CASE("two jobs at once in two folders do not meet") {
    const scratch s;
    by_hand job;
    for (int r : {0, 1}) {
        job.start(in_folder(s.path + "/a", r, 2), some_work);
        job.start(in_folder(s.path + "/b", r, 2), some_work);
    }

    CHECK(job.said() == std::vector<std::string>(4, "3 3.000000"));
}
TEST_CASE("ranks that are missing are named") {
    const scratch s;
    by_hand job;
    const auto meet = [](std::chrono::nanoseconds limit) {
        return [limit] {
            trireme::world w(soon(limit));
            return std::string("met");
        };
    };
    // Time for two of them to come, on a busy machine too. Rank 0 speaks first: it knows who is missing.
    job.start(in_folder(s.path + "/job", 0, 4), meet(4s));
    job.start(in_folder(s.path + "/job", 2, 4), meet(20s));

    const auto said = job.said();

    CHECK(has(said[0], "2 of 4 ranks joined within 4 s: ranks 1 and 3 are missing"));
    CHECK(has(said[0], s.path + "/job"));
    CHECK(said[1] != "met");
    CHECK(job.ended());
}
TEST_CASE("a rank that finds no rank 0 names the place") {
    const scratch s;
    ::setenv("TMPDIR", s.path.c_str(), 1);
    by_hand job;
    job.start({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29518"}}, [] {
        trireme::world w(soon(500ms));
        return std::string("met");
    });

    const auto said = job.said();

    CHECK(has(said[0], "rank 0 was not there within 0.5"));
    CHECK(has(said[0], "127.0.0.1 port 29518"));
    CHECK(s.empty());
    ::unsetenv("TMPDIR");
}
TEST_CASE("a rank that is taken, and a world of another size, are refused by name") {
    const scratch s;
    const auto meet = [] {
        trireme::world w(soon(2s));
        return std::string("met");
    };
    by_hand zero_twice, one_twice, sizes;
    zero_twice.start(in_folder(s.path + "/a", 0, 2), meet);
    while (!fs::exists(s.path + "/a/rank0")) ::usleep(1000);
    zero_twice.start(in_folder(s.path + "/a", 0, 2), meet);
    one_twice.start(in_folder(s.path + "/b", 1, 3), meet);
    one_twice.start(in_folder(s.path + "/b", 1, 3), meet);
    one_twice.start(in_folder(s.path + "/b", 0, 3), meet);
    sizes.start(in_folder(s.path + "/c", 0, 2), meet);
    sizes.start(in_folder(s.path + "/c", 1, 3), meet);

    const auto zero = zero_twice.said(), one = one_twice.said(), size = sizes.said();

    CHECK(has(zero[1], "two processes say that they are rank 0 (RANK=0)"));
    CHECK(has(one[0] + one[1], "two processes say that they are rank 1 (RANK=1)"));
    CHECK(has(size[1], "WORLD_SIZE=3, but rank 0 has WORLD_SIZE=2"));
    for (by_hand* j : {&zero_twice, &one_twice, &sizes}) CHECK(j->ended());
}
TEST_CASE("a wrong variable is refused at once") {
    by_hand job;
    job.start({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29519"}}, [] {
        trireme::world w;
        return std::string("met");
    });

    CHECK(has(job.said()[0], "the environment variable RANK=2 is not a rank from 0 to 1 (WORLD_SIZE=2)"));
}
TEST_CASE("without a launcher, the death of a rank is an error that names it") {
    const scratch s;
    by_hand job;
    for (int r : {0, 1, 2})
        job.start(in_folder(s.path + "/job", r, 3), [] {
            trireme::world w;
            trireme::shm_transport t{w, {.timeout = 60s}};
            std::vector<float> v(100'000);
            for (int k = 0;; ++k) {
                if (w.rank() == 1 && k == 20) ::raise(SIGKILL);
                t.all_reduce(v, trireme::reduce::sum);
            }
            return std::string();
        });

    const auto said = job.said();

    const std::string who = "rank 1 (pid " + std::to_string(job.process(1).pid()) + ") died";
    CHECK(has(said[0], who));
    CHECK(has(said[2], who));
}
TEST_CASE("the failure that a rank tells reaches those that wait, while it still lives") {
    struct told {
        std::atomic<int> ranks{0};
    };
    test::shared_page<told> page;

    const auto said = test::on_worlds(3, [&](trireme::world& w) {
        trireme::shm_transport t{w, {.timeout = 60s}};
        std::vector<float> v(1000);
        t.all_reduce(v, trireme::reduce::sum);
        if (w.rank() == 2) {
            w.fail("no more data");
            w.fail("and another thing");
            const auto until = test::within(10s);
            while (page->ranks != 2 && !until.passed()) ::usleep(1000);
            return std::string(page->ranks == 2 ? "heard" : "nobody has heard it");
        }
        std::string text = "went through";
        try {
            t.all_reduce(v, trireme::reduce::sum);
        } catch (const trireme::remote_error& e) { text = e.what(); }
        ++page->ranks;
        return text;
    });

    REQUIRE(said.size() == 3);
    CHECK(has(said[0], "rank 2 failed: no more data"));
    CHECK(has(said[1], "rank 2 failed: no more data"));
    CHECK(said[2] == "heard");
}
}  // TEST_SUITE("dist/world")
