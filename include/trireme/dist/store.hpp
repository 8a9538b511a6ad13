#pragma once
// A store for finding each other: small values under names, in files of one folder.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include <trireme/core/error.hpp>
#include <trireme/sys/fd.hpp>

namespace trireme {

/// Key-value store in a folder that every process of the job sees. A value appears as a whole or not at all: it is
/// written beside and renamed. Values of processes that died stay behind; whoever uses the store tells them apart.
///
/// Throws     system_error naming the path
/// Processes  any number, any order
class file_store {
  public:
    /// Makes the folder (its parent exists) if it is not there; the destructor removes it again if it is empty.
    explicit file_store(std::string folder) : folder_(std::move(folder)) { make(folder_); }
    /// The folder for `name` of this user: $TMPDIR/trireme-UID/name. Refuses a folder that others may write to.
    static file_store of_user(const std::string& name) {
        const char* tmp = std::getenv("TMPDIR");
        std::string base =
            std::string(tmp != nullptr && *tmp != 0 ? tmp : "/tmp") + "/trireme-" + std::to_string(::getuid());
        make(base);
        struct stat s {};
        if (::lstat(base.c_str(), &s) != 0 || !S_ISDIR(s.st_mode) || s.st_uid != ::getuid() ||
            (s.st_mode & 022) != 0)
            throw system_error({"the folder " + base + " is not this user's own",
                                "pid " + std::to_string(::getpid()), "remove it, or set TMPDIR or TRIREME_STORE"},
                               EPERM);
        file_store store(base + "/" + name);
        store.parent_ = std::move(base);
        return store;
    }
    file_store(file_store&& other) noexcept
        : folder_(std::exchange(other.folder_, {})), parent_(std::exchange(other.parent_, {})) {}
    file_store& operator=(file_store&&) = delete;
    ~file_store() {
        if (!folder_.empty()) ::rmdir(folder_.c_str());  // fails, and should, while somebody's values are in it
        if (!parent_.empty()) ::rmdir(parent_.c_str());
    }

    const std::string& folder() const noexcept { return folder_; }

    void set(const std::string& key, const std::string& value) const {
        make(folder_);  // a peer that was done may have removed it
        const std::string to = path(key), beside = to + "." + std::to_string(::getpid());
        {
            const fd f(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
            if (!f.valid() || ::write(f.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size()))
                throw trouble(beside, errno);
        }
        if (::rename(beside.c_str(), to.c_str()) != 0) throw trouble(to, errno);
    }
    std::optional<std::string> get(const std::string& key) const {
        const fd f(::open(path(key).c_str(), O_RDONLY | O_CLOEXEC));
        if (!f.valid()) {
            if (errno == ENOENT) return std::nullopt;
            throw trouble(path(key), errno);
        }
        std::string value(4096, '\0');
        const ssize_t n = ::read(f.get(), value.data(), value.size());
        if (n < 0) throw trouble(path(key), errno);
        value.resize(static_cast<std::size_t>(n));
        return value;
    }
    void erase(const std::string& key) const noexcept { ::unlink(path(key).c_str()); }

  private:
    std::string path(const std::string& key) const { return folder_ + "/" + key; }
    static void make(const std::string& folder) {
        if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw trouble(folder, errno);
    }
    static system_error trouble(const std::string& path, int number) {
        return system_error({"the store cannot use " + path, "pid " + std::to_string(::getpid()),
                             "point TRIREME_STORE to a folder that every process of the job may write to"},
                            number);
    }
    std::string folder_;
    std::string parent_;
};

}  // namespace trireme
