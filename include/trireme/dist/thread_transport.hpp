#pragma once
// Ranks that are threads of one process: the algorithm of shm_transport, where sanitizers can see it.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/dist/detail/host_transport.hpp>
#include <trireme/dist/detail/spin_budget.hpp>
#include <trireme/shm/backing/heap.hpp>

namespace trireme {

namespace detail {
/// What the ranks of a thread_group share while they build transports on it.
struct thread_meeting {
    explicit thread_meeting(std::uint32_t n) : ranks(n), spin(spin_budget(n <= usable_cpus())) {}

    const std::uint32_t ranks;
    const std::chrono::nanoseconds
        spin;  // by the CPUs of the thread that made the group: its threads may be pinned
    std::mutex lock;
    std::condition_variable changed;
    std::uint64_t round = 0;    // allocations so far
    std::uint32_t arrived = 0;  // ranks that wait for the next one
    std::size_t bytes = 0;
    std::vector<backing::heap> blocks;
    std::string failure;
};
}  // namespace detail

/// A world of threads: one object, given to every thread.
class thread_group {
  public:
    explicit thread_group(world_size ranks) : meeting_(std::make_shared<detail::thread_meeting>(ranks.value)) {
        if (ranks.value == 0)
            throw usage_error({"a group of 0 threads", "", "thread_group{world_size{n}} with n of at least 1"});
    }
    std::uint32_t size() const noexcept { return meeting_->ranks; }
    const std::shared_ptr<detail::thread_meeting>& meeting() const noexcept { return meeting_; }

  private:
    std::shared_ptr<detail::thread_meeting> meeting_;
};

namespace detail {

class thread_fabric {
  public:
    using watch_type = no_watch;

    thread_fabric(std::shared_ptr<thread_meeting> m, std::uint32_t rank, std::chrono::nanoseconds timeout)
        : meeting_(std::move(m)), rank_(rank), timeout_(timeout) {}

    std::uint32_t rank() const noexcept { return rank_; }
    std::uint32_t size() const noexcept { return meeting_->ranks; }
    watch_type& watch() noexcept { return watch_; }
    std::vector<shared_segment>& segments() noexcept { return segments_; }

    /// Every rank calls it with the same size: they get the same memory.
    std::byte* share(std::size_t bytes, std::size_t, const char* what) {
        thread_meeting& m = *meeting_;
        std::unique_lock hold(m.lock);
        const std::uint64_t round = m.round;
        if (m.arrived == 0) {
            m.bytes = bytes;
            try {
                m.blocks.emplace_back(what, bytes);
            } catch (const std::exception& e) { m.failure = e.what(); }
        } else if (m.bytes != bytes && m.failure.empty()) {
            m.failure = "the ranks ask for different sizes: " + std::to_string(m.bytes) + " and " +
                        std::to_string(bytes) + " bytes";
        }
        if (++m.arrived == m.ranks) {
            m.arrived = 0;
            ++m.round;
            m.changed.notify_all();
        } else if (!m.changed.wait_for(hold, timeout_, [&] { return m.round != round; })) {
            throw timeout_error({"only " + std::to_string(m.arrived) + " of " + std::to_string(m.ranks) +
                                     " threads asked for shared memory",
                                 speaker("thread_transport", rank_, size()),
                                 "make the transport, and allocate, in every thread of the group"});
        }
        if (!m.failure.empty())
            throw mismatch_error({"shared memory for " + std::string(what) + ": " + m.failure,
                                  speaker("thread_transport", rank_, size()),
                                  "let every rank allocate the same sizes in the same order"});
        return m.blocks[round].data();
    }

  private:
    std::shared_ptr<thread_meeting> meeting_;
    std::uint32_t rank_;
    std::chrono::nanoseconds timeout_;
    watch_type watch_;
    std::vector<shared_segment> segments_;
};

}  // namespace detail

/// One rank of a thread_group. Each thread makes its own.
/// Blocks   the constructor until every thread of the group is there
/// Throws   timeout_error, mismatch_error; see transport.hpp for the collectives
/// Threads  one object a thread
class thread_transport : public detail::host_transport<detail::thread_fabric> {
  public:
    thread_transport(const thread_group& group, trireme::rank me, transport_options options = {})
        : host_transport(std::make_shared<detail::thread_fabric>(group.meeting(), me.value, options.timeout),
                         detail::channel_settings{"thread_transport", options.timeout,
                                                  options.spin ? *options.spin : group.meeting()->spin},
                         detail::channel_options{}) {}
};
static_assert(transport<thread_transport>);

}  // namespace trireme
