#pragma once
// Data parallelism: every rank holds the model and works on its own share of the data; gradients are averaged in
// buckets while backward still runs.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/dist/bucket.hpp>
#include <trireme/dist/detail/ddp_say.hpp>
#include <trireme/dist/detail/plan_check.hpp>
#include <trireme/dist/detail/step_clock.hpp>
#include <trireme/dist/plan.hpp>
#include <trireme/dist/progress.hpp>
#include <trireme/dist/reduction.hpp>
#include <trireme/dist/transport.hpp>

namespace trireme {

struct ddp_options {
    trireme::buckets buckets = {};  ///< sizes at which they close
    bool rebuild = true;           ///< after the first step, cut anew in the order in which rank 0's gradients came
    bool check_parameters = true;  ///< at the first finish(): are they the same on all ranks?
    std::optional<std::chrono::nanoseconds> timeout = {};  ///< of a bucket; default: 60 s in the first step, then
                                                           ///< max(30 s, 20 x median step)
};

/// What the last steps did.
struct ddp_stats {
    std::uint64_t steps = 0;  ///< finished ones, with reduction
    std::size_t bucket_count = 0;
    std::size_t reduced_before_last_ready = 0;  ///< buckets of the last step that were over before its last ready()
    std::uint64_t bytes = 0;                    ///< of gradient reduced since the start, on this rank
    std::uint64_t reductions = 0;               ///< buckets reduced since the start
    std::chrono::nanoseconds exposed{0};        ///< blocked in finish() since the start: communication not hidden
    std::chrono::nanoseconds last_exposed{0};
};

/// Parameters and gradients of a model, in memory that the ranks of a transport share, and their averaging.
///
///   tr::ddp net{tr::shm_transport{world}, layout};
///   init(net.parameters<float>());  net.broadcast();
///   for (...) { backward(..., [&](std::size_t i) { net.ready(i); });  net.finish();  update(net); }
///
/// Backward adds to grad(i) and calls ready(i) when it is complete, in any order; ranks may differ in it. After
/// finish() every gradient is the mean over the ranks, with the same bits on all of them. Whoever updates the
/// parameters sets the gradients to zero (zero_gradients).
///
/// Needs      the same layout and options on every rank
/// Blocks     the constructor until every rank is there; ready() never; finish() until all buckets are reduced
/// Throws     mismatch_error on every rank when plans or parameters differ, naming the first difference;
/// usage_error
///            naming the parameter when it is marked ready too often, or not at all (other ranks: remote_error);
///            what the transport throws: peer_error, remote_error, timeout_error
/// Threads    one at a time; with progress::thread one more thread reduces
/// Memory     a step allocates nothing, except after the first one
template <transport Transport, class Progress = progress::in_caller>
class ddp {
    static_assert(explain::transport<Transport>());
    static_assert(Transport::host_memory, "trireme: this ddp works on host memory");
    using channel_type = decltype(std::declval<Transport&>().channel("ddp"));
    using driver_type = typename Progress::template driver<channel_type>;

  public:
    /// While the scope lives, ready() and finish() do nothing: gradients add up on this rank. The outermost scope
    /// counts. The first step after it sends the sum.
    class no_sync_scope {
      public:
        explicit no_sync_scope(ddp& d) noexcept : ddp_(&d) { ++d.no_sync_; }
        no_sync_scope(const no_sync_scope&) = delete;
        no_sync_scope& operator=(const no_sync_scope&) = delete;
        ~no_sync_scope() { --ddp_->no_sync_; }

      private:
        ddp* ddp_;
    };

    ddp(Transport t, std::vector<param_spec> layout, ddp_options options = {}, Progress = {})
        : transport_(std::move(t)),
          options_(options),
          plan_(checked(plan(std::move(layout), options.buckets))),
          parameters_(transport_.template allocate<std::byte>(plan_.bytes()).data()),
          gradients_(transport_.template allocate<std::byte>(plan_.bytes()).data()),
          channel_(transport_.channel("ddp")),
          driver_(channel_, gradients_),
          uses_(plan_.parameters().size()),
          observed_(plan_.parameters().size()),
          clock_(options.timeout) {
        channel_.set_timeout(clock_.timeout());
        prepare();
    }
    ddp(const ddp&) = delete;
    ddp& operator=(const ddp&) = delete;

