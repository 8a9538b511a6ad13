#pragma once
// The collective engine: one rank's end of a channel (channel_layout.hpp).
//
// Operation n goes like this. Every rank publishes its entry n (A). When the entries of all ranks are there, each
// rank compares them before any data changes, then does its part: it reduces the slice it owns, reading the buffers
// of all ranks in rank order and writing the result to all of them, and counts itself done (B). The operation is
// complete when all are done: 2n bytes of memory traffic a rank, the lower bound, and two waits. Payloads that fit
// in the entries need only (A): every rank sums all of them itself. Memory that peers cannot reach goes through
// staging slots in chunks (C). All three are steps of one machine that never blocks, so progress can be made from
// anywhere.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/dist/detail/channel_layout.hpp>
#include <trireme/dist/detail/channel_memory.hpp>
#include <trireme/dist/detail/channel_wait.hpp>
#include <trireme/dist/detail/operation.hpp>
#include <trireme/dist/detail/reduce_block.hpp>
#include <trireme/dist/detail/say.hpp>

namespace trireme::detail {

/// One rank's end. Not thread-safe: one thread at a time.
template <watch Watch>
class channel : public channel_end<Watch> {
    using end = channel_end<Watch>;
    using end::all_there;
    using end::announce;
    using end::await;
    using end::done_everywhere;
    using end::everyone;
    using end::fail;
    using end::me_;
    using end::publish;
    using end::refuse_if_failed;
    using end::shared_;
    using typename end::counter;
    using typename end::need;

  public:
    using end::size;

    /// `base` is zeroed memory of `layout.total` bytes that all ranks share, and outlives this.
    channel(std::byte* base, channel_layout layout, std::uint32_t me, channel_settings settings, Watch& watch)
        : end(channel_memory(base, layout), me, settings, watch),
          local_(channel_layout::entries),
          sources_(layout.ranks),
          destinations_(layout.ranks) {}

    /// Memory that every rank can reach: rank r's block starts at `base + r * stride`. Same order on every rank.
    void add_segment(std::byte* base, std::size_t stride, std::size_t bytes) {
        segments_.push_back({base, stride, bytes});
    }

    /// Publishes an operation and returns its number. Waits only when 64 of them are in flight.
    std::uint64_t post(const request& r) {
        const std::uint64_t n = put_down(r, {});
        announce();
        return n;
    }

    /// Does what can be done now, without waiting. True when an operation got further.
    bool progress() {
        refuse_if_failed();
        bool any = false;
        while (step()) any = true;
        announce();
        return any;
    }
    /// True when operation `n` is over on this rank: its result is there, and nobody touches its memory any more.
    bool complete(std::uint64_t n) noexcept {
        if (finished_ <= n) return false;
        if (size() == 1) return true;
        if (posted_ - n > channel_layout::entries) return true;  // its entry was reused, so everybody was done
        return !local_[n % channel_layout::entries].read_by_others || done_everywhere(n + 1);
    }
    void wait(std::uint64_t n, std::optional<deadline> until = {}) {
        static_cast<void>(wait_unless(n, until, [] { return false; }));
    }
    /// As wait, but returns false as soon as `stop()`, which another thread makes true and then calls `nudge`.
    template <class Stop>
    bool wait_unless(std::uint64_t n, std::optional<deadline> until, Stop stop) {
        refuse_if_failed();
        for (;;) {
            while (step()) {}
            if (complete(n)) {
                announce();
                return true;
            }
            const std::uint64_t oldest = (std::min)(n, finished_);
            if (!await(what_is_missing(n), until, stop, [&] { return described(oldest); })) return false;
        }
    }
    void run(const request& r, std::optional<deadline> until = {}) { wait(put_down(r, until), until); }

  private:
    struct segment {
        std::byte* base = nullptr;
        std::size_t stride = 0;
        std::size_t bytes = 0;
    };
    struct operation {
        request ask;
        enum class way : std::uint8_t { waiting, inlined, direct, staged } how = way::waiting;
        bool read_by_others = false;
        staging_plan staging;
        std::uint64_t put = 0, worked = 0, taken = 0;  // chunks of this operation
        std::uint64_t put_base = 0;                    // chunks of the channel before it
    };

    // --- posting ----------------------------------------------------------------------------------------------

