#pragma once
// trireme 0.1.0, every floor in one header. Needs a C++20 compiler, Linux and Boost headers.
//
// Distributed under the Boost Software License, Version 1.0. (https://www.boost.org/LICENSE_1_0.txt)
//
// Made by scripts/amalgamate.py from include/: change the headers there.

// ---- trireme/core/version.hpp ----------------------------------------------------------------------------

// The version of the toolkit, and the one line a compiler that is too old gets to see first.

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "trireme needs C++20: compile with -std=c++20 (g++ >= 12, clang >= 14, nvcc >= 12.4)"
#endif

#define TRIREME_VERSION_MAJOR 0
#define TRIREME_VERSION_MINOR 1
#define TRIREME_VERSION_PATCH 0

namespace trireme {

/// The version of these headers; part of every layout hash, so two versions never share memory by accident.
struct version_number {
    unsigned major_part, minor_part, patch_part;  // not `major`: <sys/sysmacros.h> defines that as a macro
};
inline constexpr version_number version{TRIREME_VERSION_MAJOR, TRIREME_VERSION_MINOR, TRIREME_VERSION_PATCH};

}  // namespace trireme

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <boost/interprocess/mapped_region.hpp>

// ---- trireme/core/assert.hpp -----------------------------------------------------------------------------

// TRIREME_ASSERT: for what only a bug in the calling code explains. It is the one macro that may differ between
// builds, and it never changes a layout or which function is called.

namespace trireme::detail {

[[noreturn]] inline void assertion_failed(const char* what, const char* expression, const char* file,
                                          unsigned line) noexcept {
    std::fprintf(stderr, "trireme: %s\n  where  %s:%u: %s\n  try    this is a bug in the calling code\n", what,
                 file, line, expression);
    std::abort();
}

}  // namespace trireme::detail

#if defined(NDEBUG)
#define TRIREME_ASSERT(condition, what) static_cast<void>(0)
#else
#define TRIREME_ASSERT(condition, what) \
    ((condition)                        \
         ? static_cast<void>(0)         \
         : ::trireme::detail::assertion_failed((what), #condition, __FILE__, static_cast<unsigned>(__LINE__)))
#endif

// ---- trireme/core/bytes.hpp ------------------------------------------------------------------------------

// Sizes in bytes: literals, alignment and how a size is printed.

namespace trireme {

inline namespace literals {
constexpr std::size_t operator""_KiB(unsigned long long n) { return static_cast<std::size_t>(n) << 10; }
constexpr std::size_t operator""_MiB(unsigned long long n) { return static_cast<std::size_t>(n) << 20; }
constexpr std::size_t operator""_GiB(unsigned long long n) { return static_cast<std::size_t>(n) << 30; }
}  // namespace literals

/// One cache line of x86-64 and most ARM machines: the unit of `alignas` for data that one thread writes.
inline constexpr std::size_t cache_line = 64;
/// Two lines: flags on which others spin, kept apart from the neighbour that the prefetcher pulls along.
inline constexpr std::size_t flag_line = 128;
inline constexpr std::size_t page_bytes = 4096;

/// `n` rounded up to a multiple of `to`, a power of two.
constexpr std::size_t align_up(std::size_t n, std::size_t to) noexcept { return (n + to - 1) & ~(to - 1); }

/// "512 B", "1.5 MiB": three significant places, binary units.
inline std::string format_bytes(std::uint64_t n) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = static_cast<double>(n);
    unsigned u = 0;
    for (; v >= 1024.0 && u < 6; ++u) v /= 1024.0;
    char text[32];
    std::snprintf(text, sizeof text, u == 0 || v >= 100.0 ? "%.0f %s" : "%.1f %s", v, units[u]);
    return text;
}

}  // namespace trireme

// ---- trireme/core/deadline.hpp ---------------------------------------------------------------------------

// Deadlines: absolute moments of the monotonic clock. Everything that may wait takes one, so that time-outs do not
// add up when a wait is made of several.

namespace trireme {

/// A moment on the steady clock by which something must have happened.
class deadline {
  public:
    using clock = std::chrono::steady_clock;

    constexpr explicit deadline(clock::time_point at) noexcept : at_(at) {}

    /// `d` from now. Negative durations give a deadline that has passed; very long ones saturate.
    static deadline in(std::chrono::nanoseconds d) noexcept {
        const auto now = clock::now();
        return d >= (clock::time_point::max)() - now ? never() : deadline(now + d);
    }
    /// The end of time. For waits that watch something else (a peer's death) and nothing but.
    static constexpr deadline never() noexcept { return deadline((clock::time_point::max)()); }

    constexpr clock::time_point at() const noexcept { return at_; }
    constexpr bool is_never() const noexcept { return at_ == (clock::time_point::max)(); }
    bool passed() const noexcept { return !is_never() && clock::now() >= at_; }

    /// Time left, zero once passed; for `never` a very long time.
    std::chrono::nanoseconds left() const noexcept {
        if (is_never()) return (std::chrono::nanoseconds::max)();
        const auto now = clock::now();  // compared first: a moment long past minus now would overflow
        return at_ <= now ? std::chrono::nanoseconds{0} : std::chrono::nanoseconds(at_ - now);
    }
    /// The earlier of this and `d` from now: one slice of a longer wait.
    deadline slice(std::chrono::nanoseconds d) const noexcept {
        const deadline s = in(d);
        return s.at_ < at_ ? s : *this;
    }
    friend constexpr bool operator==(deadline, deadline) = default;

  private:
    clock::time_point at_;
};

}  // namespace trireme

// ---- trireme/core/completion.hpp -------------------------------------------------------------------------

// Completions: something was started and will be over; ask, or wait with a deadline.

namespace trireme {

/// Something under way.
///
///   done()       whether it is over; makes what progress it can, never waits; throws what it failed with
///   wait(until)  returns when it is over; throws what it failed with, or timeout_error
///
/// The compiler cannot check: once done() has answered true it stays true, and wait returns at once.
/// Reference model: completed, below.
template <class C>
concept completion = requires(C& c, deadline until) {
    { c.done() } -> std::same_as<bool>;
    { c.wait(until) } -> std::same_as<void>;
};

/// What was over before it could be asked about.
struct completed {
    bool done() const noexcept { return true; }
    void wait(deadline) const noexcept {}
};
static_assert(completion<completed>);

}  // namespace trireme

// ---- trireme/core/place.hpp ------------------------------------------------------------------------------

// Where in the source something was called: std::source_location for compilers that do not have it yet (clang 14).

namespace trireme {

/// A file and a line. As a default argument, `place::here()` is the place of the outermost call.
struct place {
    const char* file = "";
    unsigned line = 0;

    static constexpr place here(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) noexcept {
        return {file, line};
    }
};

}  // namespace trireme

// ---- trireme/core/error.hpp ------------------------------------------------------------------------------

// Errors: a closed list of kinds, each carrying a message in three parts: what happened, where, and what to try.

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

// ---- trireme/core/fixed_string.hpp -----------------------------------------------------------------------

// Text of fixed size: as a template argument (field names), and as bytes inside shared memory (error texts).

namespace trireme {

/// A string literal as a template argument: `field<"image", ...>`.
template <std::size_t N>
struct fixed_string {
    char text[N]{};

    // NOLINTNEXTLINE(google-explicit-constructor): a literal in angle brackets has to convert by itself
    constexpr fixed_string(const char (&literal)[N]) { std::copy_n(literal, N, text); }
    constexpr std::string_view view() const noexcept { return {text, N - 1}; }
    template <std::size_t M>
    friend constexpr bool operator==(const fixed_string& a, const fixed_string<M>& b) {
        return a.view() == b.view();
    }
};

/// Up to `Capacity` bytes of text inside a trivially copyable struct; longer text is cut and says so.
/// Processes  offsets only, so it may lie in shared memory; whoever owns the struct around it owns the text
template <std::size_t Capacity>
class fixed_text {
  public:
    void assign(std::string_view s) noexcept {
        length_ = static_cast<std::uint32_t>((std::min)(s.size(), Capacity));
        full_length_ = s.size();
        std::copy_n(s.data(), length_, bytes_);
    }
    void clear() noexcept { length_ = 0, full_length_ = 0; }
    bool empty() const noexcept { return length_ == 0; }
    bool truncated() const noexcept { return full_length_ > length_; }
    std::uint64_t full_length() const noexcept { return full_length_; }
    /// Bounded by the capacity whatever the bytes in memory say.
    std::string_view view() const noexcept { return {bytes_, (std::min<std::size_t>)(length_, Capacity)}; }

  private:
    std::uint64_t full_length_ = 0;
    std::uint32_t length_ = 0;
    char bytes_[Capacity] = {};
};

}  // namespace trireme

// ---- trireme/core/half.hpp -------------------------------------------------------------------------------

// The two 16-bit floating-point types of training, as storage: half (IEEE binary16) and bfloat16. Arithmetic is
// done in float; a conversion to 16 bits rounds to nearest, ties to even.

namespace trireme {

namespace detail {

/// Every path is computed and one is selected: no branch, so that a loop over this vectorises.
constexpr float half_to_float(std::uint16_t h) noexcept {
    const std::uint32_t magnitude = h & 0x7fffU;
    const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16;
    const std::uint32_t normal = (magnitude << 13) + (112U << 23);  // the exponent's bias: 15 becomes 127
    const std::uint32_t special = (magnitude << 13) | 0x7f800000U;
    // Subnormal: the 10 bits as an integer next to 2^-14, minus 2^-14. Exact, and normal numbers all the way, so
    // that flush-to-zero modes cannot touch it.
    const float tiny = std::bit_cast<float>((magnitude << 13) + (113U << 23)) - 0x1.0p-14F;
    const std::uint32_t finite = magnitude < 0x0400U ? std::bit_cast<std::uint32_t>(tiny) : normal;
    return std::bit_cast<float>((magnitude >= 0x7c00U ? special : finite) | sign);
}

constexpr std::uint16_t float_to_half(float f) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    // Normal: move the bias, then add half of the last place less one, plus its parity: nearest, ties to even. A
    // carry runs into the exponent, as it should.
    const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    // Subnormal: the adder rounds, by lining the value up with 0.5, whose last place is 2^-24.
    const std::uint32_t below = magnitude < (113U << 23) ? magnitude : 0U;  // keeps the sum in range for the rest
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(below) + 0.5F) - 0x3f000000U;
    const std::uint32_t finite = magnitude < (113U << 23) ? subnormal : normal;
    const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);  // quiet, the payload's upper bits kept
    const std::uint32_t special = magnitude > 0x7f800000U ? nan : 0x7c00U;
    // 65520 is half-way between the largest half and 2^16: from there on the result is infinite.
    return static_cast<std::uint16_t>((magnitude >= 0x477ff000U ? special : finite) | sign);
}

