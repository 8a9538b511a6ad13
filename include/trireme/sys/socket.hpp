#pragma once
// Local sockets: pairs and abstract addresses, whole messages with descriptors, every call with a deadline.

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/sys/fd.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace trireme {

namespace detail {

inline int poll_timeout(deadline until) noexcept {
    const auto left = until.left();
    if (left.count() <= 0) return 0;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
    return static_cast<int>(ms >= 1'000'000 ? 1'000'000 : ms + 1);
}

/// True when `events` (or an error, or the end) are there; false when `until` came first.
inline bool wait_for(fd_ref s, short events, deadline until) noexcept {
    for (;;) {
        pollfd p{s.get(), events, 0};
        if (::poll(&p, 1, poll_timeout(until)) > 0) return true;
        if (until.left().count() <= 0) return false;
    }
}

inline message socket_trouble(const char* what) {
    return {std::string("local socket: ") + what, "pid " + std::to_string(::getpid()),
            "see whether the limit of open files is reached (ulimit -n)"};
}

inline std::pair<sockaddr_un, socklen_t> abstract_address(std::string_view name) {
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    const std::size_t n = name.size() < sizeof a.sun_path - 1 ? name.size() : sizeof a.sun_path - 1;
    std::memcpy(a.sun_path + 1, name.data(), n);  // a leading zero: no file, gone with the last descriptor
    return {a, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n)};
}

}  // namespace detail

/// What came out of `receive`: a message, the end of the connection, or nothing until the deadline.
enum class received { message, closed, nothing };

/// Two connected sockets that keep message borders (SOCK_SEQPACKET). Throws system_error.
inline std::pair<fd, fd> socket_pair() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        throw system_error(detail::socket_trouble("cannot make a pair"), errno);
    return {fd(pair[0]), fd(pair[1])};
}

/// Listens on an abstract address: a name without a file, seen by every process of the network namespace.
/// Throws system_error (EADDRINUSE when somebody has the name)
inline fd listen_abstract(std::string_view name) {
    fd s(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto [address, length] = detail::abstract_address(name);
    if (!s.valid() || ::bind(s.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(s.get(), 128) != 0)
        throw system_error(detail::socket_trouble("cannot listen"), errno);
    return s;
}

/// The next connection, or an empty descriptor when `until` came first.
inline fd accept_connection(fd_ref listener, deadline until) {
    for (;;) {
        const int s = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (s >= 0) return fd(s);
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            throw system_error(detail::socket_trouble("cannot accept"), errno);
        if (!detail::wait_for(listener, POLLIN, until)) return fd();
    }
}

/// A connection to an abstract address, or an empty descriptor when nobody listens there.
inline fd connect_abstract(std::string_view name) {
    fd s(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!s.valid()) throw system_error(detail::socket_trouble("cannot make a socket"), errno);
    const auto [address, length] = detail::abstract_address(name);
    if (::connect(s.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return fd();
    return s;
}

/// The process at the other end of a local connection, or -1.
inline pid_t peer_pid(fd_ref s) noexcept {
    ucred c{};
    socklen_t n = sizeof c;
    return ::getsockopt(s.get(), SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 ? c.pid : -1;
}

/// Sends one message with up to 8 descriptors. False when the other end is gone or `until` came first.
inline bool send_message(fd_ref s, std::span<const std::byte> bytes, std::span<const int> descriptors,
                         deadline until) {
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))]{};
    iovec io{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr m{};
    m.msg_iov = &io;
    m.msg_iovlen = 1;
    if (!descriptors.empty()) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
        cmsghdr* c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
        std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size() * sizeof(int));
    }
    for (;;) {
        if (::sendmsg(s.get(), &m, MSG_NOSIGNAL) >= 0) return true;
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return false;
        if (!detail::wait_for(s, POLLOUT, until)) return false;
    }
}
inline bool send_message(fd_ref s, std::span<const std::byte> bytes, deadline until) {
    return send_message(s, bytes, {}, until);
}

/// Receives one message (cut at `bytes.size()`); `size` gets its length, `descriptors` those that came with it.
inline received receive_message(fd_ref s, std::span<std::byte> bytes, std::size_t& size,
                                std::vector<fd>& descriptors, deadline until) {
    for (;;) {
        alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))]{};
        iovec io{bytes.data(), bytes.size()};
        msghdr m{};
        m.msg_iov = &io;
        m.msg_iovlen = 1;
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        const ssize_t n = ::recvmsg(s.get(), &m, MSG_CMSG_CLOEXEC);
        if (n > 0) {
            for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
                for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
                    int number = -1;
                    std::memcpy(&number, CMSG_DATA(c) + i * sizeof(int), sizeof number);
                    descriptors.emplace_back(number);
                }
            }
            size = static_cast<std::size_t>(n);
            return received::message;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) return received::closed;
        if (errno == EAGAIN && !detail::wait_for(s, POLLIN, until)) return received::nothing;
    }
}
inline received receive_message(fd_ref s, std::span<std::byte> bytes, std::size_t& size, deadline until) {
    std::vector<fd> none;
    return receive_message(s, bytes, size, none, until);
}

}  // namespace trireme
