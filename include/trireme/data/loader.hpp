#pragma once
// The loader: batches of a dataset, made ahead by whatever engine, taken in place.

#include <trireme/core/bytes.hpp>
#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/observer.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/data/dataset.hpp>
#include <trireme/data/detail/batch_maker.hpp>
#include <trireme/data/detail/worker_count.hpp>
#include <trireme/data/engine/threads.hpp>
#include <trireme/data/loader_options.hpp>
#include <trireme/data/order.hpp>
#include <trireme/data/sampling.hpp>
#include <trireme/shm/ring.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace trireme {

/// Who makes the samples: engine::caller, engine::threads, engine::forked.
///
///   E::backing            where the slots live
///   E::name               for messages
///   e.worker_count()      how many make parts at once
///   E::crew<Core>         made from (engine, ring, core, options): help(), watch(), ready(), stop()
///
/// The compiler cannot check: every claimed part is published once; `stop` returns within the grace.
/// Reference model: engine::caller.
template <class E>
concept loader_engine = std::copy_constructible<E> && requires(const E& e) {
    typename E::backing;
    { E::name } -> std::convertible_to<const char*>;
    { e.worker_count() } -> std::convertible_to<std::uint32_t>;
    { E::works_ahead } -> std::convertible_to<bool>;
};

namespace detail {

/// What workers share, and what an abandoned thread keeps alive.
template <class Data, class Order>
struct loader_core {
    using maker = batch_maker<Data, Order>;

    loader_core(Data d, Order order, const loader_options& o)
        : data(std::move(d)),
          recipe{&data, std::move(order),
                 sampling_plan({static_cast<std::uint64_t>(data.size()), o.batch_size, o.shard, o.tail}), o.seed,
                 o.on_error} {}
    Data data;
    detail::recipe<Data, Order> recipe;
};

}  // namespace detail

/// Yields a dataset's batches, epoch by epoch. What it yields is a function of dataset, seed, epoch, order and
/// global batch size; engine, number of workers, timing, deaths and respawns do not show.
///
///   loader train{dataset, engine::forked{.workers = 4}, {.batch_size = 64, .seed = 42}};
///   for (auto&& batch : train.epoch(0)) { auto [image, label] = batch.fields(); ... }
///
/// Threads    one consumer; the batches it took may be read and dropped anywhere
/// Blocks     the constructor until the workers are started; iteration at most options.timeout a batch; the
/// destructor
///            at most options.grace + 2 s
/// Throws     usage_error, system_error at construction; what `next` throws in iteration
/// Crash      a killed worker's rows are made again by another (on_death::respawn) or raise peer_error; the
/// trainer's
///            death ends all workers; nothing is left in /dev/shm, which is not used
template <map_dataset Data, order Order = sequential, loader_engine Engine = engine::threads,
          observer Observer = stderr_observer>
class loader {
    using core_type = detail::loader_core<Data, Order>;
    using schema = typename Data::schema;

  public:
    using batch_type = trireme::batch<schema>;

    explicit loader(Data data, loader_options options = {})
        : loader(std::move(data), Order{}, Engine{}, std::move(options)) {}
    loader(Data data, Engine engine, loader_options options = {})
        : loader(std::move(data), Order{}, std::move(engine), std::move(options)) {}
    loader(Data data, Order order, loader_options options = {})
        : loader(std::move(data), std::move(order), Engine{}, std::move(options)) {}
    loader(Data data, Order order, Engine engine, loader_options options = {}, Observer observer = {})
        : options_(std::move(options)),
          engine_(std::move(engine)),
          observer_(std::move(observer)),
          core_(std::make_shared<const core_type>(std::move(data), std::move(order), options_)),
          ring_(ring_for(options_, engine_.worker_count(), plan_of().steps())),
          crew_(engine_, ring_, core_, options_) {}
    loader(loader&&) = delete;  // workers and iterators know where it is
    ~loader() {
        ring_.cancel();
        ring_.stop();
        if (const auto trouble = crew_.stop()) note(severity::warning, *trouble);
    }

    /// Steps of an epoch, the same on every rank.
    std::uint64_t steps() const noexcept { return plan_of().steps(); }
    std::uint64_t size() const noexcept { return plan_of().samples(); }
    const sampling_plan& sampling() const noexcept { return plan_of(); }
    const Data& dataset() const noexcept { return core_->data; }
    std::uint32_t workers() const noexcept { return ring_.geometry().workers; }
    std::uint32_t slot_count() const noexcept { return ring_.geometry().slots; }