constexpr float bfloat16_to_float(std::uint16_t b) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

constexpr std::uint16_t float_to_bfloat16(float f) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t nan = (bits >> 16) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

}  // namespace detail

/// IEEE binary16: 5 bits of exponent, 10 of fraction; largest finite value 65504, smallest positive 2^-24.
///
/// Storage only: it converts from float by an explicit constructor (nearest, ties to even; NaN stays NaN) and to
/// float implicitly and exactly. `bits` is the encoding; all zero is +0.
struct half {
    std::uint16_t bits;

    half() = default;
    constexpr explicit half(float f) noexcept : bits(detail::float_to_half(f)) {}
    constexpr operator float() const noexcept { return detail::half_to_float(bits); }  // NOLINT: exact
    static constexpr half from_bits(std::uint16_t encoding) noexcept {
        half h{};
        h.bits = encoding;
        return h;
    }
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction. Same conversions as `half`.
struct bfloat16 {
    std::uint16_t bits;

    bfloat16() = default;
    constexpr explicit bfloat16(float f) noexcept : bits(detail::float_to_bfloat16(f)) {}
    constexpr operator float() const noexcept { return detail::bfloat16_to_float(bits); }  // NOLINT: exact
    static constexpr bfloat16 from_bits(std::uint16_t encoding) noexcept {
        bfloat16 b{};
        b.bits = encoding;
        return b;
    }
};

static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half> && std::is_trivial_v<half>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16> && std::is_trivial_v<bfloat16>);

}  // namespace trireme

// ---- trireme/core/hash.hpp -------------------------------------------------------------------------------

// A 64-bit hash that is the same on every machine and every build: layouts, plans and fingerprints are compared by
// it.

namespace trireme {

/// The finalizer of MurmurHash3 (Austin Appleby, public domain): every input bit reaches every output bit.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33;
    return x;
}

/// Accumulates values into a hash; order matters. Not for adversaries.
class hasher {
  public:
    constexpr hasher& add(std::uint64_t v) noexcept {
        state_ = mix64(state_ ^ v) + 0x9e3779b97f4a7c15ULL;
        return *this;
    }
    constexpr hasher& add(std::string_view s) noexcept {
        add(s.size());
        for (char c : s) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
        return add(std::uint64_t{0});
    }
    constexpr std::uint64_t value() const noexcept { return mix64(state_); }

  private:
    std::uint64_t state_ = 0x6a09e667f3bcc908ULL;
};

}  // namespace trireme

// ---- trireme/core/ids.hpp --------------------------------------------------------------------------------

// Strong types for the small integers that are easy to swap: ranks, worlds, workers, slots.

namespace trireme {

namespace detail {
template <class Tag, class Int>
struct strong {
    Int value{};
    constexpr strong() = default;
    constexpr explicit strong(Int v) noexcept : value(v) {}
    friend constexpr auto operator<=>(strong, strong) = default;
};
}  // namespace detail

/// A process's place in the job, 0 .. world_size-1.
struct rank : detail::strong<struct rank_tag, std::uint32_t> {
    using strong::strong;
};
/// How many ranks the job has, at least 1.
struct world_size : detail::strong<struct world_size_tag, std::uint32_t> {
    using strong::strong;
};
/// How many ranks `launch` starts.
struct ranks : detail::strong<struct ranks_tag, std::uint32_t> {
    using strong::strong;
};
/// A loader worker's index, 0 .. workers-1; it stays the same over respawns.
struct worker_id : detail::strong<struct worker_tag, std::uint32_t> {
    using strong::strong;
};
/// A batch's sequence number in its ring; grows for as long as the ring lives.
struct batch_number : detail::strong<struct batch_tag, std::uint64_t> {
    using strong::strong;
};
/// How many slots a ring has, and into how many parts a batch is cut.
struct slots : detail::strong<struct slots_tag, std::uint32_t> {
    using strong::strong;
};
struct parts : detail::strong<struct parts_tag, std::uint32_t> {
    using strong::strong;
};

/// Which share of a whole this process takes: rank `index` of `count`.
struct shard {
    std::uint32_t index = 0;
    std::uint32_t count = 1;
    friend constexpr bool operator==(shard, shard) = default;
};

}  // namespace trireme

// ---- trireme/core/observer.hpp ---------------------------------------------------------------------------

// Observers: how a low floor tells a high one, or the user, that something happened which is not an error.

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

// ---- trireme/core/philox.hpp -----------------------------------------------------------------------------

// Philox4x32-10: a counter-based random generator. Its n-th draw is a function of (key, counter), so a sample's
// random numbers depend on the sample and not on the worker that happens to make it.

namespace trireme {

namespace detail {
__extension__ typedef unsigned __int128 uint128;  // "__extension__" keeps -Wpedantic quiet in users' builds
}

/// Source  Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
///         Key = (seed, epoch) folded to 64 bits by the caller, counter = (stream, draw).
/// Threads a value: copy it, or make one per sample
class philox {
  public:
    using result_type = std::uint64_t;  // models std::uniform_random_bit_generator

    constexpr philox(std::uint64_t key, std::uint64_t stream) noexcept : key_(key), stream_(stream) {}

    static constexpr result_type(min)() { return 0; }
    static constexpr result_type(max)() { return (std::numeric_limits<result_type>::max)(); }

    constexpr result_type operator()() noexcept {
        if (half_) {
            half_ = false;
            return (static_cast<std::uint64_t>(block_[3]) << 32) | block_[2];
        }
        block_ = block(key_, stream_, draw_++);
        half_ = true;
        return (static_cast<std::uint64_t>(block_[1]) << 32) | block_[0];
    }
    /// Uniform in [0, 1), 53 bits.
    constexpr double uniform() noexcept { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
    /// Uniform in [0, n), n > 0; the bias is below n / 2^64.
    constexpr std::uint64_t below(std::uint64_t n) noexcept {
        return static_cast<std::uint64_t>((static_cast<detail::uint128>((*this)()) * n) >> 64);
    }

    static constexpr std::array<std::uint32_t, 4> block(std::uint64_t key, std::uint64_t hi,
                                                        std::uint64_t lo) noexcept {
        std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
        std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(lo), static_cast<std::uint32_t>(lo >> 32),
                                       static_cast<std::uint32_t>(hi), static_cast<std::uint32_t>(hi >> 32)};
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t a = 0xD2511F53ULL * c[0], b = 0xCD9E8D57ULL * c[2];
            c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
                 static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
            k0 += 0x9E3779B9U;
            k1 += 0xBB67AE85U;
        }
        return c;
    }

  private:
    std::uint64_t key_, stream_, draw_ = 0;
    std::array<std::uint32_t, 4> block_{};
    bool half_ = false;
};

}  // namespace trireme

// ---- trireme/sys/cpu_set.hpp -----------------------------------------------------------------------------

// A set of CPU numbers of any size, with the list notation of the kernel and of taskset: "0-3,8,10-14:2".

namespace trireme {

/// Which CPUs: a value, compared by content, iterated in ascending order. Numbers up to `max_cpu`.
///
/// Threads  as any value: share it const, or copy it
class cpu_set {
  public:
    /// The highest number that fits: a typing error such as "0-4294967295" is refused before it costs memory.
    static constexpr unsigned max_cpu = 65535;

    class iterator;
    using const_iterator = iterator;

    cpu_set() noexcept = default;
    cpu_set(std::initializer_list<unsigned> cpus) {
        for (const unsigned cpu : cpus) insert(cpu);
    }
    /// The CPUs first, first + 1, ... up to and including `last`.
    static cpu_set span(unsigned first, unsigned last) {
        cpu_set s;
        for (unsigned cpu = first; cpu <= last; ++cpu) s.insert(cpu);
        return s;
    }
    /// Reads a list: entries `N`, `N-M` or `N-M:STEP` between commas, spaces around them ignored; no entry at all
    /// is the empty set, as the kernel writes it.
    /// Throws  usage_error with the position and the text
    static cpu_set parse(std::string_view list);

