#pragma once
// The transport between processes of one host: gradients lie in memory that all ranks map, every rank reduces the
// slice it owns and writes the result to all. 2n bytes of memory traffic a rank, the lower bound.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <trireme/core/error.hpp>
#include <trireme/core/fixed_string.hpp>
#include <trireme/dist/detail/host_transport.hpp>
#include <trireme/dist/world.hpp>
#include <trireme/shm/backing/heap.hpp>
#include <trireme/shm/mapping.hpp>
#include <trireme/sys/memfd.hpp>

namespace trireme {

namespace detail {

class shm_fabric {
  public:
    using watch_type = world_watch;

    explicit shm_fabric(std::shared_ptr<world_state> w) : world_(std::move(w)) {}

    std::uint32_t rank() const noexcept { return world_->rank(); }
    std::uint32_t size() const noexcept { return world_->size(); }
    watch_type& watch() noexcept { return world_->watch(); }
    std::vector<shared_segment>& segments() noexcept { return segments_; }

    /// Every rank calls it with the same size: they get the same memory, zeroed and reserved. `stride` is the
    /// distance of the ranks' blocks, 0 when the memory is not divided.
    std::byte* share(std::size_t bytes, std::size_t stride, const char* what) {
        if (size() == 1) return heaps_.emplace_back(what, bytes).data();
        world w(world_);
        w.agree(std::string("size of shared memory (") + what + ", this rank asks for " + format_bytes(bytes) + ")",
                bytes);
        struct outcome {
            std::int32_t number = 0;
            fixed_text<256> text;
        } result;
        memfd file;
        if (rank() == 0) {
            try {
                file = memfd("trireme transport", bytes);
            } catch (const system_error& e) {
                result.number = e.code().value();
                result.text.assign(e.parts().what);
            }
        }
        result = w.broadcast(result);
        if (result.number != 0)
            throw system_error({std::string(result.text.view()), speaker("shm_transport, ", rank(), size()),
                                "smaller buffers, or a larger memory limit for this job (memory.max)"},
                               result.number);
        memfd mine(w.share_fd(file.descriptor()));
        const mapping& view = maps_.emplace_back(mine);
        view.inherit(false);
        if (stride != 0) warm(view.data() + stride * rank(), (std::min)(stride, bytes - stride * rank()));
        return view.data();
    }

  private:
    std::shared_ptr<world_state> world_;
    std::vector<mapping> maps_;
    std::vector<backing::heap> heaps_;
    std::vector<shared_segment> segments_;
};

}  // namespace detail

/// The collectives among the ranks of a world on one host.
///
/// Memory from `allocate` is reduced in place, without copies; other memory goes through staging slots, about three
/// times slower. Half types are accumulated in float and rounded once; results have the same bits on all ranks.
///
/// Blocks     the constructor until every rank is there
/// Throws     peer_error (names rank, pid and how it ended), remote_error (a rank failed: its text), timeout_error,
///            mismatch_error (the ranks called different things; no buffer was changed). After any of them the
///            transport is dead on every rank, and says so at once
/// Threads    one at a time; `channel()` gives an end for another thread
/// Crash      nothing is left behind: the memory has no name
class shm_transport : public detail::host_transport<detail::shm_fabric> {
  public:
    explicit shm_transport(const world& w, transport_options options = {})
        : host_transport(std::make_shared<detail::shm_fabric>(w.state()),
                         detail::channel_settings{"shm_transport", options.timeout,
                                                  options.spin ? *options.spin : w.state()->settle_spin()},
                         detail::channel_options{}) {}
};
static_assert(transport<shm_transport>);

}  // namespace trireme