    std::uint32_t rank() const noexcept { return transport_.rank(); }
    std::uint32_t size() const noexcept { return transport_.size(); }
    const trireme::plan& plan_of() const noexcept { return plan_; }
    const ddp_stats& stats() const noexcept { return stats_; }
    /// For collectives of the user's own: they have a sequence of their own, so buckets may fly meanwhile.
    Transport& group() noexcept { return transport_; }

    std::size_t count() const noexcept { return plan_.parameters().size(); }
    /// Throws  usage_error when there is none of this name
    std::size_t index_of(const std::string& name) const {
        for (std::size_t i = 0; i < count(); ++i)
            if (plan_.parameters()[i].name == name) return i;
        throw usage_error(detail::say::no_such_name(name, me()));
    }
    /// Parameter `i`, row-major, 64-byte-aligned. Throws usage_error when it is of another type.
    template <class T>
    std::span<T> param(std::size_t i) const {
        return {reinterpret_cast<T*>(parameters_ + place<T>(i)), plan_.parameters()[i].count()};
    }
    /// The gradient of parameter `i`: backward adds to it.
    template <class T>
    std::span<T> grad(std::size_t i) const {
        return {reinterpret_cast<T*>(gradients_ + place<T>(i)), plan_.parameters()[i].count()};
    }
    /// All parameters of type T in a row, and all gradients, in the same order, with zeros between them: one loop
    /// updates a model.
    template <class T>
    std::span<T> parameters() const noexcept {
        return region<T>(parameters_);
    }
    template <class T>
    std::span<T> gradients() const noexcept {
        return region<T>(gradients_);
    }
    void zero_gradients() noexcept { std::memset(gradients_, 0, plan_.bytes()); }

    /// The parameters of rank 0, on every rank.
    void broadcast(std::optional<deadline> until = {}) {
        transport_.broadcast(std::span<std::byte>(parameters_, plan_.bytes()), trireme::rank{0}, until);
    }

    /// The gradient of parameter `i` is complete on this rank. Full buckets set off, and with progress::in_caller
    /// this rank's share of them is reduced as far as the peers are.
    void ready(std::size_t i) {
        if (i >= count()) throw usage_error(detail::say::no_such_parameter(i, count(), me()));
        if (no_sync_ != 0) return;
        const param_spec& p = plan_.parameters()[i];
        if (uses_[i] >= p.uses) give_up(detail::say::ready_too_often(p, me()));
        if (ready_count_ + 1 == count() && uses_[i] + 1 == p.uses) {
            driver_.advance();
            stats_.reduced_before_last_ready = driver_.reduced();
        }
        if (++uses_[i] == p.uses) {
            if (stats_.steps == 0) observed_[ready_count_] = static_cast<std::uint32_t>(i);
            ++ready_count_;
            if (--waiting_[plan_.bucket_of(i)] == 0) {
                while (full_ < waiting_.size() && waiting_[full_] == 0) ++full_;
                driver_.full(full_);
            }
        }
        driver_.advance();
    }
    /// Does what can be done for buckets on their way, without waiting; ready() calls it.
    void progress() { driver_.advance(); }
    /// How many buckets of this step are reduced.
    std::size_t reduced() const noexcept { return driver_.reduced(); }