    /// Throws  usage_error above `max_cpu`
    void insert(unsigned cpu);
    void erase(unsigned cpu) noexcept {
        if (cpu / word_bits >= words_.size()) return;
        words_[cpu / word_bits] &= ~bit(cpu);
        trim();
    }

    bool empty() const noexcept { return words_.empty(); }
    bool contains(unsigned cpu) const noexcept {
        return cpu / word_bits < words_.size() && (words_[cpu / word_bits] & bit(cpu)) != 0;
    }
    /// Whether every CPU of `other` is in this set.
    bool contains(const cpu_set& other) const { return (other - *this).empty(); }
    unsigned count() const noexcept {
        unsigned n = 0;
        for (const word w : words_) n += static_cast<unsigned>(std::popcount(w));
        return n;
    }
    /// The lowest CPU. Needs a set that is not empty.
    unsigned first() const noexcept;
    /// The k-th lowest CPU, from 0. Needs k < count().
    unsigned nth(unsigned k) const noexcept;

    iterator begin() const noexcept;
    iterator end() const noexcept;

    /// The part of rank `who.index` when `who.count` ranks divide the CPUs: contiguous in the set's order, sizes
    /// differ by at most one, larger ones first. With more ranks than CPUs each gets one CPU, in turn.
    cpu_set share(shard who) const;

    friend bool operator==(const cpu_set&, const cpu_set&) = default;
    friend cpu_set operator|(cpu_set a, const cpu_set& b) {
        if (a.words_.size() < b.words_.size()) a.words_.resize(b.words_.size());
        for (std::size_t i = 0; i < b.words_.size(); ++i) a.words_[i] |= b.words_[i];
        return a;
    }
    friend cpu_set operator&(cpu_set a, const cpu_set& b) {
        if (a.words_.size() > b.words_.size()) a.words_.resize(b.words_.size());
        for (std::size_t i = 0; i < a.words_.size(); ++i) a.words_[i] &= b.words_[i];
        a.trim();
        return a;
    }
    friend cpu_set operator-(cpu_set a, const cpu_set& b) {
        for (std::size_t i = 0; i < (std::min)(a.words_.size(), b.words_.size()); ++i) a.words_[i] &= ~b.words_[i];
        a.trim();
        return a;
    }

    /// The shortest list that parses back to this set, without steps: "0-3,8".
    std::string text() const;

    /// For sched_setaffinity and friends: the set as the kernel's mask, and how many bytes it has. Never smaller
    /// than a cpu_set_t, which holds 1024 CPUs; the kernel ignores the bits of CPUs it does not have.
    struct sched_mask {
        std::vector<unsigned long> words;
        std::size_t bytes() const noexcept { return words.size() * sizeof(unsigned long); }
        ::cpu_set_t* get() noexcept { return reinterpret_cast<::cpu_set_t*>(words.data()); }
    };
    sched_mask to_sched() const {
        sched_mask m{words_};
        m.words.resize((std::max)(m.words.size(), sizeof(::cpu_set_t) / sizeof(word)));
        return m;
    }
    static cpu_set from_sched(const sched_mask& m) {
        cpu_set s;
        s.words_ = m.words;
        s.trim();
        return s;
    }

  private:
    using word = unsigned long;  // the kernel's own unit, so that the words are the mask of the system call
    static constexpr unsigned word_bits = sizeof(word) * CHAR_BIT;
    static constexpr word bit(unsigned cpu) noexcept { return word{1} << (cpu % word_bits); }

    void trim() noexcept {
        while (!words_.empty() && words_.back() == 0) words_.pop_back();
    }
    /// The lowest member that is >= cpu, or one past everything.
    unsigned at_or_after(unsigned cpu) const noexcept {
        const auto past = static_cast<unsigned>(words_.size()) * word_bits;
        while (cpu < past) {
            const word rest = words_[cpu / word_bits] >> (cpu % word_bits);
            if (rest != 0) return cpu + static_cast<unsigned>(std::countr_zero(rest));
            cpu = (cpu / word_bits + 1) * word_bits;
        }
        return past;
    }

    std::vector<word> words_;  // no zero word at the end, so that equal sets have equal words
};

/// Forward, by value: the set itself holds bits.
class cpu_set::iterator {
  public:
    using value_type = unsigned;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    using iterator_concept = std::forward_iterator_tag;
    using pointer = void;
    using reference = unsigned;

    iterator() noexcept = default;
    unsigned operator*() const noexcept { return at_; }
    iterator& operator++() noexcept {
        at_ = set_->at_or_after(at_ + 1);
        return *this;
    }
    iterator operator++(int) noexcept {
        auto old = *this;
        ++*this;
        return old;
    }
    friend bool operator==(const iterator&, const iterator&) = default;

  private:
    friend class cpu_set;
    iterator(const cpu_set* set, unsigned at) noexcept : set_(set), at_(at) {}
    const cpu_set* set_ = nullptr;
    unsigned at_ = 0;
};

inline cpu_set::iterator cpu_set::begin() const noexcept { return {this, at_or_after(0)}; }
inline cpu_set::iterator cpu_set::end() const noexcept {
    return {this, static_cast<unsigned>(words_.size()) * word_bits};
}
inline unsigned cpu_set::first() const noexcept { return at_or_after(0); }
inline unsigned cpu_set::nth(unsigned k) const noexcept {
    auto cpu = at_or_after(0);
    for (; k > 0; --k) cpu = at_or_after(cpu + 1);
    return cpu;
}

namespace detail {

/// What is wrong with a list, and where.
struct cpu_list_fault {
    std::size_t position = 0;  ///< of the offending character, from 0
    const char* why = nullptr;
    explicit operator bool() const noexcept { return why != nullptr; }
};

/// Reads a list into `out`, which is left as it was if there is a fault. Never throws for bad text, because a
/// malformed file of the system deserves a warning and not the end of the program.
inline cpu_list_fault parse_cpu_list(std::string_view list, cpu_set& out) {
    std::size_t i = 0;
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n'; };
    const auto skip = [&] {
        while (i < list.size() && blank(list[i])) ++i;
    };
    const auto digit = [&] { return i < list.size() && list[i] >= '0' && list[i] <= '9'; };
    const auto number = [&](unsigned& n) {  // stops at the first digit that makes it too large
        for (n = 0; digit() && n <= cpu_set::max_cpu; ++i) n = n * 10 + static_cast<unsigned>(list[i] - '0');
        return n <= cpu_set::max_cpu;
    };
    cpu_set found;
    skip();
    while (i < list.size()) {
        const std::size_t entry = i;
        unsigned low = 0, step = 1;
        if (!digit()) return {i, "a CPU number is expected"};
        if (!number(low)) return {entry, "the CPU number is too large"};
        unsigned high = low;
        if (i < list.size() && list[i] == '-') {
            const std::size_t second = ++i;
            if (!digit()) return {i, "the end of the range is expected"};
            if (!number(high)) return {second, "the CPU number is too large"};
            if (high < low) return {entry, "the range ends before it begins"};
            if (i < list.size() && list[i] == ':') {
                const std::size_t third = ++i;
                if (!digit()) return {i, "the step is expected"};
                if (!number(step) || step == 0) return {third, "the step must be between 1 and 65535"};
            }
        }
        for (unsigned cpu = low; cpu <= high; cpu += step) found.insert(cpu);
        skip();
        if (i == list.size()) break;
        if (list[i] != ',') return {i, "a comma is expected"};
        ++i;
        skip();
        if (i == list.size()) return {i, "a CPU number is expected"};
    }
    out = std::move(found);
    return {};
}

namespace say {
inline message bad_cpu_list(std::string_view list, const cpu_list_fault& fault) {
    return {"the CPU list \"" + std::string(list) + "\" cannot be read: " + fault.why + " at position " +
                std::to_string(fault.position + 1),
            "", "a list looks like 0-3,8,10-14:2, with numbers up to " + std::to_string(cpu_set::max_cpu)};
}
inline message cpu_number_too_large(unsigned cpu) {
    return {"there is no CPU " + std::to_string(cpu), "",
            "CPU numbers go up to " + std::to_string(cpu_set::max_cpu)};
}
}  // namespace say

}  // namespace detail

inline void cpu_set::insert(unsigned cpu) {
    if (cpu > max_cpu) throw usage_error(detail::say::cpu_number_too_large(cpu));
    if (cpu / word_bits >= words_.size()) words_.resize(cpu / word_bits + 1);
    words_[cpu / word_bits] |= bit(cpu);
}

inline cpu_set cpu_set::parse(std::string_view list) {
    cpu_set s;
    if (const auto fault = detail::parse_cpu_list(list, s))
        throw usage_error(detail::say::bad_cpu_list(list, fault));
    return s;
}

inline std::string cpu_set::text() const {
    std::string out;
    const auto past = static_cast<unsigned>(words_.size()) * word_bits;
    for (unsigned low = at_or_after(0); low < past;) {
        unsigned high = low;
        while (contains(high + 1)) ++high;
        if (!out.empty()) out += ',';
        out += std::to_string(low);
        if (high > low) out += "-" + std::to_string(high);
        low = at_or_after(high + 1);
    }
    return out;
}

inline cpu_set cpu_set::share(shard who) const {
    const unsigned n = count();
    cpu_set part;
    if (n == 0 || who.count == 0) return part;
    if (who.count >= n) {
        part.insert(nth(who.index % n));
        return part;
    }
    const unsigned each = n / who.count, larger = n % who.count;
    const unsigned from = who.index * each + (std::min)(who.index, larger);
    const unsigned size = each + (who.index < larger ? 1 : 0);
    for (unsigned k = from, cpu = nth(from); k < from + size; ++k, cpu = at_or_after(cpu + 1)) part.insert(cpu);
    return part;
}

}  // namespace trireme