    /// What all ranks have to agree on before the first step: world.agree("loader", train.plan_hash()).
    std::uint64_t plan_hash() const {
        return plan_of().hash(options_.seed, Order::kind, schema::hash(), dataset_fingerprint(core_->data));
    }

    /// What was chosen: one line for the user.
    std::string plan() const {
        const auto& g = ring_.geometry();
        return std::string(options_.name) + ": " + std::to_string(size()) + " samples, " + std::to_string(steps()) +
               " steps of " + std::to_string(g.rows) + " rows (rank " + std::to_string(options_.shard.index) +
               " of " + std::to_string(options_.shard.count) + "), " + std::string(Order::kind) + ", " +
               Engine::name + " with " + std::to_string(g.workers) + " worker(s), " + std::to_string(g.slots) +
               " slots of " + format_bytes(g.payload_bytes) + ", " + std::to_string(g.parts) + " part(s) a batch";
    }

    class iterator;
    class epoch_range;

    /// The batches of an epoch, for a range-for. Starting one gives up what is left of the one before; an epoch
    /// that follows the last by the same distance as before was prefetched over the seam.
    epoch_range epoch(std::uint64_t number) { return epoch_range(*this, number); }

    /// Begins an epoch: `next` yields its batches. Never waits.
    void start(std::uint64_t epoch) {
        const bool expected = take_epoch_ == epoch && take_step_ == 0;
        if (!expected) {
            ring_.cancel();
            take_epoch_ = open_epoch_ = epoch;
            take_step_ = open_step_ = 0;
        }
        if (started_) distance_ = epoch - last_started_;
        last_started_ = epoch;
        // What was prefetched beyond this epoch was a guess of the distance; start() of that one finds out.
        started_ = true;
        delivered_ = 0;
        may_open_ = true;
        fill_ring();
    }

    /// The next batch of the epoch that was started, or an empty one after its last.
    ///
    /// Blocks     until the batch is complete, at most options.timeout
    /// Throws     remote_error (a read threw: worker, batch, sample, text), peer_error (a worker died too often, or
    ///            on_death::raise; the zygote is gone), timeout_error (which sample is in whose hands), usage_error
    ///            (all slots are held by the caller). The loader can be started again afterwards
    [[nodiscard]] batch_type next() {
        if (!started_)
            throw usage_error({"next() before start(): no epoch was begun", std::string(options_.name),
                               "for (auto&& batch : loader.epoch(e)), or loader.start(e)"});
        if (delivered_ == steps()) return {};
        const auto until = deadline::in(options_.timeout);
        const auto watch = [this] { check_health(); };
        check_notices();
        for (;;) {
            fill_ring();
            if (ring_.in_flight() != 0) break;
            check_health();
            ring_.wait_for_vacancy(until, watch);
        }
        auto lease = ring_.try_take();
        if (!lease) {
            const auto since = now_ns();
            crew_.help();
            lease = ring_.take(until, watch);
            waited_ += now_ns() - since;
        }
        ++delivered_;
        if (++take_step_ == steps()) take_epoch_ += distance_, take_step_ = 0;
        if (options_.on_error == trireme::on_error::raise || lease->failure() != nullptr) raise_failure(*lease);
        return batch_type(std::move(*lease), ring_.geometry().rows);
    }

    /// Waits until every worker has finished its start-up, and makes the slots' pages present here, so that the
    /// first epoch pays for neither. Call it before building the model. Throws   timeout_error, and what start-up
    /// threw (remote_error)
    void warm_start() {
        const auto until = deadline::in(options_.timeout);
        const auto memory = ring_.memory();
        for (std::uint32_t s = 0; s < ring_.geometry().slots; ++s)
            warm(memory.payload(s), static_cast<std::size_t>(ring_.geometry().payload_bytes));
        while (!crew_.ready()) {
            check_health();
            if (until.passed())
                throw timeout_error({"the loader's workers did not finish their start-up before the deadline",
                                     std::string(options_.name), "a longer loader_options::timeout"});
            ::usleep(500);
        }
    }

    /// How long `next` waited for batches that were not there yet, over the loader's life. (engine::caller makes
    /// them meanwhile.)
    std::chrono::nanoseconds waited() const noexcept { return std::chrono::nanoseconds(waited_); }

