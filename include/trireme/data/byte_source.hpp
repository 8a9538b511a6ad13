#pragma once
// Byte sources: where a reader of a file format gets a whole file from. The floor has plain files; compressed ones
// come from the zlib wing.

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace trireme {

/// Gives the whole content of a file.
///
///   source.load(path)   the bytes; throws system_error or usage_error naming the path
///
/// Reference model: plain_file below.
template <class S>
concept byte_source = requires(const S& s, const std::string& path) {
    { s.load(path) } -> std::same_as<std::vector<std::byte>>;
};

namespace detail::say {

inline message cannot_open_file(const std::string& path) {
    return {"cannot open " + path, "plain_file", "check the path; a relative one starts at the working directory"};
}
inline message cannot_read_file(const std::string& path, std::uint64_t offset) {
    return {"cannot read " + path + " at offset " + std::to_string(offset), "plain_file",
            "check the disk or the mount"};
}
inline message not_a_regular_file(const std::string& path) {
    return {path + " is not a regular file", "plain_file", "name a file, not a directory, pipe or device"};
}
inline message file_too_large(const std::string& path, std::uint64_t bytes, std::uint64_t limit) {
    return {path + " has " + std::to_string(bytes) + " bytes, more than the limit of " + std::to_string(limit),
            "plain_file", "check the file, or raise plain_file::max_bytes"};
}
inline message file_changed(const std::string& path, std::uint64_t expected, std::uint64_t found) {
    return {
        path + " ended at offset " + std::to_string(found) + ", expected " + std::to_string(expected) + " bytes",
        "plain_file", "the file became shorter while it was read: wait until it is complete"};
}

}  // namespace detail::say

/// A file as it lies on the disk, read into memory of this process. Forked workers share that memory.
struct plain_file {
    /// Larger files are refused before anything is allocated.
    std::uint64_t max_bytes = 64_GiB;

    /// Blocks     as long as the disk takes
    /// Throws     system_error, usage_error; both name the path
    /// Threads    any
    std::vector<std::byte> load(const std::string& path) const {
        // O_NONBLOCK: opening a named pipe by mistake has to end; regular files do not know the flag.
        const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0) throw system_error(detail::say::cannot_open_file(path), errno);
        const closer guard{descriptor};

        struct stat info {};
        if (::fstat(descriptor, &info) != 0) throw system_error(detail::say::cannot_open_file(path), errno);
        if (!S_ISREG(info.st_mode)) throw usage_error(detail::say::not_a_regular_file(path));
        const auto size = static_cast<std::uint64_t>(info.st_size);
        if (size > max_bytes) throw usage_error(detail::say::file_too_large(path, size, max_bytes));

        std::vector<std::byte> bytes(size);
        for (std::uint64_t done = 0; done < size;) {
            const ::ssize_t got = ::read(descriptor, bytes.data() + done, size - done);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) throw system_error(detail::say::cannot_read_file(path, done), errno);
            if (got == 0) throw usage_error(detail::say::file_changed(path, size, done));
            done += static_cast<std::uint64_t>(got);
        }
        return bytes;
    }

  private:
    struct closer {
        int descriptor;
        ~closer() { ::close(descriptor); }
    };
};
static_assert(byte_source<plain_file>);

}  // namespace trireme