// ---- trireme/sys/affinity.hpp ----------------------------------------------------------------------------

// Which CPUs a thread may run on: asking, and binding that reports what really holds afterwards.

namespace trireme {

namespace detail {

/// The mask of thread `tid` (0: the calling one). Empty when the system does not tell.
inline cpu_set affinity_of(pid_t tid) {
    // A machine may have more CPUs than a cpu_set_t holds: EINVAL then, and a mask twice the size is tried.
    for (auto mask = cpu_set{}.to_sched(); mask.bytes() <= (cpu_set::max_cpu + 1) / 8;
         mask.words.resize(mask.words.size() * 2)) {
        if (::sched_getaffinity(tid, mask.bytes(), mask.get()) == 0) return cpu_set::from_sched(mask);
        if (errno != EINVAL) break;
    }
    return {};
}

namespace say {
inline message cpus_not_allowed(const cpu_set& asked, const cpu_set& allowed) {
    const auto missing = asked - allowed;
    return {"cannot bind to CPU " + missing.text() + ": this process may use CPUs {" + allowed.text() + "} only",
            "asked for {" + asked.text() + "}, pid " + std::to_string(::getpid()),
            "choose among the allowed CPUs, or start the process with a wider mask (taskset, cpuset, srun "
            "--cpus-per-task)"};
}
inline message binding_to_nothing() {
    return {"cannot bind a thread to an empty set of CPUs", "pid " + std::to_string(::getpid()),
            "name at least one CPU"};
}
}  // namespace say

}  // namespace detail

/// The CPUs that the calling thread may use now.
inline cpu_set thread_cpus() { return detail::affinity_of(0); }

/// The CPUs of the process: the mask that its main thread had when this was first called, which is before the
/// toolkit binds anything. Later binds of single threads do not narrow it, so that pools and children made
/// afterwards are not piled on one core. A program that binds its main thread itself calls this first.
inline const cpu_set& process_cpus() {
    static const cpu_set& first = *new cpu_set([] {
        auto mask = detail::affinity_of(::getpid());
        if (mask.empty()) mask = detail::affinity_of(0);
        if (mask.empty()) mask.insert(0);  // a system that does not tell: one CPU certainly exists
        return mask;
    }());
    return first;
}

/// What became of a request to bind a thread.
struct binding {
    cpu_set asked;
    cpu_set holds;      ///< read back afterwards
    std::string why{};  ///< why `holds` is not `asked`; empty when it is

    bool exact() const noexcept { return asked == holds; }
};

namespace detail {

/// Binds the calling thread without an opinion on whether the CPUs are allowed.
inline binding try_bind_this_thread(const cpu_set& wanted) {
    auto mask = wanted.to_sched();
    const int number = ::sched_setaffinity(0, mask.bytes(), mask.get()) == 0 ? 0 : errno;
    binding result{wanted, thread_cpus()};
    if (result.exact()) return result;
    if (number != 0)
        result.why = "sched_setaffinity refused {" + wanted.text() +
                     "}: " + std::generic_category().message(number) + " (errno " + std::to_string(number) + ")";
    else
        result.why = "the system left only {" + result.holds.text() + "} of {" + wanted.text() +
                     "}: the rest is offline or outside the cpuset";
    return result;
}

}  // namespace detail

/// Binds the calling thread to `wanted` and reads back what holds.
///
/// Returns  what was asked, what holds, and why the two differ if they do: a container may refuse the call
/// Throws   usage_error naming the CPUs of `wanted` that the process may not use, and those it may
/// Threads  changes the calling thread only; threads and processes it starts afterwards inherit the mask, but for
///          ours, which are given the mask of the process
inline binding bind_this_thread(const cpu_set& wanted) {
    const auto& allowed = process_cpus();
    if (wanted.empty()) throw usage_error(detail::say::binding_to_nothing());
    if (!allowed.contains(wanted)) throw usage_error(detail::say::cpus_not_allowed(wanted, allowed));
    return detail::try_bind_this_thread(wanted);
}

}  // namespace trireme

// ---- trireme/sys/cgroup.hpp ------------------------------------------------------------------------------

// Limits that control groups put on the CPUs of this process: the quota of CPU time and the set of CPUs, version 1
// and version 2, over the whole path from the process's own group up to the root of what is visible.
//
// Everything is read below a root folder, so that a copied or made-up tree gives the answer of the machine it came
// from. Nothing here throws for what a file says: an unreadable limit is no limit, and a warning.

namespace trireme {

/// The tightest quota of CPU time. 2.5 means: 250 ms of CPU time in every 100 ms.
struct cpu_quota_reading {
    std::optional<double> cpus;           ///< nothing: no quota anywhere
    std::string file{};                   ///< the file that holds the tightest one
    std::vector<std::string> warnings{};  ///< each names a file whose text is not understood, and the text
};

/// The CPUs that the cpuset controller leaves.
struct cpuset_reading {
    std::optional<cpu_set> cpus;  ///< nothing: no such controller
    std::string file{};
    std::vector<std::string> warnings{};
};

namespace detail::cgroup {

/// The whole file, or nothing if it cannot be read.
inline std::optional<std::string> slurp(const std::string& path) {
    std::FILE* f = std::fopen(path.c_str(), "re");
    if (f == nullptr) return std::nullopt;
    std::string text;
    char block[4096];
    for (std::size_t n; (n = std::fread(block, 1, sizeof block, f)) > 0;) text.append(block, n);
    const bool failed = std::ferror(f) != 0;  // a directory opens, and fails to be read
    std::fclose(f);
    if (failed) return std::nullopt;
    return text;
}

inline std::string_view trimmed(std::string_view s) {
    const auto blank = " \t\r\n";
    const auto from = s.find_first_not_of(blank);
    return from == s.npos ? std::string_view{} : s.substr(from, s.find_last_not_of(blank) - from + 1);
}

/// Cuts the part before `sep` off `rest`.
inline std::string_view next(std::string_view& rest, char sep) {
    const auto at = rest.find(sep);
    const auto head = rest.substr(0, at);
    rest = at == rest.npos ? std::string_view{} : rest.substr(at + 1);
    return head;
}

/// Whether a comma-separated list has `word`.
inline bool lists(std::string_view list, std::string_view word) {
    while (!list.empty())
        if (next(list, ',') == word) return true;
    return false;
}

inline std::optional<long long> integer(std::string_view s) {
    long long n = 0;
    const auto r = std::from_chars(s.data(), s.data() + s.size(), n);
    if (r.ec != std::errc{} || r.ptr != s.data() + s.size()) return std::nullopt;
    return n;
}

/// mountinfo writes blanks, tabs, newlines and backslashes of a path as octal escapes.
inline std::string unescaped(std::string_view s) {
    std::string out;
    for (std::size_t i = 0; i < s.size(); ++i) {
        if (s[i] == '\\' && i + 3 < s.size() && s[i + 1] >= '0' && s[i + 1] <= '3') {
            out += static_cast<char>((s[i + 1] - '0') * 64 + (s[i + 2] - '0') * 8 + (s[i + 3] - '0'));
            i += 3;
        } else {
            out += s[i];
        }
    }
    return out;
}

/// One controller's hierarchy: where it is mounted, which group the mount shows as its top, and ours.
struct hierarchy {
    bool unified = false;  ///< version 2
    std::string mount;     ///< below the root folder, no slash at the end
    std::string top = "/";
    std::string group;