    std::uint64_t put_down(const request& r, std::optional<deadline> until) {
        refuse_if_failed();
        const std::uint64_t n = posted_;
        make_room(n, until);
        operation& o = local_[n % channel_layout::entries];
        o.ask = r;
        o.how = operation::way::waiting;
        o.read_by_others = false;
        op_entry& e = shared_.entry(me_, n);
        e.signature = r.signature.packed();
        e.count = r.count;
        e.place = 0;
        e.payload = 0;
        if (r.gives(me_) && size() > 1) {
            if (r.in_bytes > op_entry::inline_bytes) e.place = place_of(r.in, r.in_bytes);
            // A copy costs more than the second wait of the direct way from about 512 bytes on, but much less than
            // the staged way, which private memory would have to take.
            const std::size_t small_enough = e.place != 0 ? 512 : channel_layout::payload_bytes;
            if (r.in_bytes <= op_entry::inline_bytes || (r.in_bytes <= small_enough && slot_is_free(n))) {
                e.payload = 1 + static_cast<std::uint32_t>(r.in_bytes);
                if (r.in_bytes > 0) std::memcpy(shared_.payload(me_, n, r.in_bytes), r.in, r.in_bytes);
            }
        }
        posted_ = n + 1;
        publish(e.seq, n + 1);  // (A)
        return n;
    }
    void make_room(std::uint64_t n, std::optional<deadline> until) {
        if (n < channel_layout::entries) return;
        const std::uint64_t target = n - channel_layout::entries + 1;  // entry n takes the place of n - 64
        if (size() == 1) {
            while (step()) {}
            return;
        }
        while (!done_everywhere(target)) {
            while (step()) {}
            const std::uint64_t oldest = (std::min)(target - 1, finished_);
            await(
                finished_ < target ? what_is_missing(target - 1) : everyone(counter::done, target), until,
                [] { return false; }, [&] { return described(oldest); });
        }
    }
    bool slot_is_free(std::uint64_t n) noexcept {
        return n < channel_layout::payload_slots || done_everywhere(n - channel_layout::payload_slots + 1);
    }
    std::uint64_t place_of(const std::byte* p, std::size_t bytes) const noexcept {
        for (std::size_t s = segments_.size(); s-- > 0;) {
            const std::byte* const mine = segments_[s].base + me_ * segments_[s].stride;
            if (p >= mine && p + bytes <= mine + segments_[s].bytes)
                return (static_cast<std::uint64_t>(s) + 1) << 48 | static_cast<std::uint64_t>(p - mine);
        }
        return 0;
    }
    std::byte* at_place(std::uint32_t r, std::uint64_t place) const noexcept {
        const segment& s = segments_[(place >> 48) - 1];
        return s.base + r * s.stride + (place & 0xffffffffffffULL);
    }

    // --- the machine ------------------------------------------------------------------------------------------

    /// One step of the oldest operation that is not finished here. False when it has to wait, or there is none.
    bool step() {
        if (finished_ == posted_) return false;
        operation& o = local_[finished_ % channel_layout::entries];
        if (size() == 1) {  // whatever the operation, the result is the input
            copy(o.ask.out, o.ask.in, o.ask.in_bytes);
            ++finished_;
            return true;
        }
        if (o.how == operation::way::waiting) {
            if (!all_there(everyone(counter::entry, finished_ + 1))) return false;
            compare_entries();
            choose_way(o);
        }
        switch (o.how) {
            case operation::way::inlined:
                run_inlined(o);
                break;
            case operation::way::direct:
                run_direct(o);
                break;
            case operation::way::staged:
                if (!step_staged(o)) return false;
                if (o.taken < o.staging.chunks) return true;
                break;
            case operation::way::waiting:
                return false;
        }
        publish(shared_.counters(me_).done, ++finished_);  // (B)
        return true;
    }

    void compare_entries() {
        const op_entry& mine = shared_.entry(me_, finished_);
        for (std::uint32_t r = 0; r < size(); ++r) {
            const op_entry& e = shared_.entry(r, finished_);
            if (e.signature != mine.signature || e.count != mine.count) refuse_mismatch();
        }
    }
    [[noreturn]] void refuse_mismatch() {
        const op_entry& first = shared_.entry(0, finished_);
        std::vector<std::uint32_t> like_first, like_other;
        const op_entry* other = nullptr;
        for (std::uint32_t r = 0; r < size(); ++r) {
            const op_entry& e = shared_.entry(r, finished_);
            if (e.signature == first.signature && e.count == first.count) {
                like_first.push_back(r);
            } else if (other == nullptr || (e.signature == other->signature && e.count == other->count)) {
                other = &e;
                like_other.push_back(r);
            }
        }
        fail(say::collectives_differ(
            finished_, describe(op_signature::unpack(first.signature), first.count), list_ranks(like_first),
            describe(op_signature::unpack(other->signature), other->count), list_ranks(like_other)));
    }

