#pragma once
// Observers: how a low floor tells a high one, or the user, that something happened which is not an error.

#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

namespace trireme {

enum class severity { note, warning };

/// One line for whoever watches: "worker 1 (pid 4711) was killed by signal 9: respawned, batch 12 is redone".
struct event {
    severity level = severity::note;
    std::string_view source;  ///< the part that speaks: "loader", "launch", "ddp"
    std::string text;         ///< one sentence, no newline
};

/// Who hears events.
///
///   observer(event)   is called from the thread that found out; must be quick and must not throw
///
/// The compiler cannot check: it may be called from several threads when it is shared between objects.
template <class O>
concept observer = std::copy_constructible<O> && requires(const O& o, const event& e) {
    { o(e) }
    noexcept;
};

/// Hears nothing.
struct null_observer {
    void operator()(const event&) const noexcept {}
};
static_assert(observer<null_observer>);

/// Writes one line to standard error: "trireme: loader: ...".
struct stderr_observer {
    void operator()(const event& e) const noexcept {
        std::fprintf(stderr, "trireme: %.*s: %s\n", static_cast<int>(e.source.size()), e.source.data(),
                     e.text.c_str());
    }
};
static_assert(observer<stderr_observer>);

}  // namespace trireme