    /// The folders from our own group up to the mount. A group outside the mount (a path with "..", as another
    /// namespace shows it) leaves the mount alone.
    std::vector<std::string> path() const {
        std::string inner = group;
        if (top != "/") {
            const bool below =
                inner.compare(0, top.size(), top) == 0 && (inner.size() == top.size() || inner[top.size()] == '/');
            inner = below ? inner.substr(top.size()) : std::string{};
        }
        if ((inner + "/").find("/../") != inner.npos) inner.clear();
        while (!inner.empty() && inner.back() == '/') inner.pop_back();
        std::vector<std::string> folders;
        for (;;) {
            folders.push_back(mount + inner);
            if (inner.empty()) return folders;
            inner.resize(inner.rfind('/') == inner.npos ? 0 : inner.rfind('/'));
        }
    }
};

/// The hierarchies that carry `controller`, from the two tables of /proc. A tree without mountinfo is taken to
/// have the usual mounts.
inline std::vector<hierarchy> hierarchies(const std::string& root, std::string_view controller) {
    const auto groups = slurp(root + "/proc/self/cgroup");
    if (!groups) return {};
    const auto mounts = slurp(root + "/proc/self/mountinfo");
    std::vector<hierarchy> found;
    for (std::string_view lines = *groups; !lines.empty();) {
        auto line = next(lines, '\n');  // "4:cpu,cpuacct:/docker/x"; the path may have colons itself
        const auto id = next(line, ':');
        const auto controllers = next(line, ':');
        const bool unified = id == "0" && controllers.empty();
        if (line.empty() || (!unified && !lists(controllers, controller))) continue;
        hierarchy h;
        h.unified = unified;
        h.group = line;
        if (!mounts) {
            h.mount = root + "/sys/fs/cgroup" + (unified ? "" : "/" + std::string(controllers));
            found.push_back(std::move(h));
            continue;
        }
        for (std::string_view rows = *mounts; !rows.empty();) {
            // "33 32 0:28 /top /mount/point rw,... optional... - type source super,options"
            auto row = next(rows, '\n');
            for (int skipped = 0; skipped < 3; ++skipped) next(row, ' ');
            const auto top = next(row, ' '), point = next(row, ' ');
            const auto dash = row.find(" - ");
            if (dash == row.npos) continue;
            row.remove_prefix(dash + 3);
            const auto type = next(row, ' ');
            next(row, ' ');
            if (unified ? type != "cgroup2" : type != "cgroup" || !lists(trimmed(row), controller)) continue;
            h.top = unescaped(top);
            h.mount = root + unescaped(point);
            found.push_back(h);
            break;  // further mounts show the same groups
        }
    }
    return found;
}

namespace say {
inline std::string not_understood(const std::string& file, std::string_view text, const char* why) {
    return file + " says \"" + std::string(trimmed(text)) + "\": " + why + "; ignored";
}
}  // namespace say

/// "250000 100000", "max 100000", "max", "300000". Nothing: no limit.
inline std::optional<double> quota_v2(const std::string& file, std::string_view text,
                                      std::vector<std::string>& warnings) {
    auto rest = trimmed(text);
    const auto all = rest;
    if (rest.empty()) return std::nullopt;
    const auto quota = next(rest, ' ');
    if (quota == "max") return std::nullopt;
    const auto us = integer(quota);
    const auto period = rest.empty() ? std::optional<long long>(100000) : integer(trimmed(rest));
    if (!us || !period || *us <= 0 || *period <= 0) {
        warnings.push_back(say::not_understood(file, all, "not a quota and a period above zero"));
        return std::nullopt;
    }
    return static_cast<double>(*us) / static_cast<double>(*period);
}

/// The pair of cpu.cfs_quota_us (-1: no limit) and cpu.cfs_period_us.
inline std::optional<double> quota_v1(const std::string& folder, std::string_view quota,
                                      std::vector<std::string>& warnings) {
    const auto us = integer(trimmed(quota));
    if (!us) {
        if (!trimmed(quota).empty())
            warnings.push_back(say::not_understood(folder + "/cpu.cfs_quota_us", quota, "not a number"));
        return std::nullopt;
    }
    if (*us <= 0) return std::nullopt;
    const auto text = slurp(folder + "/cpu.cfs_period_us");
    const auto period = text ? integer(trimmed(*text)) : std::optional<long long>(100000);
    if (!period || *period <= 0) {
        warnings.push_back(say::not_understood(folder + "/cpu.cfs_period_us", *text, "not a period above zero"));
        return std::nullopt;
    }
    return static_cast<double>(*us) / static_cast<double>(*period);
}

}  // namespace detail::cgroup

/// The smallest quota of CPU time on the way from this process's group up to the root: a group's limit binds all
/// that is below it, and the leaf often says "max" while a parent does not.
/// Blocks  for a few reads below `root`       Throws  nothing but std::bad_alloc
inline cpu_quota_reading cpu_quota(std::string root = "/") {
    namespace cg = detail::cgroup;
    while (!root.empty() && root.back() == '/') root.pop_back();
    cpu_quota_reading least;
    for (const auto& h : cg::hierarchies(root, "cpu"))
        for (const auto& folder : h.path()) {
            const auto file = folder + (h.unified ? "/cpu.max" : "/cpu.cfs_quota_us");
            const auto text = cg::slurp(file);
            if (!text) continue;  // the real root has no such file
            const auto here =
                h.unified ? cg::quota_v2(file, *text, least.warnings) : cg::quota_v1(folder, *text, least.warnings);
            if (here && (!least.cpus || *here < *least.cpus)) least.cpus = *here, least.file = file;
        }
    return least;
}

/// The CPUs that the cpuset controller leaves to this process's group: the effective ones where the kernel shows
/// them, which has taken all parents into account.
/// Blocks  for a few reads below `root`       Throws  nothing but std::bad_alloc
inline cpuset_reading cpuset_cpus(std::string root = "/") {
    namespace cg = detail::cgroup;
    while (!root.empty() && root.back() == '/') root.pop_back();
    cpuset_reading result;
    for (const auto& h : cg::hierarchies(root, "cpuset")) {
        const char* effective = h.unified ? "/cpuset.cpus.effective" : "/cpuset.effective_cpus";
        for (const auto& folder : h.path()) {
            auto file = folder + effective;
            auto text = cg::slurp(file);
            if (!text) file = folder + "/cpuset.cpus", text = cg::slurp(file);
            if (!text || cg::trimmed(*text).empty()) continue;  // not set here: the parent's holds
            cpu_set cpus;
            if (const auto fault = detail::parse_cpu_list(*text, cpus)) {
                result.warnings.push_back(cg::say::not_understood(file, *text, fault.why));
                continue;
            }
            result.cpus = result.cpus ? *result.cpus & cpus : cpus;
            result.file = file;
            break;
        }
    }
    return result;
}

}  // namespace trireme

// ---- trireme/sys/clock.hpp -------------------------------------------------------------------------------

// The monotonic clock, in nanoseconds.

namespace trireme {

/// Nanoseconds of CLOCK_MONOTONIC: one epoch for all processes of a host, so it may be compared across them.
inline std::uint64_t now_ns() noexcept {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000ULL + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace trireme

// ---- trireme/sys/fd.hpp ----------------------------------------------------------------------------------

// File descriptors: an owner and a borrower.

namespace trireme {

/// Borrows a descriptor: never closes it.
class fd_ref {
  public:
    constexpr fd_ref() noexcept = default;
    constexpr explicit fd_ref(int number) noexcept : number_(number) {}
    constexpr int get() const noexcept { return number_; }
    constexpr bool valid() const noexcept { return number_ >= 0; }

  private:
    int number_ = -1;
};

/// Owns a descriptor and closes it. Move-only; empty when moved from.
class fd {
  public:
    constexpr fd() noexcept = default;
    constexpr explicit fd(int number) noexcept : number_(number) {}
    fd(fd&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    fd& operator=(fd&& other) noexcept {
        if (this != &other) reset(std::exchange(other.number_, -1));
        return *this;
    }
    fd(const fd&) = delete;
    fd& operator=(const fd&) = delete;
    ~fd() { reset(); }

    constexpr int get() const noexcept { return number_; }
    constexpr bool valid() const noexcept { return number_ >= 0; }
    constexpr fd_ref ref() const noexcept { return fd_ref{number_}; }
    /// Gives the descriptor away; the caller closes it.
    [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }
    void reset(int number = -1) noexcept {
        if (number_ >= 0) ::close(number_);  // EINTR included: on Linux the descriptor is gone in every case
        number_ = number;
    }

  private:
    int number_ = -1;
};

}  // namespace trireme

// ---- trireme/sys/process.hpp -----------------------------------------------------------------------------

// Processes: a pollable handle that cannot be confused by pid reuse, children, and how an end is put into words.

namespace trireme {

/// How a process ended. Trivially copyable, so that it may travel through shared memory.
struct exit_status {
    std::int32_t signal = 0;  ///< the signal that killed it, or 0
    std::int32_t code = 0;    ///< its exit code, when no signal did

    /// What a shell reports: the code, or 128 + signal.
    constexpr int shell_status() const noexcept { return signal != 0 ? 128 + signal : code; }
    constexpr bool success() const noexcept { return signal == 0 && code == 0; }
    friend constexpr bool operator==(const exit_status&, const exit_status&) = default;

    static exit_status from_wait(int code, int status) noexcept {
        return code == CLD_EXITED ? exit_status{0, status} : exit_status{status, 0};
    }
};

/// "was killed by signal 9 (SIGKILL)", "exited with status 3".
inline std::string describe(exit_status s) {
    if (s.signal == 0) return "exited with status " + std::to_string(s.code);
    const char* name = ::sigabbrev_np(s.signal);
    return "was killed by signal " + std::to_string(s.signal) +
           (name != nullptr ? std::string(" (SIG") + name + ")" : "");
}

/// A handle on a process that becomes readable when it is dead, after the kernel has torn down its memory, so
/// none of its stores can arrive later. Works for processes that are not children.
class pidfd {
  public:
    pidfd() noexcept = default;
    explicit pidfd(fd handle) noexcept : fd_(std::move(handle)) {}

    /// Empty when there is no such process (any more).
    /// Throws  system_error (EMFILE, or a kernel before 5.3)
    static pidfd open(pid_t pid) {
        const auto number = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U));
        if (number < 0 && errno != ESRCH && errno != EINVAL)
            throw system_error({"cannot watch process " + std::to_string(pid), "pid " + std::to_string(::getpid()),
                                "raise the limit of open files (ulimit -n), or allow pidfd_open (Linux >= 5.3)"},
                               errno);
        return pidfd(fd(number));
    }

    bool valid() const noexcept { return fd_.valid(); }
    fd_ref descriptor() const noexcept { return fd_.ref(); }
    /// True once the process is dead; never waits. An empty handle counts as dead.
    bool dead() const noexcept { return !valid() || wait_dead(deadline((deadline::clock::time_point::min)())); }
    /// True once the process is dead, false when `until` came first.
    bool wait_dead(deadline until) const noexcept {
        if (!valid()) return true;
        for (;;) {
            pollfd p{fd_.get(), POLLIN, 0};
            const auto left = until.left();
            const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
            const int timeout = left.count() <= 0 ? 0 : static_cast<int>(ms >= 1'000'000 ? 1'000'000 : ms + 1);
            const int n = ::poll(&p, 1, timeout);
            if (n > 0) return true;
            if (n == 0 && until.left().count() <= 0) return false;
        }
    }
    void send(int signal) const noexcept { ::syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0U); }

    /// The exit status of a dead child, which is reaped by this; empty when it still runs or is nobody of ours.
    std::optional<exit_status> reap() const noexcept {
        siginfo_t info{};
        constexpr auto by_pidfd = static_cast<idtype_t>(3);  // P_PIDFD
        int result = 0;
        do result = ::waitid(by_pidfd, static_cast<id_t>(fd_.get()), &info, WEXITED | WNOHANG);
        while (result != 0 && errno == EINTR);
        if (result != 0 || info.si_pid == 0) return std::nullopt;
        return exit_status::from_wait(info.si_code, info.si_status);
    }

  private:
    fd fd_;
};

/// A child of this process: killed and reaped by the destructor if nobody waited for it.
/// Threads  one at a time
class child {
  public:
    child() noexcept = default;
    child(pid_t pid, pidfd handle) noexcept : pid_(pid), handle_(std::move(handle)) {}
    child(child&& other) noexcept
        : pid_(std::exchange(other.pid_, -1)), handle_(std::move(other.handle_)), status_(other.status_) {}
    child& operator=(child&& other) noexcept {
        if (this != &other) {
            end();
            pid_ = std::exchange(other.pid_, -1);
            handle_ = std::move(other.handle_);
            status_ = other.status_;
        }
        return *this;
    }
    child(const child&) = delete;
    child& operator=(const child&) = delete;
    ~child() { end(); }

