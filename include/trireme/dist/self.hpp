#pragma once
// The transport of a group of one: every operation returns its input. No memory is shared, nothing waits, nothing
// costs; a program that is written for many ranks runs alone on it. It is also what a transport looks like at its
// simplest.

#include <algorithm>
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
#include <trireme/dist/detail/contiguous.hpp>
#include <trireme/dist/reduction.hpp>
#include <trireme/dist/transport.hpp>
#include <trireme/shm/backing/heap.hpp>

namespace trireme {

namespace detail {

/// The collectives of one rank.
class collectives_of_one {
  public:
    std::uint32_t rank() const noexcept { return 0; }
    std::uint32_t size() const noexcept { return 1; }

    /// The sum, product, minimum, maximum or mean of one value is that value.
    template <contiguous Data, class R>
    void all_reduce(Data&& data, R, std::optional<deadline> = {}) {
        static_assert(explain::reduction<element_of<Data>, R>());
        static_cast<void>(data);
        refuse_if_aborted();
    }
    template <contiguous Data, class R>
    [[nodiscard]] completed start_all_reduce(Data&& data, R how) {
        all_reduce(data, how);
        return {};
    }
    template <contiguous Data>
    void broadcast(Data&&, trireme::rank root = trireme::rank{0}, std::optional<deadline> = {}) {
        static_assert(movable_bytes<element_of<Data>>,
                      "trireme: only trivially copyable values move between ranks");
        refuse_if_aborted();
        if (root.value != 0) throw usage_error(no_such_root("broadcast", root.value, 1, "self"));
    }
    template <contiguous In, contiguous Out>
    void all_gather(In&& in, Out&& out, std::optional<deadline> = {}) {
        copy_same_size("all_gather", std::span<const element_of<In>>(in), std::span<element_of<In>>(out));
    }
    template <contiguous In, contiguous Out, class R>
    void reduce_scatter(In&& in, Out&& out, R, std::optional<deadline> = {}) {
        static_assert(explain::reduction<element_of<In>, R>());
        copy_same_size("reduce_scatter", std::span<const element_of<In>>(in), std::span<element_of<In>>(out));
    }
    void barrier(std::optional<deadline> = {}) { refuse_if_aborted(); }

    bool progress() { return false; }
    void abort(const std::string& reason) { aborted_ = "rank 0 gave up: " + reason; }
    std::optional<std::string> health() const { return aborted_; }
    std::chrono::nanoseconds timeout() const noexcept { return timeout_; }
    void set_timeout(std::chrono::nanoseconds t) noexcept { timeout_ = t; }

  private:
    template <class T>
    void copy_same_size(const char* operation, std::span<const T> in, std::span<T> out) {
        refuse_if_aborted();
        if (in.size() != out.size())
            throw usage_error(sizes_do_not_fit(operation, in.size(), out.size(), 1, "self"));
        if (in.data() != out.data()) std::copy(in.begin(), in.end(), out.begin());
    }
    void refuse_if_aborted() const {
        if (aborted_)
            throw remote_error({"this group failed before: " + *aborted_, "self, rank 0 of 1", "make a new group"});
    }
    std::optional<std::string> aborted_;
    std::chrono::nanoseconds timeout_ = std::chrono::seconds(30);
};

}  // namespace detail

/// A transport for a job of one rank.
/// Threads  one at a time      Blocks  never
class self : public detail::collectives_of_one {
  public:
    using channel_type = detail::collectives_of_one;
    static constexpr bool reproducible = true;
    static constexpr bool host_memory = true;

    /// `n` zeroed elements, 4096-byte-aligned. They belong to the transport and are freed with it.
    template <movable_bytes T>
    [[nodiscard]] std::span<T> allocate(std::size_t n) {
        const std::size_t bytes = (std::max)(n * sizeof(T), std::size_t{1});
        return {reinterpret_cast<T*>(blocks_.emplace_back("self", bytes).data()), n};
    }
    [[nodiscard]] channel_type channel(const char* = "channel") const { return {}; }

  private:
    std::vector<backing::heap> blocks_;
};
static_assert(transport<self>);

}  // namespace trireme
