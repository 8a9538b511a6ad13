// The ring's headers under relacy's memory model: loads may be stale wherever C++ lets them, threads are switched
// at every atomic access, and an access to a batch's data that is not ordered is an error. Then each order that the
// protocol rests on (A to E in the headers) is taken out, and one of the scenarios has to fail.
//
// check.sh compiles this with copies of the headers in which std::atomic reads weak::atomic.

// Before relacy's macros: everything that is no part of the test.
#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/shm/error_record.hpp>
#include <trireme/shm/mapping.hpp>
#include <trireme/sys/clock.hpp>
#include <trireme/sys/process.hpp>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <weak/atomic.hpp>
// The headers under test.
#include <trireme/shm/reaper.hpp>
#include <trireme/shm/ring.hpp>
#include <trireme/shm/ring_worker.hpp>

using namespace trireme;

namespace {

/// Relacy replaces these inline: where every call is inlined, the standard library's own code would not get them.
[[maybe_unused, gnu::used]] void* (*const allocate)(std::size_t) = &::operator new;
[[maybe_unused, gnu::used]] void (*const deallocate)(void*) = &::operator delete;

constexpr std::uint32_t parts = 2;
constexpr std::uint64_t most_batches = 4;

/// Zeroed memory of this process.
class plain_memory {
  public:
    static constexpr scope reach = scope::processes;
    plain_memory(const char*, std::size_t bytes) : data_(std::aligned_alloc(page_bytes, bytes)) {
        std::memset(data_, 0, bytes);
    }
    plain_memory(const plain_memory&) = delete;
    ~plain_memory() { std::free(data_); }
    std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

  private:
    void* data_;
};

using weak_ring = ring<plain_memory>;

/// What the scenarios share: a ring, the rows of its slots and the requests, both of which relacy watches.
template <class Derived, unsigned Threads, std::uint32_t Slots, std::uint32_t Parts = parts,
          delivery Order = delivery::in_order>
struct scenario : rl::test_suite<Derived, Threads> {
    std::optional<weak_ring> r;
    detail::ring_memory memory;
    rl::var<std::uint64_t> rows[Slots][Parts];
    rl::var<std::uint64_t> requests[most_batches];
    std::uint64_t opened = 0;

    void before() {
        ring_options options;
        options.geometry = {Slots, Parts, 2, Parts, 64};
        options.order = Order;
        r.emplace(options);
        memory = r->memory();
        // On zeroed memory a std::atomic is there already; relacy's want to be constructed.
        new (&memory.control()) detail::ring_control;
        for (std::uint32_t w = 0; w < 2; ++w) new (&memory.worker(w)) detail::worker_line;
        for (std::uint32_t s = 0; s < Slots; ++s) new (&memory.head(s)) detail::slot_head;
    }
    void after() {
        std::destroy_at(&memory.control());
        for (std::uint32_t w = 0; w < 2; ++w) std::destroy_at(&memory.worker(w));
        for (std::uint32_t s = 0; s < Slots; ++s) std::destroy_at(&memory.head(s));
        r.reset();
    }

    /// Opens what there is room for, up to batch `end`.
    void refill(std::uint64_t end) {
        r->refill([&](batch_request& request) {
            if (opened == end) return false;
            requests[opened](RL_INFO) = 100 + opened;
            request.step = opened++;
            return true;
        });
    }
    std::uint64_t take() {
        const auto lease = r->take(deadline::never(), [] {});
        const std::uint64_t step = lease.request().step;
        for (std::uint32_t p = 0; p < Parts; ++p) {
            const std::uint64_t row = rows[lease.slot()][p](RL_INFO);
            RL_ASSERT(row == 100 + step);
        }
        return step;
    }
    void fill(const part_claim& c) {
        const std::uint64_t step = memory.head(c.slot).request.step;
        const std::uint64_t asked = requests[step](RL_INFO);
        rows[c.slot][c.part](RL_INFO) = asked;
    }
    void work(std::uint32_t me) {
        ring_worker<> worker(memory, worker_id{me}, 1, scope::threads);
        part_claim c;
        while (worker.next(c, deadline::never()) == next_claim::claimed) {
            if (worker.cancelled(c)) {
                worker.publish(c, part_state::voided);
                continue;
            }
            fill(c);
            worker.publish(c, part_state::ready);
        }
    }
};

/// Two workers share every batch of one slot.
struct in_order : scenario<in_order, 3, 1> {
    void thread(unsigned t) {
        if (t != 0) return work(t - 1);
        for (std::uint64_t k = 0; k < 2; ++k) {
            refill(2);
            RL_ASSERT(take() == k);
        }
        r->stop();
    }
};

/// Whole batches, whichever is first.
struct as_ready : scenario<as_ready, 3, 2, 1, delivery::as_ready> {
    void thread(unsigned t) {
        if (t != 0) return work(t - 1);
        std::uint64_t seen = 0;
        for (std::uint64_t k = 0; k < 3; ++k) {
            refill(3);
            seen |= 1U << take();
        }
        RL_ASSERT(seen == 7);
        r->stop();
    }
};

/// The consumer gives up what it has opened, and goes on with what follows.
struct cancelled : scenario<cancelled, 3, 1> {
    void thread(unsigned t) {
        if (t != 0) return work(t - 1);
        refill(1);
        if (rl::rand(2) != 0) take();
        r->cancel();
        for (;;) {
            refill(2);
            if (r->in_flight() != 0) break;
            r->wait_for_vacancy(deadline::never(), [] {});
        }
        RL_ASSERT(take() == 1);
        r->stop();
    }
};

/// A word that one thread says and others wait for.
class word_of_mouth {
  public:
    void say() {
        said_.store(1, std::memory_order_release);
        said_.futex_wake(2);
    }
    void hear() const {
        while (said_.load(std::memory_order_acquire) == 0) said_.futex_wait(0);
    }