    pid_t pid() const noexcept { return pid_; }
    bool valid() const noexcept { return pid_ > 0; }
    const pidfd& handle() const noexcept { return handle_; }
    void send(int signal) const noexcept {
        if (valid() && !status_) handle_.send(signal);
    }
    /// The status, once it ended; never waits.
    std::optional<exit_status> poll() noexcept {
        if (valid() && !status_) status_ = handle_.reap();
        return status_;
    }
    /// The status, or empty when `until` came first.
    std::optional<exit_status> wait(deadline until) noexcept {
        if (!valid()) return status_;
        while (!poll()) {
            if (!handle_.wait_dead(until)) return std::nullopt;
        }
        return status_;
    }
    /// SIGKILL and reap. Blocks until the kernel has torn it down (a process in uninterruptible sleep: 5 s at
    /// most).
    void end() noexcept {
        if (!valid()) return;
        if (!poll()) {
            send(SIGKILL);
            static_cast<void>(wait(deadline::in(std::chrono::seconds(5))));
        }
        pid_ = -1;
        handle_ = pidfd();
    }

  private:
    pid_t pid_ = -1;
    pidfd handle_;
    std::optional<exit_status> status_;
};

/// Start time of a process in clock ticks since boot, or 0: with the pid it names a process for good.
inline std::uint64_t process_start_time(pid_t pid) noexcept {
    char path[64], text[1024];
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
    std::FILE* f = std::fopen(path, "re");
    if (f == nullptr) return 0;
    const std::size_t n = std::fread(text, 1, sizeof text - 1, f);
    std::fclose(f);
    text[n] = 0;
    const char* at = std::strrchr(text, ')');  // the name may hold anything, parentheses included
    unsigned long long value = 0;
    for (int skip = 0; at != nullptr && skip < 20; ++skip) at = std::strchr(at + 1, ' ');
    if (at != nullptr) std::sscanf(at, "%llu", &value);
    return value;
}

}  // namespace trireme

// ---- trireme/sys/futex.hpp -------------------------------------------------------------------------------

// The futex system call on a 32-bit word, shared between processes (the key is the page, not the address).
//
// A waiter that is killed leaves the kernel's queue and nothing else behind, which no condition variable can say.

namespace trireme {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

/// Sleeps while `word == seen`, until woken or `until`. May return early; callers look again.
/// Processes  any that map the page       Blocks  at most until the deadline
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen, deadline until) noexcept {
    timespec at{};
    if (!until.is_never()) {
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(until.at().time_since_epoch()).count();
        if (ns <= 0) return;
        at.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
        at.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    }
    // WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, which steady_clock is on Linux; plain WAIT a relative
    // one.
    ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, until.is_never() ? nullptr : &at, nullptr,
              FUTEX_BITSET_MATCH_ANY);
}

/// Wakes up to `count` sleepers and returns how many there were. About 1 us without a sleeper, 2 to 30 us with one.
inline int futex_wake(std::atomic<std::uint32_t>& word, int count = (std::numeric_limits<int>::max)()) noexcept {
    return static_cast<int>(::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0));
}

}  // namespace trireme

// ---- trireme/sys/wait.hpp --------------------------------------------------------------------------------

// How one side waits for a word that another side changes: by spinning, or by spinning a little and parking.

namespace trireme {

/// Whom a wake reaches.
enum class scope { threads, processes };

/// Tells the core that this is a spin loop.
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
}

/// How one side of a ring, a team or a group waits for the other.
///
///   until_different(word, seen, until)  returns the value last read; may return early, callers loop
///   wake_all(word)                      wakes every waiter that `reach` promises to reach
///
/// The compiler cannot check: the returned value was read with acquire order; nothing allocates;
/// `reach == scope::processes` holds across address spaces (a process-private futex does not).
/// Reference model: wait::spin below. Suite: tests/conformance/wait_policy_suite.hpp.
template <class W>
concept wait_policy = requires(const W& w, std::atomic<std::uint32_t>& word, std::uint32_t seen, deadline until) {
    { W::reach } -> std::convertible_to<scope>;
    { w.until_different(word, seen, until) }
    noexcept->std::same_as<std::uint32_t>;
    { w.wake_all(word) }
    noexcept;
};

namespace wait {

/// Never sleeps. Right when every waiter has a core to itself.
struct spin {
    static constexpr scope reach = scope::processes;

    std::uint32_t until_different(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                                  deadline until) const noexcept {
        for (;;) {
            for (int i = 0; i < 64; ++i) {
                if (const auto now = word.load(std::memory_order_acquire); now != seen) return now;
                cpu_relax();
            }
            if (until.passed()) return word.load(std::memory_order_acquire);
        }
    }
    void wake_all(std::atomic<std::uint32_t>&) const noexcept {}
};
static_assert(wait_policy<spin>);

/// Spins for `budget`, by time because a pause costs 10 to 140 cycles depending on the core, then parks on a futex.
/// The budget wants to be about the cost of one wake (50 us on virtual machines) when every waiter has a core, and
/// zero when there are more runnable threads than cores.
struct futex {
    static constexpr scope reach = scope::processes;
    std::chrono::nanoseconds budget{0};

    std::uint32_t until_different(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                                  deadline until) const noexcept {
        if (budget.count() > 0) {
            if (const auto now = spin{}.until_different(word, seen, until.slice(budget)); now != seen) return now;
        }
        if (const auto now = word.load(std::memory_order_acquire); now != seen) return now;
        futex_wait(word, seen, until);
        return word.load(std::memory_order_acquire);
    }
    void wake_all(std::atomic<std::uint32_t>& word) const noexcept { futex_wake(word); }
};
static_assert(wait_policy<futex>);

}  // namespace wait

namespace explain {
/// One sentence for each requirement of `wait_policy`; the first that fails is what the user reads.
template <class W>
consteval bool wait_policy() {
    static_assert(
        requires {
            { W::reach } -> std::convertible_to<scope>;
        },
        "trireme: a wait_policy says whom it can wake: 'static constexpr scope reach'. Copy wait::spin, "
        "trireme/sys/wait.hpp");
    static_assert(trireme::wait_policy<W>,
                  "trireme: not a wait_policy; compare with wait::spin, trireme/sys/wait.hpp");
    return true;
}
}  // namespace explain

}  // namespace trireme

// ---- trireme/sys/fork_gate.hpp ---------------------------------------------------------------------------

// The fork gate: forking is safe when no thread can hold a lock that the child would inherit locked. Threads of
// ours are registered here and are parked, outside of user code, while a fork happens; any other thread is a reason
// to refuse, which the caller gets in words.
//
// The registry also knows what a child must not keep: descriptors whose end-of-file means something to a peer.

