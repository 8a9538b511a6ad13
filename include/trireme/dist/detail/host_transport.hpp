#pragma once
// What the transports between ranks of one host have in common: the user's calls, turned into requests of a
// channel. They differ in the fabric, which knows where shared memory comes from and who watches over the ranks.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/bytes.hpp>
#include <trireme/core/completion.hpp>
#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/dist/detail/channel.hpp>
#include <trireme/dist/detail/contiguous.hpp>
#include <trireme/dist/reduction.hpp>
#include <trireme/dist/transport.hpp>

namespace trireme {

struct transport_options {
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< of a collective that names no deadline
    std::optional<std::chrono::nanoseconds> spin =
        {};  ///< before a wait sleeps; default: 100 us if every rank has a CPU
};

}  // namespace trireme

namespace trireme::detail {

/// Any trivially copyable type moves as what it is, or as bytes.
template <class T>
constexpr std::size_t units(std::size_t elements) noexcept {
    return dtype_of<T> == dtype::bytes ? elements * sizeof(T) : elements;
}

/// An operation under way on a channel. Refers to the transport, which must outlive it.
template <class Watch>
class pending {
  public:
    pending(channel<Watch>& c, std::uint64_t n) noexcept : channel_(&c), number_(n) {}

    /// Makes progress, never waits. Throws like the operation.
    bool done() {
        if (channel_->complete(number_)) return true;
        channel_->progress();
        return channel_->complete(number_);
    }
    void wait(std::optional<deadline> until = {}) { channel_->wait(number_, until); }
    void wait(deadline until) { channel_->wait(number_, until); }
    /// As wait, but false as soon as `stop()`; whoever makes that true then calls `nudge` of the collectives.
    template <class Stop>
    bool wait_unless(std::optional<deadline> until, Stop stop) {
        return channel_->wait_unless(number_, until, stop);
    }

  private:
    channel<Watch>* channel_;
    std::uint64_t number_;
};

/// The collectives, on one channel of its own. Moves, does not copy; one thread at a time.
template <class Fabric>
class host_collectives {
  public:
    using watch_type = typename Fabric::watch_type;
    using completion_type = pending<watch_type>;

    host_collectives(std::shared_ptr<Fabric> fabric, channel_settings settings, channel_options options)
        : fabric_(std::move(fabric)) {
        const channel_layout layout(fabric_->size(), options);
        std::byte* const base = fabric_->share(layout.total, 0, settings.name);
        channel_ = std::make_unique<channel<watch_type>>(base, layout, fabric_->rank(), settings, fabric_->watch());
        for (const auto& s : fabric_->segments()) channel_->add_segment(s.base, s.stride, s.bytes);
    }

    std::uint32_t rank() const noexcept { return fabric_->rank(); }
    std::uint32_t size() const noexcept { return fabric_->size(); }

    /// `data` of every rank becomes the reduction of all of them, in rank order. Same size on every rank.
    template <contiguous Data, class R>
    void all_reduce(Data&& data, R how, std::optional<deadline> until = {}) {
        channel_->run(all_reduce_request(std::span(data), how), until);
    }
    /// The same, started: `data` belongs to the operation until the completion is done.
    template <contiguous Data, class R>
    [[nodiscard]] completion_type start_all_reduce(Data&& data, R how) {
        return {*channel_, channel_->post(all_reduce_request(std::span(data), how))};
    }
    /// `data` of every rank becomes what it is on `root`.
    template <contiguous Data>
    void broadcast(Data&& data, trireme::rank root = trireme::rank{0}, std::optional<deadline> until = {}) {
        using T = element_of<Data>;
        static_assert(movable_bytes<T>,
                      "trireme: only trivially copyable values that are no pointers move between ranks");
        if (root.value >= size()) throw usage_error(no_such_root("broadcast", root.value, size(), me()));
        const auto bytes = std::as_writable_bytes(std::span(data));
        channel_->run({{op_kind::broadcast, dtype_of<T>, 0, root.value},
                       units<T>(std::span(data).size()),
                       bytes.data(),
                       bytes.size(),
                       bytes.data(),
                       nullptr},
                      until);
    }
    /// `out` becomes the `in` of rank 0, rank 1, ...; out.size() == in.size() * size(). `in` may be this rank's
    /// part of `out`.
    template <contiguous In, contiguous Out>
    void all_gather(In&& input, Out&& output, std::optional<deadline> until = {}) {
        using T = element_of<In>;
        static_assert(movable_bytes<T>,
                      "trireme: only trivially copyable values that are no pointers move between ranks");
        const std::span<const T> in(input);
        const std::span<T> out(output);
        if (out.size() != in.size() * size())
            throw usage_error(sizes_do_not_fit("all_gather", in.size(), out.size(), size(), me()));
        const auto bytes = std::as_bytes(in);
        channel_->run({{op_kind::all_gather, dtype_of<T>, 0, 0},
                       units<T>(in.size()),
                       bytes.data(),
                       bytes.size(),
                       std::as_writable_bytes(out).data(),
                       nullptr},
                      until);
    }
    /// `out` becomes this rank's part of the reduction of all `in`; in.size() == out.size() * size(). `out` may be
    /// this rank's part of `in`.
    template <contiguous In, contiguous Out, class R>
    void reduce_scatter(In&& input, Out&& output, R, std::optional<deadline> until = {}) {
        using T = element_of<In>;
        const std::span<const T> in(input);
        const std::span<T> out(output);
        static_assert(explain::reduction<T, R>());
        if (in.size() != out.size() * size())
            throw usage_error(sizes_do_not_fit("reduce_scatter", in.size(), out.size(), size(), me()));
        const auto bytes = std::as_bytes(in);
        channel_->run({{op_kind::reduce_scatter, dtype_of<T>, R::id, 0},
                       out.size(),
                       bytes.data(),
                       bytes.size(),
                       std::as_writable_bytes(out).data(),
                       &reduce_blocks<R, T>},
                      until);
    }
    /// Returns when every rank has called it.
    void barrier(std::optional<deadline> until = {}) { channel_->run({}, until); }