  private:
    weak::atomic<std::uint32_t> said_{0};
};

/// A lease is dropped on another thread than it was taken on, and the slot filled again.
struct dropped_elsewhere : scenario<dropped_elsewhere, 3, 1> {
    std::optional<raw_lease> given;
    std::optional<word_of_mouth> here;

    void before() {
        scenario::before();
        here.emplace();
    }
    void after() {
        here.reset();
        scenario::after();
    }
    void thread(unsigned t) {
        if (t == 1) return work(0);
        if (t == 2) {
            here->hear();
            for (std::uint32_t p = 0; p < parts; ++p) RL_ASSERT(rows[0][p](RL_INFO) == 100U);
            given.reset();
            return;
        }
        refill(1);
        given = r->take(deadline::never(), [] {});
        here->say();
        while (opened < 2) {
            rl::yield(1, RL_INFO);
            refill(2);
        }
        RL_ASSERT(take() == 1);
        r->stop();
    }
};

/// One of two workers dies at a moment of its own choice, and the reaper takes back what it had. With `Cancels` the
/// consumer gives up the batch meanwhile.
template <bool Cancels>
struct death : scenario<death<Cancels>, 4, 1> {
    using base = scenario<death<Cancels>, 4, 1>;
    std::optional<word_of_mouth> dead;

