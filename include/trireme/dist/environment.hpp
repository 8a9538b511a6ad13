#pragma once
// What a launcher says about this process: RANK, WORLD_SIZE and friends, as torchrun sets them, read and checked.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/types.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <trireme/core/error.hpp>

namespace trireme {

/// A process's place in a job, and where its peers meet.
struct environment {
    std::uint32_t rank = 0;
    std::uint32_t size = 1;
    std::uint32_t local_rank = 0;
    std::uint32_t local_size = 1;
    std::string store;    ///< TRIREME_STORE: a folder that all ranks of the job see; else empty
    std::string address;  ///< MASTER_ADDR, MASTER_PORT: the name of the meeting when there is no folder
    std::uint16_t port = 0;

    /// "the folder /tmp/job7", "127.0.0.1 port 29500"
    std::string meeting() const {
        return !store.empty() ? "the folder " + store : address + " port " + std::to_string(port);
    }
};

namespace detail {

namespace say {
inline message variable_missing(const char* variable, const char* because) {
    return {std::string("the environment variable ") + variable + " is not set, but " + because + " is",
            "pid " + std::to_string(::getpid()),
            "set RANK, WORLD_SIZE, and TRIREME_STORE or MASTER_ADDR and MASTER_PORT, for every process of the job; "
            "unset RANK and WORLD_SIZE to run alone; or use trireme::launch, which needs none of them"};
}
inline message variable_wrong(const char* variable, std::string_view text, const std::string& rule) {
    return {std::string("the environment variable ") + variable + "=" + std::string(text) + " " + rule,
            "pid " + std::to_string(::getpid()),
            std::string("correct ") + variable + " in whatever starts this process"};
}
}  // namespace say

inline std::uint32_t number_in(const char* variable, std::string_view text, std::uint32_t least, std::uint32_t most,
                               const std::string& rule) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
        throw usage_error(say::variable_wrong(variable, text, rule));
    return value;
}

/// Whether `name` means this host. Numbers and this host's own name only: asking a name server can take minutes.
inline bool is_this_host(const std::string& name) {
    char own[256]{};
    static_cast<void>(::gethostname(own, sizeof own - 1));
    if (name == "localhost" || name == own) return true;
    in_addr v4{};
    in6_addr v6{};
    const bool is4 = ::inet_pton(AF_INET, name.c_str(), &v4) == 1;
    const bool is6 = ::inet_pton(AF_INET6, name.c_str(), &v6) == 1;
    if (is4 && (ntohl(v4.s_addr) >> 24) == 127) return true;
    if (is4 && v4.s_addr == INADDR_ANY) return true;
    if (!is4 && !is6) return false;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return false;
    bool found = false;
    for (const ifaddrs* i = list; i != nullptr && !found; i = i->ifa_next) {
        if (i->ifa_addr == nullptr) continue;
        if (is4 && i->ifa_addr->sa_family == AF_INET)
            found = std::memcmp(&reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, &v4, sizeof v4) == 0;
        if (is6 && i->ifa_addr->sa_family == AF_INET6)
            found =
                std::memcmp(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr, &v6, sizeof v6) == 0;
    }
    ::freeifaddrs(list);
    return found;
}

inline constexpr std::uint32_t most_ranks = 1024;

/// Reads variables through `get(name) -> const char*`. Empty when neither RANK nor WORLD_SIZE is set.
/// Throws  usage_error naming the variable and its text
template <class Get>
std::optional<environment> read_environment(Get get) {
    const char* const rank = get("RANK");
    const char* const size = get("WORLD_SIZE");
    if (rank == nullptr && size == nullptr) return std::nullopt;
    if (rank == nullptr) throw usage_error(say::variable_missing("RANK", "WORLD_SIZE"));
    if (size == nullptr) throw usage_error(say::variable_missing("WORLD_SIZE", "RANK"));

    environment e;
    e.size = number_in("WORLD_SIZE", size, 1, most_ranks,
                       "is not a number of ranks from 1 to " + std::to_string(most_ranks));
    e.rank = number_in("RANK", rank, 0, e.size - 1,
                       "is not a rank from 0 to " + std::to_string(e.size - 1) + " (WORLD_SIZE=" + size + ")");
    e.local_rank = e.rank;
    e.local_size = e.size;
    if (const char* t = get("LOCAL_WORLD_SIZE"))
        e.local_size = number_in("LOCAL_WORLD_SIZE", t, e.size, e.size,
                                 std::string("differs from WORLD_SIZE=") + size +
                                     ": this transport connects the ranks of one host only");
    if (const char* t = get("LOCAL_RANK"))
        e.local_rank = number_in("LOCAL_RANK", t, 0, e.local_size - 1,
                                 "is not a rank from 0 to " + std::to_string(e.local_size - 1));
    if (e.size == 1) return e;

    if (const char* t = get("TRIREME_STORE"); t != nullptr && *t != 0) {
        e.store = t;
        return e;
    }
    const char* const address = get("MASTER_ADDR");
    const char* const port = get("MASTER_PORT");
    if (address == nullptr || *address == 0) throw usage_error(say::variable_missing("MASTER_ADDR", "RANK"));
    if (port == nullptr || *port == 0) throw usage_error(say::variable_missing("MASTER_PORT", "RANK"));
    e.port = static_cast<std::uint16_t>(
        number_in("MASTER_PORT", port, 1, 65535, "is not a port number from 1 to 65535"));
    e.address = address;
    if (!is_this_host(e.address))
        throw usage_error(say::variable_wrong("MASTER_ADDR", e.address,
                                              "is not an address of this host, and the ranks of this world are "
                                              "processes of one host"));
    return e;
}

}  // namespace detail

/// The environment of this process; empty when no launcher has set RANK or WORLD_SIZE.
/// Throws  usage_error naming the variable and its text
inline std::optional<environment> read_environment() {
    return detail::read_environment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace trireme
