#pragma once
// The sentences of the group: what is said when ranks call different things, die, leave or stay away.

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <trireme/dist/detail/failure.hpp>
#include <trireme/dist/reduction.hpp>

namespace trireme::detail {

enum class op_kind : std::uint8_t { barrier = 1, all_reduce, broadcast, all_gather, reduce_scatter };

constexpr const char* name(op_kind k) noexcept {
    constexpr const char* names[] = {"nothing",   "barrier",    "all_reduce",
                                     "broadcast", "all_gather", "reduce_scatter"};
    return static_cast<std::size_t>(k) < 6 ? names[static_cast<std::size_t>(k)] : "unknown";
}

/// What must be equal on every rank: operation, element type and reduction, root.
struct op_signature {
    op_kind kind = op_kind::barrier;
    dtype type = dtype::bytes;
    std::uint8_t reduction = 0;
    std::uint32_t root = 0;

    constexpr std::uint64_t packed() const noexcept {
        return static_cast<std::uint64_t>(kind) | static_cast<std::uint64_t>(type) << 8 |
               static_cast<std::uint64_t>(reduction) << 16 | static_cast<std::uint64_t>(root) << 32;
    }
    static constexpr op_signature unpack(std::uint64_t p) noexcept {
        return {static_cast<op_kind>(p & 0xff), static_cast<dtype>((p >> 8) & 0xff),
                static_cast<std::uint8_t>((p >> 16) & 0xff), static_cast<std::uint32_t>(p >> 32)};
    }
};

/// "all_reduce(sum) of 1000 float", "broadcast of 10 byte from rank 1", "barrier".
inline std::string describe(op_signature s, std::uint64_t count) {
    std::string text = name(s.kind);
    if (s.reduction != 0) text += std::string("(") + reduce::name_of(s.reduction) + ")";
    if (s.kind == op_kind::barrier) return text;
    text +=
        " of " + std::to_string(count) + " " +
        (static_cast<std::size_t>(s.type) <= static_cast<std::size_t>(dtype::u64) ? trireme::name(s.type) : "?");
    if (s.kind == op_kind::broadcast) text += " from rank " + std::to_string(s.root);
    return text;
}

/// "rank 1", "ranks 1 and 3", "ranks 0, 1 and 2".
inline std::string list_ranks(const std::vector<std::uint32_t>& r) {
    std::string text = r.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < r.size(); ++i)
        text += (i == 0 ? "" : i + 1 == r.size() ? " and " : ", ") + std::to_string(r[i]);
    return text;
}

inline std::string seconds(std::chrono::nanoseconds d) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(d).count());
    return text;
}

/// Who speaks: "shm_transport, rank 0 of 2, pid 4711".
inline std::string speaker(std::string_view group, std::uint32_t me, std::uint32_t of) {
    return std::string(group) + ", rank " + std::to_string(me) + " of " + std::to_string(of) + ", pid " +
           std::to_string(::getpid());
}

namespace say {

inline failure collectives_differ(std::uint64_t n, const std::string& first, const std::string& first_ranks,
                                  const std::string& second, const std::string& second_ranks) {
    return {errc::mismatch,
            "the ranks call different collectives: operation " + std::to_string(n) + " is " + first + " on " +
                first_ranks + ", but " + second + " on " + second_ranks,
            "let every rank call the same collectives with the same sizes in the same order; no buffer was changed "
            "by this one, and the group cannot be used any more"};
}
/// `end` says who and how: "rank 1 (pid 4711) was killed by signal 9 (SIGKILL)".
inline failure peer_ended(std::uint32_t who, const std::string& end, const std::string& during, bool took_part) {
    return {errc::peer, end + (took_part ? " during " : " before it joined ") + during,
            "look at what that rank printed; buffers of the operation are undefined, and the group cannot be used "
            "any more",
            who};
}
inline failure peer_left(const std::vector<std::uint32_t>& who, const std::string& during) {
    return {errc::peer, list_ranks(who) + " closed the group before joining " + during,
            "let every rank run the same number of collectives before its transport or world is destroyed",
            who.front()};
}
inline failure nobody_came(const std::vector<std::uint32_t>& who, bool joined, const std::string& during,
                           std::chrono::nanoseconds waited) {
    return {
        errc::timeout,
        list_ranks(who) + (joined ? " did not finish " : " did not join ") + during + " within " + seconds(waited),
        "see what that rank is doing (it is alive), or raise the deadline (timeout in the options)"};
}
inline failure group_is_dead(const failure& why) {
    return {why.kind, "this group failed before: " + why.what, "make a new group on every rank, or end the job",
            why.about};
}

}  // namespace say

}  // namespace trireme::detail