    /// For tests and tools: the ring's memory (who made what, pids of workers), read only.
    const detail::ring_memory memory() const noexcept { return ring_.memory(); }
    auto& crew() noexcept { return crew_; }

  private:
    using ring_type = ring<typename Engine::backing>;

    const sampling_plan& plan_of() const noexcept { return core_->recipe.plan; }

    static ring_options ring_for(const loader_options& o, std::uint32_t workers, std::uint64_t steps) {
        ring_options r;
        r.name = o.name;
        r.geometry.rows = o.batch_size;
        r.geometry.workers = workers;
        r.geometry.payload_bytes = schema::bytes(o.batch_size);
        const std::uint64_t stride = (std::max)(r.geometry.slot_stride(), std::uint64_t{page_bytes});
        // Few enough to stay in the last-level cache, since what is written there is read there: 8 slots of 4.6 MiB
        // are less than half as fast as 3. Enough that no worker waits for the trainer, and not many epochs ahead.
        const std::uint64_t least = (std::max)(std::uint64_t{4}, std::uint64_t{2} * workers + 1);
        const std::uint64_t by_bytes =
            (std::min)({std::uint64_t{64}, 4_MiB / stride, (std::max)(std::uint64_t{8}, steps)});
        r.geometry.slots = o.prefetch != 0 ? o.prefetch : static_cast<std::uint32_t>((std::max)(least, by_bytes));
        // A part of a small batch is made sooner than it is claimed.
        const std::uint32_t shares = workers == 1 || r.geometry.payload_bytes < 256_KiB ? workers : 2 * workers;
        const std::uint32_t wanted = o.parts != 0 ? o.parts : shares;
        r.geometry.parts = (std::min)({wanted, max_parts, o.batch_size});
        r.order = o.delivery;
        if (Engine::works_ahead) r.spin = detail::loader_spin(workers);
        return r;
    }

    /// Opens what there is room for: this epoch's batches, then the next's (in order only: as ready, an early batch
    /// of the next epoch would overtake).
    void fill_ring() {
        ring_.refill([this](batch_request& request) {
            if (!may_open_) return false;
            request.epoch = open_epoch_;
            request.step = open_step_;
            if (++open_step_ == steps()) {
                open_epoch_ += distance_;
                open_step_ = 0;
                may_open_ = options_.delivery == trireme::delivery::in_order;
            }
            return true;
        });
    }

    /// Two loads of a line that hardly ever changes.
    void check_notices() {
        const auto& control = ring_.memory().control();
        if (control.fatal.load(std::memory_order_acquire) == detail::ring_over)
            throw_record(control.last_words, std::nullopt);
        if (control.deaths.load(std::memory_order_relaxed) != deaths_seen_) report_deaths();
    }
    void check_health() {
        check_notices();
        crew_.watch();
    }

    /// One line for each worker that died since the last look; under on_death::raise an error for the first.
    void report_deaths() {
        const auto memory = ring_.memory();
        deaths_seen_ = memory.control().deaths.load(std::memory_order_acquire);
        for (std::uint32_t w = 0; w < ring_.geometry().workers; ++w) {
            const auto& line = memory.worker(w);
            const auto deaths = line.deaths.load(std::memory_order_acquire);
            auto& seen = deaths_of_[w];
            if (deaths == seen) continue;
            seen = deaths;
            std::string text = "worker " + std::to_string(w) + " (pid " +
                               std::to_string(line.dead_pid.load(std::memory_order_relaxed)) + ") " +
                               describe(line.last_status);
            if (line.was_filling != 0) {
                text += " while it made batch " +
                        std::to_string(memory.head(memory.slot_of(line.dead_batch)).request.step);
                if (line.dead_sample != no_sample) text += ", sample " + std::to_string(line.dead_sample);
            }
            if (options_.on_death == trireme::on_death::raise)
                throw peer_error(
                    {text, std::string(options_.name) + ", pid " + std::to_string(::getpid()),
                     "loader_options::on_death = respawn has it redone by another worker; look at that "
                     "sample, or for the OOM killer in the kernel's log"});
            note(severity::warning, text + ": started anew, its rows are made again");
        }
    }