    void choose_way(operation& o) {
        const request& q = o.ask;
        bool payloads = true, reachable = true;
        for (std::uint32_t r = 0; r < size(); ++r) {
            if (!q.gives(r)) continue;
            const op_entry& e = shared_.entry(r, finished_);
            payloads = payloads && e.payload != 0;
            reachable = reachable && e.place != 0;
        }
        if (payloads || q.in_bytes == 0) {
            o.how = operation::way::inlined;
        } else if (reachable) {
            o.how = operation::way::direct;
            o.read_by_others = q.gives(me_);
        } else {
            o.how = operation::way::staged;
            o.staging = staging_plan(q, size(), shared_.layout().stage_bytes);
            o.put = o.worked = o.taken = 0;
            o.put_base = staged_chunks_;
            staged_chunks_ += o.staging.chunks;
        }
    }

    void run_inlined(operation& o) {
        if (o.ask.in_bytes == 0) return;
        for (std::uint32_t r = 0; r < size(); ++r) sources_[r] = shared_.payload(r, finished_, o.ask.in_bytes);
        pull(o.ask, sources_.data(), me_, size());
    }
    void run_direct(operation& o) {
        const request& q = o.ask;
        for (std::uint32_t r = 0; r < size(); ++r) {
            const op_entry& e = shared_.entry(r, finished_);
            sources_[r] = e.place != 0 ? at_place(r, e.place) : nullptr;
        }
        if (q.signature.kind != op_kind::all_reduce) {
            pull(q, sources_.data(), me_, size());
            return;
        }
        const std::size_t width = size_of(q.signature.type);
        const slice mine = slice_of(q.count, width, me_, size());
        for (std::uint32_t r = 0; r < size(); ++r) {
            destinations_[r] = const_cast<std::byte*>(sources_[r]) + mine.begin * width;
            sources_[r] = destinations_[r];
        }
        q.reduce({sources_.data(), destinations_.data(), size(), size(), size(), mine.count()});
    }

    /// (C) Three sub-steps a chunk, two chunks in flight: put what others need into my slot, combine my part of
    /// everybody's, take the parts that others combined. A chunk's slots are free again once all have combined it.
    bool step_staged(operation& o) {
        bool any = false;
        const staging_plan& plan = o.staging;
        rank_counters& mine = shared_.counters(me_);
        if (o.put < plan.chunks && o.put < o.taken + 2) {
            plan.put(o.ask, o.put, shared_.stage(me_, o.put & 1), me_);
            publish(mine.put, o.put_base + ++o.put);
            any = true;
        }
        if (o.worked < o.put && all_there(everyone(counter::put, o.put_base + o.worked + 1))) {
            for (std::uint32_t r = 0; r < size(); ++r) sources_[r] = shared_.stage(r, o.worked & 1);
            plan.work(o.ask, o.worked, sources_.data(), shared_.stage(me_, 2 + (o.worked & 1)), me_);
            publish(mine.worked, o.put_base + ++o.worked);
            any = true;
        }
        if (o.taken < o.worked && all_there(everyone(counter::worked, o.put_base + o.taken + 1))) {
            for (std::uint32_t r = 0; r < size(); ++r) sources_[r] = shared_.stage(r, 2 + (o.taken & 1));
            plan.take(o.ask, o.taken, sources_.data(), me_);
            ++o.taken;
            any = true;
        }
        return any;
    }

    // --- waiting ----------------------------------------------------------------------------------------------

    need what_is_missing(std::uint64_t n) const noexcept {
        if (finished_ > n) return everyone(counter::done, n + 1);
        const operation& o = local_[finished_ % channel_layout::entries];
        if (o.how != operation::way::staged) return everyone(counter::entry, finished_ + 1);
        if (o.taken < o.worked) return everyone(counter::worked, o.put_base + o.taken + 1);
        return everyone(counter::put, o.put_base + o.worked + 1);
    }

    /// "all_reduce(sum) of 1000 float (operation 12)"
    std::string described(std::uint64_t n) const {
        const request& q = local_[n % channel_layout::entries].ask;
        return describe(q.signature, q.count) + " (operation " + std::to_string(n) + ")";
    }

    std::vector<operation> local_;  // the ring of this rank's operations, without what others need to see
    std::vector<segment> segments_;
    std::vector<const std::byte*> sources_;  // scratch
    std::vector<std::byte*> destinations_;   // scratch
    std::uint64_t posted_ = 0;
    std::uint64_t finished_ = 0;       // operations that this rank has done its part of
    std::uint64_t staged_chunks_ = 0;  // chunks of the staged operations so far: the same on every rank
};

}  // namespace trireme::detail
