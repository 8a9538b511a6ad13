#pragma once
// How ranks meet on a channel: what a rank publishes, how another waits for it, and what ends a wait that is in
// vain.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/dist/detail/channel_layout.hpp>
#include <trireme/dist/detail/channel_memory.hpp>
#include <trireme/dist/detail/failure.hpp>
#include <trireme/dist/detail/full_fence.hpp>
#include <trireme/dist/detail/say.hpp>
#include <trireme/dist/detail/watch.hpp>
#include <trireme/sys/futex.hpp>
#include <trireme/sys/wait.hpp>

namespace trireme::detail {

struct channel_settings {
    const char* name = "channel";
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< of a wait that names no deadline
    std::chrono::nanoseconds spin{0};                             ///< before a wait parks
};

/// One rank's end of a channel, without the operations.
template <watch Watch>
class channel_end {
  public:
    channel_end(channel_memory memory, std::uint32_t me, channel_settings settings, Watch& watch)
        : shared_(memory), me_(me), settings_(settings), watch_(&watch) {}
    channel_end(const channel_end&) = delete;
    channel_end& operator=(const channel_end&) = delete;
    ~channel_end() {
        // An exception on its way out is about to be told (launch does); "it left" must not be told first.
        const bool thrown_out = std::uncaught_exceptions() > exceptions_at_birth_;
        shared_.bell(me_).left.store(thrown_out ? 2 : 1, std::memory_order_seq_cst);
        ring_all();
    }

    std::uint32_t rank() const noexcept { return me_; }
    std::uint32_t size() const noexcept { return shared_.layout().ranks; }
    const channel_settings& settings() const noexcept { return settings_; }
    void set_timeout(std::chrono::nanoseconds t) noexcept { settings_.timeout = t; }
    void set_spin(std::chrono::nanoseconds t) noexcept { settings_.spin = t; }

    /// Ends the channel for every rank. They get `t` from their next wait at the latest.
    /// Threads  any
    void abort(const failure& t) noexcept {
        shared_.header().aborted.write(t);
        ring_all();
    }
    /// What ended this channel, if anything has.
    std::optional<failure> health() const { return shared_.header().aborted.read(); }
    /// Makes a wait of this rank in another thread look at its stop condition.
    /// Threads  any
    void nudge() noexcept {
        if (shared_.bell(me_).parked.load(std::memory_order_seq_cst) != 0) ring(me_);  // (P)
    }

  protected:
    enum class counter : std::uint8_t { entry, done, put, worked };
    /// A word of every rank, and the value that all of them must reach.
    struct need {
        const std::byte* first = nullptr;  // of rank 0
        std::size_t stride = 0;
        std::uint64_t target = 0;
        bool joined = false;  // whether who lacks it has joined the operation already
    };

    // --- what there is to see ---------------------------------------------------------------------------------

    need everyone(counter c, std::uint64_t target) const noexcept {
        const auto at = [](const std::atomic<std::uint64_t>& word) {
            return reinterpret_cast<const std::byte*>(&word);
        };
        const rank_counters& first = shared_.counters(0);
        switch (c) {
            case counter::entry:
                return {at(shared_.entry(0, target - 1).seq), channel_layout::ring_stride, target, false};
            case counter::done:
                return {at(first.done), sizeof(rank_counters), target, true};
            case counter::put:
                return {at(first.put), sizeof(rank_counters), target, true};
            case counter::worked:
                break;
        }
        return {at(first.worked), sizeof(rank_counters), target, true};
    }
    static std::uint64_t seen(const need& w, std::uint32_t r) noexcept {
        // seq_cst: a waiter that has stored `parked` must see whatever was published before (P).
        return reinterpret_cast<const std::atomic<std::uint64_t>*>(w.first + r * w.stride)
            ->load(std::memory_order_seq_cst);
    }
    /// The first rank that is not there yet, or size().
    std::uint32_t first_missing(const need& w) const noexcept {
        const std::uint32_t ranks = size();
        std::uint32_t r = 0;
        while (r < ranks && seen(w, r) >= w.target) ++r;
        return r;
    }
    bool all_there(const need& w) const noexcept { return first_missing(w) == size(); }
    bool done_everywhere(std::uint64_t target) noexcept {
        if (done_by_all_ >= target) return true;
        const need w = everyone(counter::done, target);
        std::uint64_t least = ~std::uint64_t{0};
        for (std::uint32_t r = 0; r < size(); ++r) {
            const auto d = seen(w, r);
            if (d < target) return false;
            least = (std::min)(least, d);
        }
        done_by_all_ = least;
        return true;
    }

    // --- publishing -------------------------------------------------------------------------------------------

