#pragma once
// Memory of this process alone, page-aligned and zeroed: slots for thread workers, and what tests and TSan look at.

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>
#include <trireme/sys/memfd.hpp>
#include <trireme/sys/wait.hpp>

#include <cerrno>
#include <cstddef>
#include <utility>

#include <sys/mman.h>

namespace trireme::backing {

/// Private anonymous memory. Owns it; move-only.
/// Throws  system_error when there is not enough
class heap {
  public:
    static constexpr scope reach = scope::threads;

    heap() noexcept = default;
    heap(const char* name, std::size_t bytes) : bytes_(bytes) {
        detail::refuse_if_too_large(name, bytes);
        void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            throw system_error({"cannot map " + format_bytes(bytes), name, "fewer or smaller slots"}, errno);
        data_ = static_cast<std::byte*>(p);
        // Huge pages make the first touch tens of times cheaper; where they are off, this changes nothing.
        if (bytes >= 4_MiB) static_cast<void>(::madvise(p, bytes, MADV_HUGEPAGE));
    }
    heap(heap&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    heap& operator=(heap&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~heap() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }

    std::byte* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return bytes_; }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace trireme::backing