namespace trireme {

namespace detail {

/// What the gate knows of one of our threads. Lives on the thread's own line: entering user code costs one
/// exchange.
struct alignas(flag_line) gate_entry {
    std::atomic<std::uint32_t> busy{0};
    std::atomic<int> tid{0};
    char name[16]{};
};

struct gate_state {
    std::mutex lock;  // guards the two lists; never held while user code runs
    std::vector<gate_entry*> threads;
    std::vector<int> private_descriptors;  // closed in every child
    std::atomic<std::uint32_t> closed{0};  // a fork is under way: threads wait before they enter user code
};

inline thread_local gate_entry* this_gate_entry = nullptr;
inline thread_local bool inside_fork_here = false;  // it has the lock already

/// One object in the whole program, never destroyed: threads may outlive static destruction.
inline gate_state& gate() {
    static gate_state& g = []() -> gate_state& {
        auto& made = *new gate_state;
        // A plain fork() of the user's does not pass the gate. It must not catch the lock locked by another thread,
        // nor leave the child with entries of threads that it does not have.
        ::pthread_atfork(
            [] {
                if (!inside_fork_here) gate().lock.lock();
            },
            [] {
                if (!inside_fork_here) gate().lock.unlock();
            },
            [] {
                if (inside_fork_here) return;
                gate().threads.clear();
                gate().closed.store(0, std::memory_order_relaxed);
                this_gate_entry = nullptr;
                gate().lock.unlock();
            });
        return made;
    }();
    return g;
}

/// The threads of this process that are neither the caller nor registered: "name (tid)".
inline std::vector<std::string> foreign_threads(const gate_state& g) {
    std::vector<std::string> found;
    const auto self = static_cast<int>(::syscall(SYS_gettid));
    DIR* d = ::opendir("/proc/self/task");
    if (d == nullptr) return found;
    while (const dirent* e = ::readdir(d)) {
        const int tid = std::atoi(e->d_name);
        if (tid <= 0 || tid == self) continue;
        if (std::any_of(g.threads.begin(), g.threads.end(), [tid](const gate_entry* t) { return t->tid == tid; }))
            continue;
        char path[64], name[32] = "?";
        std::snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
        if (std::FILE* f = std::fopen(path, "re"); f != nullptr) {
            if (std::fgets(name, sizeof name, f) != nullptr) name[std::strcspn(name, "\n")] = 0;
            std::fclose(f);
        } else {
            continue;  // it ended meanwhile
        }
        found.push_back(std::string(name) + " (" + std::to_string(tid) + ")");
    }
    ::closedir(d);
    return found;
}

namespace say {
inline message foreign_threads_alive(const char* who, const std::vector<std::string>& threads) {
    std::string list;
    for (const auto& t : threads) list += (list.empty() ? "" : ", ") + t;
    return {std::string(who) + " cannot fork here: " + std::to_string(threads.size()) +
                " thread(s) of somebody else are alive, and may hold locks that the child would inherit locked",
            "pid " + std::to_string(::getpid()) + ", threads " + list,
            "make this object before those threads start, or use engine::threads"};
}
inline message thread_stays_busy(const char* who, const char* thread) {
    return {std::string(who) + " cannot fork now: the thread " + thread + " did not come to rest",
            "pid " + std::to_string(::getpid()), "fork while no loop or loader of this process is in user code"};
}
}  // namespace say

}  // namespace detail

/// Around every run of user code in a registered thread; elsewhere it does nothing.
/// Blocks  while another thread of the process forks
class user_section {
  public:
    user_section() noexcept {
        auto* const me = detail::this_gate_entry;
        if (me == nullptr) return;
        auto& closed = detail::gate().closed;
        for (;;) {
            me->busy.store(1, std::memory_order_seq_cst);  // (G) pairs with the gate's store of `closed`
            if (closed.load(std::memory_order_seq_cst) == 0) return;
            me->busy.store(0, std::memory_order_release);
            while (closed.load(std::memory_order_acquire) != 0) {
                futex_wait(closed, 1, deadline::in(std::chrono::milliseconds(50)));
            }
        }
    }
    ~user_section() {
        if (auto* const me = detail::this_gate_entry) me->busy.store(0, std::memory_order_release);
    }
    user_section(const user_section&) = delete;
    user_section& operator=(const user_section&) = delete;
};

/// A descriptor that no child forked through the gate keeps open, for as long as this lives.
class private_descriptor {
  public:
    private_descriptor() noexcept = default;
    explicit private_descriptor(fd owned) : fd_(std::move(owned)) {
        if (!fd_.valid()) return;
        const std::scoped_lock hold(detail::gate().lock);
        detail::gate().private_descriptors.push_back(fd_.get());
    }
    private_descriptor(private_descriptor&&) noexcept = default;
    private_descriptor& operator=(private_descriptor&& other) noexcept {
        if (this != &other) {
            forget();
            fd_ = std::move(other.fd_);
        }
        return *this;
    }
    ~private_descriptor() { forget(); }

    fd_ref ref() const noexcept { return fd_.ref(); }
    int get() const noexcept { return fd_.get(); }
    bool valid() const noexcept { return fd_.valid(); }

  private:
    void forget() noexcept {
        if (!fd_.valid()) return;
        {
            const std::scoped_lock hold(detail::gate().lock);
            std::erase(detail::gate().private_descriptors, fd_.get());
        }
        fd_.reset();
    }
    fd fd_;
};

/// Forks with every thread of ours parked outside user code. Returns what fork returns: 0 in the child, where only
/// the calling thread exists, the private descriptors are closed (but those in `keep`) and the registry is empty.
///
/// Blocks  until our own threads leave user code, at most until `until`
/// Throws  usage_error naming the foreign threads, or the thread of ours that stays busy; system_error (EAGAIN,
/// ENOMEM) Threads any; forks are serialised
inline pid_t fork_here(const char* who, deadline until, std::initializer_list<int> keep = {}) {
    auto& g = detail::gate();
    g.lock.lock();
    const auto reopen = [&g]() noexcept {
        g.closed.store(0, std::memory_order_release);
        futex_wake(g.closed);
        g.lock.unlock();
    };
    g.closed.store(1, std::memory_order_seq_cst);  // (G) pairs with user_section
    for (const auto* t : g.threads) {
        if (t == detail::this_gate_entry) continue;
        while (t->busy.load(std::memory_order_seq_cst) != 0) {
            if (until.passed()) {
                const std::string name = t->name;
                reopen();
                throw usage_error(detail::say::thread_stays_busy(who, name.c_str()));
            }
            ::usleep(50);
        }
    }
    auto strangers = detail::foreign_threads(g);
    // A thread that was joined a moment ago may still be listed: the kernel wakes the joiner before it removes the
    // entry.
    for (int retry = 0; !strangers.empty() && retry < 20; ++retry) {
        ::usleep(500);
        strangers = detail::foreign_threads(g);
    }
    if (!strangers.empty()) {
        reopen();
        throw usage_error(detail::say::foreign_threads_alive(who, strangers));
    }
    std::fflush(nullptr);  // or the child would print what the parent has in its buffers once more
    detail::inside_fork_here = true;
    const pid_t pid = ::fork();
    detail::inside_fork_here = false;
    if (pid == 0) {
        for (const int number : g.private_descriptors) {
            if (std::find(keep.begin(), keep.end(), number) == keep.end()) ::close(number);
        }
        std::erase_if(g.private_descriptors,
                      [&](int number) { return std::find(keep.begin(), keep.end(), number) == keep.end(); });
        g.threads.clear();
        detail::this_gate_entry = nullptr;
        g.closed.store(0, std::memory_order_relaxed);
        g.lock.unlock();
        return 0;
    }
    const int number = errno;
    reopen();
    if (pid < 0)
        throw system_error({std::string(who) + " cannot fork", "pid " + std::to_string(::getpid()),
                            "see the limits of processes (ulimit -u, pids.max) and memory"},
                           number);
    return pid;
}

/// Forks a child that runs `body()` and leaves by `_exit` with what it returns (an int), after flushing stdio; an
/// exception that escapes is printed and gives status 1.
/// Crash  the child is killed when the thread that called this ends, or dies, if `die_with_parent`
template <class Body>
child fork_child(const char* who, Body&& body, deadline until, bool die_with_parent = true,
                 std::initializer_list<int> keep = {}) {
    const pid_t parent = ::getpid();
    const pid_t pid = fork_here(who, until, keep);
    if (pid == 0) {
        if (die_with_parent) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(1);  // it died before the line above
        }
        int status = 1;
        try {
            status = body();
        } catch (const std::exception& e) { std::fprintf(stderr, "%s\n", e.what()); } catch (...) {
            std::fprintf(stderr, "trireme: %s: an exception of unknown type escaped\n", who);
        }
        std::fflush(nullptr);
        ::_exit(status);
    }
    try {
        return child(pid, pidfd::open(pid));
    } catch (...) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        throw;
    }
}

}  // namespace trireme

// ---- trireme/sys/memory.hpp ------------------------------------------------------------------------------

// How much memory there is to be had: reserving more does not fail, it wakes the OOM killer.

