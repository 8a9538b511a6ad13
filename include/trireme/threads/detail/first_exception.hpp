#pragma once
// How an exception travels from the thread that threw it to the one that waits for the loop.

#include <atomic>
#include <exception>
#include <utility>

namespace trireme::detail {

/// The first exception of a loop, for the thread that waits for it.
class first_exception {
  public:
    /// In a handler: keeps the exception if it is the first, and tells the others to stop.
    void keep() noexcept {
        if (!stopped_.exchange(true, std::memory_order_acq_rel)) thrown_ = std::current_exception();
    }
    bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
    /// After all parts have ended: throws what was kept, if anything, and is as new.
    void rethrow() {
        if (!stopped()) return;
        stopped_.store(false, std::memory_order_relaxed);
        std::rethrow_exception(std::exchange(thrown_, nullptr));
    }

  private:
    std::atomic<bool> stopped_{false};
    std::exception_ptr thrown_;  // written by whoever set the flag first, read after the join
};

}  // namespace trireme::detail
