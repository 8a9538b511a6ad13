#pragma once
// File descriptors: an owner and a borrower.

#include <utility>

#include <unistd.h>

namespace trireme {

/// Borrows a descriptor: never closes it.
class fd_ref {
  public:
    constexpr fd_ref() noexcept = default;
    constexpr explicit fd_ref(int number) noexcept : number_(number) {}
    constexpr int get() const noexcept { return number_; }
    constexpr bool valid() const noexcept { return number_ >= 0; }

  private:
    int number_ = -1;
};

/// Owns a descriptor and closes it. Move-only; empty when moved from.
class fd {
  public:
    constexpr fd() noexcept = default;
    constexpr explicit fd(int number) noexcept : number_(number) {}
    fd(fd&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    fd& operator=(fd&& other) noexcept {
        if (this != &other) reset(std::exchange(other.number_, -1));
        return *this;
    }
    fd(const fd&) = delete;
    fd& operator=(const fd&) = delete;
    ~fd() { reset(); }

    constexpr int get() const noexcept { return number_; }
    constexpr bool valid() const noexcept { return number_ >= 0; }
    constexpr fd_ref ref() const noexcept { return fd_ref{number_}; }
    /// Gives the descriptor away; the caller closes it.
    [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }
    void reset(int number = -1) noexcept {
        if (number_ >= 0) ::close(number_);  // EINTR included: on Linux the descriptor is gone in every case
        number_ = number;
    }

  private:
    int number_ = -1;
};

}  // namespace trireme
