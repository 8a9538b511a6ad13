#pragma once
// How processes that were started one by one find each other: rank 0 makes the arena, listens on an abstract socket
// with a random name, and writes that name into a file that the others can guess. Whoever connects proves by the
// random number that it read the file of this very process, so files left by dead jobs are harmless.

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/dist/detail/world_state.hpp>
#include <trireme/dist/store.hpp>
#include <trireme/sys/socket.hpp>

namespace trireme::detail {

struct hello {
    static constexpr std::uint64_t word = 0x6f6c6c6568697274ULL;
    std::uint64_t magic = word;
    std::uint64_t nonce = 0;
    std::uint64_t layout = 0;
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
};
struct welcome {
    std::uint32_t accepted = 0;
    fixed_text<400> refusal;
};

namespace say {
inline message ranks_missing(const environment& e, const std::vector<std::uint32_t>& missing,
                             std::chrono::nanoseconds waited) {
    return {std::to_string(e.size - missing.size()) + " of " + std::to_string(e.size) + " ranks joined within " +
                seconds(waited) + ": " + list_ranks(missing) + (missing.size() == 1 ? " is" : " are") + " missing",
            speaker("world", e.rank, e.size) + ", meeting at " + e.meeting(),
            "start the missing ranks with the same " +
                std::string(e.store.empty() ? "MASTER_ADDR and MASTER_PORT" : "TRIREME_STORE") +
                " on this host, or raise world_options::start_timeout"};
}
inline message nobody_listens(const environment& e, bool stale, std::chrono::nanoseconds waited) {
    return {
        "rank 0 was not there within " + seconds(waited) + (stale ? " (only traces of a job that is gone)" : ""),
        speaker("world", e.rank, e.size) + ", meeting at " + e.meeting(),
        "start rank 0 with the same " +
            std::string(e.store.empty() ? "MASTER_ADDR and MASTER_PORT" : "TRIREME_STORE") +
            " on this host, or raise world_options::start_timeout"};
}
inline std::string rank_taken(std::uint32_t r) {
    return "two processes say that they are rank " + std::to_string(r) + " (RANK=" + std::to_string(r) + ")";
}
inline std::string sizes_differ(std::uint32_t theirs, std::uint32_t ours) {
    return "WORLD_SIZE=" + std::to_string(theirs) + ", but rank 0 has WORLD_SIZE=" + std::to_string(ours);
}
inline message refused(const environment& e, std::string_view why) {
    return {"rank 0 refused this process: " + std::string(why),
            speaker("world", e.rank, e.size) + ", meeting at " + e.meeting(),
            "give every process of the job its own RANK, the same WORLD_SIZE and the same build of the program"};
}
}  // namespace say

inline std::uint64_t random_number() noexcept {
    std::uint64_t n = 0;
    if (::getrandom(&n, sizeof n, 0) != static_cast<ssize_t>(sizeof n))
        n = mix64(static_cast<std::uint64_t>(::getpid()) + (now_ns() << 20));
    return n;
}
inline std::string socket_name(std::uint64_t nonce) {
    char text[48];
    std::snprintf(text, sizeof text, "trireme-%016llx", static_cast<unsigned long long>(nonce));
    return text;
}
inline std::string to_text(std::uint64_t nonce) {
    char text[24];
    std::snprintf(text, sizeof text, "%016llx\n", static_cast<unsigned long long>(nonce));
    return text;
}
inline std::uint64_t from_text(const std::string& s) noexcept {
    unsigned long long n = 0;
    return s.size() == 17 && std::sscanf(s.c_str(), "%16llx", &n) == 1 ? n : 0;
}

/// Connects to whoever wrote `nonce` and says who we are; empty when nobody is there any more.
inline fd introduce(std::uint64_t nonce, const environment& e) {
    fd s = connect_abstract(socket_name(nonce));
    hello h;
    h.nonce = nonce;
    h.layout = world_layout(e.size).hash();
    h.rank = e.rank;
    h.size = e.size;
    if (s.valid() && !send_message(s.ref(), std::as_bytes(std::span(&h, 1)), deadline::in(std::chrono::seconds(1))))
        s.reset();
    return s;
}

inline std::shared_ptr<world_state> meet_as_root(const environment& e, file_store& store, const world_options& o) {
    const auto start = deadline::clock::now();
    const deadline end = deadline::in(o.start_timeout);
    memfd file("trireme world", world_layout(e.size).total);
    mapping arena(file);
    world_arena(arena.data(), e.size).initialise(0);
    const std::uint64_t nonce = random_number();
    fd listener = listen_abstract(socket_name(nonce));

    // Another rank 0 at the same place: alive, it answers that we are one too many; dead, its entry gives way.
    if (const auto before = store.get("rank0")) {
        const fd other = introduce(from_text(*before), e);
        welcome w;
        std::size_t n = 0;
        if (other.valid() &&
            receive_message(other.ref(), std::as_writable_bytes(std::span(&w, 1)), n, end) == received::message)
            throw usage_error(say::refused(e, w.refusal.view()));
    }
    store.set("rank0", to_text(nonce));

    std::vector<private_descriptor> links(e.size);
    std::uint32_t joined = 1;
    while (joined < e.size) {
        fd s = accept_connection(listener.ref(), end.slice(std::chrono::milliseconds(100)));
        if (!s.valid()) {
            if (store.get("rank0").value_or("") != to_text(nonce)) {
                const auto other = store.get("rank0");
                const bool alive = other && connect_abstract(socket_name(from_text(*other))).valid();
                if (alive) throw usage_error(say::refused(e, say::rank_taken(0)));
                store.set("rank0", to_text(nonce));  // somebody tidied up
            }
            if (!end.passed()) continue;
            store.erase("rank0");
            std::vector<std::uint32_t> missing;
            for (std::uint32_t r = 1; r < e.size; ++r)
                if (!links[r].valid()) missing.push_back(r);
            throw timeout_error(say::ranks_missing(e, missing, deadline::clock::now() - start));
        }
        hello h;
        std::size_t n = 0;
        if (receive_message(s.ref(), std::as_writable_bytes(std::span(&h, 1)), n,
                            end.slice(std::chrono::seconds(1))) != received::message ||
            n != sizeof h || h.magic != hello::word || h.nonce != nonce)
            continue;  // not one of us
        welcome w;
        std::string refusal;
        if (h.size != e.size)
            refusal = say::sizes_differ(h.size, e.size);
        else if (h.layout != world_layout(e.size).hash())
            refusal = "it was built with another version of the library";
        else if (h.rank >= e.size || h.rank == 0 || links[h.rank].valid())
            refusal = say::rank_taken(h.rank);
        w.accepted = refusal.empty() ? 1 : 0;
        w.refusal.assign(refusal);
        const int number = file.descriptor().get();
        const bool sent = send_message(s.ref(), std::as_bytes(std::span(&w, 1)),
                                       std::span(&number, refusal.empty() ? 1U : 0U), end);
        if (!sent || !refusal.empty()) continue;
        links[h.rank] = private_descriptor(std::move(s));
        ++joined;
    }
    store.erase("rank0");
    return std::make_shared<world_state>(e, std::move(arena), std::move(links), o);
}

inline std::shared_ptr<world_state> meet_as_guest(const environment& e, file_store& store, const world_options& o) {
    const auto start = deadline::clock::now();
    const deadline end = deadline::in(o.start_timeout);
    bool stale = false;
    for (;;) {
        const auto entry = store.get("rank0");
        fd s = entry ? introduce(from_text(*entry), e) : fd();
        if (s.valid()) {
            welcome w;
            std::size_t n = 0;
            std::vector<fd> files;
            if (receive_message(s.ref(), std::as_writable_bytes(std::span(&w, 1)), n, files, end) ==
                received::message) {
                if (w.accepted == 0) throw usage_error(say::refused(e, w.refusal.view()));
                if (files.size() == 1) {
                    memfd file(std::move(files.front()));
                    mapping arena(file);
                    std::vector<private_descriptor> links;
                    links.emplace_back(std::move(s));
                    return std::make_shared<world_state>(e, std::move(arena), std::move(links), o);
                }
            }
        }
        stale = entry.has_value();
        if (end.passed()) throw timeout_error(say::nobody_listens(e, stale, deadline::clock::now() - start));
        ::usleep(5000);
    }
}

/// Blocks until every rank has joined.
inline std::shared_ptr<world_state> meet(const environment& e, const world_options& o) {
    if (e.size == 1) return std::make_shared<world_state>(o);
    const deadline end = deadline::in(o.start_timeout);
    file_store store =
        e.store.empty() ? file_store::of_user("port-" + std::to_string(e.port)) : file_store(e.store);
    auto state = e.rank == 0 ? meet_as_root(e, store, o) : meet_as_guest(e, store, o);
    state->control().run({}, end);  // nobody goes on before all are there
    return state;
}

}  // namespace trireme::detail
