#pragma once
// Anonymous shared memory: a sealed memfd whose pages are reserved before anybody touches them.
//
// A memfd has no name, is not bounded by the size of /dev/shm, and is gone with its last descriptor and mapping,
// whatever is killed. Seals keep anybody from truncating it under a reader (the other source of SIGBUS).

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>
#include <trireme/sys/fd.hpp>
#include <trireme/sys/memory.hpp>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace trireme {

namespace detail::say {
inline message cannot_reserve(std::string_view what, std::uint64_t bytes) {
    return {"cannot reserve " + format_bytes(bytes) + " of shared memory",
            std::string(what) + ", pid " + std::to_string(::getpid()),
            "fewer or smaller slots, a smaller batch, or a larger memory limit for this job (memory.max)"};
}
inline message more_than_there_is(std::string_view what, std::uint64_t bytes, const memory_reading& left) {
    return {"cannot reserve " + format_bytes(bytes) + " of shared memory: " + left.file + " leaves " +
                format_bytes(left.bytes),
            std::string(what) + ", pid " + std::to_string(::getpid()),
            "fewer or smaller slots, a smaller batch, or a larger memory limit for this job (memory.max)"};
}
inline message cannot_make_memfd(std::string_view what) {
    return {
        "cannot make a memory file", std::string(what) + ", pid " + std::to_string(::getpid()),
        "see whether the limit of open files is reached (ulimit -n) or memfd_create is forbidden here (seccomp)"};
}
}  // namespace detail::say

namespace detail {

/// Throws system_error when `bytes` are more than there is to be had. The kernel itself would not say no to a
/// memory file: it would hand out pages until the OOM killer ends somebody. Small requests are not looked at.
inline void refuse_if_too_large(std::string_view what, std::size_t bytes) {
    if (bytes < 1_MiB) return;
    const auto left = memory_left();
    if (!left.file.empty() && bytes > left.bytes)
        throw system_error(say::more_than_there_is(what, bytes, left), ENOMEM);
}

}  // namespace detail

/// Anonymous shared memory of a fixed size. Owns the descriptor, not the mappings.
class memfd {
  public:
    memfd() noexcept = default;
    /// Takes over a descriptor that came from elsewhere (inheritance, SCM_RIGHTS); the size is read from it.
    explicit memfd(fd from) noexcept : fd_(std::move(from)) {
        const off_t end = ::lseek(fd_.get(), 0, SEEK_END);
        bytes_ = end > 0 ? static_cast<std::size_t>(end) : 0;
    }
    /// `bytes` of zeroed memory, of which the first `reserve` (default: all) are backed by pages now.
    ///
    /// Throws  system_error (ENOSPC, ENOMEM: not enough memory, said here and not by SIGBUS later; EMFILE)
    /// Source  memfd -> size -> fallocate -> seal -> map, in this order; MFD_NOEXEC_SEAL is unknown before
    /// Linux 6.3
    memfd(const char* name, std::size_t bytes) : memfd(name, bytes, bytes) {}
    memfd(const char* name, std::size_t bytes, std::size_t reserve) : bytes_(bytes) {
        detail::refuse_if_too_large(name, reserve);
        constexpr unsigned noexec_seal = 0x0008U;  // MFD_NOEXEC_SEAL: newer than the headers of Debian 12
        int number = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | noexec_seal);
        if (number < 0 && errno == EINVAL) number = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (number < 0) throw system_error(detail::say::cannot_make_memfd(name), errno);
        fd_.reset(number);
        if (::ftruncate(number, static_cast<off_t>(bytes)) != 0)
            throw system_error(detail::say::cannot_reserve(name, bytes), errno);
        allocate(0, reserve);
        if (::fcntl(number, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
            throw system_error(detail::say::cannot_make_memfd(name), errno);
    }

    /// Backs [offset, offset + length) with pages. Throws system_error when there are none to be had.
    void commit(std::size_t offset, std::size_t length) {
        if (length == 0) return;
        detail::refuse_if_too_large("memory file", length);
        allocate(offset, length);
    }

    fd_ref descriptor() const noexcept { return fd_.ref(); }
    std::size_t bytes() const noexcept { return bytes_; }
    bool valid() const noexcept { return fd_.valid(); }

  private:
    void allocate(std::size_t offset, std::size_t length) {
        if (length == 0) return;
        int result = 0;
        do result = ::posix_fallocate(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(length));
        while (result == EINTR);
        if (result != 0) throw system_error(detail::say::cannot_reserve("memory file", length), result);
    }

    fd fd_;
    std::size_t bytes_ = 0;
};

}  // namespace trireme
