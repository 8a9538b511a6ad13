#pragma once
// What a team runs for one loop: a body over positions [0, n), cut by the job of a schedule.

#include <trireme/threads/detail/team.hpp>
#include <trireme/threads/pool.hpp>
#include <trireme/threads/schedule.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace trireme::detail {

/// f(i) for each index.
template <std::integral Index, class F>
struct each_index {
    static constexpr bool divisible = true;
    static constexpr bool may_throw = !std::is_nothrow_invocable_v<F&, Index>;
    index_space<Index> space;
    F* f = nullptr;

    void operator()(std::uint64_t first, std::uint64_t last) const {
        if (space.step == 1) {  // a plain counted loop, which the compiler can vectorise
            for (Index i = space.at(first), end = space.at(last); i != end; ++i) std::invoke(*f, i);
            return;
        }
        for (; first != last; ++first) std::invoke(*f, space.at(first));
    }
};

/// f(begin, end) for blocks of indices.
template <std::integral Index, class F>
struct each_block {
    static constexpr bool divisible = false;
    static constexpr bool may_throw = !std::is_nothrow_invocable_v<F&, Index, Index>;
    index_space<Index> space;
    F* f = nullptr;

    void operator()(std::uint64_t first, std::uint64_t last) const {
        std::invoke(*f, space.at(first), space.at(last));
    }
};

/// Runs a body, and looks whether another part has thrown. A body that can be cut is run in pieces that double in
/// length: an end is noticed before a thread has done as much again as it has done so far, or 1024 indices more,
/// and the look costs nothing in long loops.
template <class Body>
class checked_body {
  public:
    checked_body(const Body& body, const first_exception& error) noexcept : body_(body), error_(error) {}

    /// False when the loop is to end.
    bool operator()(std::uint64_t first, std::uint64_t last) {
        if constexpr (!Body::may_throw) {
            body_(first, last);
            return true;
        } else if constexpr (!Body::divisible) {
            if (error_.stopped()) return false;
            body_(first, last);
            return true;
        } else {
            while (first != last) {
                if (error_.stopped()) return false;
                const auto piece = (std::min)(last - first, pace_);
                body_(first, first + piece);
                first += piece;
                if (pace_ < 1024) pace_ *= 2;
            }
            return true;
        }
    }

  private:
    const Body& body_;
    const first_exception& error_;
    std::uint64_t pace_ = 1;
};

/// The function that a team calls: exceptions stay inside a part.
template <class Job>
void run_part(team& t, unsigned k, unsigned n) noexcept {
    const auto job = t.job<Job>();
    try {
        job.run(t, k, n);
    } catch (...) { t.error().keep(); }
}

/// schedule::fixed: participant k gets the k-th part of the blocks. The sizes are computed once, by the caller.
template <class Body>
struct fixed_job {
    Body body;
    cuts blocks;

    void run(team& t, unsigned k, unsigned n) const {
        checked_body body_of(body, t.error());
        if (blocks.number == n) {
            const auto block = blocks[k];
            body_of(block.first, block.last);
            return;
        }
        const auto mine = cuts(blocks.number, n)[k];
        for (auto j = mine.first; j < mine.last; ++j) {
            const auto block = blocks[j];
            if (!body_of(block.first, block.last)) return;
        }
    }
};

/// schedule::dynamic: positions are handed out in units of `grain`. Each participant's share of the units is one
/// word, [low, high), from whose front it takes and from whose back others take: no line is shared until somebody
/// runs out.
/// Source  work stealing by halves, after Cilk and Callisto-RTS; here over intervals and not queues
template <class Body>
struct dynamic_job {
    Body body;
    std::uint64_t count = 0, grain = 0;

    /// Intervals hold 32 bits a side: the units of very long loops are larger.
    static std::uint64_t grain_of(std::uint64_t count, std::uint64_t grain) noexcept {
        return (std::max)({std::uint64_t{1}, grain, (count >> 31) + 1});
    }
    std::uint64_t units() const noexcept { return count / grain + (count % grain != 0 ? 1 : 0); }

    /// Before the loop: everybody's share.
    void deal(team& t, unsigned n) const noexcept {
        const cuts shares(units(), n);
        for (unsigned k = 0; k < n; ++k) {
            const auto mine = shares[k];
            t.share(k).store(interval{mine.first, mine.last}.packed(), std::memory_order_relaxed);
        }
    }

    void run(team& t, unsigned k, unsigned n) const {
        checked_body body_of(body, t.error());
        auto& own = t.share(k);
        do {
            auto word = own.load(std::memory_order_relaxed);
            for (auto mine = interval::unpack(word); mine.size() > 0; mine = interval::unpack(word)) {
                // A thirty-second of what is left: long runs first, single units at the end.
                const auto next = mine.low + (std::max)(std::uint64_t{1}, mine.size() / 32);
                if (!own.compare_exchange_weak(word, interval{next, mine.high}.packed(), std::memory_order_relaxed))
                    continue;
                if (!body_of(mine.low * grain, (std::min)(count, next * grain))) return;
                word = own.load(std::memory_order_relaxed);
            }
            if (Body::may_throw && t.error().stopped()) return;
        } while (steal(t, k, n));
    }

  private:
    struct interval {
        std::uint64_t low, high;
        std::uint64_t size() const noexcept { return high - low; }
        std::uint64_t packed() const noexcept { return low << 32 | high; }
        static interval unpack(std::uint64_t word) noexcept { return {word >> 32, word & 0xffffffffU}; }
    };

    /// Moves half of somebody's rest to our own share, which is empty. False when nobody has any.
    static bool steal(team& t, unsigned k, unsigned n) noexcept {
        for (unsigned step = 1; step < n; ++step) {
            auto& victim = t.share((k + step) % n);
            auto word = victim.load(std::memory_order_relaxed);
            for (auto rest = interval::unpack(word); rest.size() > 0; rest = interval::unpack(word)) {
                const auto middle = rest.low + rest.size() / 2;
                if (!victim.compare_exchange_weak(word, interval{rest.low, middle}.packed(),
                                                  std::memory_order_relaxed))
                    continue;
                t.share(k).store(interval{middle, rest.high}.packed(), std::memory_order_relaxed);
                return true;
            }
        }
        return false;
    }
};

/// Runs the body over positions [0, count), in the calling thread if nobody can help.
template <class Body>
void run_loop(pool& p, schedule::fixed how, std::uint64_t count, std::uint64_t grain, const Body& body) {
    using job_type = fixed_job<Body>;
    if (count == 0) return;
    const auto most = grain <= 1 ? count : (std::max)(std::uint64_t{1}, count / grain);
    const auto blocks_for = [&](unsigned threads) {
        return (std::min)(most, how.blocks != 0 ? how.blocks : threads);
    };
    const auto team = pool_access::enter(p, blocks_for(p.num_threads()));
    const job_type job{body, cuts(count, blocks_for(team.size()))};
    if (team) {
        team->run(team.size(), &run_part<job_type>, job);
        return;
    }
    for (std::uint64_t j = 0; j < job.blocks.number; ++j) body(job.blocks[j].first, job.blocks[j].last);
}

template <class Body>
void run_loop(pool& p, schedule::dynamic how, std::uint64_t count, std::uint64_t grain, const Body& body) {
    using job_type = dynamic_job<Body>;
    if (count == 0) return;
    const job_type job{body, count, job_type::grain_of(count, (std::max)(grain, how.grain))};
    const auto team = pool_access::enter(p, job.units());
    if (!team) return body(0, count);
    job.deal(*team.operator->(), team.size());
    team->run(team.size(), &run_part<job_type>, job);
}

}  // namespace trireme::detail