    void before() {
        base::before();
        dead.emplace();
    }
    void after() {
        dead.reset();
        base::after();
    }
    void thread(unsigned t) {
        if (t == 0) return consume();
        if (t == 1) return die();
        if (t == 2) return this->work(1);
        dead->hear();
        detail::reap(this->memory, 0, 1, {}, on_death::respawn, wait::futex{}, no_steps{});
    }
    void die() {
        ring_worker<> worker(this->memory, worker_id{0}, 1, scope::threads);
        part_claim c;
        if (worker.next(c, deadline::never()) == next_claim::claimed) {
            const unsigned moment = rl::rand(4);
            if (moment > 0) this->fill(c);
            if (moment == 2) worker.publish(c, part_state::ready);
            if (moment == 3) {  // published, and rang nobody
                auto seen = c.word;
                auto word = part_word::decode(seen);
                word.state = part_state::ready;
                this->memory.word(c.slot, c.part)
                    .compare_exchange_strong(seen, word.encode(), std::memory_order_seq_cst);
            }
        }
        dead->say();  // the kernel does
    }
    void consume() {
        this->refill(1);
        if (Cancels) {
            this->r->cancel();
            for (;;) {
                this->refill(2);
                if (this->r->in_flight() != 0) break;
                this->r->wait_for_vacancy(deadline::never(), [] {});
            }
        }
        RL_ASSERT(this->take() == (Cancels ? 1U : 0U));
        this->r->stop();
    }
};

/// One scenario, `rounds` times with the random scheduler. What went wrong, or nothing.
template <class Scenario>
std::string explore(std::uint64_t rounds, bool tell) {
    std::ostream silence(nullptr);  // relacy's allocator is not to outlive the search, in a buffer for instance
    rl::test_params params;
    params.iteration_count = rounds;
    params.search_type = rl::random_scheduler_type;
    params.execution_depth_limit = 20000;
    params.output_stream = params.progress_stream = tell ? &std::cerr : &silence;
    return rl::simulate<Scenario>(params) ? std::string() : std::string(rl::test_result_str(params.test_result));
}

struct named_scenario {
    const char* name;
    std::string (*explore)(std::uint64_t rounds, bool tell);
};
constexpr std::array scenarios{
    named_scenario{"in order", explore<in_order>},
    named_scenario{"as ready", explore<as_ready>},
    named_scenario{"cancelled", explore<cancelled>},
    named_scenario{"dropped elsewhere", explore<dropped_elsewhere>},
    named_scenario{"death", explore<death<false>>},
    named_scenario{"death and cancel", explore<death<true>>},
};

/// An order of the protocol, by the lines that give it.
struct line_text {
    const char *file, *text;
};
struct order_of {
    const char* what;
    line_text first, second{};
};
constexpr const char *worker_hpp = "shm/ring_worker.hpp", *ring_hpp = "shm/ring.hpp",
                     *reaper_hpp = "shm/reaper.hpp";
constexpr std::array orders{
    order_of{"(A) publish",
             {worker_hpp, ".compare_exchange_strong(expected, word.encode(), std::memory_order_seq_cst)"}},
    order_of{"(A) look at the other parts",
             {"shm/ring_layout.hpp", "part_word::decode(h.words[p].load(std::memory_order_seq_cst))"}},
    order_of{"(B) say what is awaited", {ring_hpp, "control.awaited.store(awaited, std::memory_order_seq_cst)"}},
    order_of{"(B) look at what is awaited", {worker_hpp, "control.awaited.load(std::memory_order_seq_cst)"}},
    order_of{"(C) open", {ring_hpp, "head.words[p].store(word, std::memory_order_seq_cst)"}},
    order_of{"(C) claim",
             {worker_hpp, "std::uint64_t seen = h.words[p].load(std::memory_order_seq_cst)"},
             {worker_hpp, "compare_exchange_strong(seen, mine, std::memory_order_seq_cst)"}},
    order_of{"(D) flag", {worker_hpp, "mask.fetch_or(bit, std::memory_order_seq_cst)"}},
    order_of{"(D) look at the flags", {ring_hpp, "sleeping |= mask.load(std::memory_order_seq_cst)"}},
    order_of{"(E) drop a lease", {"shm/lease.hpp", "flag_->store(0, std::memory_order_release)"}},
    order_of{"(E) see it dropped", {ring_hpp, "arena_->leased[slot].load(std::memory_order_acquire) == 0"}},
    order_of{"reopen", {reaper_hpp, "cell.store(word.encode(), std::memory_order_seq_cst)"}},
    order_of{"look at the floor after that",
             {reaper_hpp, "word.batch < control.floor.load(std::memory_order_seq_cst)"}},
    order_of{"raise the floor", {ring_hpp, "control.floor.store(floor, std::memory_order_seq_cst)"}},
    order_of{"look for what is open after that", {ring_hpp, "memory().word(s, p).load(std::memory_order_seq_cst)"}},
};

/// The number of the line that contains `text`, which must be just one.
unsigned line_of(const std::string& folder, const line_text& o) {
    std::ifstream file(folder + "/trireme/" + o.file);
    unsigned found = 0, number = 0;
    for (std::string line, text = o.text; std::getline(file, line);) {
        ++number;
        if (line.find(text) == std::string::npos) continue;
        if (found != 0) return 0;
        found = number;
    }
    return found;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::cerr << "usage: ring FOLDER_OF_HEADERS ROUNDS\n";
        return 2;
    }
    const std::uint64_t rounds = std::strtoull(argv[2], nullptr, 10);
    int wrong = 0;
    for (const auto& s : scenarios) {
        const auto trouble = s.explore(rounds, false);
        std::cout << (trouble.empty() ? "holds  " : "FAILED ") << s.name << (trouble.empty() ? "" : ": ") << trouble
                  << std::endl;
        if (!trouble.empty()) {
            ++wrong;
            s.explore(rounds, true);
        }
    }
    for (const auto& o : orders) {
        bool there = true;
        weak::weakened = {};
        for (std::size_t i = 0; const auto& l : {o.first, o.second}) {
            if (l.file == nullptr) continue;
            const auto line = line_of(argv[1], l);
            weak::weakened[i++] = {l.file, line};
            if (line != 0) continue;
            std::cout << "FAILED " << o.what << ": no such line, or several, in " << l.file << ": " << l.text
                      << "\n";
            there = false;
        }
        if (!there) {
            ++wrong;
            continue;
        }
        std::string seen;
        for (const auto more : {1, 12}) {  // some want one schedule in ten thousand
            for (const auto& s : scenarios) {
                if (!seen.empty()) break;
                if (const auto trouble = s.explore(rounds * static_cast<std::uint64_t>(more), false);
                    !trouble.empty())
                    seen = std::string(s.name) + ": " + trouble;
            }
        }
        std::cout << (seen.empty() ? "FAILED " : "fails  ") << "relaxed: " << o.what << ": "
                  << (seen.empty() ? "nobody sees the difference" : seen) << std::endl;
        wrong += seen.empty() ? 1 : 0;
    }
    return wrong == 0 ? 0 : 1;
}
