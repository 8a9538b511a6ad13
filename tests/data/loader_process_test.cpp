// The loader with worker processes: the same bytes as the other engines, whatever dies, and nothing left behind.
#include <trireme/data/engine/caller.hpp>
#include <trireme/data/engine/forked.hpp>
#include <trireme/data/engine/threads.hpp>
#include <trireme/data/loader.hpp>

#include <doctest/doctest.h>

#include <set>
#include <stdexcept>
#include <thread>

#include "../support/datasets.hpp"
#include "../support/processes.hpp"
#include "../support/sanitizers.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

using namespace trireme;
using namespace std::chrono_literals;
using test::scripted;

namespace {

/// Hears everything and says nothing.
struct quiet {
    std::vector<std::string>* lines = nullptr;
    void operator()(const event& e) const noexcept {
        if (lines != nullptr) lines->push_back(e.text);
    }
};

template <class Data>
auto forked_loader(Data data, std::uint32_t workers, loader_options options, quiet observer = {}) {
    return loader<Data, shuffled, engine::forked, quiet>(std::move(data), shuffled{}, engine::forked{workers},
                                                         options, observer);
}

template <class Loader>
pid_t pid_of(const Loader& l, std::uint32_t w) {
    return l.memory().worker(w).pid.load();
}

std::vector<std::vector<std::uint64_t>> reference(std::uint64_t n, const loader_options& options,
                                                  std::uint64_t epochs) {
    loader l{scripted{n}, shuffled{}, engine::caller{}, options};
    std::vector<std::vector<std::uint64_t>> all;
    for (std::uint64_t e = 0; e < epochs; ++e) all.push_back(test::epoch_bytes(l, e));
    return all;
}

/// 512 KiB a sample, filled with its number.
struct big {
    using schema = trireme::schema<field<"bytes", std::uint8_t, 512 * 1024>>;
    std::uint64_t size() const { return 100; }
    void read(std::uint64_t index, row<schema> out, sample_context&) const {
        for (auto& v : out.get<"bytes">()) v = static_cast<std::uint8_t>(index);
    }
};

}  // namespace

