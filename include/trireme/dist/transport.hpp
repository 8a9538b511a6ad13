#pragma once
// The concept of a transport: collectives among the ranks of a group. Its simplest model is `self`, a group of one
// (self.hpp), to be read as the documentation; thread_transport and shm_transport are the others of this floor.

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <trireme/core/completion.hpp>
#include <trireme/core/deadline.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/dist/reduction.hpp>

namespace trireme {

namespace detail {
template <class T>
concept collective_calls = requires(T& t, std::span<float> data, std::span<const float> in, std::span<float> out,
                                    std::optional<deadline> until, const std::string& reason) {
    { std::as_const(t).rank() } -> std::same_as<std::uint32_t>;
    { std::as_const(t).size() } -> std::same_as<std::uint32_t>;
    t.all_reduce(data, reduce::sum, until);
    { t.start_all_reduce(data, reduce::mean) } -> completion;
    t.broadcast(data, trireme::rank{0}, until);
    t.all_gather(in, out, until);
    t.reduce_scatter(in, out, reduce::sum, until);
    t.barrier(until);
    { t.progress() } -> std::same_as<bool>;
    t.abort(reason);
    { t.health() } -> std::same_as<std::optional<std::string>>;
    { t.timeout() } -> std::same_as<std::chrono::nanoseconds>;
    t.set_timeout(std::chrono::nanoseconds{});
};
}  // namespace detail

/// One rank's end of a group. Every rank makes the same calls in the same order.
///
///   rank(), size()                       this rank, and how many there are
///   all_reduce(data, how, until)         data becomes the reduction over the ranks, in rank order, rounded once
///   start_all_reduce(data, how)          the same, begun: returns a completion; data is busy until it is done
///   broadcast(data, root, until)         data becomes that of root
///   all_gather(in, out, until)           out = in of rank 0, in of rank 1, ...
///   reduce_scatter(in, out, how, until)  out = this rank's part of the reduction of all in
///   barrier(until)                       returns when all ranks have called it
///   progress()                           what can be done for begun operations without waiting
///   allocate<T>(n)                       n zeroed elements that peers reach without copies; a collective call
///   channel()                            an independent sequence of operations, for another thread; collective
///   abort(reason), health()              ends the group for all; says whether and why it has ended
///   timeout(), set_timeout(t)            of calls that name no deadline
///   reproducible, host_memory            same bits from run to run? may the processor touch allocated memory?
///
/// `until` is an optional deadline. Sizes may be 0. Every call that waits watches for the death of whom it waits
/// for. The compiler cannot check: the operations of all ranks are compared before data changes, and a difference
/// is a mismatch_error on every rank; a rank that died is a peer_error that names it; after an error the group is
/// dead and says so at once; with one rank, every operation returns its input. Reference model: self,
/// trireme/dist/self.hpp. Suite: tests/conformance/transport_suite.hpp.
template <class T>
concept transport = std::movable<T> && detail::collective_calls<T> && requires(T& t, std::size_t n) {
    { T::reproducible } -> std::convertible_to<bool>;
    { T::host_memory } -> std::convertible_to<bool>;
    { t.template allocate<float>(n) } -> std::same_as<std::span<float>>;
    { t.template allocate<half>(n) } -> std::same_as<std::span<half>>;
    { t.channel() } -> detail::collective_calls;
};

namespace explain {
/// One sentence for each requirement of `transport`; the first that fails is what the user reads.
template <class T>
consteval bool transport() {
    static_assert(std::movable<T>,
                  "trireme: a transport moves (its user owns it). Copy self, trireme/dist/self.hpp");
    static_assert(
        requires(const T& t) {
            { t.rank() } -> std::same_as<std::uint32_t>;
            { t.size() } -> std::same_as<std::uint32_t>;
        },
        "trireme: a transport says who it is: 'std::uint32_t rank() const' and 'size() const'. Copy self, "
        "trireme/dist/self.hpp");
    static_assert(
        requires(T & t, std::size_t n) {
            { t.template allocate<float>(n) } -> std::same_as<std::span<float>>;
        },
        "trireme: a transport gives memory that its peers reach: 'template <class T> std::span<T> "
        "allocate(std::size_t n)'. Copy self, trireme/dist/self.hpp");
    static_assert(
        requires(T & t) {
            { t.channel() } -> detail::collective_calls;
        },
        "trireme: a transport gives independent ends with the collectives of trireme/dist/transport.hpp: "
        "'channel()'. Copy self, trireme/dist/self.hpp");
    static_assert(trireme::transport<T>,
                  "trireme: not a transport; compare with self, trireme/dist/self.hpp, and the list in "
                  "trireme/dist/transport.hpp");
    return true;
}
}  // namespace explain

}  // namespace trireme
