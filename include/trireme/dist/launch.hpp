#pragma once
// launch(n, fn): one program, any launcher. Starts n ranks on this host, or joins the job that somebody else
// started, and runs fn in each.

#include <algorithm>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/core/observer.hpp>
#include <trireme/dist/detail/launched.hpp>
#include <trireme/dist/detail/launcher.hpp>
#include <trireme/dist/detail/rendezvous.hpp>
#include <trireme/dist/world.hpp>
#include <trireme/shm/mapping.hpp>
#include <trireme/sys/fork_gate.hpp>
#include <trireme/sys/memfd.hpp>
#include <trireme/sys/socket.hpp>

namespace trireme {

namespace detail {

/// Whether `e` is how this rank heard of the failure of another one.
inline bool is_news(const error* e, const world_state& w) {
    const bool sounds_like_it = e != nullptr && (e->kind() == errc::peer || e->kind() == errc::remote);
    if (e != nullptr && !sounds_like_it) return false;
    auto first = w.arena().header().first.read();
    // A rank that gave up a group tells the job a moment later.
    for (int i = 0; i < 150 && !first && sounds_like_it && w.size() > 1; ++i) {
        ::usleep(2000);
        first = w.arena().header().first.read();
    }
    return first && first->about != w.rank();
}

/// Runs the user's function as one rank. Whatever escapes from it is printed and told to the other ranks.
/// Returns the exit status: what fn returned; 75 after another rank's failure; 1 after an own one
template <class Fn>
int run_rank(const std::shared_ptr<world_state>& state, Fn& fn) {
    const auto failed = [&](const error* e, const char* text) {
        if (e != nullptr)
            std::fprintf(stderr, "%s\n", text);
        else
            std::fprintf(stderr, "trireme: rank %u of %u failed: %s\n", state->rank(), state->size(), text);
        if (is_news(e, *state)) return survivor_status;
        state->fail(e != nullptr ? e->parts().what : text);
        return 1;
    };
    try {
        world w(state);
        if constexpr (std::same_as<std::invoke_result_t<Fn&, world&>, void>) {
            fn(w);
            return 0;
        } else {
            return fn(w);
        }
    } catch (const error& e) { return failed(&e, e.what()); } catch (const std::exception& e) {
        return failed(nullptr, e.what());
    } catch (...) { return failed(nullptr, "an exception that is not a std::exception"); }
}

}  // namespace detail

/// Runs `fn(world&)`, which returns void or an exit status, in `n` ranks that this call starts; or, when a launcher
/// has set RANK or WORLD_SIZE, in this process as the rank that it is.
///
/// Returns    0 if every rank did. Else the status of the rank that failed first, or 128 + signal (137 for
/// SIGKILL),
///            after a line on standard error for each rank that failed, that one first. An exception in fn is
///            printed by its rank, told to the other ranks (remote_error) and gives 1; a rank that ends because
///            another one failed has status 75. `return trireme::launch(...)` from main is right
/// Blocks     until every rank has ended. After the first failure survivors have 1 s to speak, get SIGTERM, and
/// after
///            3 s SIGKILL
/// Throws     usage_error: no ranks, or this process has threads of others and must not fork; system_error
/// Threads    call it before other threads are started
/// Processes  ranks are forked, and killed when the calling process dies. OMP_NUM_THREADS is set in them to
///            CPUs / ranks, at least 1, when it is not set and n > 1
template <class Fn>
requires std::invocable<Fn&, world&>
int launch(ranks n, Fn fn, launch_options options = {}, world_options world_opts = {}) {
    if (!detail::launched_as() && read_environment()) {
        std::shared_ptr<detail::world_state> state;
        try {
            state = detail::meet(*read_environment(), world_opts);
        } catch (const error& e) {
            std::fprintf(stderr, "%s\n", e.what());
            return 1;
        }
        return detail::run_rank(state, fn);
    }
    if (n.value == 0 || n.value > detail::most_ranks)
        throw usage_error({"launch of " + std::to_string(n.value) + " ranks", "pid " + std::to_string(::getpid()),
                           "trireme::launch(ranks{n}, fn) with n from 1 to " + std::to_string(detail::most_ranks)});

    const detail::world_layout layout(n.value);
    mapping view(memfd("trireme world", layout.total));
    const detail::world_arena arena(view.data(), n.value);
    arena.initialise(::getpid());
    std::vector<std::pair<fd, fd>> pairs(n.value);  // of rank 0 with each other rank
    for (std::uint32_t r = 1; r < n.value; ++r) pairs[r] = socket_pair();
    const std::uint32_t cpus = detail::usable_cpus();
    const std::string threads = std::to_string((std::max)(1U, cpus / n.value));
    const bool set_threads = n.value > 1 && std::getenv("OMP_NUM_THREADS") == nullptr;
    if (set_threads)
        stderr_observer{}({severity::note, "launch",
                           detail::say::threads_per_rank((std::max)(1U, cpus / n.value), n.value, cpus)});

    detail::launcher waiter(arena, options);
    const deadline start = deadline::in(world_opts.start_timeout);
    for (std::uint32_t r = 0; r < n.value; ++r) {
        const auto rank_main = [&] {
            environment place;
            place.rank = place.local_rank = r;
            place.size = place.local_size = n.value;
            detail::launched_as() = place;
            if (set_threads) ::setenv("OMP_NUM_THREADS", threads.c_str(), 1);
            std::vector<private_descriptor> links(r == 0 ? n.value : 1);
            for (std::uint32_t q = 1; q < n.value; ++q) {
                if (r == 0) links[q] = private_descriptor(std::move(pairs[q].first));
                if (r == q) links[0] = private_descriptor(std::move(pairs[q].second));
            }
            pairs.clear();  // a socket ends when its last copy is closed
            const auto state =
                std::make_shared<detail::world_state>(place, std::move(view), std::move(links), world_opts);
            return detail::run_rank(state, fn);
        };
        waiter.add(fork_child("launch", rank_main, start));
    }
    pairs.clear();
    return waiter.wait();
}

}  // namespace trireme