TEST_SUITE("data/loader_process") {
TEST_CASE("forked workers, 1, 2 or 4 of them, yield the caller's bytes") {
    const test::footprint before;
    const loader_options options{.batch_size = 7, .seed = 42, .shard = {1, 3}};
    const auto expected = reference(1000, options, 3);

    for (const std::uint32_t workers : {1U, 2U, 4U}) {
        auto l = forked_loader(scripted{1000}, workers, options);
        for (std::uint64_t e = 0; e < 3; ++e) CHECK(test::epoch_bytes(l, e) == expected[e]);
    }

    CHECK(test::back_to(before));
}

TEST_CASE("workers live on over epochs and broken-off epochs, and nothing grows") {
    const loader_options options{.batch_size = 4, .prefetch = 4};
    const auto expected = reference(40, options, 40);
    auto l = forked_loader(scripted{40}, 2, options);
    l.warm_start();
    const std::set<pid_t> workers{pid_of(l, 0), pid_of(l, 1)};
    const test::footprint before;

    for (std::uint64_t round = 0; round < 20; ++round) {
        int taken = 0;
        for ([[maybe_unused]] auto&& b : l.epoch(2 * round)) {
            if (++taken == 3) break;
        }
        CHECK(test::epoch_bytes(l, 2 * round + 1) == expected[2 * round + 1]);
    }

    CHECK(std::set<pid_t>{pid_of(l, 0), pid_of(l, 1)} == workers);
    CHECK(test::footprint() == before);
}

TEST_CASE("random numbers of forked workers are the samples' own") {
    const auto draws = [](auto&& l) {
        std::vector<std::uint64_t> all;
        for (std::uint64_t e = 0; e < 2; ++e) {
            for (auto&& b : l.epoch(e)) all.push_back(b.template get<"draw">()(0));
        }
        return all;
    };

    const auto four = draws(forked_loader(scripted{24}, 4, {.seed = 7}));

    CHECK(std::set(four.begin(), four.end()).size() == 48);
    CHECK(draws(forked_loader(scripted{24}, 4, {.seed = 7})) == four);
    CHECK(draws(loader{scripted{24}, shuffled{}, engine::caller{}, {.seed = 7}}) == four);
}

TEST_CASE("workers killed at random moments cost nothing: batches come once, in order, with the same bytes") {
    std::mt19937_64 random(test::seed());
    const loader_options options{.batch_size = 8, .seed = 3};
    const auto expected = reference(400, options, 1);
    const test::footprint before;

    for (int round = 0; round < test::rounds(30, 200); ++round) {
        auto l = forked_loader(scripted{400, [](auto, auto&) { ::usleep(100); }}, 4, options);
        l.warm_start();
        const pid_t victim = pid_of(l, static_cast<std::uint32_t>(random() % 4));
        const auto at = random() % 50;
        std::vector<std::uint64_t> got;
        for (auto&& b : l.epoch(0)) {
            if (got.size() == at) ::kill(victim, SIGKILL);
            got.push_back(test::bytes_of(b));
        }
        CHECK(got == expected[0]);
    }

    CHECK(test::back_to(before));
}

TEST_CASE("told to raise, a worker's death is an error with pid, signal and batch within the next wait") {
    const test::footprint before;
    for (int round = 0; round < 5; ++round) {
        loader_options options{.batch_size = 4};
        options.on_death = on_death::raise;
        auto l = forked_loader(scripted{400, [](auto, auto&) { ::usleep(500); }}, 2, options);
        l.warm_start();
        l.start(0);
        static_cast<void>(l.next());
        const pid_t victim = pid_of(l, 1);
        ::kill(victim, SIGKILL);

        std::string text;
        try {
            for (int i = 0; i < 90; ++i) static_cast<void>(l.next());
        } catch (const peer_error& e) { text = e.what(); }

        for (const std::string& part :
             {std::string("worker 1"), "pid " + std::to_string(victim), std::string("signal 9")})
            CHECK_MESSAGE(text.find(part) != std::string::npos, part << " is not in: " << text);
    }
    CHECK(test::back_to(before));
}

TEST_CASE("a sample that crashes every worker that touches it is named after three deaths; the trainer lives") {
    std::vector<std::string> lines;
    auto l = loader<scripted, sequential, engine::forked, quiet>(scripted{40,
                                                                          [](std::uint64_t i, auto&) {
                                                                              if (i == 26)
                                                                                  ::kill(::getpid(), SIGSEGV);
                                                                          }},
                                                                 sequential{}, engine::forked{2}, {.batch_size = 4},
                                                                 quiet{&lines});
    int arrived = 0;
    std::string text;

    try {
        for ([[maybe_unused]] auto&& b : l.epoch(0)) ++arrived;
    } catch (const peer_error& e) { text = e.what(); }

    CHECK(arrived == 6);
    for (const char* part : {"sample 26", "batch 6", "SIGSEGV", "3rd to die"})
        CHECK_MESSAGE(text.find(part) != std::string::npos, part << " is not in: " << text);
    CHECK(lines.size() >= 2);
}

TEST_CASE("workers that die of everything they touch end the loader with an error, not in endless respawning") {
    auto l = forked_loader(scripted{1000, [](auto, auto&) { ::_exit(0); }}, 1, {.batch_size = 4});

    CHECK_THROWS_WITH_AS(test::epoch_bytes(l, 0), doctest::Contains("exited with status 0"), peer_error);
}

TEST_CASE("errors of a read come out of a forked worker as they do of the others, and the loader starts again") {
    struct shelf_error : std::runtime_error {
        shelf_error(const std::string& text, int) : std::runtime_error(text) {}
    };
    auto l = loader<scripted, sequential, engine::forked, quiet>(
        scripted{40,
                 [](std::uint64_t i, const sample_context& c) {
                     if (i != 13) return;
                     if (c.epoch() == 0) throw shelf_error("disk gone on shelf 9" + std::string(200'000, '.'), 9);
                     if (c.epoch() == 1) throw 42;
                 }},
        sequential{}, engine::forked{2}, {.batch_size = 4}, quiet{});
    int arrived = 0;
    std::string text;

    try {
        for ([[maybe_unused]] auto&& b : l.epoch(0)) ++arrived;
    } catch (const remote_error& e) { text = e.what(); }

    CHECK(arrived == 3);
    for (const char* part : {"sample 13", "batch 3", "worker", "shelf_error", "disk gone on shelf 9", "200020"})
        CHECK_MESSAGE(text.find(part) != std::string::npos, part << " is not in: " << text);
    CHECK_THROWS_WITH_AS(test::epoch_bytes(l, 1), doctest::Contains("unknown exception"), remote_error);
    CHECK(test::epoch_bytes(l, 2).size() == 10);
}

TEST_CASE("a start-up that throws names the worker and its text") {
    struct licensed : scripted {
        void start_up(worker_id w) const {
            if (w == worker_id{1}) throw std::runtime_error("no licence");
        }
    };
    auto l = forked_loader(licensed{{8, [](auto, auto&) { ::usleep(1000); }}}, 2, {.batch_size = 4});

    CHECK_THROWS_WITH_AS((l.warm_start(), static_cast<void>(test::epoch_bytes(l, 0))),
                         doctest::Contains("no licence"), remote_error);
}

TEST_CASE("a sample that never returns is a time-out that names it, and its worker is ended") {
    const test::footprint before;
    {
        auto l = loader<scripted, sequential, engine::forked, quiet>(
            scripted{64,
                     [](std::uint64_t i, auto&) {
                         while (i == 20) ::pause();
                     }},
            sequential{}, engine::forked{4}, {.batch_size = 4, .timeout = 300ms, .grace = 100ms}, quiet{});
        int arrived = 0;
        std::string text;
        try {
            for ([[maybe_unused]] auto&& b : l.epoch(0)) ++arrived;
        } catch (const timeout_error& e) { text = e.what(); }
        CHECK(arrived == 5);
        CHECK(text.find("sample 20 of batch 5") != std::string::npos);
        CHECK(text.find("pid") != std::string::npos);
    }
    CHECK(test::back_to(before));
}

TEST_CASE("the zygote's death is an error that says so, and the workers go with it") {
    const test::footprint before;
    {
        auto l = forked_loader(scripted{100'000}, 2, {.batch_size = 4});
        l.warm_start();
        l.start(0);
        ::kill(l.crew().zygote_pid(), SIGKILL);
        std::string text;
        try {
            for (int i = 0; i < 20'000; ++i) static_cast<void>(l.next());
        } catch (const peer_error& e) { text = e.what(); }
        CHECK(text.find("zygote") != std::string::npos);
        CHECK(text.find("signal 9") != std::string::npos);
    }
    CHECK(test::back_to(before));
}

TEST_CASE("a trainer killed at a random moment leaves no process and no memory behind") {
    std::mt19937_64 random(test::seed() + 1);
    const test::footprint before;

    for (int round = 0; round < test::rounds(30, 200); ++round) {
        auto trainer = fork_child(
            "test trainer",
            [] {
                auto l = forked_loader(scripted{1000}, 2, {.batch_size = 1024, .prefetch = 4});
                for (std::uint64_t e = 0;; ++e) static_cast<void>(test::epoch_bytes(l, e));
                return 0;
            },
            test::within(10s));
        ::usleep(static_cast<unsigned>(random() % (round % 5 == 0 ? 50'000 : 300'000)));
        trainer.end();
        REQUIRE(test::back_to(before));
    }
}

TEST_CASE("a loader can be destroyed at any moment, also while its workers are stuck in a read") {
    std::mt19937_64 random(test::seed() + 2);
    const test::footprint before;

    for (int round = 0; round < 20; ++round) {
        const bool stuck = round % 5 == 0;
        auto l = forked_loader(scripted{1000,
                                        [stuck](auto i, auto&) {
                                            while (stuck && i % 7 == 3) ::pause();
                                        }},
                               2, {.batch_size = 8, .grace = 50ms});
        if (round % 3 != 0) {
            l.start(0);
            for (std::uint64_t k = stuck ? 0 : random() % 5; k > 0; --k) static_cast<void>(l.next());
        }
        ::usleep(static_cast<unsigned>(random() % 3000));
    }

    CHECK(test::back_to(before));
}

TEST_CASE("with 64 descriptors and a kept batch, thousands of batches open nothing") {
    const auto status = test::in_child([] {
        const rlimit few{64, 64};
        ::setrlimit(RLIMIT_NOFILE, &few);
        auto l = forked_loader(scripted{2000}, 2, {.batch_size = 1, .prefetch = 4});
        l.start(0);
        auto kept = l.next();
        const auto content = test::bytes_of(kept);
        const auto open = test::entries("/proc/self/fd");
        for (int i = 0; i < 3; ++i) static_cast<void>(l.next());
        const bool steady = test::entries("/proc/self/fd") == open && test::bytes_of(kept) == content;
        try {
            static_cast<void>(l.next());  // its slot is the kept one's
        } catch (const usage_error&) { return steady ? 0 : 1; }
        return 2;
    });

    CHECK(status == exit_status{0, 0});
}

TEST_CASE("a /dev/shm of 1 MiB does not matter to a ring of 4 MiB: every batch arrives whole") {
    // In a mount namespace of its own, so that the rest of the machine keeps its /dev/shm.
    const auto status = test::in_child([] {
        if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0)
            return 77;
        loader<big, sequential, engine::forked, quiet> l(big{}, sequential{}, engine::forked{2},
                                                         {.batch_size = 1, .prefetch = 8}, quiet{});
        std::uint64_t wrong = 0, batches = 0;
        for (auto&& b : l.epoch(0)) {
            const auto bytes = b.template get<"bytes">().span();
            for (const auto v : bytes) wrong += v != static_cast<std::uint8_t>(batches) ? 1U : 0U;
            ++batches;
        }
        return wrong == 0 && batches == 100 && test::entries("/dev/shm") == 0 ? 0 : 1;
    });

    if (status.code == 77) {
        MESSAGE("skipped: no mount namespace is to be had here");
    } else {
        CHECK(status == exit_status{0, 0});
    }
}

TEST_CASE("with foreign threads alive a forked loader refuses, and names them; our own threads are no obstacle") {
    std::atomic<bool> leave{false};
    std::thread foreign([&leave] {
        ::pthread_setname_np(::pthread_self(), "somebody-else");
        while (!leave) ::usleep(1000);
    });
    std::string text;
    try {
        auto l = forked_loader(scripted{10}, 1, {});
    } catch (const usage_error& e) { text = e.what(); }
    leave = true;
    foreign.join();

    CHECK(text.find("somebody-else") != std::string::npos);
    CHECK(text.find("engine::threads") != std::string::npos);
    loader with_threads{scripted{100}, engine::threads{2}, {.batch_size = 10}};
    CHECK(test::epoch_bytes(with_threads, 0).size() == 10);
    auto l = forked_loader(scripted{100}, 2, {.batch_size = 10});
    CHECK(test::epoch_bytes(l, 0).size() == 10);
    CHECK(test::epoch_bytes(with_threads, 1).size() == 10);
}

TEST_CASE("too little memory is an error at construction with the bytes wanted, never a bus error later") {
    if (test::under_asan) return;  // its shadow alone is over any limit
    const auto status = test::in_child([] {
        const rlimit little{1U << 30, 1U << 30};
        ::setrlimit(RLIMIT_AS, &little);
        try {
            auto l = forked_loader(scripted{1000}, 1, {.batch_size = 1U << 20, .prefetch = 512});
        } catch (const error& e) {
            const std::string text = e.what();
            return text.find("GiB") != std::string::npos ? 0 : 1;
        }
        return 2;
    });

    CHECK(status == exit_status{0, 0});
}
}  // TEST_SUITE("data/loader_process")