    /// Does what can be done for started operations without waiting. True when something got further.
    bool progress() { return channel_->progress(); }
    /// Ends the group for every rank: their calls throw remote_error with `reason`.
    void abort(const std::string& reason) noexcept {
        channel_->abort({errc::remote, "rank " + std::to_string(rank()) + " gave up: " + reason, "see that rank"});
    }
    /// Empty while the group works, else why it does not.
    std::optional<std::string> health() {
        auto t = channel_->health();
        return t ? std::optional<std::string>(std::move(t->what)) : std::nullopt;
    }
    /// Of a call that names no deadline.
    std::chrono::nanoseconds timeout() const noexcept { return channel_->settings().timeout; }
    void set_timeout(std::chrono::nanoseconds t) noexcept { channel_->set_timeout(t); }
    /// How long a wait spins before it sleeps.
    void set_spin(std::chrono::nanoseconds t) noexcept { channel_->set_spin(t); }
    /// Makes a `wait_unless` in another thread look at its stop condition.
    void nudge() noexcept { channel_->nudge(); }

  protected:
    template <class T, std::size_t Extent, class R>
    static request all_reduce_request(std::span<T, Extent> data, R) {
        static_assert(explain::reduction<T, R>());
        const auto bytes = std::as_writable_bytes(data);
        return {{op_kind::all_reduce, dtype_of<T>, R::id, 0},
                data.size(),
                bytes.data(),
                bytes.size(),
                bytes.data(),
                &reduce_blocks<R, T>};
    }
    std::string me() const { return speaker(channel_->settings().name, rank(), size()); }

    std::shared_ptr<Fabric> fabric_;
    std::unique_ptr<channel<watch_type>> channel_;
};

struct shared_segment {
    std::byte* base = nullptr;
    std::size_t stride = 0;
    std::size_t bytes = 0;
};

/// How far the blocks of two ranks lie apart: an odd number of pages, for the reason given in channel_layout.hpp.
/// An all-reduce of 1 MiB took 92 us with blocks 2^28 bytes apart and takes 12.5 us like this; with distances that
/// are no multiple of a page, one of 25 MiB takes 15 % longer (2 ranks, Zen 4).
constexpr std::size_t block_stride(std::size_t bytes) noexcept {
    return (align_up(bytes, page_bytes) / page_bytes | 1) * page_bytes;
}

template <class Fabric>
class host_transport : public host_collectives<Fabric> {
    using base = host_collectives<Fabric>;

  public:
    using channel_type = host_collectives<Fabric>;
    /// Same inputs, same bits: on all ranks, for every size and timing, from run to run.
    static constexpr bool reproducible = true;
    /// The processor reads and writes the memory of this transport.
    static constexpr bool host_memory = true;

    using base::base;

    /// `n` zeroed elements that the collectives reach without copying. Every rank calls it with the same `n`.
    /// Memory  page-aligned; belongs to the transport and is freed with it
    template <movable_bytes T>
    [[nodiscard]] std::span<T> allocate(std::size_t n) {
        const std::size_t bytes = n * sizeof(T);
        const std::size_t stride = block_stride(bytes);
        std::byte* const first = this->fabric_->share(stride * this->size(), stride, "memory");
        this->fabric_->segments().push_back({first, stride, bytes});
        this->channel_->add_segment(first, stride, bytes);
        return {reinterpret_cast<T*>(first + this->rank() * stride), n};
    }
    /// A sequence of collectives of its own: ranks may begin operations on it and on the transport in any order,
    /// and from different threads. Every rank calls it. It reaches the memory allocated before it was made.
    ///
    /// A call that waits makes progress on its own sequence only: with one thread for both, ranks wait in one
    /// order.
    [[nodiscard]] channel_type channel(const char* name = "channel") {
        auto settings = this->channel_->settings();
        settings.name = name;
        return channel_type(this->fabric_, settings, channel_options{});
    }
};

}  // namespace trireme::detail