namespace trireme {

/// Bytes that can still be used, and the file that says so.
struct memory_reading {
    std::uint64_t bytes = (std::numeric_limits<std::uint64_t>::max)();
    std::string file;  ///< empty: nothing could be read, and `bytes` means nothing
};

namespace detail::memory {

/// The number behind `key` in a file of lines "key   number [kB]".
inline std::optional<std::uint64_t> value_of(std::string_view text, std::string_view key) {
    for (std::string_view lines = text; !lines.empty();) {
        auto line = cgroup::next(lines, '\n');
        if (line.substr(0, key.size()) != key) continue;
        line.remove_prefix(key.size());
        if (line.empty() || (line[0] != ' ' && line[0] != ':')) continue;
        const auto first = line.find_first_of("0123456789");
        if (first == line.npos) return std::nullopt;
        std::uint64_t n = 0;
        for (std::size_t i = first; i < line.size() && line[i] >= '0' && line[i] <= '9'; ++i)
            n = n * 10 + static_cast<std::uint64_t>(line[i] - '0');
        return line.find("kB") != line.npos ? n * 1024 : n;
    }
    return std::nullopt;
}

/// What a group may still take: its limit less its use, plus the page cache that the kernel would drop for it.
inline std::optional<std::uint64_t> left_in_group(const std::string& folder, bool unified) {
    const auto limit = cgroup::slurp(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto usage = cgroup::slurp(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!limit || !usage) return std::nullopt;
    const auto most = cgroup::integer(cgroup::trimmed(*limit)), used = cgroup::integer(cgroup::trimmed(*usage));
    if (!most || !used || *most < 0 || *used < 0) return std::nullopt;  // "max"
    const auto stat = cgroup::slurp(folder + "/memory.stat");
    const auto cache = stat ? value_of(*stat, unified ? "inactive_file" : "total_inactive_file") : std::nullopt;
    const auto taken =
        static_cast<std::uint64_t>(*used) - (std::min)(static_cast<std::uint64_t>(*used), cache.value_or(0));
    const auto limit_bytes = static_cast<std::uint64_t>(*most);
    return limit_bytes > taken ? limit_bytes - taken : 0;
}

}  // namespace detail::memory

/// The smallest of what the machine has available and what is left in each control group above this process.
/// Blocks  for a few reads below `root`       Throws  nothing but std::bad_alloc
inline memory_reading memory_left(std::string root = "/") {
    namespace cg = detail::cgroup;
    while (!root.empty() && root.back() == '/') root.pop_back();
    memory_reading least;
    if (const auto text = cg::slurp(root + "/proc/meminfo")) {
        const auto available = detail::memory::value_of(*text, "MemAvailable");
        if (available)
            least = {*available + detail::memory::value_of(*text, "SwapFree").value_or(0), root + "/proc/meminfo"};
    }
    for (const auto& h : cg::hierarchies(root, "memory")) {
        for (const auto& folder : h.path()) {
            const auto left = detail::memory::left_in_group(folder, h.unified);
            if (left && *left < least.bytes)
                least = {*left, folder + (h.unified ? "/memory.max" : "/memory.limit_in_bytes")};
        }
    }
    return least;
}

}  // namespace trireme

// ---- trireme/sys/memfd.hpp -------------------------------------------------------------------------------

// Anonymous shared memory: a sealed memfd whose pages are reserved before anybody touches them.
//
// A memfd has no name, is not bounded by the size of /dev/shm, and is gone with its last descriptor and mapping,
// whatever is killed. Seals keep anybody from truncating it under a reader (the other source of SIGBUS).

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

// ---- trireme/sys/socket.hpp ------------------------------------------------------------------------------

// Local sockets: pairs and abstract addresses, whole messages with descriptors, every call with a deadline.

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

// ---- trireme/sys/thread.hpp ------------------------------------------------------------------------------

// A thread of ours: named, known to the fork gate, deaf to signals, joined by its owner.

namespace trireme {

/// Runs `body()` in a new thread. The body wraps each run of user code in a `user_section`, and rests outside of
/// one.
///
/// Throws  system_error when the system gives no thread
/// Threads signals of the process are delivered to other threads: this one blocks them all
/// Crash   in a forked child the thread does not exist; the destructor there joins nothing
class registered_thread {
  public:
    registered_thread() noexcept = default;

    template <class Body>
    registered_thread(const char* name, Body body)
        : entry_(std::make_unique<detail::gate_entry>()), home_(::getpid()) {
        std::snprintf(entry_->name, sizeof entry_->name, "%s", name);
        sigset_t all, before;
        ::sigfillset(&all);
        // The new thread inherits the mask of this instant; the caller's own is put back at once.
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        auto& g = detail::gate();
        try {
            // Held while the thread starts, so that no fork sees it between creation and registration.
            const std::scoped_lock hold(g.lock);
            thread_ = std::thread([entry = entry_.get(), body = std::move(body)]() mutable {
                entry->tid.store(static_cast<int>(::syscall(SYS_gettid)), std::memory_order_release);
                ::pthread_setname_np(::pthread_self(), entry->name);
                detail::this_gate_entry = entry;
                body();
                detail::this_gate_entry = nullptr;
            });
            while (entry_->tid.load(std::memory_order_acquire) == 0) ::sched_yield();
            g.threads.push_back(entry_.get());
        } catch (const std::system_error& e) {
            ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw system_error({std::string("cannot start the thread ") + name, "pid " + std::to_string(::getpid()),
                                "fewer threads, or a higher limit (ulimit -u, pids.max)"},
                               e.code().value());
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    registered_thread(registered_thread&& other) noexcept
        : entry_(std::move(other.entry_)), thread_(std::move(other.thread_)), home_(other.home_) {}
    registered_thread& operator=(registered_thread&& other) noexcept {
        if (this != &other) {
            join();
            entry_ = std::move(other.entry_);
            thread_ = std::move(other.thread_);
            home_ = other.home_;
        }
        return *this;
    }
    ~registered_thread() { join(); }

    bool joinable() const noexcept { return thread_.joinable(); }
    /// The kernel's id of the thread.
    int tid() const noexcept { return entry_ ? entry_->tid.load(std::memory_order_relaxed) : 0; }
    std::thread::native_handle_type native_handle() { return thread_.native_handle(); }

    /// Waits for the body to return. The owner has told it to, or this blocks.
    void join() noexcept {
        if (!thread_.joinable()) return;
        if (::getpid() != home_) {  // a forked child: there is no such thread, and pthread_join would wait for ever
            new std::thread(std::move(thread_));
            static_cast<void>(entry_.release());
            return;
        }
        thread_.join();
        forget();
    }
    /// Gives up on a thread that is stuck in user code: it keeps its registration, and whatever it uses must
    /// outlive it.
    void abandon() noexcept {
        if (!thread_.joinable()) return;
        thread_.detach();
        static_cast<void>(entry_.release());
    }

  private:
    void forget() noexcept {
        const std::scoped_lock hold(detail::gate().lock);
        std::erase(detail::gate().threads, entry_.get());
    }

    std::unique_ptr<detail::gate_entry> entry_;
    std::thread thread_;
    pid_t home_ = 0;
};

}  // namespace trireme

// ---- trireme/shm/mapping.hpp -----------------------------------------------------------------------------

// A memory file in this process's address space, through Boost.Interprocess's mapped_region.

namespace trireme {

namespace detail {

/// What mapped_region asks of a mappable object: the descriptor and the mode.
class mappable_memfd {
  public:
    explicit mappable_memfd(fd_ref d) noexcept : fd_(d) {}
    boost::interprocess::mapping_handle_t get_mapping_handle() const noexcept {
        boost::interprocess::mapping_handle_t h{};
        h.handle = fd_.get();
        h.is_xsi = false;
        return h;
    }
    boost::interprocess::mode_t get_mode() const noexcept { return boost::interprocess::read_write; }

  private:
    fd_ref fd_;
};

}  // namespace detail

/// A shared, writable view of a whole memory file. Owns the mapping, not the descriptor; move-only.
/// Throws  system_error when the address space or the number of mappings is exhausted
class mapping {
  public:
    mapping() noexcept = default;
    explicit mapping(const memfd& file) {
        try {
            region_ = boost::interprocess::mapped_region(detail::mappable_memfd(file.descriptor()),
                                                         boost::interprocess::read_write, 0, file.bytes());
        } catch (const boost::interprocess::interprocess_exception& e) {
            throw system_error({"cannot map " + format_bytes(file.bytes()) + " of shared memory",
                                "pid " + std::to_string(::getpid()), "fewer or smaller slots"},
                               e.get_native_error());
        }
    }
    mapping(mapping&& other) noexcept { region_.swap(other.region_); }
    mapping& operator=(mapping&& other) noexcept {
        region_.swap(other.region_);
        return *this;
    }

    std::byte* data() const noexcept { return static_cast<std::byte*>(region_.get_address()); }
    std::size_t size() const noexcept { return region_.get_size(); }

    /// Whether children that are forked from now on get this mapping: not, unless it is meant for them.
    void inherit(bool yes) const noexcept { ::madvise(data(), size(), yes ? MADV_DOFORK : MADV_DONTFORK); }

  private:
    boost::interprocess::mapped_region region_;
};

/// Makes pages present in this process, so that no later access pays for a fault. Content is kept.
///
/// MADV_POPULATE_WRITE reports what MAP_POPULATE hides; the touch afterwards is not redundant: on virtual machines
/// the first access still costs microseconds. Each process warms its own mapping (fork does not copy these
/// entries). Blocks  about 1 to 10 us a page
inline void warm(std::byte* from, std::size_t bytes) noexcept {
    if (bytes == 0) return;
    constexpr int populate_write =
        23;  // MADV_POPULATE_WRITE, Linux 5.14; older kernels answer EINVAL: the touch remains
    auto* const first = from - reinterpret_cast<std::uintptr_t>(from) % page_bytes;
    static_cast<void>(::madvise(first, static_cast<std::size_t>(from + bytes - first), populate_write));
    for (auto* p = first; p < from + bytes; p += page_bytes) static_cast<void>(*const_cast<volatile std::byte*>(p));
}

}  // namespace trireme