    /// Waits until all gradients are averaged.
    void finish(std::optional<deadline> until = {}) {
        if (no_sync_ != 0) return;
        if (ready_count_ != count()) give_up(detail::say::not_ready(missing(), me()));
        if (stats_.steps == 0 && options_.check_parameters)
            detail::check_parameters(transport_, plan_, parameters_, me());
        const auto waited_from = deadline::clock::now();
        driver_.finish(until);
        const auto now = deadline::clock::now();
        stats_.last_exposed = now - waited_from;
        stats_.exposed += stats_.last_exposed;
        stats_.bytes += plan_.bytes();
        stats_.reductions += plan_.cuts().size();
        if (stats_.steps++ == 0 && options_.rebuild) rebuild();
        clock_.step(now);
        channel_.set_timeout(clock_.timeout());
        prepare();
    }

    /// Throws  usage_error when gradients of this step are ready already: half a step cannot be left out
    [[nodiscard]] no_sync_scope no_sync() {
        const std::size_t marked = static_cast<std::size_t>(
            std::count_if(uses_.begin(), uses_.end(), [](std::uint32_t n) { return n != 0; }));
        if (no_sync_ == 0 && marked != 0) throw usage_error(detail::say::scope_opened_late(marked, count(), me()));
        return no_sync_scope(*this);
    }

  private:
    std::string me() const {
        return "ddp, rank " + std::to_string(rank()) + " of " + std::to_string(size()) + ", pid " +
               std::to_string(::getpid());
    }
    trireme::plan checked(trireme::plan p) {
        detail::check_plans(transport_, p, me());
        return p;
    }
    template <class T>
    std::size_t place(std::size_t i) const {
        if (i >= count()) throw usage_error(detail::say::no_such_parameter(i, count(), me()));
        if (plan_.parameters()[i].type != dtype_of<T>)
            throw usage_error(detail::say::wrong_type(plan_.parameters()[i], dtype_of<T>, me()));
        return plan_.place(i);
    }
    template <class T>
    std::span<T> region(std::byte* arena) const noexcept {
        const arena_range r = plan_.region(dtype_of<T>);
        return {reinterpret_cast<T*>(arena + r.begin), (r.end - r.begin) / sizeof(T)};
    }
    std::vector<const param_spec*> missing() const {
        std::vector<const param_spec*> found;
        for (std::size_t i = 0; i < count(); ++i)
            if (uses_[i] < plan_.parameters()[i].uses) found.push_back(&plan_.parameters()[i]);
        return found;
    }
    /// This rank cannot go on with the step; the others are told.
    [[noreturn]] void give_up(message m) {
        channel_.abort(m.what);
        transport_.abort(m.what);
        throw usage_error(std::move(m));
    }
    void prepare() {
        waiting_.resize(plan_.cuts().size());
        for (std::size_t b = 0; b < waiting_.size(); ++b)
            waiting_[b] = static_cast<std::uint32_t>(plan_.cuts()[b].parameters.size());
        std::fill(uses_.begin(), uses_.end(), 0U);
        ready_count_ = 0;
        full_ = 0;
        stats_.bucket_count = plan_.cuts().size();
        driver_.begin(plan_.cuts());
    }
    void rebuild() {
        transport_.broadcast(observed_);
        plan_.cut(observed_);
    }

    Transport transport_;
    ddp_options options_;
    trireme::plan plan_;
    std::byte* parameters_;
    std::byte* gradients_;
    channel_type channel_;
    driver_type driver_;
    std::vector<std::uint32_t> uses_;     // of each parameter, in this step
    std::vector<std::uint32_t> waiting_;  // parameters of each bucket that are not ready
    std::vector<std::uint32_t> observed_;
    std::size_t ready_count_ = 0;
    std::size_t full_ = 0;  // buckets that are full, counted in order
    std::uint32_t no_sync_ = 0;
    detail::step_clock clock_;
    ddp_stats stats_;
};

template <class Transport>
ddp(Transport, std::vector<param_spec>) -> ddp<Transport>;
template <class Transport>
ddp(Transport, std::vector<param_spec>, ddp_options) -> ddp<Transport>;
template <class Transport, class Progress>
ddp(Transport, std::vector<param_spec>, ddp_options, Progress) -> ddp<Transport, Progress>;

}  // namespace trireme
