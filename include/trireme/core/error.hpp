#pragma once
// Errors: a closed list of kinds, each carrying a message in three parts: what happened, where, and what to try.

#include <trireme/core/place.hpp>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace trireme {

/// What went wrong, in one word. A closed list: a `switch` over it may leave out `default`.
enum class errc {
    usage = 1,  ///< the caller asked for something that cannot be
    system,     ///< the operating system refused; `error::code()` then holds errno
    timeout,    ///< a deadline passed
    peer,       ///< another process or thread of the job died or left
    remote,     ///< the user's own code threw in another worker or rank; the text is its text
    mismatch,   ///< two sides disagree about a plan, a layout or a collective
};

/// The three parts of a message. Every sentence of ours is made by a function that returns one of these, so that
/// a test can call it.
struct message {
    std::string what;   ///< one sentence: what happened, with its numbers
    std::string where;  ///< who and which: ring, worker, rank, pid, sample
    std::string hint;   ///< what the user can do next
};

namespace detail {

struct kinds_category final : std::error_category {
    const char* name() const noexcept override { return "trireme"; }
    std::string message(int code) const override {
        switch (static_cast<errc>(code)) {
            case errc::usage:
                return "wrong use";
            case errc::system:
                return "refused by the system";
            case errc::timeout:
                return "deadline passed";
            case errc::peer:
                return "a peer died or left";
            case errc::remote:
                return "user code failed elsewhere";
            case errc::mismatch:
                return "two sides disagree";
        }
        return "unknown";
    }
};

inline const char* short_file(const char* path) noexcept {
    const char* found = std::strstr(path, "trireme/");
    for (const char* next = found; next != nullptr; next = std::strstr(next + 1, "trireme/")) found = next;
    if (found != nullptr) return found + 8;
    const char* slash = std::strrchr(path, '/');
    return slash != nullptr ? slash + 1 : path;
}

inline std::string render(const message& m, place at) {
    std::string text = "trireme: " + m.what + "\n  where  ";
    if (!m.where.empty()) text += m.where + " ";
    text += std::string("(") + short_file(at.file) + ":" + std::to_string(at.line) + ")";
    if (!m.hint.empty()) text += "\n  try    " + m.hint;
    return text;
}

}  // namespace detail

/// The category of `error::code()` for everything but `system_error`.
inline const std::error_category& error_category() noexcept {
    static const detail::kinds_category category;
    return category;
}

/// Base of everything the toolkit throws. `what()` is the whole message, three lines; `parts()` its parts.
class error : public std::runtime_error {
  public:
    error(errc kind, message parts, std::error_code code, place at)
        : std::runtime_error(detail::render(parts, at)),
          kind_(kind),
          parts_(std::move(parts)),
          code_(code),
          at_(at) {}

    errc kind() const noexcept { return kind_; }
    const message& parts() const noexcept { return parts_; }
    std::error_code code() const noexcept { return code_; }
    place where() const noexcept { return at_; }

  private:
    errc kind_;
    message parts_;
    std::error_code code_;
    place at_;
};

namespace detail {

template <errc Kind>
class error_of : public error {
  public:
    explicit error_of(message parts, place at = place::here())
        : error(Kind, std::move(parts), std::error_code(static_cast<int>(Kind), error_category()), at) {}
};

}  // namespace detail

struct usage_error final : detail::error_of<errc::usage> {
    using error_of::error_of;
};
struct timeout_error final : detail::error_of<errc::timeout> {
    using error_of::error_of;
};
struct peer_error final : detail::error_of<errc::peer> {
    using error_of::error_of;
};
struct remote_error final : detail::error_of<errc::remote> {
    using error_of::error_of;
};
struct mismatch_error final : detail::error_of<errc::mismatch> {
    using error_of::error_of;
};

/// The operating system refused. `code()` holds errno in the generic category; its text is appended to `what`.
struct system_error final : error {
    system_error(message parts, int number, place at = place::here())
        : error(errc::system, with_reason(std::move(parts), number),
                std::error_code(number, std::generic_category()), at) {}

  private:
    static message with_reason(message m, int number) {
        m.what += ": " + std::generic_category().message(number) + " (errno " + std::to_string(number) + ")";
        return m;
    }
};

}  // namespace trireme
