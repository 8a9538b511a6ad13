#pragma once
// Slots that worker processes share with the trainer: a sealed memory file and this process's view of it.

#include <trireme/shm/mapping.hpp>
#include <trireme/sys/fork_gate.hpp>
#include <trireme/sys/memfd.hpp>
#include <trireme/sys/wait.hpp>

#include <cstddef>

namespace trireme::backing {

/// Anonymous shared memory, reserved in full. Children forked later do not inherit the view unless `inherit(true)`.
/// Throws  system_error
class memfd {
  public:
    static constexpr scope reach = scope::processes;

    memfd() noexcept = default;
    memfd(const char* name, std::size_t bytes) {
        const trireme::memfd file(name, bytes);
        view_ = mapping(file);
        view_.inherit(false);
        // The descriptor may go: the mapping keeps the memory, forked workers inherit the mapping.
    }

    std::byte* data() const noexcept { return view_.data(); }
    std::size_t size() const noexcept { return view_.size(); }
    void inherit(bool yes) const noexcept { view_.inherit(yes); }

  private:
    mapping view_;
};

}  // namespace trireme::backing
