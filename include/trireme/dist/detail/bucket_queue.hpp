#pragma once
// Buckets on their way: full ones are started strictly in order, at most 32 operations at a time, and are counted
// off as they are reduced. Used from one thread: the caller's or the communication thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/dist/bucket.hpp>
#include <trireme/dist/reduction.hpp>

namespace trireme::detail {

template <class Channel>
class bucket_queue {
  public:
    using completion_type =
        decltype(std::declval<Channel&>().start_all_reduce(std::declval<std::span<float>>(), reduce::mean));
    static constexpr std::size_t most_in_flight = 32;

    bucket_queue(Channel& c, std::byte* gradients) : channel_(&c), gradients_(gradients) {
        in_flight_.resize(most_in_flight);
    }

    /// A new step, with these buckets; they outlive it.
    void begin(const std::vector<bucket>& all) noexcept {
        all_ = &all;
        started_ = reduced_ = 0;
        next_range_ = 0;
        head_ = tail_ = 0;
    }
    std::size_t reduced() const noexcept { return reduced_; }

    /// What can be done without waiting while the first `full` buckets are full. True when something was.
    bool advance(std::size_t full) {
        bool any = start(full);
        any = channel_->progress() || any;
        return retire() || any;
    }
    /// Waits until the first `wanted` of the `full` buckets are reduced, or `stop()` (see wait_unless of the
    /// transports).
    template <class Stop>
    void wait(std::size_t wanted, std::size_t full, std::optional<deadline> until, Stop stop) {
        while (reduced_ < wanted) {
            if (advance(full) || reduced_ >= wanted) continue;
            if (stop()) return;
            completion_type& front = *in_flight_[head_ % most_in_flight].done;
            if constexpr (requires { front.wait_unless(until, stop); })
                front.wait_unless(until, stop);
            else
                front.wait(until ? *until : deadline::in(channel_->timeout()));
        }
    }

  private:
    struct flight {
        std::optional<completion_type> done;
        bool ends_bucket = false;
    };

    bool start(std::size_t full) {
        bool any = false;
        while (started_ < full && tail_ - head_ < most_in_flight) {
            const bucket& b = (*all_)[started_];
            flight& f = in_flight_[tail_ % most_in_flight];
            if (next_range_ < b.ranges.size()) {
                f.done.emplace(reduce_range(b.type, b.ranges[next_range_++]));
                f.ends_bucket = next_range_ == b.ranges.size();
            } else {  // a bucket of parameters without elements
                f.done.reset();
                f.ends_bucket = true;
            }
            ++tail_;
            if (f.ends_bucket) {
                ++started_;
                next_range_ = 0;
            }
            any = true;
        }
        return any;
    }
    bool retire() {
        bool any = false;
        while (head_ < tail_) {
            flight& f = in_flight_[head_ % most_in_flight];
            if (f.done && !f.done->done()) break;
            if (f.ends_bucket) ++reduced_;
            ++head_;
            any = true;
        }
        return any;
    }
    completion_type reduce_range(dtype t, arena_range r) {
        switch (t) {
            case dtype::f16:
                return reduce_as<half>(r);
            case dtype::bf16:
                return reduce_as<bfloat16>(r);
            case dtype::f64:
                return reduce_as<double>(r);
            default:
                return reduce_as<float>(r);
        }
    }
    template <class T>
    completion_type reduce_as(arena_range r) {
        const std::span<T> data(reinterpret_cast<T*>(gradients_ + r.begin), (r.end - r.begin) / sizeof(T));
        return channel_->start_all_reduce(data, reduce::mean);
    }

    Channel* channel_;
    std::byte* gradients_;
    const std::vector<bucket>* all_ = nullptr;
    std::vector<flight> in_flight_;  // a ring
    std::size_t head_ = 0, tail_ = 0;
    std::size_t started_ = 0, next_range_ = 0, reduced_ = 0;
};

}  // namespace trireme::detail