    void raise_failure(const raw_lease& lease) {
        if (const error_record* const r = lease.failure()) throw_record(*r, lease.request().step);
    }
    [[noreturn]] void throw_record(const error_record& r, std::optional<std::uint64_t> step) const {
        const auto place_of = std::string(options_.name) + ", worker " + std::to_string(r.worker) + " (pid " +
                              std::to_string(r.pid) + ")" + (step ? ", batch " + std::to_string(*step) : "");
        if (r.kind == static_cast<std::uint32_t>(errc::peer))
            throw peer_error({std::string(r.text.view()) +
                                  (r.sample != no_sample ? "; sample " + std::to_string(r.sample) : "") +
                                  (step ? " of batch " + std::to_string(*step) : ""),
                              place_of, "look at that sample with engine::caller under a debugger, or skip it"});
        if (!step)
            throw remote_error({"the start-up of worker " + std::to_string(r.worker) + " failed: " + describe(r),
                                place_of, "mend the dataset's start_up"});
        throw remote_error(
            {"sample " + std::to_string(r.sample) + " of batch " + std::to_string(*step) +
                 " failed: " + describe(r),
             place_of,
             "mend the sample or the dataset's read; loader_options::on_error = skip goes on without it"});
    }
    void note(severity level, const std::string& text) const noexcept {
        observer_(event{level, options_.name, text});
    }

    loader_options options_;
    Engine engine_;
    [[no_unique_address]] Observer observer_;
    std::shared_ptr<const core_type> core_;
    ring_type ring_;
    typename Engine::template crew<core_type> crew_;
    std::uint64_t take_epoch_ = 0, take_step_ = 0;   // what the oldest batch in flight is
    std::uint64_t open_epoch_ = 0, open_step_ = 0;   // what is opened next
    std::uint64_t distance_ = 1, last_started_ = 0;  // between the epochs that the user asks for
    std::uint64_t delivered_ = 0, waited_ = 0;
    std::uint32_t deaths_seen_ = 0;
    std::array<std::uint32_t, max_workers> deaths_of_{};
    bool started_ = false, may_open_ = false;
};

/// Input iterator over an epoch's batches: `*it` is a batch that may be moved away and kept.
template <map_dataset Data, order Order, loader_engine Engine, observer Observer>
class loader<Data, Order, Engine, Observer>::iterator {
  public:
    using value_type = batch_type;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    explicit iterator(loader* from) : from_(from) { ++*this; }
    batch_type& operator*() noexcept { return current_; }
    batch_type* operator->() noexcept { return &current_; }
    iterator& operator++() {
        current_ = batch_type();  // its slot is free before the next is waited for
        current_ = from_->next();
        return *this;
    }
    bool operator==(std::default_sentinel_t) const noexcept { return !current_ && done(); }

  private:
    bool done() const noexcept { return from_->delivered_ == from_->steps(); }
    loader* from_;
    batch_type current_;
};

template <map_dataset Data, order Order, loader_engine Engine, observer Observer>
class loader<Data, Order, Engine, Observer>::epoch_range {
  public:
    epoch_range(loader& from, std::uint64_t number) : from_(&from), number_(number) {}
    iterator begin() {
        from_->start(number_);
        return iterator(from_);
    }
    std::default_sentinel_t end() const noexcept { return {}; }

  private:
    loader* from_;
    std::uint64_t number_;
};

template <map_dataset Data>
loader(Data, loader_options) -> loader<Data>;
template <map_dataset Data>
loader(Data) -> loader<Data>;
template <map_dataset Data, loader_engine Engine>
loader(Data, Engine, loader_options) -> loader<Data, sequential, Engine>;
template <map_dataset Data, loader_engine Engine>
loader(Data, Engine) -> loader<Data, sequential, Engine>;
template <map_dataset Data, order Order>
loader(Data, Order, loader_options) -> loader<Data, Order>;
template <map_dataset Data, order Order>
loader(Data, Order) -> loader<Data, Order>;
template <map_dataset Data, order Order, loader_engine Engine>
loader(Data, Order, Engine, loader_options) -> loader<Data, Order, Engine>;
template <map_dataset Data, order Order, loader_engine Engine>
loader(Data, Order, Engine) -> loader<Data, Order, Engine>;
template <map_dataset Data, order Order, loader_engine Engine, observer Observer>
loader(Data, Order, Engine, loader_options, Observer) -> loader<Data, Order, Engine, Observer>;

}  // namespace trireme