    /// Lets every rank that looks see it. Those that sleep are told by `announce`, which is due before this rank
    /// sleeps itself or returns to its caller: an operation between ranks that spin pays for one fence, not for
    /// two.
    void publish(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
        word.store(value, std::memory_order_release);
        unannounced_ = true;
    }
    void announce() noexcept {
        if (!unannounced_) return;
        unannounced_ = false;
        full_fence();  // (P) pairs with the waiter's store of `parked`: one of the two sees the other
        for (std::uint32_t r = 0; r < size(); ++r)
            if (r != me_ && shared_.bell(r).parked.load(std::memory_order_seq_cst) == me_ + 1) ring(r);
    }
    void ring(std::uint32_t r) noexcept {
        shared_.bell(r).bell.fetch_add(1, std::memory_order_seq_cst);
        futex_wake(shared_.bell(r).bell);
    }
    void ring_all() noexcept {
        for (std::uint32_t r = 0; r < size(); ++r)
            if (shared_.bell(r).parked.load(std::memory_order_seq_cst) != 0) ring(r);
    }

    // --- waiting ----------------------------------------------------------------------------------------------

    /// True when every rank has got to `w`; false on `stop()`; throws when it is in vain. `what()` says for what it
    /// is.
    template <class Stop, class What>
    bool await(const need& w, std::optional<deadline> until, Stop stop, What what) {
        // A peer is often a few cache misses behind.
        for (int i = 0; settings_.spin.count() > 0 && i < 32; ++i) {
            if (all_there(w)) return true;
            cpu_relax();
        }
        announce();
        if (settings_.spin.count() > 0 && spin_for(w, stop)) return all_there(w);
        const auto start = deadline::clock::now();
        const deadline end = until ? *until : deadline::in(settings_.timeout);
        rank_bell& mine = shared_.bell(me_);
        constexpr auto look_every = std::chrono::milliseconds(50);
        auto next_look = start + look_every;
        for (;;) {
            std::uint32_t r = first_missing(w);
            if (r == size()) return true;
            if (stop()) return false;
            mine.parked.store(r + 1, std::memory_order_seq_cst);  // (P)
            const std::uint32_t heard = mine.bell.load(std::memory_order_seq_cst);
            r = first_missing(w);
            if (r < size() && !stop() && !shared_.header().aborted.any() &&
                shared_.bell(r).left.load(std::memory_order_seq_cst) != 1 &&
                mine.parked.load(std::memory_order_relaxed) == r + 1)
                futex_wait(mine.bell, heard, end.slice(look_every));
            mine.parked.store(0, std::memory_order_relaxed);
            if (all_there(w)) return true;
            throw_if_aborted();
            const auto now = deadline::clock::now();
            const bool ended = end.passed();
            if (now >= next_look || ended || shared_.bell(first_of(w)).left.load(std::memory_order_seq_cst) == 1) {
                next_look = now + look_every;
                look(w, ended, now - start, what);
            }
        }
    }
    std::uint32_t first_of(const need& w) const noexcept { return (std::min)(first_missing(w), size() - 1); }

    template <class Stop>
    bool spin_for(const need& w, Stop stop) const noexcept {
        const auto end = deadline::clock::now() + settings_.spin;
        do {
            for (int i = 0; i < 64; ++i) {
                if (all_there(w)) return true;
                cpu_relax();
            }
            if (stop()) return true;
        } while (deadline::clock::now() < end);
        return false;
    }

    /// Is there still hope? Throws if not.
    template <class What>
    void look(const need& w, bool ended, std::chrono::nanoseconds waited, What what) {
        if (auto cause = watch_->cause()) fail(std::move(*cause));
        std::vector<std::uint32_t> missing, gone;
        for (std::uint32_t r = 0; r < size(); ++r) {
            if (seen(w, r) >= w.target) continue;
            const auto how = shared_.bell(r).left.load(std::memory_order_seq_cst);
            const bool left = how == 1 || (how == 2 && waited > std::chrono::seconds(1));
            auto end = watch_->dead(r);
            // It may have finished this operation between our last look and its end: then that is no failure.
            if ((left || end) && seen(w, r) >= w.target) continue;
            missing.push_back(r);
            if (end) fail(watch_->first(say::peer_ended(r, *end, what(), w.joined)));
            if (left) gone.push_back(r);
        }
        if (!gone.empty()) fail(watch_->first(say::peer_left(gone, what())));
        if (ended && !missing.empty()) fail(say::nobody_came(missing, w.joined, what(), waited));
    }

    // --- failing ----------------------------------------------------------------------------------------------

    std::string me() const { return speaker(settings_.name, me_, size()); }
    [[noreturn]] void fail(failure t) {
        abort(t);
        failure_ = t;
        throw_failure(t, me());
    }
    void throw_if_aborted() {
        if (auto t = shared_.header().aborted.read()) {
            failure_ = t;
            throw_failure(*t, me());
        }
    }
    void refuse_if_failed() {
        if (failure_) throw_failure(say::group_is_dead(*failure_), me());
        if (shared_.header().aborted.any()) throw_if_aborted();
    }

    channel_memory shared_;
    std::uint32_t me_;
    channel_settings settings_;

  private:
    Watch* watch_;
    bool unannounced_ = false;
    std::uint64_t done_by_all_ = 0;  // a lower bound of what all ranks are done with
    std::optional<failure> failure_;
    int exceptions_at_birth_ = std::uncaught_exceptions();
};

}  // namespace trireme::detail
