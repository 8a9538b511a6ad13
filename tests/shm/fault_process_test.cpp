// A worker is killed at every step of the protocol, and so are the reaper and the consumer. For every step the test
// also runs with that step's recovery taken out, and must see the difference: waits are an hour long here, so
// nothing is healed by somebody looking again after a while.
#include <trireme/shm/backing/memfd.hpp>
#include <trireme/shm/reaper.hpp>
#include <trireme/shm/ring.hpp>
#include <trireme/shm/ring_worker.hpp>
#include <trireme/shm/workers.hpp>

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "../support/processes.hpp"

using namespace trireme;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t rows = 8, batches = 40;

/// Which part of the recovery is left out.
enum class without { nothing, reclaiming, ringing, respawning, watching };

struct outcome {
    std::uint32_t died = 0, taken = 0, wrong = 0, told = 0;  // told: an error named the zygote
};

using shared_ring = ring<backing::memfd, wait::futex, test::die_at>;

int work(const detail::ring_memory& memory, worker_id w, std::uint32_t incarnation, test::die_at hook) {
    ring_worker<wait::futex, test::die_at> worker(memory, w, incarnation, scope::processes, {}, hook);
    for (;;) {
        part_claim c;
        if (worker.next(c, deadline::in(1h)) != next_claim::claimed) return 0;
        worker.begin(c);
        auto* const at = reinterpret_cast<std::uint64_t*>(memory.payload(c.slot));
        const auto number = memory.head(c.slot).request.step;
        for (auto i = c.first_row; i < c.last_row; ++i) {
            worker.record(number * 1000 + i);
            at[i] = number * 1000 + i;
            if (i == c.first_row) hook.at(step::worker_half_filled);
            ::usleep(200);  // long enough for the consumer to fall asleep over it
        }
        hook.at(step::worker_filled);
        worker.publish(c, part_state::ready);
    }
}

/// The trainer: takes all batches, with a pause now and then so that workers fall asleep too.
void train(test::death_plan* plan, without what, std::uint32_t workers, outcome& out, deadline until) {
    const test::die_at hook{plan};
    ring_options options;
    options.name = "fault";
    options.geometry = {2, 2, workers, rows, rows * sizeof(std::uint64_t)};
    options.slice =
        what == without::watching || plan->at.load() < static_cast<std::uint32_t>(step::reaper_reclaimed)
            ? std::chrono::nanoseconds(1h)
            : std::chrono::nanoseconds(20ms);
    shared_ring r(options, {}, hook);
    const auto memory = r.memory();
    r.backing().inherit(true);
    worker_processes crew(
        {.who = "fault test", .count = workers, .grace = 200ms},
        [memory, hook](worker_id w, std::uint32_t incarnation) { return work(memory, w, incarnation, hook); },
        [memory, hook, what](worker_id w, pid_t pid, exit_status status) {
            if (what != without::reclaiming) detail::reclaim(memory, w.value, pid, status, on_death::respawn, hook);
            if (what != without::ringing) detail::ring_everybody(memory, wait::futex{}, hook);
            return what != without::respawning;
        });
    r.backing().inherit(false);
    std::uint64_t next = 0;
    const auto source = [&next](batch_request& request) {
        request.step = next;
        return next < batches ? (++next, true) : false;
    };
    const auto watch = [&] {
        if (what != without::watching && crew.lost()) throw peer_error({"the zygote is gone", "", ""});
    };
    try {
        for (std::uint32_t k = 0; k < batches; ++k) {
            r.refill(source);
            const auto lease = r.take(until, watch);
            const auto* const at = reinterpret_cast<const std::uint64_t*>(lease.data());
            for (std::uint32_t i = 0; i < rows; ++i) out.wrong += at[i] != std::uint64_t{k} * 1000 + i ? 1U : 0U;
            ++out.taken;
            if (k % 4 == 3) ::usleep(3000);
        }
    } catch (const timeout_error&) {
    } catch (const peer_error&) { out.told = 1; }
    r.stop();
}

/// The how-manieth passing of a step matters: not the first, by then the ring has turned; and where it is about
/// waking the consumer, one that completes a batch over which the consumer is asleep (it naps after every fourth).
std::uint32_t moment_of(step s) {
    switch (s) {
        case step::worker_published:
        case step::worker_checked_batch:
            return 6;  // the second part of the third batch
        case step::worker_checked_awaited:
            return 3;  // the third batch
        default:
            return 5;
    }
}

/// Runs the trainer with a death planned at `s`, and says how it went.
outcome run(step s, without what, std::uint32_t workers, std::chrono::nanoseconds guard) {
    const test::shared_page<test::death_plan> plan;
    plan->at.store(static_cast<std::uint32_t>(s));
    plan->countdown.store(moment_of(s));
    outcome out;
    train(plan.get(), what, workers, out, test::within(guard));
    out.died = plan->died.load();
    return out;
}

/// What saves the day when a lone worker dies right after a step.
without recovery_of(step s) {
    switch (s) {
        case step::worker_claimed:
        case step::worker_recorded:
        case step::worker_half_filled:
        case step::worker_filled:
            return without::reclaiming;
        case step::worker_published:
        case step::worker_checked_batch:
        case step::worker_checked_awaited:
        case step::worker_rang:
            return without::ringing;
        default:
            return without::respawning;
    }
}

}  // namespace

