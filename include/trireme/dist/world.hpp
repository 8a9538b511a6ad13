#pragma once
// A world: the processes that train together, as one of them sees it. Small sums, barriers, agreement on plans, and
// the death watch that makes every wait end.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/dist/detail/host_transport.hpp>
#include <trireme/dist/detail/launched.hpp>
#include <trireme/dist/detail/rendezvous.hpp>
#include <trireme/dist/detail/world_state.hpp>
#include <trireme/dist/environment.hpp>
#include <trireme/dist/reduction.hpp>

namespace trireme {

namespace detail::say {
inline message disagreement(std::string_view name, const std::vector<std::uint32_t>& first,
                            const std::vector<std::uint32_t>& others, std::string where) {
    return {"the ranks disagree about the " + std::string(name) + ": " + list_ranks(others) +
                (others.size() == 1 ? " has" : " have") + " another one than " + list_ranks(first),
            std::move(where),
            "let every rank build it from the same data, options and seed, with the same program"};
}
inline message already_launched(std::uint32_t rank, std::uint32_t size) {
    return {"this process is rank " + std::to_string(rank) + " of " + std::to_string(size) +
                " already: launch has made its world",
            "pid " + std::to_string(::getpid()), "use the world that launch passes to the function"};
}
}  // namespace detail::say

/// This process's view of the job.
///
/// Blocks     the constructor until every rank has joined, at most start_timeout (60 s)
/// Throws     usage_error naming the variable (environment.hpp), timeout_error naming the missing ranks; the
///            collective calls throw peer_error (a rank died: who, and how), remote_error (a rank failed: its
///            text), timeout_error (who did not come), mismatch_error (the ranks called different things)
/// Threads    one at a time
/// Processes  of one host. Transports made from a world keep it alive
class world {
  public:
    /// What the launcher says (RANK, WORLD_SIZE, ...); alone when no launcher speaks.
    explicit world(world_options options = {}) : state_(find(options)) {}
    explicit world(std::shared_ptr<detail::world_state> state) noexcept : state_(std::move(state)) {}

    std::uint32_t rank() const noexcept { return state_->rank(); }
    std::uint32_t size() const noexcept { return state_->size(); }
    std::uint32_t local_rank() const noexcept { return state_->place().local_rank; }
    std::uint32_t local_size() const noexcept { return state_->place().local_size; }
    /// This rank's share of the data of the job, and of the resources of the host.
    trireme::shard shard() const noexcept { return {rank(), size()}; }
    trireme::shard local_shard() const noexcept { return {local_rank(), local_size()}; }

    /// Returns when every rank has called it.
    void barrier(std::optional<deadline> until = {}) { state_->control().run({}, until); }
    /// The sum of one number of every rank, on every rank.
    template <element T>
    [[nodiscard]] T sum(T mine, std::optional<deadline> until = {}) {
        return reduced(mine, reduce::sum, until);
    }
    template <element T>
    [[nodiscard]] T largest(T mine, std::optional<deadline> until = {}) {
        return reduced(mine, reduce::maximum, until);
    }
    template <element T>
    [[nodiscard]] T smallest(T mine, std::optional<deadline> until = {}) {
        return reduced(mine, reduce::minimum, until);
    }
    /// The value of `root`, on every rank.
    template <movable_bytes T>
    [[nodiscard]] T broadcast(T value, trireme::rank root = trireme::rank{0}, std::optional<deadline> until = {}) {
        auto* const p = reinterpret_cast<std::byte*>(&value);
        state_->control().run(
            {{detail::op_kind::broadcast, dtype::bytes, 0, root.value}, sizeof(T), p, sizeof(T), p, nullptr},
            until);
        return value;
    }
    /// The values of rank 0, 1, ...
    template <movable_bytes T>
    [[nodiscard]] std::vector<T> gather(const T& mine, std::optional<deadline> until = {}) {
        std::vector<T> all(size());
        state_->control().run({{detail::op_kind::all_gather, dtype::bytes, 0, 0},
                               sizeof(T),
                               reinterpret_cast<const std::byte*>(&mine),
                               sizeof(T),
                               reinterpret_cast<std::byte*>(all.data()),
                               nullptr},
                              until);
        return all;
    }
    /// Throws mismatch_error on every rank, naming the ranks, unless all of them pass the same hash.
    void agree(std::string_view name, std::uint64_t hash, std::optional<deadline> until = {}) {
        const auto all = gather(hash, until);
        std::vector<std::uint32_t> first, others;
        for (std::uint32_t r = 0; r < size(); ++r) (all[r] == all[0] ? first : others).push_back(r);
        if (!others.empty()) throw mismatch_error(detail::say::disagreement(name, first, others, state_->me()));
    }
    /// A descriptor of rank 0, on every rank. Rank 0 passes it; what the others pass is not looked at.
    [[nodiscard]] fd share_fd(fd_ref of_rank_0, std::optional<deadline> until = {}) {
        return state_->share(of_rank_0, until);
    }
    /// Tells the job that this rank has failed: waits of the other ranks throw remote_error with `text`. The first
    /// failure of a job is the one that is told.
    void fail(const std::string& text) noexcept { state_->fail(text); }

    const std::shared_ptr<detail::world_state>& state() const noexcept { return state_; }

  private:
    static std::shared_ptr<detail::world_state> find(const world_options& o) {
        if (const auto& place = detail::launched_as())
            throw usage_error(detail::say::already_launched(place->rank, place->size));
        const auto e = read_environment();
        return e ? detail::meet(*e, o) : std::make_shared<detail::world_state>(o);
    }
    template <class T, class R>
    T reduced(T mine, R, std::optional<deadline> until) {
        auto* const p = reinterpret_cast<std::byte*>(&mine);
        state_->control().run({{detail::op_kind::all_reduce, dtype_of<T>, R::id, 0},
                               1,
                               p,
                               sizeof(T),
                               p,
                               &detail::reduce_blocks<R, T>},
                              until);
        return mine;
    }
    std::shared_ptr<detail::world_state> state_;
};

}  // namespace trireme