TEST_SUITE("shm/fault") {
TEST_CASE("a worker killed right after any of its steps costs nothing: every batch comes, whole and in order") {
    const test::footprint before;
    for (auto s = step::worker_claimed; s < step::reaper_reclaimed; s = step(static_cast<int>(s) + 1)) {
        for (const std::uint32_t workers : {1U, 2U}) {
            CAPTURE(name_of(s));
            CAPTURE(workers);

            // Whoever never has to wait does not pass the steps of waiting: whether it does is a matter of luck.
            outcome out;
            for (int attempt = 0; attempt < 20 && out.died == 0; ++attempt)
                out = run(s, without::nothing, workers, 30s);

            CHECK(out.died == 1);  // the step was passed, and the plan carried out
            CHECK(out.taken == batches);
            CHECK(out.wrong == 0);
        }
    }
    CHECK(test::back_to(before));
}

TEST_CASE("with the recovery of a step taken out, a worker killed there stops everything") {
    for (auto s = step::worker_claimed; s < step::reaper_reclaimed; s = step(static_cast<int>(s) + 1)) {
        CAPTURE(name_of(s));

        outcome out;
        // Whether the consumer was asleep over just that batch is a matter of luck in the steps that wake it.
        for (int attempt = 0; attempt < 10; ++attempt) {
            out = run(s, recovery_of(s), 1, 700ms);
            if (out.taken < batches) break;
        }

        CHECK(out.died == 1);
        CHECK(out.taken < batches);
        CHECK(out.wrong == 0);
    }
}

TEST_CASE("a reaper killed right after any of its steps is told to the consumer by its watch") {
    for (auto s = step::reaper_reclaimed; s < step::consumer_requested; s = step(static_cast<int>(s) + 1)) {
        for (const bool watched : {true, false}) {
            CAPTURE(name_of(s));
            CAPTURE(watched);
            const test::shared_page<test::death_plan> plan;
            plan->at.store(static_cast<std::uint32_t>(s));
            outcome out;

            {
                const test::die_at hook{plan.get()};
                ring_options options;
                options.name = "fault";
                options.geometry = {2, 2, 2, rows, rows * sizeof(std::uint64_t)};
                options.slice = watched ? std::chrono::nanoseconds(20ms) : std::chrono::nanoseconds(1h);
                shared_ring r(options, {}, hook);
                const auto memory = r.memory();
                r.backing().inherit(true);
                worker_processes crew(
                    {.who = "fault test", .count = 2, .grace = 200ms},
                    [memory, hook](worker_id w, std::uint32_t incarnation) {
                        if (incarnation == 1 && w.value == 0) {  // dies with a claim in its hand
                            ring_worker<wait::futex, test::die_at> worker(memory, w, 1, scope::processes, {}, hook);
                            part_claim c;
                            if (worker.next(c, deadline::in(1h)) == next_claim::claimed)
                                ::kill(::getpid(), SIGKILL);
                        }
                        return work(memory, w, incarnation, hook);
                    },
                    [memory, hook](worker_id w, pid_t pid, exit_status status) {
                        detail::reap(memory, w.value, pid, status, on_death::respawn, wait::futex{}, hook);
                        return true;
                    });
                r.backing().inherit(false);
                std::uint64_t next = 0;
                const auto source = [&next](batch_request& request) { return request.step = next++, true; };
                const auto watch = [&] {
                    if (watched && crew.lost()) throw peer_error({"the zygote is gone", "", ""});
                };
                try {
                    for (;;) {
                        r.refill(source);
                        const auto lease = r.take(test::within(watched ? 30s : 700ms), watch);
                        ++out.taken;
                    }
                } catch (const timeout_error&) {
                } catch (const peer_error&) { out.told = 1; }
                out.died = plan->died.load();
            }

            CHECK(out.died == 1);
            CHECK(out.told == (watched ? 1U : 0U));
        }
    }
}

TEST_CASE("a consumer killed right after any of its steps leaves no process behind") {
    const test::footprint before;
    for (auto s = step::consumer_requested; s <= step::consumer_stopped; s = step(static_cast<int>(s) + 1)) {
        if (s == step::consumer_raised_floor || s == step::consumer_voided) continue;  // below, with a cancel
        CAPTURE(name_of(s));
        std::uint32_t died = 0;
        exit_status status{};
        for (int attempt = 0; attempt < 20 && died == 0; ++attempt) {  // as above: it may never have to wait
            const test::shared_page<test::death_plan> plan;
            plan->at.store(static_cast<std::uint32_t>(s));
            plan->countdown.store(s == step::consumer_stopped ? 1 : 3);
            status = test::in_child([&] {
                outcome out;
                train(plan.get(), without::nothing, 2, out, test::within(30s));
                return out.taken == batches ? 0 : 1;
            });
            died = plan->died.load();
        }

        CHECK(status == test::killed_by(SIGKILL));
        CHECK(died == 1);
        CHECK(test::back_to(before));
    }
    for (const auto s : {step::consumer_raised_floor, step::consumer_voided}) {
        CAPTURE(name_of(s));
        const test::shared_page<test::death_plan> plan;
        plan->at.store(static_cast<std::uint32_t>(s));

        const auto status = test::in_child([&] {
            ring_options options;
            options.geometry = {4, 1, 1, rows, 64};
            shared_ring r(options, {}, test::die_at{plan.get()});
            const auto memory = r.memory();
            r.backing().inherit(true);
            worker_processes crew(
                {.who = "fault test", .count = 1, .grace = 200ms},
                [memory](worker_id w, std::uint32_t incarnation) { return work(memory, w, incarnation, {}); },
                [](worker_id, pid_t, exit_status) { return false; });
            std::uint64_t next = 0;
            r.refill([&next](batch_request& request) { return request.step = next++, true; });
            r.cancel();
            return 0;
        });

        CHECK(status == test::killed_by(SIGKILL));
        CHECK(test::back_to(before));
    }
}
}  // TEST_SUITE("shm/fault")
