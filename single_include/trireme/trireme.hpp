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
#include <cmath>
#include <compare>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <cxxabi.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
        while (t->tid.load(std::memory_order_acquire) == 0)
            ::sched_yield();  // it is starting: it will be there at once
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

// ---- trireme/shm/backing/heap.hpp ------------------------------------------------------------------------

// Memory of this process alone, page-aligned and zeroed: slots for thread workers, and what tests and TSan look at.

namespace trireme::backing {

/// Private anonymous memory. Owns it; move-only.
/// Throws  system_error when there is not enough
class heap {
  public:
    static constexpr scope reach = scope::threads;

    heap() noexcept = default;
    heap(const char* name, std::size_t bytes) : bytes_(bytes) {
        detail::refuse_if_too_large(name, bytes);
        void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            throw system_error({"cannot map " + format_bytes(bytes), name, "fewer or smaller slots"}, errno);
        data_ = static_cast<std::byte*>(p);
        // Huge pages make the first touch tens of times cheaper; where they are off, this changes nothing.
        if (bytes >= 4_MiB) static_cast<void>(::madvise(p, bytes, MADV_HUGEPAGE));
    }
    heap(heap&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    heap& operator=(heap&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~heap() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }

    std::byte* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return bytes_; }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace trireme::backing

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

// ---- trireme/shm/backing/memfd.hpp -----------------------------------------------------------------------

// Slots that worker processes share with the trainer: a sealed memory file and this process's view of it.

namespace trireme::backing {

/// Anonymous shared memory, reserved in full. Children forked later do not inherit the view unless `inherit(true)`.
/// Throws  system_error
class memfd {
  public:
    static constexpr scope reach = scope::processes;

    memfd() noexcept = default;
    memfd(const char* name, std::size_t bytes) {
        const trireme::memfd file(name, bytes);
        view_ = mapping(file);
        view_.inherit(false);
        // The descriptor may go: the mapping keeps the memory, forked workers inherit the mapping.
    }

    std::byte* data() const noexcept { return view_.data(); }
    std::size_t size() const noexcept { return view_.size(); }
    void inherit(bool yes) const noexcept { view_.inherit(yes); }

  private:
    mapping view_;
};

}  // namespace trireme::backing

// ---- trireme/shm/error_record.hpp ------------------------------------------------------------------------

// An error that crosses a process border: fixed size, in the shared page, rethrown by the side that can tell the
// user.

namespace trireme {

/// What a worker was doing, for messages; never used to decide anything.
enum class stage : std::uint32_t { resting, start_up, reading };

struct error_record {
    std::uint32_t kind = 0;  ///< an errc, 0 = none
    std::uint32_t worker = 0;
    std::int32_t pid = 0;
    std::int32_t signal = 0;
    std::uint64_t sample = 0;
    fixed_text<128> type;  ///< of the user's exception
    fixed_text<320> text;  ///< what it said
};
static_assert(std::is_trivially_copyable_v<error_record> && std::is_standard_layout_v<error_record>);
static_assert(sizeof(error_record) <= 512, "one record a part; a ring of 256 slots of 8 parts has 2048 of them");

namespace detail {

inline void demangle_into(fixed_text<128>& out, const char* name) {
    int status = 0;
    char* const readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    out.assign(status == 0 && readable != nullptr ? readable : name);
    std::free(readable);
}

/// Describes the exception that is being handled. Call inside a catch block. Anything can be thrown: 42 as well.
inline void describe_current_exception(error_record& out) noexcept {
    out.kind = static_cast<std::uint32_t>(errc::remote);
    try {
        if (const std::type_info* type = abi::__cxa_current_exception_type()) demangle_into(out.type, type->name());
        throw;
    } catch (const error& e) {
        std::string text = e.parts().what;
        if (!e.parts().hint.empty()) text += " (try: " + e.parts().hint + ")";
        out.text.assign(text);
    } catch (const std::exception& e) { out.text.assign(e.what()); } catch (...) {
        out.text.assign("unknown exception");
    }
}

}  // namespace detail

/// "std::runtime_error: disk gone on shelf 9... (cut: 320 of 200000 bytes)"
inline std::string describe(const error_record& r) {
    std::string text;
    if (!r.type.empty()) text += std::string(r.type.view()) + ": ";
    text += std::string(r.text.view());
    if (r.text.truncated())
        text += "... (cut: " + std::to_string(r.text.view().size()) + " of " +
                std::to_string(r.text.full_length()) + " bytes)";
    return text;
}

}  // namespace trireme

// ---- trireme/shm/word.hpp --------------------------------------------------------------------------------

// The state of one part of a batch, in one 64-bit word, so that "who owns this" has an answer after a crash at any
// instruction.

namespace trireme {

enum class part_state : std::uint8_t {
    idle,     ///< never opened
    open,     ///< wants to be filled; nobody writes the payload
    filling,  ///< its owner writes the payload
    ready,    ///< filled
    failed,   ///< user code threw, or died too often: the part's error record says what
    voided,   ///< cancelled before it was filled
};

/// A decoded word: `state:4 | attempt:4 | worker:8 | incarnation:8 | batch:40`.
/// Every transition is one CAS or one store; only the owner, or the reaper for an owner that the kernel has
/// confirmed dead, leaves `filling`. 40 bits are 10^12 batches, and a slot's batch only grows, so there is no ABA.
struct part_word {
    part_state state = part_state::idle;
    std::uint8_t attempt = 0;  ///< how many owners died on it, saturating at 15
    std::uint8_t worker = 0;
    std::uint8_t incarnation = 0;  ///< of the worker, modulo 256
    std::uint64_t batch = 0;

    static constexpr std::uint64_t batch_mask = (std::uint64_t{1} << 40) - 1;

    constexpr std::uint64_t encode() const noexcept {
        return (static_cast<std::uint64_t>(state) << 60) | (static_cast<std::uint64_t>(attempt & 15U) << 56) |
               (static_cast<std::uint64_t>(worker) << 48) | (static_cast<std::uint64_t>(incarnation) << 40) |
               (batch & batch_mask);
    }
    static constexpr part_word decode(std::uint64_t w) noexcept {
        return {static_cast<part_state>(w >> 60), static_cast<std::uint8_t>((w >> 56) & 15U),
                static_cast<std::uint8_t>(w >> 48), static_cast<std::uint8_t>(w >> 40), w & batch_mask};
    }
    constexpr bool done() const noexcept {
        return state == part_state::ready || state == part_state::failed || state == part_state::voided;
    }
    friend constexpr bool operator==(const part_word&, const part_word&) = default;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
              "trireme: shared memory needs lock-free 64-bit atomics");
static_assert(part_word::decode(part_word{part_state::filling, 3, 7, 9, 12345}.encode()) ==
              part_word{part_state::filling, 3, 7, 9, 12345});

}  // namespace trireme

// ---- trireme/shm/ring_layout.hpp -------------------------------------------------------------------------

// What lies where in a ring's arena. Shared memory is a file format: magic, layout hash and geometry come first,
// every struct is trivially copyable and its size is asserted beside it.

namespace trireme {

inline constexpr std::uint32_t max_parts = 8;      // their words share one line
inline constexpr std::uint32_t max_workers = 256;  // 8 bits of a word
inline constexpr std::uint32_t max_slots = 4096;

/// The shape of a ring, fixed for its life.
struct ring_geometry {
    std::uint32_t slots = 8;          ///< batches in flight, at least 1
    std::uint32_t parts = 1;          ///< shares into which a batch is cut, 1 to 8 and at most `rows`
    std::uint32_t workers = 1;        ///< workers that may ever claim, 1 to 256
    std::uint32_t rows = 1;           ///< samples of a batch
    std::uint64_t payload_bytes = 0;  ///< of one batch

    friend constexpr bool operator==(const ring_geometry&, const ring_geometry&) = default;

    /// Rows of part p: [first, last).
    constexpr std::uint32_t first_row(std::uint32_t part) const noexcept {
        return static_cast<std::uint32_t>(std::uint64_t{part} * rows / parts);
    }
    constexpr std::uint64_t slot_stride() const noexcept { return align_up(payload_bytes, page_bytes); }
};

/// What a batch's makers are told: written by the consumer before it opens the batch, read by whoever claims a
/// part.
struct batch_request {
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;  ///< the batch's place in its epoch
    std::uint64_t spare[4]{};
};
static_assert(sizeof(batch_request) == 48 && std::is_trivially_copyable_v<batch_request>);

/// In a recorder: no sample yet.
inline constexpr std::uint64_t no_sample = ~std::uint64_t{0};

/// What became of one row of a batch.
enum class row_state : std::uint8_t {
    valid,    ///< a sample of this epoch
    padding,  ///< a repeat, only there to fill the batch
    empty,    ///< nothing: zeroes
    skipped,  ///< its sample failed and the loader was told to skip such: zeroes
};

namespace detail {

inline constexpr std::uint32_t phase_running = 0, phase_stopping = 1;  // phases of a ring; they only grow
inline constexpr std::uint32_t ring_goes_on = 0,
                               ring_over = 1;  // of `fatal`; above: a worker writes the last words

struct ring_header {
    std::uint64_t magic = 0, layout_hash = 0;
    ring_geometry geometry;
    std::int32_t pid = 0;
};

struct ring_control {
    alignas(flag_line) std::atomic<std::uint64_t> floor{0};  // batches below it are cancelled
    std::atomic<std::uint32_t> phase{phase_running};
    std::atomic<std::uint32_t> fatal{ring_goes_on};            // over: `last_words` says why
    std::atomic<std::uint32_t> deaths{0};                      // of workers, all together
    alignas(flag_line) std::atomic<std::uint64_t> awaited{0};  // 0, or the batch that the consumer waits for + 1
    alignas(flag_line) std::atomic<std::uint32_t> consumer_bell{0};
    alignas(flag_line) std::atomic<std::uint32_t> workers_bell{0};
    alignas(flag_line)
        std::atomic<std::uint64_t> sleepers[max_workers / 64]{};  // a bit a worker: flagged, maybe parked
    alignas(flag_line) error_record last_words;
};
inline constexpr std::uint64_t awaits_any = ~std::uint64_t{0};

/// One worker's own line: the flight recorder, and what the reaper notes of its deaths.
struct worker_line {
    // written by the worker alone
    alignas(flag_line) std::atomic<std::uint32_t> incarnation{0};
    std::atomic<std::int32_t> pid{0};
    std::atomic<std::uint32_t> ready{0};  // finished its start-up
    std::atomic<stage> doing{stage::resting};
    std::atomic<std::uint64_t> batch{0};
    std::atomic<std::uint32_t> part{0};
    std::atomic<std::uint64_t> sample{0};
    std::atomic<std::uint64_t> since_ns{0};
    std::atomic<std::uint64_t> published{0};  // parts, over all incarnations
    // written by the reaper alone
    alignas(flag_line) std::atomic<std::uint32_t> deaths{0};
    std::atomic<std::int32_t> dead_pid{0};
    exit_status last_status;
    std::uint64_t dead_batch = 0, dead_sample = 0;
    std::uint32_t was_filling = 0;  // the death cost a claim
    std::uint32_t budget_used = 0;  // deaths since it last made progress
    std::uint64_t published_at_death = 0;
};

/// A slot's words and its request share two neighbouring lines: what a claim reads comes in one prefetch.
struct slot_head {
    alignas(flag_line) std::atomic<std::uint64_t> words[max_parts]{};
    batch_request request;
};
static_assert(sizeof(slot_head) == flag_line);

/// Trouble of one part: filled by its owner before FAILED, or by the reaper; read by the consumer after FAILED.
struct part_trouble {
    error_record record;
    std::uint64_t dead_sample = 0;  // the sample in hand at the last death, and how many died on just that one
    std::uint32_t deaths_on_it = 0;
};

/// Accessors over an arena; trivially copyable, so it can be handed to workers by value.
class ring_memory {
  public:
    static constexpr std::uint64_t magic = 0x7269'6e67'2e74'7269ULL;

    static std::uint64_t hash_of(const ring_geometry& g) noexcept {
        return hasher{}
            .add(version.major_part)
            .add(version.minor_part)
            .add(sizeof(ring_control))
            .add(sizeof(worker_line))
            .add(sizeof(slot_head))
            .add(sizeof(part_trouble))
            .add(g.slots)
            .add(g.parts)
            .add(g.workers)
            .add(g.rows)
            .add(g.payload_bytes)
            .value();
    }

    ring_memory() noexcept = default;
    ring_memory(std::byte* base, const ring_geometry& g) noexcept : base_(base), g_(g) {
        std::uint64_t at = align_up(sizeof(ring_header), flag_line);
        const auto take = [&at](std::uint64_t bytes, std::uint64_t to) {
            at = align_up(at, to);
            const auto start = at;
            at += bytes;
            return start;
        };
        control_ = take(sizeof(ring_control), flag_line);
        workers_ = take(sizeof(worker_line) * g.workers, flag_line);
        heads_ = take(sizeof(slot_head) * g.slots, flag_line);
        rows_ = take(std::uint64_t{row_stride()} * g.slots, flag_line);
        troubles_ = take(sizeof(part_trouble) * g.slots * g.parts, flag_line);
        payload_ = take(g.slot_stride() * g.slots, page_bytes);
        total_ = align_up(at, page_bytes);
    }
    static std::uint64_t bytes_for(const ring_geometry& g) noexcept { return ring_memory(nullptr, g).total_; }

    /// Writes the header. By the creator, once. The memory is zeroed, and zero is the initial state of all the
    /// rest: to construct it again would touch every page before the first batch.
    void format() const noexcept {
        auto* const h = new (base_) ring_header;
        h->layout_hash = hash_of(g_);
        h->geometry = g_;
        h->pid = static_cast<std::int32_t>(::getpid());
        h->magic = magic;
    }

    const ring_geometry& geometry() const noexcept { return g_; }
    ring_control& control() const noexcept { return *reinterpret_cast<ring_control*>(base_ + control_); }
    worker_line& worker(std::uint32_t w) const noexcept {
        return reinterpret_cast<worker_line*>(base_ + workers_)[w];
    }
    slot_head& head(std::uint32_t slot) const noexcept {
        return reinterpret_cast<slot_head*>(base_ + heads_)[slot];
    }
    std::atomic<std::uint64_t>& word(std::uint32_t slot, std::uint32_t part) const noexcept {
        return head(slot).words[part];
    }
    part_trouble& trouble(std::uint32_t slot, std::uint32_t part) const noexcept {
        return reinterpret_cast<part_trouble*>(base_ + troubles_)[slot * g_.parts + part];
    }
    std::span<row_state> row_states(std::uint32_t slot) const noexcept {
        return {reinterpret_cast<row_state*>(base_ + rows_ + std::uint64_t{row_stride()} * slot), g_.rows};
    }
    std::byte* payload(std::uint32_t slot) const noexcept { return base_ + payload_ + g_.slot_stride() * slot; }
    std::uint32_t slot_of(std::uint64_t batch) const noexcept {
        return static_cast<std::uint32_t>(batch % g_.slots);
    }

    /// Every part of `batch` is done. Seq_cst loads: publishers and the consumer each look after their own store.
    bool complete(std::uint64_t batch) const noexcept {
        const auto& h = head(slot_of(batch));
        for (std::uint32_t p = 0; p < g_.parts; ++p) {
            const auto w = part_word::decode(h.words[p].load(std::memory_order_seq_cst));
            if (w.batch != (batch & part_word::batch_mask) || !w.done()) return false;
        }
        return true;
    }

    std::span<std::byte> bytes() const noexcept { return {base_, static_cast<std::size_t>(total_)}; }

  private:
    std::uint32_t row_stride() const noexcept { return static_cast<std::uint32_t>(align_up(g_.rows, cache_line)); }

    std::byte* base_ = nullptr;
    ring_geometry g_;
    std::uint64_t control_ = 0, workers_ = 0, heads_ = 0, rows_ = 0, troubles_ = 0, payload_ = 0, total_ = 0;
};

/// Bumps a bell and wakes whoever sleeps on it. The bump comes first: a sleeper that sampled before it will not
/// sleep.
template <class Wait>
void ring_bell(std::atomic<std::uint32_t>& bell, const Wait& wait) noexcept {
    bell.fetch_add(1, std::memory_order_seq_cst);
    wait.wake_all(bell);
}

}  // namespace detail

}  // namespace trireme

// ---- trireme/shm/lease.hpp -------------------------------------------------------------------------------

// A batch in the consumer's hand: the slot is its own until the lease is dropped.

namespace trireme {

namespace detail {

/// What a ring and its leases share: the memory, and a flag a slot.
template <class Backing>
struct ring_arena {
    ring_arena(const char* name, std::size_t bytes, const ring_geometry& g)
        : backing(name, bytes), memory(backing.data(), g), leased(new std::atomic<std::uint32_t>[g.slots]()) {
        memory.format();
    }
    Backing backing;
    ring_memory memory;
    std::unique_ptr<std::atomic<std::uint32_t>[]> leased;
};

}  // namespace detail

/// Untyped: bytes, row states and troubles of one batch. Move-only; several may be held; may outlive the ring.
///
/// Threads  may be dropped on another thread than it was taken on; the slot is opened again by the consumer's next
/// call
class raw_lease {
  public:
    raw_lease() noexcept = default;
    raw_lease(std::shared_ptr<void> arena, const detail::ring_memory& memory, std::uint32_t slot,
              std::uint64_t batch, std::atomic<std::uint32_t>* flag) noexcept
        : arena_(std::move(arena)), memory_(memory), slot_(slot), batch_(batch), flag_(flag) {}
    raw_lease(raw_lease&& other) noexcept
        : arena_(std::move(other.arena_)),
          memory_(other.memory_),
          slot_(other.slot_),
          batch_(other.batch_),
          flag_(std::exchange(other.flag_, nullptr)) {}
    raw_lease& operator=(raw_lease&& other) noexcept {
        if (this != &other) {
            release();
            arena_ = std::move(other.arena_);
            memory_ = other.memory_;
            slot_ = other.slot_;
            batch_ = other.batch_;
            flag_ = std::exchange(other.flag_, nullptr);
        }
        return *this;
    }
    ~raw_lease() { release(); }

    /// Gives the slot back. The memory must not be used afterwards.
    void release() noexcept {
        if (flag_ == nullptr) return;
        flag_->store(0, std::memory_order_release);  // (E) the consumer's reads come before the refill
        flag_ = nullptr;
        arena_.reset();
    }
    bool valid() const noexcept { return flag_ != nullptr; }

    std::byte* data() const noexcept { return memory_.payload(slot_); }
    const batch_request& request() const noexcept { return memory_.head(slot_).request; }
    std::uint64_t number() const noexcept { return batch_; }
    std::uint32_t slot() const noexcept { return slot_; }
    std::span<const row_state> row_states() const noexcept { return memory_.row_states(slot_); }

    /// The first part that failed, or null.
    const error_record* failure() const noexcept {
        for (std::uint32_t p = 0; p < memory_.geometry().parts; ++p) {
            const auto w = part_word::decode(memory_.word(slot_, p).load(std::memory_order_acquire));
            if (w.state == part_state::failed) return &memory_.trouble(slot_, p).record;
        }
        return nullptr;
    }
    /// The workers that made the parts, in part order: two of them may share a batch.
    std::uint32_t maker(std::uint32_t part) const noexcept {
        return part_word::decode(memory_.word(slot_, part).load(std::memory_order_relaxed)).worker;
    }

  private:
    std::shared_ptr<void> arena_;
    detail::ring_memory memory_;
    std::uint32_t slot_ = 0;
    std::uint64_t batch_ = 0;
    std::atomic<std::uint32_t>* flag_ = nullptr;
};

}  // namespace trireme

// ---- trireme/shm/steps.hpp -------------------------------------------------------------------------------

// The steps of the ring's protocol, by name. The Promela model labels its transitions with these names, a test
// compares the two lists, and the fault-injection test kills a worker at every one of them.

namespace trireme {

/// One observable moment of the protocol: just *after* the store, CAS or system call that the name says.
/// Workers and the reaper may be killed there; the consumer's steps are listed because the model has them too.
enum class step : std::uint8_t {
    // worker: claiming and filling
    worker_claimed,          ///< CAS OPEN(k) -> FILLING(me)
    worker_recorded,         ///< wrote batch, part and sample on its own line (flight recorder)
    worker_half_filled,      ///< wrote some of the part's payload, not all
    worker_filled,           ///< wrote all of the part's payload
    worker_published,        ///< CAS FILLING(me) -> READY, FAILED, or (below the floor) VOID
    worker_checked_batch,    ///< loaded the batch's other words: is it complete?
    worker_checked_awaited,  ///< loaded `awaited`: does the consumer wait for this batch?
    worker_rang,             ///< bumped the consumer's bell
    worker_woke,             ///< FUTEX_WAKE to the consumer
    // worker: parking
    worker_flagged,    ///< set its bit in the sleepers' mask
    worker_sampled,    ///< sampled the workers' bell
    worker_rechecked,  ///< looked for work once more after that
    worker_parked,     ///< came back from FUTEX_WAIT
    worker_unflagged,  ///< cleared its bit
    // reaper: after the kernel confirmed a death
    reaper_reclaimed,      ///< FILLING(dead) -> OPEN(attempt+1) or FAILED, one word
    reaper_cleared,        ///< cleared the dead worker's bit in the sleepers' mask
    reaper_rang_consumer,  ///< bumped the consumer's bell and woke it
    reaper_rang_workers,   ///< bumped the workers' bell and woke them
    // consumer
    consumer_requested,     ///< wrote the request of batch k
    consumer_opened,        ///< store OPEN(k), one word
    consumer_rang,          ///< bumped the workers' bell at low water or before parking, and woke them
    consumer_awaited,       ///< stored `awaited`
    consumer_sampled,       ///< sampled its bell
    consumer_rechecked,     ///< scanned the words once more
    consumer_parked,        ///< came back from FUTEX_WAIT
    consumer_took,          ///< saw every part done and took the batch
    consumer_raised_floor,  ///< cancel: raised the floor
    consumer_voided,        ///< cancel: CAS OPEN(< floor) -> VOID, one word
    consumer_stopped,       ///< shutdown: stored the stop phase and rang everybody
};

/// The names, in the order of the enumeration; the model's labels.
inline constexpr std::array<std::string_view, 29> step_names{
    "worker_claimed",       "worker_recorded",      "worker_half_filled",     "worker_filled",
    "worker_published",     "worker_checked_batch", "worker_checked_awaited", "worker_rang",
    "worker_woke",          "worker_flagged",       "worker_sampled",         "worker_rechecked",
    "worker_parked",        "worker_unflagged",     "reaper_reclaimed",       "reaper_cleared",
    "reaper_rang_consumer", "reaper_rang_workers",  "consumer_requested",     "consumer_opened",
    "consumer_rang",        "consumer_awaited",     "consumer_sampled",       "consumer_rechecked",
    "consumer_parked",      "consumer_took",        "consumer_raised_floor",  "consumer_voided",
    "consumer_stopped"};
static_assert(step_names.size() == static_cast<std::size_t>(step::consumer_stopped) + 1);

constexpr std::string_view name_of(step s) noexcept { return step_names[static_cast<std::size_t>(s)]; }

/// Watches the protocol go by. `no_steps` compiles to nothing; tests kill the process inside `at`.
///   at(step)   called right after the step; may not return
template <class S>
concept step_hook = requires(const S& s, step which) {
    { s.at(which) }
    noexcept;
};

struct no_steps {
    constexpr void at(step) const noexcept {}
};
static_assert(step_hook<no_steps>);

}  // namespace trireme

// ---- trireme/shm/reaper.hpp ------------------------------------------------------------------------------

// What is done about a dead worker: its claims are reopened, or reported once; everybody is woken to look again.

namespace trireme {

/// What becomes of the parts that a dead worker was filling, and of the worker.
enum class on_death : std::uint32_t {
    respawn,  ///< they are made again by another worker, and the worker is started anew
    raise,    ///< their batch fails with an error that names the worker
};

namespace detail {

inline constexpr std::uint32_t poison_deaths = 3;   // on one sample
inline constexpr std::uint32_t respawn_budget = 3;  // deaths of a worker without progress in between

/// Takes back what a dead worker was filling: OPEN with one more attempt, FAILED when three died on the same sample
/// (or at once under `on_death::raise`), VOID when the batch was cancelled. Notes the death on the worker's line.
template <class Hook>
void reclaim(const ring_memory& memory, std::uint32_t w, pid_t pid, exit_status status, on_death policy,
             const Hook& hook) noexcept {
    auto& control = memory.control();
    auto& line = memory.worker(w);
    const auto& g = memory.geometry();
    const std::uint64_t sample = line.sample.load(std::memory_order_relaxed);
    const bool was_reading = line.doing.load(std::memory_order_acquire) == stage::reading;
    line.dead_pid.store(static_cast<std::int32_t>(pid), std::memory_order_relaxed);
    line.last_status = status;
    line.dead_batch = line.batch.load(std::memory_order_relaxed);
    line.dead_sample = sample;
    line.was_filling = 0;
    const std::uint64_t floor = control.floor.load(std::memory_order_seq_cst);
    for (std::uint32_t s = 0; s < g.slots; ++s) {
        for (std::uint32_t p = 0; p < g.parts; ++p) {
            auto& cell = memory.word(s, p);
            auto word = part_word::decode(cell.load(std::memory_order_acquire));
            if (word.state != part_state::filling || word.worker != w) continue;
            line.was_filling = 1;
            line.dead_batch = word.batch;
            // The recorder names the sample only if the worker got as far as noting one of this very part.
            const bool named = was_reading && sample != no_sample &&
                               line.batch.load(std::memory_order_relaxed) == word.batch &&
                               line.part.load(std::memory_order_relaxed) == p;
            auto& trouble = memory.trouble(s, p);
            const bool same =
                named && word.attempt > 0 && trouble.deaths_on_it > 0 && trouble.dead_sample == sample;
            trouble.deaths_on_it = named ? (same ? trouble.deaths_on_it + 1 : 1) : 0;
            trouble.dead_sample = sample;
            word.attempt = static_cast<std::uint8_t>(word.attempt + 1);
            if (word.batch < floor) {
                word.state = part_state::voided;
            } else if (policy == on_death::raise || trouble.deaths_on_it >= poison_deaths || word.attempt >= 15) {
                auto& r = trouble.record;
                r = {};
                r.kind = static_cast<std::uint32_t>(errc::peer);
                r.worker = w;
                r.pid = static_cast<std::int32_t>(pid);
                r.signal = status.signal;
                r.sample = sample;
                std::string text =
                    "worker " + std::to_string(w) + " (pid " + std::to_string(pid) + ") " + describe(status);
                if (trouble.deaths_on_it >= poison_deaths)
                    text += ", the " + std::to_string(trouble.deaths_on_it) + "rd to die on this sample";
                r.text.assign(text);
                word.state = part_state::failed;
            } else {
                word.state = part_state::open;
            }
            word.worker = 0;
            word.incarnation = 0;
            cell.store(word.encode(), std::memory_order_seq_cst);
            hook.at(step::reaper_reclaimed);
            // A cancel may have passed this word while it was FILLING, after our look at the floor. Both sides
            // store first and look then, so one of them voids it (the model's mutant reaper-trusts-an-old-floor).
            if (word.state == part_state::open && word.batch < control.floor.load(std::memory_order_seq_cst)) {
                std::uint64_t seen = word.encode();
                word.state = part_state::voided;
                cell.compare_exchange_strong(seen, word.encode(), std::memory_order_seq_cst);
            }
        }
    }
    // If it died over its last words, they are nobody's.
    std::uint32_t unsaid = ring_over + 1 + w;
    control.fatal.compare_exchange_strong(unsaid, ring_goes_on, std::memory_order_seq_cst);
    control.sleepers[w / 64].fetch_and(~(std::uint64_t{1} << (w % 64)), std::memory_order_seq_cst);
    hook.at(step::reaper_cleared);
    line.doing.store(stage::resting, std::memory_order_relaxed);
    line.deaths.fetch_add(1, std::memory_order_release);
    control.deaths.fetch_add(1, std::memory_order_release);
}

/// Wakes the consumer and all workers, always: the dead one may have swallowed a wake.
template <class Wait, class Hook>
void ring_everybody(const ring_memory& memory, const Wait& wait, const Hook& hook) noexcept {
    ring_bell(memory.control().consumer_bell, wait);
    hook.at(step::reaper_rang_consumer);
    ring_bell(memory.control().workers_bell, wait);
    hook.at(step::reaper_rang_workers);
}

/// What is done after the kernel has confirmed that worker `w` is dead (and never on a time-out: a slow worker
/// still writes).
///
/// Threads  one reaper a ring         Processes  any that maps the ring
template <class Wait, class Hook>
void reap(const ring_memory& memory, std::uint32_t w, pid_t pid, exit_status status, on_death policy,
          const Wait& wait, const Hook& hook) noexcept {
    reclaim(memory, w, pid, status, policy, hook);
    ring_everybody(memory, wait, hook);
}

/// Whether a dead worker is started again: three deaths without progress in between are too many.
inline bool within_budget(worker_line& line) noexcept {
    const auto published = line.published.load(std::memory_order_relaxed);
    line.budget_used = published > line.published_at_death ? 1 : line.budget_used + 1;
    line.published_at_death = published;
    return line.budget_used <= respawn_budget;
}

/// Ends the ring with a reason, which the consumer throws at its next wait. The first reason stays, whole: two
/// workers may fail at once.
template <class Wait>
void end_ring(const ring_memory& memory, const error_record& why, const Wait& wait) noexcept {
    auto& control = memory.control();
    std::uint32_t none = ring_goes_on;
    if (control.fatal.compare_exchange_strong(none, ring_over + 1 + why.worker, std::memory_order_seq_cst)) {
        control.last_words = why;
        control.fatal.store(ring_over, std::memory_order_seq_cst);
    }
    ring_bell(control.consumer_bell, wait);
}

}  // namespace detail

}  // namespace trireme

// ---- trireme/shm/ring.hpp --------------------------------------------------------------------------------

// The slot ring: batches made by many workers in shared slots, taken by one consumer, in order or as ready.
//
// Batch k lies in slot k mod S: the ring is the reorder window and the credit scheme at once. Workers pull. There
// is no lock, no free list and no queue that a dead process could leave broken: docs/how-it-works/ring.md.

namespace trireme {

/// In which order the consumer gets batches.
enum class delivery : std::uint32_t {
    in_order,  ///< 0, 1, 2, ...: the same on every run
    as_ready,  ///< whichever is complete first
};

struct ring_options {
    const char* name = "ring";
    ring_geometry geometry{};
    delivery order = delivery::in_order;
    std::chrono::nanoseconds spin{0};  ///< how long the consumer watches the words before it parks
    /// How long it parks at a time before it looks at its deadline and its watch. Waking does not depend on it: the
    /// protocol loses no wake-up, which the tests show by making this an hour.
    std::chrono::nanoseconds slice = std::chrono::milliseconds(50);
};

/// The consumer's side of a ring. The memory lives until the ring and every lease are gone.
///
/// Threads    one consumer; leases may be dropped on any thread
/// Processes  in the process that made it
template <class Backing, wait_policy Wait = wait::futex, step_hook Hook = no_steps>
class ring {
    static_assert(explain::wait_policy<Wait>());
    static_assert(Wait::reach == scope::processes || Backing::reach == scope::threads,
                  "trireme: this wait policy does not reach the processes that share the backing; use wait::futex");

  public:
    /// Throws  usage_error (a geometry that cannot be), system_error (no memory)
    explicit ring(const ring_options& options, Wait wait = {}, Hook hook = {})
        : options_(options), wait_(wait), hook_(hook), occupants_(options.geometry.slots) {
        validate(options);
        const auto bytes = static_cast<std::size_t>(detail::ring_memory::bytes_for(options.geometry));
        arena_ = std::make_shared<detail::ring_arena<Backing>>(options.name, bytes, options.geometry);
        // Waking costs the consumer as much as dozens of batches: it is done when a quarter of the slots is left
        // ready, and never more than every other time where there are few of them.
        low_water_ = (std::max)(std::uint32_t{1}, options.geometry.slots * 3 / 4);
        for (std::uint32_t s = 0; s < options.geometry.slots; ++s) occupants_[s].next = s;
    }

    detail::ring_memory memory() const noexcept { return arena_->memory; }
    Backing& backing() noexcept { return arena_->backing; }
    /// The memory, for those that must outlive the ring with it.
    std::shared_ptr<detail::ring_arena<Backing>> arena() const noexcept { return arena_; }
    const ring_geometry& geometry() const noexcept { return options_.geometry; }

    /// Opens as many batches as there are free slots, in the order in which they will be taken. `source(request)`
    /// fills in the next request and returns false when there are no more.
    template <class Source>
    void refill(Source&& source) {
        const std::uint32_t count = options_.geometry.slots;
        for (std::uint32_t tried = 0; tried < count; ++tried) {
            const std::uint32_t slot =
                options_.order == delivery::in_order ? memory().slot_of(next_open_) : (scan_ + tried) % count;
            if (!vacant(slot)) {
                if (options_.order == delivery::in_order) return;
                continue;
            }
            batch_request request;
            if (!source(request)) return;
            open(slot, request);
        }
        scan_ = (scan_ + 1) % count;
    }
    /// Batches that are opened and not taken yet.
    std::uint64_t in_flight() const noexcept { return in_flight_; }

    /// Takes the next batch: in order the oldest opened one, else any that is complete.
    ///
    /// Needs      at least one batch in flight (usage_error otherwise)
    /// Returns    a lease; the slot is opened again when the lease is dropped and `refill` is called
    /// Blocks     until every part of the batch is done or `until` passes. `watch()` is called once a slice (50 ms)
    /// and
    ///            may throw
    /// Throws     timeout_error, usage_error (the consumer holds the slot it waits for), whatever `watch` throws
    /// Memory     what a worker wrote before it published is visible after this returns
    /// Crash      killed between any two stores, a worker leaves parts that are redone, or reported once
    template <class Watch>
    [[nodiscard]] raw_lease take(deadline until, Watch&& watch) {
        std::uint64_t batch = 0;
        if (options_.order == delivery::in_order) {
            batch = next_take_;
            if (!memory().complete(batch))
                wait_for(batch + 1, until, watch, [&] { return memory().complete(batch); });
        } else {
            const auto found = [&] { return find_complete(batch); };
            if (!found()) wait_for(detail::awaits_any, until, watch, found);
        }
        hook_.at(step::consumer_took);
        return hand_out(batch);
    }
    /// A batch that can be taken now, without waiting.
    [[nodiscard]] std::optional<raw_lease> try_take() {
        std::uint64_t batch = next_take_;
        const bool there = options_.order == delivery::in_order ? in_flight_ > 0 && memory().complete(batch)
                                                                : find_complete(batch);
        if (!there) {
            pay_owed();  // a caller that only polls never parks (mutant owed-ring-not-paid-polling)
            return std::nullopt;
        }
        return hand_out(batch);
    }

    /// Waits until the next slot can be opened again: its last batch was cancelled and somebody still fills it, or
    /// it is leased, which only the consumer can end: usage_error, at once.
    template <class Watch>
    void wait_for_vacancy(deadline until, Watch&& watch) {
        if (options_.order == delivery::as_ready) {
            const auto any = [this] {
                for (std::uint32_t s = 0; s < options_.geometry.slots; ++s)
                    if (vacant(s)) return true;
                return false;
            };
            if (any()) return;
            if (leased() == options_.geometry.slots) throw usage_error(held_by_consumer(options_));
            return wait_for(detail::awaits_any, until, watch, any);
        }
        const std::uint32_t slot = memory().slot_of(next_open_);
        if (vacant(slot)) return;
        auto& o = occupants_[slot];
        if (o.phase == occupancy::leased) throw usage_error(held_by_consumer(options_));
        wait_for(o.batch + 1, until, watch, [&] { return vacant(slot); });
    }
    std::uint32_t leased() const noexcept {
        std::uint32_t n = 0;
        for (std::uint32_t s = 0; s < options_.geometry.slots; ++s)
            n += arena_->leased[s].load(std::memory_order_relaxed) != 0 ? 1U : 0U;
        return n;
    }

    /// Gives up every batch that is open or being filled; leases stay valid. Workers finish the sample in hand, at
    /// most; the slots come free as they do. Never waits.
    void cancel() noexcept {
        auto& control = memory().control();
        std::uint64_t floor = next_open_;
        for (const auto& o : occupants_)
            floor = (std::max)(floor, o.next > options_.geometry.slots - 1 ? o.next - options_.geometry.slots + 1
                                                                           : std::uint64_t{0});
        control.floor.store(floor, std::memory_order_seq_cst);
        hook_.at(step::consumer_raised_floor);
        for (std::uint32_t s = 0; s < options_.geometry.slots; ++s) {
            auto& o = occupants_[s];
            if (o.phase != occupancy::opened) continue;
            for (std::uint32_t p = 0; p < options_.geometry.parts; ++p) {
                auto seen = memory().word(s, p).load(std::memory_order_seq_cst);
                auto word = part_word::decode(seen);
                if (word.state != part_state::open) continue;
                word.state = part_state::voided;
                memory().word(s, p).compare_exchange_strong(seen, word.encode(), std::memory_order_seq_cst);
                hook_.at(step::consumer_voided);
            }
            o.phase = occupancy::cancelled;
        }
        for (auto& o : occupants_) {
            while (o.next < floor) o.next += options_.geometry.slots;
        }
        next_take_ = next_open_ = floor;
        in_flight_ = 0;
    }

    /// Tells every worker to leave. Never waits.
    void stop() noexcept {
        memory().control().phase.store(detail::phase_stopping, std::memory_order_seq_cst);
        detail::ring_bell(memory().control().workers_bell, wait_);
        hook_.at(step::consumer_stopped);
    }

    /// Wakes parked workers for what was opened since the last time. `take` does it before it waits.
    void pay_owed() noexcept {
        if (owed_ == 0) return;
        owed_ = 0;
        auto& control = memory().control();
        std::uint64_t sleeping = 0;
        for (auto& mask : control.sleepers) sleeping |= mask.load(std::memory_order_seq_cst);  // (D)
        if (sleeping == 0) return;
        detail::ring_bell(control.workers_bell, wait_);
        hook_.at(step::consumer_rang);
    }

    static message held_by_consumer(const ring_options& o) {
        return {"the next batch has no slot: the consumer holds the lease of the batch that lies in it",
                std::string("ring \"") + o.name + "\", " + std::to_string(o.geometry.slots) + " slots, pid " +
                    std::to_string(::getpid()),
                "drop or copy batches that are kept, or ask for more slots (loader_options::prefetch)"};
    }

  private:
    enum class occupancy : std::uint8_t { free, opened, leased, cancelled };
    struct occupant {
        occupancy phase = occupancy::free;
        std::uint64_t batch = 0;  // the batch that was opened last
        std::uint64_t next = 0;   // the number of the one to be opened next: grows by `slots`
    };

    static void validate(const ring_options& o) {
        const auto& g = o.geometry;
        const auto refuse = [&](const char* what, std::uint64_t value, std::uint64_t most) {
            throw usage_error({std::string("a ring of ") + std::to_string(value) + " " + what + " cannot be made",
                               std::string("ring \"") + o.name + "\"",
                               std::string("1 to ") + std::to_string(most) + " " + what});
        };
        if (g.slots < 1 || g.slots > max_slots) refuse("slots", g.slots, max_slots);
        if (g.rows < 1) refuse("rows", g.rows, 0xffffffffU);
        if (g.parts < 1 || g.parts > (std::min)(max_parts, g.rows))
            refuse("parts", g.parts, (std::min)(max_parts, g.rows));
        if (g.workers < 1 || g.workers > max_workers) refuse("workers", g.workers, max_workers);
    }

    /// Whether a slot can be opened; takes note of dropped leases and finished cancelled batches.
    bool vacant(std::uint32_t slot) noexcept {
        auto& o = occupants_[slot];
        if (o.phase == occupancy::leased && arena_->leased[slot].load(std::memory_order_acquire) == 0)  // (E) lease
            o.phase = occupancy::free;
        if (o.phase == occupancy::cancelled && memory().complete(o.batch)) o.phase = occupancy::free;
        return o.phase == occupancy::free;
    }

    void open(std::uint32_t slot, const batch_request& request) noexcept {
        auto& o = occupants_[slot];
        const std::uint64_t batch = o.next;
        auto& head = memory().head(slot);
        head.request = request;
        hook_.at(step::consumer_requested);
        const auto word = part_word{part_state::open, 0, 0, 0, batch & part_word::batch_mask}.encode();
        for (std::uint32_t p = 0; p < options_.geometry.parts; ++p) {
            head.words[p].store(word, std::memory_order_seq_cst);  // (C) publishes the request
            hook_.at(step::consumer_opened);
        }
        o.phase = occupancy::opened;
        o.batch = batch;
        o.next = batch + options_.geometry.slots;
        next_open_ = batch + 1;
        ++in_flight_;
        if (++owed_ >= low_water_) pay_owed();
    }

    bool find_complete(std::uint64_t& batch) const noexcept {
        for (const auto& o : occupants_) {
            if (o.phase == occupancy::opened && memory().complete(o.batch)) {
                batch = o.batch;
                return true;
            }
        }
        return false;
    }

    raw_lease hand_out(std::uint64_t batch) noexcept {
        const std::uint32_t slot = memory().slot_of(batch);
        occupants_[slot].phase = occupancy::leased;
        arena_->leased[slot].store(1, std::memory_order_relaxed);
        next_take_ = batch + 1;
        --in_flight_;
        return raw_lease(arena_, arena_->memory, slot, batch, &arena_->leased[slot]);
    }

    template <class Watch, class Condition>
    void wait_for(std::uint64_t awaited, deadline until, Watch&& watch, Condition&& there) {
        pay_owed();
        if (options_.spin.count() > 0) {
            const auto enough = until.slice(options_.spin);
            do {
                for (int i = 0; i < 32; ++i) {
                    if (there()) return;
                    cpu_relax();
                }
            } while (!enough.passed());
        } else {
            // Whoever makes the batch may be waiting for this very core: giving it away costs less than being
            // woken.
            for (int i = 0; i < 16; ++i) {
                ::sched_yield();
                if (there()) return;
            }
        }
        auto& control = memory().control();
        for (;;) {
            control.awaited.store(awaited, std::memory_order_seq_cst);  // (B) pairs with ring_worker::publish
            hook_.at(step::consumer_awaited);
            const std::uint32_t seen = control.consumer_bell.load(std::memory_order_seq_cst);
            hook_.at(step::consumer_sampled);
            bool done = there();
            hook_.at(step::consumer_rechecked);
            if (!done) {
                // After the sample, so that an end that is noted later rings (mutant recheck-ignores-the-end).
                try {
                    watch();
                } catch (...) {
                    control.awaited.store(0, std::memory_order_relaxed);
                    throw;
                }
                static_cast<void>(wait_.until_different(control.consumer_bell, seen, until.slice(options_.slice)));
                hook_.at(step::consumer_parked);
                done = there();
            }
            control.awaited.store(0, std::memory_order_relaxed);
            if (done) return;
            if (until.passed()) throw timeout_error(describe_wait(awaited));
        }
    }

    /// Who keeps the consumer waiting: the recorder's lines of the workers that fill the awaited batch.
    message describe_wait(std::uint64_t awaited) const {
        std::string who;
        const std::uint64_t now = now_ns();
        for (std::uint32_t s = 0; s < options_.geometry.slots; ++s) {
            if (awaited != detail::awaits_any && memory().slot_of(awaited - 1) != s) continue;
            for (std::uint32_t p = 0; p < options_.geometry.parts; ++p) {
                const auto w = part_word::decode(memory().word(s, p).load(std::memory_order_acquire));
                if (w.state == part_state::open && awaited != detail::awaits_any)
                    who += "; part " + std::to_string(p) + " waits for a worker";
                if (w.state != part_state::filling) continue;
                const auto& line = memory().worker(w.worker);
                const auto age = now - (std::min)(now, line.since_ns.load(std::memory_order_relaxed));
                who += "; worker " + std::to_string(w.worker) + " (pid " + std::to_string(line.pid.load()) +
                       ") is in sample " + std::to_string(line.sample.load()) + " of batch " +
                       std::to_string(memory().head(s).request.step) + " since " + std::to_string(age / 1'000'000) +
                       " ms";
            }
        }
        const auto step_text =
            awaited == detail::awaits_any
                ? std::string("no batch")
                : "batch " + std::to_string(memory().head(memory().slot_of(awaited - 1)).request.step) + " did not";
        return {(awaited == detail::awaits_any ? "no batch was completed" : step_text + " arrive") +
                    " before the deadline" + who,
                std::string("ring \"") + options_.name + "\", pid " + std::to_string(::getpid()),
                "a longer loader_options::timeout, more workers, or look at that sample"};
    }

    ring_options options_;
    [[no_unique_address]] Wait wait_;
    [[no_unique_address]] Hook hook_;
    std::shared_ptr<detail::ring_arena<Backing>> arena_;
    std::vector<occupant> occupants_;
    std::uint64_t next_open_ = 0, next_take_ = 0, in_flight_ = 0;
    std::uint32_t owed_ = 0, low_water_ = 1, scan_ = 0;
};

}  // namespace trireme

// ---- trireme/shm/ring_worker.hpp -------------------------------------------------------------------------

// The worker's side of a ring: claim a part of a batch, fill it, publish it; park when there is nothing to claim.

namespace trireme {

/// One claimed part. A value: the ring's word knows the owner, and only this worker may act on it.
struct part_claim {
    std::uint64_t batch = 0;
    std::uint32_t slot = 0, part = 0;
    std::uint32_t first_row = 0, last_row = 0;  ///< rows [first, last) of the batch
    std::uint32_t attempt = 0;                  ///< how many workers died on it before
    std::uint64_t word = 0;                     ///< the FILLING word, for the publishing CAS
};

/// What `next` came back with.
enum class next_claim { claimed, stopping, nothing_yet };

/// The worker's handle on a ring, in the process (or thread) of that worker.
///
/// Threads    one thread a worker; any number of workers at once      Processes  as the ring's memory reaches
/// Crash      killed between any two instructions, a worker leaves at most one FILLING word, which the reaper
/// reopens
template <wait_policy Wait = wait::futex, step_hook Hook = no_steps>
class ring_worker {
  public:
    ring_worker(detail::ring_memory memory, worker_id me, std::uint32_t incarnation, scope reach, Wait wait = {},
                Hook hook = {})
        : memory_(memory),
          me_(me.value),
          incarnation_(incarnation),
          wait_(wait),
          hook_(hook),
          // Threads share the trainer's page tables; a process has its own and fills them while it has nothing to
          // do.
          warmed_(reach == scope::processes ? 0 : memory.geometry().slots) {
        auto& line = memory_.worker(me_);
        line.pid.store(static_cast<std::int32_t>(::getpid()), std::memory_order_relaxed);
        line.doing.store(stage::start_up, std::memory_order_relaxed);
        line.since_ns.store(now_ns(), std::memory_order_relaxed);
        line.incarnation.store(incarnation, std::memory_order_release);
    }

    /// The next part to fill. Waits for work in slices; `nothing_yet` after `until`, so that the caller can look
    /// whether its trainer lives.
    ///
    /// Returns  claimed (then `claim` holds it), stopping, or nothing_yet
    /// Blocks   until there is work, the ring stops, or `until`
    next_claim next(part_claim& claim, deadline until) noexcept {
        auto& control = memory_.control();
        memory_.worker(me_).doing.store(stage::resting, std::memory_order_relaxed);
        for (;;) {
            if (control.phase.load(std::memory_order_acquire) == detail::phase_stopping)
                return next_claim::stopping;
            if (try_claim(claim)) return next_claim::claimed;
            if (warm_next_slot()) continue;
            if (until.passed()) return next_claim::nothing_yet;
            rest(until);
        }
    }

    /// A claim without waiting; false when nothing is open.
    ///
    /// Order  while the consumer is waiting, the lowest open part, so that all help with the batch it waits for;
    /// else
    ///        the parts of the batch in hand, then a batch that nobody has touched, then help with the oldest
    bool try_claim(part_claim& claim) noexcept {
        const auto& g = memory_.geometry();
        const auto& control = memory_.control();
        const std::uint64_t floor = control.floor.load(std::memory_order_acquire);
        const std::uint64_t awaited = control.awaited.load(std::memory_order_relaxed);
        const bool hungry = awaited != 0;
        // Its request, its rows and its neighbours are in this core's caches.
        if (!hungry && in_hand_ && claim_in(memory_.slot_of(*in_hand_), floor, claim, in_hand_)) return true;
        in_hand_.reset();
        if (hungry && awaited != detail::awaits_any) cursor_ = awaited - 1;
        if (cursor_ < floor) cursor_ = floor;
        // A slot holds batch b and later b + slots, so `slots` steps from the cursor see every slot once.
        std::optional<std::uint64_t> help;
        for (std::uint64_t at = cursor_; at < cursor_ + g.slots; ++at) {
            const std::uint32_t slot = memory_.slot_of(at);
            if (hungry || g.parts == 1) {
                if (claim_in(slot, floor, claim)) return true;
            } else if (untouched(slot)) {
                if (claim_in(slot, floor, claim)) {
                    in_hand_ = claim.batch;
                    cursor_ = claim.batch + 1;
                    return true;
                }
            } else if (!help && any_open(slot, floor)) {
                help = at;
            }
        }
        for (std::uint64_t at = help.value_or(0); help && at < *help + g.slots; ++at) {
            if (claim_in(memory_.slot_of(at), floor, claim)) return true;
        }
        return false;
    }

    /// Notes on this worker's line what it begins: for messages, and for finding a sample that kills.
    void begin(const part_claim& claim) noexcept {
        auto& line = memory_.worker(me_);
        line.sample.store(no_sample, std::memory_order_relaxed);
        line.part.store(claim.part, std::memory_order_relaxed);
        line.batch.store(claim.batch, std::memory_order_relaxed);
        line.since_ns.store(now_ns(), std::memory_order_relaxed);
        line.doing.store(stage::reading, std::memory_order_release);
        hook_.at(step::worker_recorded);
    }
    /// Notes the sample in hand. One relaxed store: it is done for every sample.
    void record(std::uint64_t sample) noexcept {
        memory_.worker(me_).sample.store(sample, std::memory_order_relaxed);
    }

    /// The batch was cancelled meanwhile: publish it as voided, unfilled.
    bool cancelled(const part_claim& claim) const noexcept {
        return claim.batch < memory_.control().floor.load(std::memory_order_relaxed);
    }
    bool told_to_stop() const noexcept {
        return memory_.control().phase.load(std::memory_order_relaxed) == detail::phase_stopping;
    }

    /// Publishes the claim as `state` (ready, failed or voided), and rings the consumer if it waits for just this.
    /// False when the word was not this worker's any more, which a worker that lives never sees.
    bool publish(const part_claim& claim, part_state state) noexcept {
        auto& control = memory_.control();
        auto word = part_word::decode(claim.word);
        word.state = state;
        std::uint64_t expected = claim.word;
        auto& line = memory_.worker(me_);
        // (A) publishes the rows, and orders the store before the loads below: of two last publishers one sees both
        const bool mine = memory_.word(claim.slot, claim.part)
                              .compare_exchange_strong(expected, word.encode(), std::memory_order_seq_cst);
        hook_.at(step::worker_published);
        line.published.store(line.published.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        const bool all_done = memory_.complete(claim.batch);
        hook_.at(step::worker_checked_batch);
        if (all_done) {
            const auto awaited = control.awaited.load(std::memory_order_seq_cst);  // (B) pairs with ring::wait_for
            hook_.at(step::worker_checked_awaited);
            if (awaited == claim.batch + 1 || awaited == detail::awaits_any) {
                control.consumer_bell.fetch_add(1, std::memory_order_seq_cst);
                hook_.at(step::worker_rang);
                wait_.wake_all(control.consumer_bell);
                hook_.at(step::worker_woke);
            }
        }
        return mine;
    }

    detail::ring_memory& memory() noexcept { return memory_; }
    const Hook& hook() const noexcept { return hook_; }
    std::uint32_t index() const noexcept { return me_; }
    void set_ready() noexcept { memory_.worker(me_).ready.store(1, std::memory_order_release); }

  private:
    bool untouched(std::uint32_t slot) const noexcept {
        const auto& h = memory_.head(slot);
        for (std::uint32_t p = 0; p < memory_.geometry().parts; ++p) {
            if (part_word::decode(h.words[p].load(std::memory_order_relaxed)).state != part_state::open)
                return false;
        }
        return true;
    }
    bool any_open(std::uint32_t slot, std::uint64_t floor) const noexcept {
        const auto& h = memory_.head(slot);
        for (std::uint32_t p = 0; p < memory_.geometry().parts; ++p) {
            const auto w = part_word::decode(h.words[p].load(std::memory_order_seq_cst));
            if (w.state == part_state::open && w.batch >= floor) return true;
        }
        return false;
    }
    bool claim_in(std::uint32_t slot, std::uint64_t floor, part_claim& claim,
                  std::optional<std::uint64_t> only = std::nullopt) noexcept {
        const auto& g = memory_.geometry();
        auto& h = memory_.head(slot);
        for (std::uint32_t p = 0; p < g.parts; ++p) {
            std::uint64_t seen = h.words[p].load(std::memory_order_seq_cst);
            auto w = part_word::decode(seen);
            if (w.state != part_state::open || w.batch < floor || (only && w.batch != *only)) continue;
            w.state = part_state::filling;
            w.worker = static_cast<std::uint8_t>(me_);
            w.incarnation = static_cast<std::uint8_t>(incarnation_);
            const std::uint64_t mine = w.encode();
            // (C) pairs with the consumer's OPEN: the request is visible, and its last reads of the slot are over
            if (!h.words[p].compare_exchange_strong(seen, mine, std::memory_order_seq_cst)) continue;
            hook_.at(step::worker_claimed);
            claim = {w.batch, slot, p, g.first_row(p), g.first_row(p + 1), w.attempt, mine};
            if (!only && g.parts == 1) cursor_ = claim.batch + 1;
            return true;
        }
        return false;
    }

    /// Nothing to claim: flag, sample, look once more, park. In this order, or a wake is lost (the model's
    /// mutants).
    void rest(deadline until) noexcept {
        auto& control = memory_.control();
        auto& mask = control.sleepers[me_ / 64];
        const std::uint64_t bit = std::uint64_t{1} << (me_ % 64);
        mask.fetch_or(bit, std::memory_order_seq_cst);  // (D) pairs with ring::pay_owed
        hook_.at(step::worker_flagged);
        const std::uint32_t seen = control.workers_bell.load(std::memory_order_seq_cst);
        hook_.at(step::worker_sampled);
        const bool work =
            control.phase.load(std::memory_order_seq_cst) == detail::phase_stopping || anything_open();
        hook_.at(step::worker_rechecked);
        if (!work) {
            static_cast<void>(wait_.until_different(control.workers_bell, seen, until));
            hook_.at(step::worker_parked);
        }
        mask.fetch_and(~bit, std::memory_order_seq_cst);
        hook_.at(step::worker_unflagged);
    }
    bool anything_open() const noexcept {
        const std::uint64_t floor = memory_.control().floor.load(std::memory_order_seq_cst);
        for (std::uint32_t s = 0; s < memory_.geometry().slots; ++s) {
            if (any_open(s, floor)) return true;
        }
        return false;
    }
    /// With nothing to do, makes one more slot's pages present in this process. True when it did.
    bool warm_next_slot() noexcept {
        if (warmed_ >= memory_.geometry().slots) return false;
        warm(memory_.payload(warmed_), static_cast<std::size_t>(memory_.geometry().payload_bytes));
        ++warmed_;
        return true;
    }

    detail::ring_memory memory_;
    std::uint32_t me_, incarnation_;
    [[no_unique_address]] Wait wait_;
    [[no_unique_address]] Hook hook_;
    std::uint64_t cursor_ = 0;              // where the next look begins: behind the batch that was begun last
    std::optional<std::uint64_t> in_hand_;  // the batch whose parts this worker is going through
    std::uint32_t warmed_;
};

}  // namespace trireme

// ---- trireme/shm/workers.hpp -----------------------------------------------------------------------------

// Worker processes: started, watched, replaced and ended by a zygote.
//
// The zygote is a single-threaded process forked when the workers are made. It forks them, so a worker can be
// replaced long after the trainer has threads and a GPU; it is their reaper, so a death is dealt with at once and
// without a thread in the trainer; and it watches the trainer, so that nobody outlives it.

namespace trireme {

struct worker_processes_options {
    const char* who = "workers";  ///< for messages: "engine::forked"
    std::uint32_t count = 1;
    std::chrono::nanoseconds grace = std::chrono::seconds(3);       ///< for leaving by themselves at shutdown
    std::chrono::nanoseconds fork_wait = std::chrono::seconds(10);  ///< for our own threads to come to rest
};

namespace detail {

/// A child must not run the trainer's handlers, nor die of the terminal's Ctrl-C before the trainer decides.
inline void reset_signals() noexcept {
    for (int s = 1; s < 32; ++s) {
        struct sigaction now {};
        if (::sigaction(s, nullptr, &now) != 0 || now.sa_handler == SIG_IGN || now.sa_handler == SIG_DFL) continue;
        ::signal(s, SIG_DFL);
    }
    ::signal(SIGINT, SIG_IGN);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// What runs in the zygote.
template <class Body, class OnDeath>
class zygote {
  public:
    zygote(const worker_processes_options& options, pid_t trainer, fd_ref link, Body& body, OnDeath& on_death)
        : options_(options),
          trainer_pid_(trainer),
          link_(link),
          body_(body),
          on_death_(on_death),
          workers_(options.count) {}

    int run() {
        ::prctl(PR_SET_NAME, "tri-zygote");
        reset_signals();
        trainer_ = pidfd::open(trainer_pid_);
        if (::getppid() != trainer_pid_) return 0;
        for (std::uint32_t w = 0; w < options_.count; ++w) start(w);
        bool told = false;
        deadline last = deadline::never();
        while (!told || living() > 0) {
            if (wait_for_news(last) && trainer_.dead()) return 0;  // the workers die with this process
            if (!told && told_to_stop()) {
                told = true;
                last = deadline::in(options_.grace);
            }
            if (told && last.passed()) {
                for (auto& w : workers_) w.process.send(SIGKILL);
                last = deadline::never();
            }
            for (std::uint32_t w = 0; w < options_.count; ++w) {
                const auto status = workers_[w].process.poll();
                if (!status || !workers_[w].process.valid()) continue;
                const pid_t pid = workers_[w].process.pid();
                workers_[w].process = child();
                if (!told && on_death_(worker_id{w}, pid, *status)) start(w);
            }
        }
        return 0;
    }

  private:
    struct one {
        child process;
        std::uint32_t incarnation = 0;
    };

    void start(std::uint32_t w) {
        auto& me = workers_[w];
        ++me.incarnation;
        const pid_t zygote_pid = ::getpid();
        std::fflush(nullptr);
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // sound: the zygote has one thread, which ends with it
            if (::getppid() != zygote_pid) ::_exit(1);
            char name[32];
            std::snprintf(name, sizeof name, "tri-worker-%u", w);
            ::prctl(PR_SET_NAME, name);
            prefer_for_oom_kill();
            const int status = body_(worker_id{w}, me.incarnation);
            std::fflush(stdout);
            ::_exit(status);
        }
        if (pid < 0) {
            // No memory or no process slot now: the others go on, and the death is reported like any other.
            static_cast<void>(on_death_(worker_id{w}, 0, exit_status{0, 71}));
            return;
        }
        me.process = child(pid, pidfd::open(pid));
    }
    static void prefer_for_oom_kill() noexcept {
        if (std::FILE* f = std::fopen("/proc/self/oom_score_adj", "we"); f != nullptr) {
            std::fputs("300", f);  // a worker can be replaced, the trainer cannot
            std::fclose(f);
        }
    }
    std::uint32_t living() const noexcept {
        std::uint32_t n = 0;
        for (const auto& w : workers_) n += w.process.valid() ? 1U : 0U;
        return n;
    }
    bool wait_for_news(deadline until) {
        polled_.clear();
        polled_.push_back({trainer_.descriptor().get(), POLLIN, 0});
        if (listening_) polled_.push_back({link_.get(), POLLIN, 0});
        for (const auto& w : workers_) {
            if (w.process.valid()) polled_.push_back({w.process.handle().descriptor().get(), POLLIN, 0});
        }
        // Every one of them is watched, so the wait ends with whatever can happen; the deadline is for the grace.
        const int n = ::poll(polled_.data(), static_cast<nfds_t>(polled_.size()),
                             until.is_never() ? -1 : poll_timeout(until));
        return n > 0;
    }
    bool told_to_stop() {
        std::array<std::byte, 8> word;
        std::size_t size = 0;
        const auto r = receive_message(link_, word, size, deadline::in(std::chrono::nanoseconds(0)));
        if (r == received::nothing) return false;
        listening_ = false;
        return true;
    }

    worker_processes_options options_;
    pid_t trainer_pid_;
    fd_ref link_;
    Body& body_;
    OnDeath& on_death_;
    std::vector<one> workers_;
    std::vector<pollfd> polled_;
    pidfd trainer_;
    bool listening_ = true;
};

}  // namespace detail

/// The trainer's handle on its worker processes.
///
/// Threads    one at a time                 Blocks  the destructor, at most grace + 2 s
/// Processes  `body(worker_id, incarnation) -> int` runs in each worker; `on_death(worker_id, pid, exit_status) ->
/// bool`
///            runs in the zygote after the kernel has confirmed a death and says whether to start that worker anew
/// Crash      the trainer's death ends all of them; the zygote's death ends the workers and shows as `lost()`
class worker_processes {
  public:
    worker_processes() noexcept = default;

    /// Throws  usage_error (foreign threads are alive), system_error (no process, no descriptor)
    template <class Body, class OnDeath>
    worker_processes(const worker_processes_options& options, Body body, OnDeath on_death) : options_(options) {
        auto [mine, theirs] = socket_pair();
        link_ = private_descriptor(std::move(mine));
        const pid_t trainer = ::getpid();
        const pid_t pid = fork_here(options.who, deadline::in(options.fork_wait));
        if (pid == 0) {
            int status = 70;
            try {
                status = detail::zygote(options, trainer, theirs.ref(), body, on_death).run();
            } catch (const std::exception& e) { std::fprintf(stderr, "%s\n", e.what()); }
            ::_exit(status);
        }
        try {
            zygote_ = child(pid, pidfd::open(pid));
        } catch (...) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
            throw;
        }
    }
    worker_processes(worker_processes&&) noexcept = default;
    worker_processes& operator=(worker_processes&&) noexcept = default;
    ~worker_processes() { stop(); }

    pid_t zygote_pid() const noexcept { return zygote_.pid(); }

    /// The zygote's status if it is dead, which it must not be before `stop`.
    std::optional<exit_status> lost() noexcept { return zygote_.valid() ? zygote_.poll() : std::nullopt; }

    /// Waits for the workers to leave, kills those that do not within the grace, reaps all. Idempotent.
    void stop() noexcept {
        if (!zygote_.valid()) return;
        const std::byte word[1]{};
        static_cast<void>(send_message(link_.ref(), word, deadline::in(std::chrono::milliseconds(100))));
        static_cast<void>(zygote_.wait(deadline::in(options_.grace + std::chrono::seconds(2))));
        zygote_.end();
        link_ = private_descriptor();
    }

  private:
    worker_processes_options options_;
    private_descriptor link_;
    child zygote_;
};

}  // namespace trireme

// ---- trireme/threads/cpu_budget.hpp ----------------------------------------------------------------------

// How many CPUs this process may count on: its affinity mask, and the tightest quota of CPU time above it. Every
// default number of threads comes from here.

namespace trireme {

/// CPUs and CPU time that this process may use, and what limited them. A value: discover it once and hand parts on.
struct cpu_budget {
    cpu_set usable;               ///< affinity mask and cpuset, never empty
    std::optional<double> quota;  ///< CPUs' worth of time in each period; nothing: no quota
    std::string limited_by{};     ///< the mask or file that decides `compute()`
    std::vector<std::string> warnings{};

    /// Reads the limits of this process, or those of a copied tree of /proc and /sys under another `root`.
    ///
    /// Blocks  for some reads of small files        Throws  nothing but std::bad_alloc
    static cpu_budget discover(const std::string& root = "/");

    /// Threads for loops: the whole CPUs in the budget, rounded down and at least 1. A team with one thread more
    /// than its quota pays waits up to a whole period for that one.
    unsigned compute() const noexcept { return whole(std::floor(quota.value_or(cpus()))); }
    /// Threads or processes that mostly read and wait: rounded up.
    unsigned loading() const noexcept { return whole(std::ceil(quota.value_or(cpus()))); }

    /// The part of one of the ranks of this host: a contiguous part of the CPUs and an equal part of the quota.
    cpu_budget share(shard local) const;

    /// One line: "2 threads on CPUs 0-15, limited by a quota of 2.5 CPUs (/sys/fs/cgroup/a/cpu.max)".
    std::string text() const {
        const auto n = compute();
        return std::to_string(n) + (n == 1 ? " thread" : " threads") + " on CPUs " + usable.text() +
               ", limited by " + limited_by;
    }

  private:
    double cpus() const noexcept { return static_cast<double>((std::max)(1U, usable.count())); }
    unsigned whole(double n) const noexcept { return static_cast<unsigned>((std::clamp)(n, 1.0, cpus())); }
};

namespace detail {

/// A CPU list in a file, or in one line of it. Nothing if there is none, or with a warning if it cannot be read.
inline std::optional<cpu_set> cpus_in(const std::string& file, std::string_view line_name,
                                      std::vector<std::string>& warnings) {
    const auto text = cgroup::slurp(file);
    if (!text) return std::nullopt;
    std::string_view list = *text;
    if (!line_name.empty()) {
        std::string_view lines = *text;
        list = {};
        while (!lines.empty() && list.empty()) {
            auto line = cgroup::next(lines, '\n');
            if (cgroup::next(line, ':') == line_name) list = line;
        }
    }
    cpu_set cpus;
    if (const auto fault = parse_cpu_list(list, cpus)) {
        warnings.push_back(cgroup::say::not_understood(file, list, fault.why));
        return std::nullopt;
    }
    return cpus.empty() ? std::nullopt : std::optional(cpus);
}

inline std::string quota_text(double cpus) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", cpus);
    std::string_view s = text;  // at least one decimal, at most two
    return std::string(s.back() == '0' ? s.substr(0, s.size() - 1) : s);
}

}  // namespace detail

inline cpu_budget cpu_budget::discover(const std::string& given) {
    std::string root = given;
    while (!root.empty() && root.back() == '/') root.pop_back();
    cpu_budget b;
    auto online = detail::cpus_in(root + "/sys/devices/system/cpu/online", "", b.warnings);
    auto mask = std::optional(process_cpus());
    if (!root.empty()) {  // a tree's own mask, where it was copied with it
        mask = detail::cpus_in(root + "/proc/self/status", "Cpus_allowed_list", b.warnings);
        if (!mask) mask = online;
    }
    auto quota = cpu_quota(root);
    auto cpuset = cpuset_cpus(root);
    b.warnings.insert(b.warnings.end(), quota.warnings.begin(), quota.warnings.end());
    b.warnings.insert(b.warnings.end(), cpuset.warnings.begin(), cpuset.warnings.end());

    b.usable = mask ? *mask : process_cpus();
    // An empty intersection would be two readings at odds, not a process without CPUs.
    if (cpuset.cpus && !(*cpuset.cpus & b.usable).empty()) b.usable = *cpuset.cpus & b.usable;
    b.quota = quota.cpus;
    if (b.quota && *b.quota < b.cpus())
        b.limited_by = "a quota of " + detail::quota_text(*b.quota) + " CPUs (" + quota.file + ")";
    else if (online && b.usable == *online)
        b.limited_by = "the CPUs that are online";
    else if (cpuset.cpus && b.usable == *cpuset.cpus)
        b.limited_by = "the cpuset (" + cpuset.file + ")";
    else
        b.limited_by = "the affinity mask";
    return b;
}

inline cpu_budget cpu_budget::share(shard local) const {
    cpu_budget part = *this;
    if (local.count <= 1) return part;
    part.usable = usable.share(local);
    if (quota) part.quota = *quota / local.count;
    part.limited_by += ", rank " + std::to_string(local.index) + " of " + std::to_string(local.count) + " here";
    return part;
}

}  // namespace trireme

// ---- trireme/threads/local_ranks.hpp ---------------------------------------------------------------------

// How many ranks of the job share this host's CPUs: what everything that sizes itself divides by.

namespace trireme {

namespace detail {
inline std::atomic<std::uint32_t>& told_local_ranks() noexcept {
    static std::atomic<std::uint32_t> n{0};
    return n;
}
}  // namespace detail

/// Set by `launch` and `world`; before that what the launcher says in LOCAL_WORLD_SIZE; else 1.
inline std::uint32_t local_ranks() noexcept {
    if (const auto n = detail::told_local_ranks().load(std::memory_order_relaxed); n != 0) return n;
    const char* const text = std::getenv("LOCAL_WORLD_SIZE");
    const long n = text != nullptr ? std::strtol(text, nullptr, 10) : 1;
    return n > 1 && n < 65536 ? static_cast<std::uint32_t>(n) : 1;
}
inline void set_local_ranks(std::uint32_t n) noexcept {
    detail::told_local_ranks().store(n, std::memory_order_relaxed);
}

}  // namespace trireme

// ---- trireme/threads/detail/first_exception.hpp ----------------------------------------------------------

// How an exception travels from the thread that threw it to the one that waits for the loop.

namespace trireme::detail {

/// The first exception of a loop, for the thread that waits for it.
class first_exception {
  public:
    /// In a handler: keeps the exception if it is the first, and tells the others to stop.
    void keep() noexcept {
        if (!stopped_.exchange(true, std::memory_order_acq_rel)) thrown_ = std::current_exception();
    }
    bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
    /// After all parts have ended: throws what was kept, if anything, and is as new.
    void rethrow() {
        if (!stopped()) return;
        stopped_.store(false, std::memory_order_relaxed);
        std::rethrow_exception(std::exchange(thrown_, nullptr));
    }

  private:
    std::atomic<bool> stopped_{false};
    std::exception_ptr thrown_;  // written by whoever set the flag first, read after the join
};

}  // namespace trireme::detail

// ---- trireme/threads/detail/fork_count.hpp ---------------------------------------------------------------

// How many forks lie between this process and the one that first asked. A pool compares: its threads exist only in
// the process that started them, and getpid() would be a system call in every loop.

namespace trireme::detail {

inline std::atomic<std::uint32_t> fork_counter{0};

/// Grows by one in each child of fork(); the same for the life of a process.
inline std::uint32_t fork_count() noexcept {
    // Registered by the first pool, before it starts a thread. It only counts: a handler must not take locks.
    static const bool counting = [] {
        ::pthread_atfork(nullptr, nullptr, [] { fork_counter.fetch_add(1, std::memory_order_relaxed); });
        return true;
    }();
    static_cast<void>(counting);
    return fork_counter.load(std::memory_order_relaxed);
}

}  // namespace trireme::detail

// ---- trireme/threads/detail/team.hpp ---------------------------------------------------------------------

// The fork-join team behind a pool: helpers that wait for one word to change, run their part of a loop, and answer
// on a line of their own. No queue, no allocation and no system call in a loop, unless somebody sleeps.
//
// A loop is published by one store of `word_` (its number and how many take part). Each participant's part is
// claimed before it is run: by its helper, or, when the helper has not begun, by the caller, who has nothing else
// to do. So a helper that sleeps or was preempted costs the caller its help and not a wait.

namespace trireme::detail {

namespace say {
inline message forked_inside_a_loop(unsigned helper) {
    return {"a parallel loop cannot be finished in a forked child: its helper thread " + std::to_string(helper) +
                " exists in the parent only",
            "pid " + std::to_string(::getpid()),
            "leave the child by exec or _exit, or fork outside of loop bodies"};
}
}  // namespace say

class team {
  public:
    static constexpr unsigned most_threads = 1024;
    /// What describes a loop travels on the cache line that announces it, so it has to fit there.
    static constexpr std::size_t most_job_bytes = 40;
    /// Runs participant k's part of a loop for n. Finds the job by `job<Job>()`.
    using part_function = void (*)(team& self, unsigned k, unsigned n) noexcept;

    team() noexcept : born_(fork_count()) {}
    team(const team&) = delete;
    team& operator=(const team&) = delete;
    /// Nobody may be in a loop. In a forked child the helpers do not exist, and nothing is waited for.
    ~team() {
        if (!lost()) {
            word_.store(stop_word, std::memory_order_seq_cst);
            wake_sleepers(most_threads);
        }
        seats_.clear();  // joins
    }

    /// Whether the process was forked since this was made, so that the helpers are gone.
    bool lost() const noexcept { return fork_counter.load(std::memory_order_relaxed) != born_; }

    /// Takes the team for one loop; never waits. False when a loop has it: one of another thread, or the one whose
    /// body asks.
    bool try_lock() noexcept {
        return !busy_.load(std::memory_order_relaxed) && !busy_.exchange(true, std::memory_order_acquire);
    }
    void unlock() noexcept { busy_.store(false, std::memory_order_release); }

    /// With the team locked: helpers for `n` threads exist; thread k gets `cpus(k)`.
    template <class CpusOf>
    void ensure(unsigned n, std::chrono::nanoseconds spin, const CpusOf& cpus) {
        if (spin_ns_.load(std::memory_order_relaxed) != spin.count())
            spin_ns_.store(spin.count(), std::memory_order_relaxed);
        while (seats_.size() < n) add_seat(cpus(static_cast<unsigned>(seats_.size())));
    }

    /// With the team locked and `n` <= the threads ensured: runs part k of the job for k = 0 .. n-1, part 0 in the
    /// calling thread, and returns when all have run.
    /// Throws  the first exception that a part kept in `error()`; usage_error in a child that was forked by the job
    ///         itself, whose helpers are not there
    template <class Job>
    void run(unsigned n, part_function part, const Job& job) {
        static_assert(std::is_trivially_copyable_v<Job> && sizeof(Job) <= most_job_bytes);
        part_ = part;
        std::memcpy(job_, &job, sizeof job);
        const auto loop = ++loop_;
        word_.store(pack(loop, n), std::memory_order_seq_cst);  // (A) publishes the job; (S) before `asleep`
        const bool some_late = wake_sleepers(n);
        part(*this, 0, n);
        // A helper that was awake has begun by now, or does within half a microsecond. Looking without a pause in
        // between is rude to a neighbour on the same core, and short.
        patience left = some_late ? patience{1, 0} : patience{400, 64};
        for (unsigned k = 1; k < n; ++k) {
            const auto& done = seats_[k]->done;
            while (left.looks > 0 && done.load(std::memory_order_acquire) != loop) --left.looks;  // (C)
            if (left.looks == 0) finish(k, n, left);
        }
        error_.rethrow();
    }

    /// In a part: the job that `run` was given.
    template <class Job>
    Job job() const noexcept {
        Job copy{};
        std::memcpy(&copy, job_, sizeof copy);
        return copy;
    }
    first_exception& error() noexcept { return error_; }

    /// The word of participant k that a schedule may use to hand out its share. Only inside `run`, or locked.
    std::atomic<std::uint64_t>& share(unsigned k) noexcept { return seats_[k]->share; }

    /// What became of the helpers' CPUs, for those started so far, from thread 1 on.
    std::vector<binding> bindings() const {
        const std::scoped_lock hold(growing_);
        std::vector<binding> all;
        for (std::size_t k = 1; k < seats_.size(); ++k) all.push_back(seats_[k]->bound);
        return all;
    }

    std::unique_ptr<team> previous;  ///< in a forked child: the parent's, whose frames may still be on this stack

  private:
    static constexpr unsigned count_bits = 16;
    static constexpr std::uint64_t stop_word = (std::numeric_limits<std::uint64_t>::max)();
    static constexpr std::uint64_t pack(std::uint64_t loop, unsigned n) noexcept { return loop << count_bits | n; }
    static constexpr unsigned participants(std::uint64_t word) noexcept {
        return static_cast<unsigned>(word & ((1U << count_bits) - 1));
    }

    /// How long the caller gives the helpers together to begin, before it takes over what they have not.
    struct patience {
        int looks, pauses;
    };

    /// One participant. Three lines, because each has another writer in the hot path.
    struct seat {
        alignas(flag_line) std::atomic<std::uint64_t> claimed{0};  // last loop whose part was begun, by whomever
        alignas(flag_line) std::atomic<std::uint64_t> done{0};     // last loop whose part the helper finished
        alignas(flag_line) std::atomic<std::uint64_t> share{0};    // the schedule's
        alignas(flag_line) cpu_set cpus;
        binding bound;
        std::atomic<std::uint32_t> started{0};
        registered_thread thread;  // last: joined before the rest goes
    };

    [[gnu::noinline]] void add_seat(cpu_set cpus) {
        const std::scoped_lock hold(growing_);
        const auto k = static_cast<unsigned>(seats_.size());
        seats_.reserve(k + 1U);
        auto s = std::make_unique<seat>();
        if (k > 0) {
            s->cpus = std::move(cpus);
            char name[16];
            std::snprintf(name, sizeof name, "tri-c%02u", k);
            s->thread = registered_thread(
                name,
                [this, self = s.get(), k, seen = word_.load(std::memory_order_relaxed)] { help(*self, k, seen); });
            while (s->started.load(std::memory_order_acquire) == 0)
                futex_wait(s->started, 0, deadline::in(std::chrono::milliseconds(50)));
        }
        seats_.push_back(std::move(s));
    }

    /// A helper's life.
    void help(seat& me, unsigned k, std::uint64_t seen) {
        // A new thread has the mask of the one that started it, which may be bound to a single CPU.
        me.bound = thread_cpus() == me.cpus ? binding{me.cpus, me.cpus} : try_bind_this_thread(me.cpus);
        me.started.store(1, std::memory_order_release);
        futex_wake(me.started);
        idle_clock idle;
        for (;;) {
            seen = next_word(k, seen, idle);
            if (seen == stop_word) return;
            if (k >= participants(seen)) continue;  // this loop is for fewer threads
            idle.restart();  // even if the caller was faster: it is in need of us now, and may be again soon
            const std::uint64_t loop = seen >> count_bits;
            {
                // Before the claim: a helper that waits here for a fork to end must not keep a part from the
                // caller.
                const user_section running_user_code;
                std::uint64_t last = me.claimed.load(std::memory_order_relaxed);
                // (B) pairs with finish(): whoever moves `claimed` to `loop` runs the part
                if (last >= loop || !me.claimed.compare_exchange_strong(last, loop, std::memory_order_acq_rel))
                    continue;
                part_(*this, k, participants(seen));  // the claim holds the caller in run(): it is this loop's
            }
            me.done.store(loop, std::memory_order_seq_cst);  // (C) publishes the results; (D) before `awaited_`
            if (awaited_.load(std::memory_order_seq_cst) == k) {
                finished_.fetch_add(1, std::memory_order_release);
                futex_wake(finished_);
            }
            idle.restart();
        }
    }

    /// When a helper ran out of work. The clock is read only after a first round of polls found nothing.
    struct idle_clock {
        std::uint64_t since = 0;
        void restart() noexcept { since = 0; }
        bool longer_than(std::int64_t ns) noexcept {
            const auto now = now_ns();
            if (since == 0) since = now;
            return static_cast<std::int64_t>(now - since) >= ns;
        }
    };

    /// Waits until the word differs from `seen`: spins for the budget, by time, then sleeps.
    std::uint64_t next_word(unsigned k, std::uint64_t seen, idle_clock& idle) noexcept {
        const auto spin = spin_ns_.load(std::memory_order_relaxed);
        for (int polls = 64;; polls = (std::min)(2 * polls, 1024)) {  // a look at the clock delays the answer
            for (int i = 0; i < polls; ++i) {
                const auto now = word_.load(std::memory_order_acquire);  // (A) pairs with run
                if (now != seen) return now;
                if (spin <= 0) break;
                cpu_relax();
            }
            if (idle.longer_than(spin)) break;
        }
        auto& [asleep, rising] = naps_[k / 64];
        const std::uint64_t mine = std::uint64_t{1} << (k % 64);
        for (;;) {
            // (W) The bell is read before the bit is set: whoever takes the bit away rings afterwards, so either
            // the futex finds another value or the sleeper is woken.
            const auto bell = bell_.load(std::memory_order_acquire);
            asleep.fetch_or(mine, std::memory_order_seq_cst);   // (S) before the look at the word below
            if (word_.load(std::memory_order_seq_cst) == seen)  // (S) this sees the new word, or run sees the bit
                ::syscall(SYS_futex, &bell_, FUTEX_WAIT_BITSET_PRIVATE, bell, nullptr, nullptr, wake_bit(k));
            // If the bit is gone the caller has taken it, and toggles `rising` once, as this does: in either order
            // the two leave it as it was.
            if ((asleep.fetch_and(~mine, std::memory_order_acq_rel) & mine) == 0)
                rising.fetch_xor(mine, std::memory_order_relaxed);
            if (const auto now = word_.load(std::memory_order_acquire); now != seen) return now;
        }
    }

    /// Wakes those of the helpers 1 .. n-1 that sleep; no system call if none does. Whether one of them is not up
    /// yet, from this wake or an earlier one: it may take a while when its CPU has other work.
    bool wake_sleepers(unsigned n) noexcept {
        std::uint32_t bits = 0;
        std::uint64_t late = 0;
        for (unsigned from = 0; from < n; from += 64) {
            auto& [asleep, rising] = naps_[from / 64];
            const auto among = n - from < 64 ? (std::uint64_t{1} << (n - from)) - 1 : ~std::uint64_t{0};
            if (auto found = asleep.load(std::memory_order_seq_cst) & among; found != 0) {  // (S)
                found &= asleep.fetch_and(~found, std::memory_order_acq_rel);  // (W) each nap is ended by one wake
                rising.fetch_xor(found, std::memory_order_relaxed);
                bits |= static_cast<std::uint32_t>(found) | static_cast<std::uint32_t>(found >> 32);
            }
            late |= rising.load(std::memory_order_relaxed) & among;
        }
        if (bits != 0) ring(bits);
        return late != 0;
    }
    [[gnu::noinline]] void ring(std::uint32_t bits) noexcept {
        bell_.fetch_add(1, std::memory_order_release);
        ::syscall(SYS_futex, &bell_, FUTEX_WAKE_BITSET_PRIVATE, (std::numeric_limits<int>::max)(), nullptr, nullptr,
                  bits);
    }
    static constexpr std::uint32_t wake_bit(unsigned k) noexcept { return 1U << (k % 32); }

    /// The caller's end of participant k: waits for its helper, or runs the part if nobody has begun it.
    [[gnu::noinline]] void finish(unsigned k, unsigned n, patience& left) {
        seat& s = *seats_[k];
        for (; left.pauses > 0; --left.pauses) {
            if (s.done.load(std::memory_order_acquire) == loop_) return;  // (C) pairs with help
            cpu_relax();
        }
        // Only now, since the look takes the line from its helper, which then pays to get it back for the next
        // loop.
        std::uint64_t last = s.claimed.load(std::memory_order_relaxed);
        if (last != loop_ && s.claimed.compare_exchange_strong(last, loop_, std::memory_order_acq_rel)) {  // (B)
            part_(*this, k, n);
            return;
        }
        idle_clock waiting;
        do {
            for (int i = 0; i < 64; ++i) {
                if (s.done.load(std::memory_order_acquire) == loop_) return;
                cpu_relax();
            }
        } while (!waiting.longer_than(spin_ns_.load(std::memory_order_relaxed)));
        awaited_.store(k, std::memory_order_seq_cst);  // (D) before the look at `done` below
        for (;;) {
            const auto seen = finished_.load(std::memory_order_acquire);
            if (s.done.load(std::memory_order_seq_cst) == loop_) break;  // (D) either this sees it, or help sees k
            if (lost()) throw usage_error(say::forked_inside_a_loop(k));
            futex_wait(finished_, seen, deadline::in(std::chrono::milliseconds(50)));
        }
        awaited_.store(0, std::memory_order_relaxed);
    }

    // Written by the caller once a loop, read by every helper: the word and what it announces, on one line.
    alignas(flag_line) std::atomic<std::uint64_t> word_{0};
    part_function part_ = nullptr;
    std::byte job_[most_job_bytes]{};
    std::atomic<std::int64_t> spin_ns_{0};

    // The caller's own.
    alignas(flag_line) std::atomic<bool> busy_{false};
    std::uint64_t loop_ = 0;
    std::uint32_t born_;
    std::vector<std::unique_ptr<seat>> seats_;
    mutable std::mutex growing_;  // seats_ against bindings()

    // Rarely written: only when somebody throws or goes to sleep.
    alignas(flag_line) first_exception error_;
    struct nap {
        std::atomic<std::uint64_t> asleep{0};  // helpers that sleep, or are about to, and were not woken yet
        std::atomic<std::uint64_t> rising{0};  // helpers that were woken and have not noticed yet
    };
    std::array<nap, most_threads / 64> naps_{};
    std::atomic<std::uint32_t> awaited_{0};   // the participant whose end the sleeping caller waits for
    std::atomic<std::uint32_t> bell_{0};      // helpers sleep on this
    std::atomic<std::uint32_t> finished_{0};  // the caller sleeps on this
};

}  // namespace trireme::detail

// ---- trireme/threads/pool_options.hpp --------------------------------------------------------------------

// What a pool is made of.

namespace trireme {

/// Filled by hand or by a placement::plan.
struct pool_options {
    /// The caller included; 0: as many as the budget gives.
    unsigned threads = 0;
    /// CPUs of thread k. Thread 0 is whoever calls the loops and is never bound by the pool: bind it yourself to
    /// cpus[0] if you want. Empty: the CPUs of the process for all.
    std::vector<cpu_set> cpus{};
    /// How long a thread without work looks for the next loop before it sleeps. Applies while the pool's threads
    /// are not more than `cores`; with more threads they sleep at once, for spinning would keep others off.
    std::chrono::nanoseconds spin = std::chrono::milliseconds(2);
    /// CPUs that the pool may count on; 0: those of the budget.
    unsigned cores = 0;
};

}  // namespace trireme

// ---- trireme/threads/placement.hpp -----------------------------------------------------------------------

// Placement: which CPUs each thread of a pool gets. Policies are types; a plan divides the CPUs of a host among the
// ranks on it first.
//
// The policies go by CPU number alone: neighbours are neighbouring numbers.

namespace trireme {

/// Who gives CPUs to threads.
///
///   cpus_for(usable, n)   n sets, for the threads 0 .. n-1; thread 0 is the one that calls the loops
///
/// The compiler cannot check: each set is a non-empty part of `usable`.
/// Reference model: placement::none below.
template <class P>
concept placement_policy = requires(const P& p, const cpu_set& usable, unsigned n) {
    { p.cpus_for(usable, n) } -> std::same_as<std::vector<cpu_set>>;
};

namespace detail::say {
inline message too_few_cpus(unsigned wanted, const cpu_set& usable) {
    return {std::to_string(wanted) + " threads with a CPU each are wanted, but only " +
                std::to_string(usable.count()) + (usable.count() == 1 ? " CPU is" : " CPUs are") + " allowed: {" +
                usable.text() + "}",
            "", "fewer threads, a wider mask for the process, or placement with .may_share = true"};
}
}  // namespace detail::say

namespace placement {

/// Every thread may run on every usable CPU; the kernel decides. Right when other work shares the CPUs.
struct none {
    std::vector<cpu_set> cpus_for(const cpu_set& usable, unsigned n) const { return {n, usable}; }
};
static_assert(placement_policy<none>);

/// One CPU a thread, the lowest numbers first: threads next to each other share what neighbouring CPUs share.
struct compact {
    bool may_share = true;  ///< more threads than CPUs: start again with the first CPU; false: an error

    /// Throws  usage_error naming both numbers, if the CPUs are too few and may not be shared
    std::vector<cpu_set> cpus_for(const cpu_set& usable, unsigned n) const {
        const unsigned have = usable.count();
        if (have == 0 || (n > have && !may_share)) throw usage_error(detail::say::too_few_cpus(n, usable));
        std::vector<cpu_set> cpus;
        for (unsigned k = 0; k < n; ++k) cpus.push_back({usable.nth(k % have)});
        return cpus;
    }
};
static_assert(placement_policy<compact>);

/// One CPU a thread, as far apart in number as the usable ones allow: each thread gets the caches of more CPUs.
struct spread {
    bool may_share = true;  ///< more threads than CPUs: start again with the first CPU; false: an error

    /// Throws  usage_error naming both numbers, if the CPUs are too few and may not be shared
    std::vector<cpu_set> cpus_for(const cpu_set& usable, unsigned n) const {
        const unsigned have = usable.count();
        if (n >= have) return compact{may_share}.cpus_for(usable, n);
        std::vector<cpu_set> cpus;
        for (unsigned k = 0; k < n; ++k) cpus.push_back({usable.nth(k * have / n)});
        return cpus;
    }
};
static_assert(placement_policy<spread>);

}  // namespace placement

namespace placement {

/// Divides what the host gives to this process's user among the ranks on the host, and says what each part gets.
///
/// Threads  a value
class plan {
  public:
    /// For rank `local.index` of the `local.count` on this host.
    explicit plan(shard local, const cpu_budget& host = cpu_budget::discover())
        : local_(local), mine_(host.share(local)) {}
    /// For whatever knows its place among the ranks of its host.
    template <class World>
    requires requires(const World& w) {
        { w.local_shard() } -> std::convertible_to<shard>;
    }
    explicit plan(const World& w) : plan(static_cast<shard>(w.local_shard())) {}

    const cpu_budget& budget() const noexcept { return mine_; }

    /// Options for the pool of this rank: a thread for each of its CPUs, placed by `how`.
    template <placement_policy Placement = none>
    pool_options compute(const Placement& how = {}) const {
        const unsigned n = mine_.compute();
        return {.threads = n, .cpus = how.cpus_for(mine_.usable, n), .cores = n};
    }

    /// "rank 0 of 2 on this host: 1 thread on CPUs 0, limited by the affinity mask, rank 0 of 2 here".
    std::string text() const {
        return "rank " + std::to_string(local_.index) + " of " + std::to_string(local_.count) +
               " on this host: " + mine_.text();
    }

  private:
    shard local_;
    cpu_budget mine_;
};

}  // namespace placement

}  // namespace trireme

// ---- trireme/threads/pool.hpp ----------------------------------------------------------------------------

// A pool of threads for loops: parallel_for and parallel_reduce run on it. The calling thread takes part, so a pool
// of n threads has n-1 helpers, started by the first loop that needs them.

namespace trireme {

namespace detail {

struct pool_access;

namespace say {
inline message bad_thread_count(const std::string& asked) {
    return {"a pool cannot have " + asked + " threads", "",
            "use 1 (the caller alone) to " + std::to_string(team::most_threads) + ", or no number for the default"};
}
inline message bad_pool_cpus(std::size_t sets, unsigned threads) {
    return {"a pool of " + std::to_string(threads) + " threads was given CPUs for " + std::to_string(sets), "",
            "give pool_options::cpus one set a thread, the caller's first, or none at all"};
}
}  // namespace say

}  // namespace detail

/// Threads that share the work of loops.
///
/// A loop inside a loop, and a loop while another thread's loop has the pool, runs in the calling thread alone: it
/// never waits for threads that are busy, so it cannot deadlock, and no thread more than the pool's is started.
///
/// Blocks     construction does not start a thread; the first loop starts those it needs; the destructor joins them
/// Threads    any thread may start loops; destroy it when none is running
/// Processes  after fork() the child's first loop starts threads of its own; the parent's pool is not affected
/// Crash      in a child of fork() the destructor waits for nobody
class alignas(cache_line) pool {
  public:
    /// As many threads as this process may use CPUs (cpu_budget), divided by the ranks of the job on this host;
    /// bound to no single CPU.
    pool() : pool(pool_options{}) {}

    /// Throws  usage_error for less than 1 thread
    template <std::integral Count>
    requires(!std::same_as<Count, bool>) explicit pool(Count threads)
        : pool(pool_options{.threads = counted(threads)}) {}

    /// Threads on CPUs chosen by a policy from those of the process: `pool{placement::compact{}}`.
    /// Throws  usage_error for what the policy cannot do
    template <placement_policy Placement>
    explicit pool(const Placement& how) : pool(how, default_threads()) {}
    template <placement_policy Placement, std::integral Count>
    pool(const Placement& how, Count threads)
        : pool(pool_options{.threads = counted(threads), .cpus = how.cpus_for(process_cpus(), counted(threads))}) {}

    /// Throws  usage_error naming the CPUs that the process may not use, or that the sets are not one a thread
    explicit pool(pool_options options) : options_(std::move(options)) {
        if (options_.threads == 0 || options_.cores == 0) {
            const auto budget = default_threads();
            if (options_.threads == 0)
                options_.threads = options_.cpus.empty() ? budget : static_cast<unsigned>(options_.cpus.size());
            if (options_.cores == 0) options_.cores = budget;
        }
        counted(options_.threads);
        if (!options_.cpus.empty() && options_.cpus.size() != options_.threads)
            throw usage_error(detail::say::bad_pool_cpus(options_.cpus.size(), options_.threads));
        for (const auto& cpus : options_.cpus) {
            if (cpus.empty()) throw usage_error(detail::say::binding_to_nothing());
            if (!process_cpus().contains(cpus))
                throw usage_error(detail::say::cpus_not_allowed(cpus, process_cpus()));
        }
        threads_.store(options_.threads, std::memory_order_relaxed);
        team_.store(new detail::team, std::memory_order_release);
    }
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;
    ~pool() { delete team_.load(std::memory_order_acquire); }

    /// Threads that a loop may use, the caller included.
    unsigned num_threads() const noexcept { return threads_.load(std::memory_order_relaxed); }

    /// Changes it for the loops that start afterwards, from any thread. Fewer: the others sleep and are kept, so
    /// that changing back starts none. More than the pool was made with: they get CPUs in turn, if CPUs were given.
    /// Throws  usage_error for less than 1; the old number stays
    template <std::integral Count>
    void set_num_threads(Count threads) {
        threads_.store(counted(threads), std::memory_order_relaxed);
    }

    /// What each helper started so far asked of the system, and got: thread 1 first.
    std::vector<binding> bindings() const { return team_.load(std::memory_order_acquire)->bindings(); }
    const pool_options& options() const noexcept { return options_; }

  private:
    friend struct detail::pool_access;

    static unsigned default_threads() { return (std::max)(1U, cpu_budget::discover().compute() / local_ranks()); }

    template <std::integral Count>
    static unsigned counted(Count n) {
        if (std::cmp_less(n, 1) || std::cmp_greater(n, detail::team::most_threads))
            throw usage_error(detail::say::bad_thread_count(std::to_string(n)));
        return static_cast<unsigned>(n);
    }

    const cpu_set& cpus_of(unsigned k) const {
        return options_.cpus.empty() ? process_cpus() : options_.cpus[k % options_.cpus.size()];
    }

    /// The team of this process: in a forked child a new one, while the parent's is kept until the pool goes,
    /// because the fork may have happened inside one of its loops.
    detail::team& current() {
        auto* const seen = team_.load(std::memory_order_acquire);
        return seen->lost() ? after_fork(seen) : *seen;
    }
    [[gnu::noinline]] detail::team& after_fork(detail::team* seen) {
        while (seen->lost()) {
            auto fresh = std::make_unique<detail::team>();
            fresh->previous.reset(seen);
            if (team_.compare_exchange_strong(seen, fresh.get(), std::memory_order_acq_rel))
                return *fresh.release();
            static_cast<void>(fresh->previous.release());  // another thread was first, and keeps it
        }
        return *seen;
    }

    pool_options options_;
    std::atomic<unsigned> threads_{1};
    std::atomic<detail::team*> team_{nullptr};
};

namespace detail {

/// The team of a pool for the length of one loop, or nobody.
class loop_team {
  public:
    loop_team() noexcept = default;
    loop_team(team* locked, unsigned n) noexcept : team_(locked), n_(n) {}
    loop_team(const loop_team&) = delete;
    loop_team& operator=(const loop_team&) = delete;
    ~loop_team() {
        if (team_ != nullptr) team_->unlock();
    }
    explicit operator bool() const noexcept { return team_ != nullptr; }
    unsigned size() const noexcept { return n_; }
    team* operator->() const noexcept { return team_; }

  private:
    team* team_ = nullptr;
    unsigned n_ = 1;
};

struct pool_access {
    /// Up to `useful` threads of the pool, helpers started; nobody if one is enough or the team has a loop.
    /// Throws  system_error when a helper cannot be started
    static loop_team enter(pool& p, std::uint64_t useful) {
        const unsigned wanted = p.num_threads();
        const auto n = static_cast<unsigned>((std::min)(std::uint64_t{wanted}, useful));
        if (n < 2) return {};
        team& t = p.current();
        if (!t.try_lock()) return {};
        try {
            t.ensure(n, wanted <= p.options_.cores ? p.options_.spin : std::chrono::nanoseconds(0),
                     [&p](unsigned k) -> const cpu_set& { return p.cpus_of(k); });
        } catch (...) {
            t.unlock();
            throw;
        }
        return {&t, n};
    }
};

}  // namespace detail

}  // namespace trireme

// ---- trireme/threads/schedule.hpp ------------------------------------------------------------------------

// Which indices a loop visits (range, blocked), and how they are shared out among threads (schedule::).

namespace trireme {

/// The indices begin, begin + step, ... that lie before `end`; with a negative step, those that lie after it.
/// `range{10, 0, -3}` is 10 7 4 1. A step of 0 is an error when the loop starts.
template <std::integral Index>
struct range {
    Index begin{};
    Index end{};
    std::make_signed_t<Index> step = 1;
};
template <class Begin, class End>
range(Begin, End) -> range<std::common_type_t<Begin, End>>;
template <class Begin, class End, class Step>
range(Begin, End, Step) -> range<std::common_type_t<Begin, End>>;

/// The indices [begin, end), handed to the body in contiguous blocks of at least `grain` of them (one block may
/// hold less when there are fewer in all).
template <std::integral Index>
struct blocked {
    Index begin{};
    Index end{};
    std::uint64_t grain = 1;
};
template <class Begin, class End>
blocked(Begin, End) -> blocked<std::common_type_t<Begin, End>>;
template <class Begin, class End, class Grain>
blocked(Begin, End, Grain) -> blocked<std::common_type_t<Begin, End>>;

namespace schedule {

/// Contiguous blocks computed in advance, sizes differing by at most one: 10 indices in 4 blocks are 3, 3, 2, 2.
/// The same thread gets the same indices in every loop of that size, so its caches stay warm.
struct fixed {
    std::uint64_t blocks = 0;  ///< 0: one for each thread
};

/// Every thread starts with a contiguous share, takes from its front in runs that get shorter, and takes half of
/// what is left of another's when its own is used up. Right when some indices cost more than others.
struct dynamic {
    std::uint64_t grain = 1;  ///< the least number of indices taken at a time
};

}  // namespace schedule

/// How a loop is shared out: one of the types in schedule::.
template <class S>
concept schedule_policy = std::same_as<S, schedule::fixed> || std::same_as<S, schedule::dynamic>;

namespace detail {

namespace say {
inline message step_of_zero() {
    return {"a range with a step of 0 never ends", "", "use a step above or below zero"};
}
inline message begin_out_of_range(const std::string& begin) {
    return {"the loop begins at " + begin + ", which the type of its end cannot hold", "",
            "give both ends of the range the same type"};
}
}  // namespace say

/// n positions cut into contiguous blocks whose sizes differ by at most one, larger ones first.
struct cuts {
    struct block {
        std::uint64_t first, last;
    };
    std::uint64_t each = 0;    // size of the smaller blocks
    std::uint32_t larger = 0;  // how many have one more
    std::uint32_t number = 1;

    static constexpr std::uint64_t most = 0xffffffffU;

    constexpr cuts() = default;
    constexpr cuts(std::uint64_t n, std::uint64_t blocks) noexcept
        : number(static_cast<std::uint32_t>(blocks < most ? blocks : most)) {
        each = n / number;
        larger = static_cast<std::uint32_t>(n % number);
    }
    constexpr block operator[](std::uint64_t j) const noexcept {
        const auto first = j * each + (j < larger ? j : larger);
        return {first, first + each + (j < larger ? 1 : 0)};
    }
};

/// Which index is the k-th of a range. In unsigned arithmetic: the ends may be the ends of the type.
template <std::integral Index>
struct index_space {
    using natural = std::make_unsigned_t<Index>;
    Index begin{};
    natural step{};  // as the two's complement of a negative one, so that begin + k * step wraps to the right place

    constexpr index_space() = default;
    constexpr explicit index_space(range<Index> r) noexcept : begin(r.begin), step(static_cast<natural>(r.step)) {}
    constexpr Index at(std::uint64_t k) const noexcept {
        return static_cast<Index>(static_cast<natural>(begin) +
                                  static_cast<natural>(static_cast<natural>(k) * step));
    }
};

/// How many indices a range has.
/// Throws  usage_error for a step of 0
template <std::integral Index>
constexpr std::uint64_t count_of(range<Index> r) {
    using natural = std::make_unsigned_t<Index>;
    if (r.step == 0) throw usage_error(say::step_of_zero());
    if (r.step > 0 ? r.begin >= r.end : r.begin <= r.end) return 0;
    const auto from = static_cast<natural>(r.begin), to = static_cast<natural>(r.end);
    const auto way = static_cast<natural>(r.step > 0 ? to - from : from - to);
    const auto given = static_cast<natural>(r.step);
    const auto step = r.step > 0 ? given : static_cast<natural>(natural{0} - given);
    return std::uint64_t{static_cast<natural>(way - 1U)} / step + 1;
}

/// Both ends as one type; a begin that does not fit the common type is an error, not a wrap.
template <std::integral Begin, std::integral End>
constexpr range<std::common_type_t<Begin, End>> one_range(Begin begin, End end) {
    using Index = std::common_type_t<Begin, End>;
    if constexpr (std::is_signed_v<Begin> && !std::is_signed_v<Index>)
        if (begin < 0) throw usage_error(say::begin_out_of_range(std::to_string(begin)));
    if constexpr (std::is_signed_v<End> && !std::is_signed_v<Index>)
        if (end < 0) return {0, 0};
    return {static_cast<Index>(begin), static_cast<Index>(end)};
}

}  // namespace detail

}  // namespace trireme

// ---- trireme/threads/detail/loop_job.hpp -----------------------------------------------------------------

// What a team runs for one loop: a body over positions [0, n), cut by the job of a schedule.

namespace trireme::detail {

/// f(i) for each index.
template <std::integral Index, class F>
struct each_index {
    static constexpr bool divisible = true;
    static constexpr bool may_throw = !std::is_nothrow_invocable_v<F&, Index>;
    index_space<Index> space;
    F* f = nullptr;

    void operator()(std::uint64_t first, std::uint64_t last) const {
        if (space.step == 1) {  // a plain counted loop, which the compiler can vectorise
            for (Index i = space.at(first), end = space.at(last); i != end; ++i) std::invoke(*f, i);
            return;
        }
        for (; first != last; ++first) std::invoke(*f, space.at(first));
    }
};

/// f(begin, end) for blocks of indices.
template <std::integral Index, class F>
struct each_block {
    static constexpr bool divisible = false;
    static constexpr bool may_throw = !std::is_nothrow_invocable_v<F&, Index, Index>;
    index_space<Index> space;
    F* f = nullptr;

    void operator()(std::uint64_t first, std::uint64_t last) const {
        std::invoke(*f, space.at(first), space.at(last));
    }
};

/// Runs a body, and looks whether another part has thrown. A body that can be cut is run in pieces that double in
/// length: an end is noticed before a thread has done as much again as it has done so far, or 1024 indices more,
/// and the look costs nothing in long loops.
template <class Body>
class checked_body {
  public:
    checked_body(const Body& body, const first_exception& error) noexcept : body_(body), error_(error) {}

    /// False when the loop is to end.
    bool operator()(std::uint64_t first, std::uint64_t last) {
        if constexpr (!Body::may_throw) {
            body_(first, last);
            return true;
        } else if constexpr (!Body::divisible) {
            if (error_.stopped()) return false;
            body_(first, last);
            return true;
        } else {
            while (first != last) {
                if (error_.stopped()) return false;
                const auto piece = (std::min)(last - first, pace_);
                body_(first, first + piece);
                first += piece;
                if (pace_ < 1024) pace_ *= 2;
            }
            return true;
        }
    }

  private:
    const Body& body_;
    const first_exception& error_;
    std::uint64_t pace_ = 1;
};

/// The function that a team calls: exceptions stay inside a part.
template <class Job>
void run_part(team& t, unsigned k, unsigned n) noexcept {
    const auto job = t.job<Job>();
    try {
        job.run(t, k, n);
    } catch (...) { t.error().keep(); }
}

/// schedule::fixed: participant k gets the k-th part of the blocks. The sizes are computed once, by the caller.
template <class Body>
struct fixed_job {
    Body body;
    cuts blocks;

    void run(team& t, unsigned k, unsigned n) const {
        checked_body body_of(body, t.error());
        if (blocks.number == n) {
            const auto block = blocks[k];
            body_of(block.first, block.last);
            return;
        }
        const auto mine = cuts(blocks.number, n)[k];
        for (auto j = mine.first; j < mine.last; ++j) {
            const auto block = blocks[j];
            if (!body_of(block.first, block.last)) return;
        }
    }
};

/// schedule::dynamic: positions are handed out in units of `grain`. Each participant's share of the units is one
/// word, [low, high), from whose front it takes and from whose back others take: no line is shared until somebody
/// runs out.
/// Source  work stealing by halves, after Cilk and Callisto-RTS; here over intervals and not queues
template <class Body>
struct dynamic_job {
    Body body;
    std::uint64_t count = 0, grain = 0;

    /// Intervals hold 32 bits a side: the units of very long loops are larger.
    static std::uint64_t grain_of(std::uint64_t count, std::uint64_t grain) noexcept {
        return (std::max)({std::uint64_t{1}, grain, (count >> 31) + 1});
    }
    std::uint64_t units() const noexcept { return count / grain + (count % grain != 0 ? 1 : 0); }

    /// Before the loop: everybody's share.
    void deal(team& t, unsigned n) const noexcept {
        const cuts shares(units(), n);
        for (unsigned k = 0; k < n; ++k) {
            const auto mine = shares[k];
            t.share(k).store(interval{mine.first, mine.last}.packed(), std::memory_order_relaxed);
        }
    }

    void run(team& t, unsigned k, unsigned n) const {
        checked_body body_of(body, t.error());
        auto& own = t.share(k);
        do {
            auto word = own.load(std::memory_order_relaxed);
            for (auto mine = interval::unpack(word); mine.size() > 0; mine = interval::unpack(word)) {
                // A thirty-second of what is left: long runs first, single units at the end.
                const auto next = mine.low + (std::max)(std::uint64_t{1}, mine.size() / 32);
                if (!own.compare_exchange_weak(word, interval{next, mine.high}.packed(), std::memory_order_relaxed))
                    continue;
                if (!body_of(mine.low * grain, (std::min)(count, next * grain))) return;
                word = own.load(std::memory_order_relaxed);
            }
            if (Body::may_throw && t.error().stopped()) return;
        } while (steal(t, k, n));
    }

  private:
    struct interval {
        std::uint64_t low, high;
        std::uint64_t size() const noexcept { return high - low; }
        std::uint64_t packed() const noexcept { return low << 32 | high; }
        static interval unpack(std::uint64_t word) noexcept { return {word >> 32, word & 0xffffffffU}; }
    };

    /// Moves half of somebody's rest to our own share, which is empty. False when nobody has any.
    static bool steal(team& t, unsigned k, unsigned n) noexcept {
        for (unsigned step = 1; step < n; ++step) {
            auto& victim = t.share((k + step) % n);
            auto word = victim.load(std::memory_order_relaxed);
            for (auto rest = interval::unpack(word); rest.size() > 0; rest = interval::unpack(word)) {
                const auto middle = rest.low + rest.size() / 2;
                if (!victim.compare_exchange_weak(word, interval{rest.low, middle}.packed(),
                                                  std::memory_order_relaxed))
                    continue;
                t.share(k).store(interval{middle, rest.high}.packed(), std::memory_order_relaxed);
                return true;
            }
        }
        return false;
    }
};

/// Runs the body over positions [0, count), in the calling thread if nobody can help.
template <class Body>
void run_loop(pool& p, schedule::fixed how, std::uint64_t count, std::uint64_t grain, const Body& body) {
    using job_type = fixed_job<Body>;
    if (count == 0) return;
    const auto most = grain <= 1 ? count : (std::max)(std::uint64_t{1}, count / grain);
    const auto blocks_for = [&](unsigned threads) {
        return (std::min)(most, how.blocks != 0 ? how.blocks : threads);
    };
    const auto team = pool_access::enter(p, blocks_for(p.num_threads()));
    const job_type job{body, cuts(count, blocks_for(team.size()))};
    if (team) {
        team->run(team.size(), &run_part<job_type>, job);
        return;
    }
    for (std::uint64_t j = 0; j < job.blocks.number; ++j) body(job.blocks[j].first, job.blocks[j].last);
}

template <class Body>
void run_loop(pool& p, schedule::dynamic how, std::uint64_t count, std::uint64_t grain, const Body& body) {
    using job_type = dynamic_job<Body>;
    if (count == 0) return;
    const job_type job{body, count, job_type::grain_of(count, (std::max)(grain, how.grain))};
    const auto team = pool_access::enter(p, job.units());
    if (!team) return body(0, count);
    job.deal(*team.operator->(), team.size());
    team->run(team.size(), &run_part<job_type>, job);
}

}  // namespace trireme::detail

// ---- trireme/threads/parallel_for.hpp --------------------------------------------------------------------

// Loops whose indices are shared out among the threads of a pool.

namespace trireme {

/// Calls f(i) once for each index of `indices`, in several threads at once, and returns when all calls have ended.
///
/// Blocks   until the loop is done. It does not wait for threads that are busy elsewhere: inside another loop's
///          body, or while another thread's loop has the pool, all calls are made here, in order
/// Throws   the first exception of a call, with its type; the others stop soon and what they throw is dropped.
///          usage_error for a step of 0; system_error when a helper thread cannot be started
/// Threads  f is called concurrently, at most once at a time in each of the pool's threads. A body marked noexcept
///          needs no look at the others' exceptions
/// Memory   what was written before is visible in f; what f wrote is visible after this returns
template <schedule_policy Schedule = schedule::fixed, std::integral Index, class F>
requires std::invocable<F&, Index>
void parallel_for(pool& p, Schedule how, range<Index> indices, F&& f) {
    const detail::each_index<Index, std::remove_reference_t<F>> body{detail::index_space(indices),
                                                                     std::addressof(f)};
    detail::run_loop(p, how, detail::count_of(indices), 1, body);
}
template <std::integral Index, class F>
requires std::invocable<F&, Index>
void parallel_for(pool& p, range<Index> indices, F&& f) { parallel_for(p, schedule::fixed{}, indices, f); }

/// Calls f(i) for each i in [begin, end); for none when end is before begin.
template <schedule_policy Schedule, std::integral Begin, std::integral End, class F>
requires std::invocable<F&, std::common_type_t<Begin, End>>
void parallel_for(pool& p, Schedule how, Begin begin, End end, F&& f) {
    parallel_for(p, how, detail::one_range(begin, end), f);
}
template <std::integral Begin, std::integral End, class F>
requires std::invocable<F&, std::common_type_t<Begin, End>>
void parallel_for(pool& p, Begin begin, End end, F&& f) {
    parallel_for(p, schedule::fixed{}, detail::one_range(begin, end), f);
}

/// Calls f(b, e) for contiguous blocks [b, e) that together are `indices`, each of at least `indices.grain`.
template <schedule_policy Schedule, std::integral Index, class F>
requires std::invocable<F&, Index, Index>
void parallel_for(pool& p, Schedule how, blocked<Index> indices, F&& f) {
    const range<Index> all{indices.begin, indices.end, 1};
    const detail::each_block<Index, std::remove_reference_t<F>> body{detail::index_space(all), std::addressof(f)};
    detail::run_loop(p, how, detail::count_of(all), indices.grain, body);
}
template <std::integral Index, class F>
requires std::invocable<F&, Index, Index>
void parallel_for(pool& p, blocked<Index> indices, F&& f) { parallel_for(p, schedule::fixed{}, indices, f); }

}  // namespace trireme

// ---- trireme/threads/parallel_reduce.hpp -----------------------------------------------------------------

// Reductions that give the same bits for any number of threads.

namespace trireme {

namespace detail {

/// Into how many chunks a reduction over n indices is cut: a matter of n and grain alone.
constexpr std::uint64_t reduction_chunks(std::uint64_t n, std::uint64_t grain) noexcept {
    return (std::min)(std::uint64_t{256}, (std::max)(std::uint64_t{1}, n / (std::max)(std::uint64_t{1}, grain)));
}

/// One partial result for each chunk; on the stack unless the results are large.
template <class T>
struct partial_results {
    static constexpr bool on_stack = sizeof(std::optional<T>) * 256 <= 32768;
    using storage =
        std::conditional_t<on_stack, std::array<std::optional<T>, 256>, std::unique_ptr<std::optional<T>[]>>;
    storage slots;
    explicit partial_results(std::uint64_t n) {
        if constexpr (!on_stack) slots = std::make_unique<std::optional<T>[]>(n);
    }
};

}  // namespace detail

/// Folds map(b, e) over blocks of `indices` with `combine`, starting from `identity`.
///
/// The blocks depend on the range and its grain alone (at most 256, of at least `grain` indices), and are combined
/// in the order of their indices: combine(... combine(combine(identity, r0), r1) ..., rn). So the result has the
/// same bits for any number of threads, for floating point too.
///
/// Returns  identity for an empty range
/// Blocks, Throws, Threads, Memory  as parallel_for; `combine` is called in this thread only
template <std::integral Index, class T, class Map, class Combine>
requires std::invocable<Map&, Index, Index> && std::convertible_to<std::invoke_result_t<Map&, Index, Index>, T>
[[nodiscard]] T parallel_reduce(pool& p, blocked<Index> indices, T identity, Map&& map, Combine&& combine) {
    const range<Index> all{indices.begin, indices.end, 1};
    const detail::index_space space(all);
    const auto count = detail::count_of(all);
    if (count == 0) return identity;
    const auto chunks = detail::reduction_chunks(count, indices.grain);
    const detail::cuts grid(count, chunks);
    detail::partial_results<T> parts(chunks);
    parallel_for(p, schedule::dynamic{}, std::uint64_t{0}, chunks, [&](std::uint64_t c) {
        const auto chunk = grid[c];
        parts.slots[c].emplace(std::invoke(map, space.at(chunk.first), space.at(chunk.last)));
    });
    T result = std::move(identity);
    for (std::uint64_t c = 0; c < chunks; ++c)
        result = std::invoke(combine, std::move(result), *std::move(parts.slots[c]));
    return result;
}
template <std::integral Begin, std::integral End, class T, class Map, class Combine>
requires std::invocable<Map&, std::common_type_t<Begin, End>, std::common_type_t<Begin, End>>
[[nodiscard]] T parallel_reduce(pool& p, Begin begin, End end, T identity, Map&& map, Combine&& combine) {
    const auto r = detail::one_range(begin, end);
    return parallel_reduce(p, blocked<decltype(r.begin)>{r.begin, r.end}, std::move(identity), map, combine);
}

}  // namespace trireme

// ---- trireme/data/schema.hpp -----------------------------------------------------------------------------

// What one sample looks like: a list of named fields with element type and static extents. From it follows, at
// compile time, where every field of every row of a batch lies: one contiguous tensor [batch, extents...] per
// field, each at an offset that is a multiple of 64 bytes. Collating a batch is then nothing but writing row i.

namespace trireme {

/// One part of a sample: `field<"image", std::uint8_t, 28, 28>`; without extents it is a scalar, as in
/// `field<"label", std::int64_t>`.
template <fixed_string Name, class T, std::size_t... Extents>
struct field {
    static_assert(Name.view().size() > 0, "trireme: a field needs a name: field<\"image\", std::uint8_t, 28, 28>");
    static_assert(
        std::is_trivially_copyable_v<T>,
        "trireme: a field's element must be trivially copyable, because rows are written by one process and "
        "read by another as bytes; keep indices or fixed arrays instead of std::string or std::vector");
    static_assert(
        !std::is_pointer_v<T> && !std::is_reference_v<T> && !std::is_const_v<T> && !std::is_volatile_v<T>,
        "trireme: a field's element must be a plain value type: a pointer means nothing in another process");
    static_assert(alignof(T) <= cache_line, "trireme: a field's element must not be aligned beyond 64 bytes");
    static_assert(((Extents > 0) && ...), "trireme: an extent of a field is zero; a scalar has no extents at all");

    using element = T;
    static constexpr auto name = Name;
    static constexpr std::size_t rank = sizeof...(Extents);
    static constexpr std::array<std::size_t, rank> extents{Extents...};
    static constexpr std::size_t elements = (std::size_t{1} * ... * Extents);
    static constexpr std::size_t row_bytes = elements * sizeof(T);

    /// `View<Element, Extents...>` or `View<Element, first, Extents...>`: how a field's extents get into a type.
    template <template <class, std::size_t...> class View, class Element, std::size_t... First>
    using rebind = View<Element, First..., Extents...>;
};

namespace detail {

template <class>
inline constexpr bool is_field = false;
template <fixed_string Name, class T, std::size_t... Extents>
inline constexpr bool is_field<field<Name, T, Extents...>> = true;

// Part of the layout hash: what an element is, as far as its bytes go.
template <class T>
constexpr std::uint64_t element_code() noexcept {
    const std::uint64_t kind = std::is_same_v<T, bool>       ? 1
                               : std::is_floating_point_v<T> ? 2
                               : std::is_unsigned_v<T>       ? 3
                               : std::is_integral_v<T>       ? 4
                               : std::is_enum_v<T>           ? 5
                                                             : 6;
    return kind << 56 | std::uint64_t{alignof(T)} << 32 | sizeof(T);
}

// Sizes that cannot be represented saturate: nothing can be reserved that large, and the reservation says so.
constexpr std::size_t saturating_end(std::size_t offset, std::size_t row_bytes, std::size_t batch) noexcept {
    constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)() & ~(cache_line - 1);
    if (batch != 0 && row_bytes > (most - offset) / batch) return most;
    const std::size_t end = offset + row_bytes * batch;
    return end > most - cache_line ? most : align_up(end, cache_line);
}

}  // namespace detail

/// The fields of a sample, in the order in which they lie in memory: `schema<field<...>, field<...>>`.
///
/// Shape      field f of a batch of B rows: [B, extents of f...], row-major, dense, at offset<name>(B), 64-byte
/// aligned Processes  a layout depends on the fields and on B only; two programs agree when `hash()` and B agree
template <class... Fields>
struct schema {
    static_assert(sizeof...(Fields) > 0,
                  "trireme: a schema needs at least one field: schema<field<\"x\", float, 3>>");
    static_assert((detail::is_field<Fields> && ...),
                  "trireme: a schema is a list of fields: schema<field<\"image\", std::uint8_t, 28, 28>, ...>");

    static constexpr std::size_t count = sizeof...(Fields);

    template <std::size_t I>
    using field_at = std::tuple_element_t<I, std::tuple<Fields...>>;

    static constexpr std::array<std::string_view, count> names{Fields::name.view()...};

    /// The place of the field called `name`, or `count` if there is none.
    static constexpr std::size_t find(std::string_view name) noexcept {
        std::size_t i = 0;
        while (i < count && names[i] != name) ++i;
        return i;
    }

    /// The place of a field in the list.
    template <fixed_string Name>
    static constexpr std::size_t index_of = [] {
        constexpr std::size_t at = find(Name.view());
        static_assert(at < count, "trireme: the schema has no field of this name; compare with its list of fields");
        return at < count ? at : 0;
    }();

    template <fixed_string Name>
    using field_of = field_at<index_of<Name>>;

    /// Bytes of one row of a field, dense.
    template <fixed_string Name>
    static constexpr std::size_t row_bytes = field_of<Name>::row_bytes;

    /// Bytes of one row of all fields together, without padding.
    static constexpr std::size_t sample_bytes = (Fields::row_bytes + ...);

    /// Where each field of a batch of `batch` rows starts, counted from the start of the slot.
    static constexpr std::array<std::size_t, count> offsets(std::size_t batch) noexcept {
        std::array<std::size_t, count> at{};
        std::size_t end = 0, i = 0;
        ((at[i++] = end, end = detail::saturating_end(end, Fields::row_bytes, batch)), ...);
        return at;
    }

    /// Where field number I starts.
    template <std::size_t I>
    static constexpr std::size_t offset_at(std::size_t batch) noexcept {
        static_assert(I < count, "trireme: the schema has fewer fields");
        if constexpr (I == 0) {
            return 0;
        } else {
            return detail::saturating_end(offset_at<I - 1>(batch), field_at<I - 1>::row_bytes, batch);
        }
    }

    /// Where the field called `Name` starts.
    template <fixed_string Name>
    static constexpr std::size_t offset(std::size_t batch) noexcept {
        return offset_at<index_of<Name>>(batch);
    }

    /// Bytes of a slot for `batch` rows, a multiple of 64. Saturates where size_t cannot hold the sum.
    static constexpr std::size_t bytes(std::size_t batch) noexcept {
        return detail::saturating_end(offset_at<count - 1>(batch), field_at<count - 1>::row_bytes, batch);
    }

    /// Names, element kinds and extents in one number: what two sides of a shared memory compare.
    static constexpr std::uint64_t hash() noexcept {
        hasher h;
        h.add("trireme schema 1").add(count);
        (add_field<Fields>(h), ...);
        return h.value();
    }

  private:
    template <class Field>
    static constexpr void add_field(hasher& h) noexcept {
        h.add(Field::name.view()).add(detail::element_code<typename Field::element>()).add(Field::rank);
        for (const std::size_t extent : Field::extents) h.add(extent);
    }

    static constexpr bool names_differ() noexcept {
        for (std::size_t i = 0; i < count; ++i)
            if (find(names[i]) != i) return false;
        return true;
    }
    static_assert(names_differ(), "trireme: two fields of a schema have the same name");
};

namespace detail {

template <class>
inline constexpr bool is_schema = false;
template <class... Fields>
inline constexpr bool is_schema<schema<Fields...>> = true;

}  // namespace detail

/// A list of fields, `schema<...>`: what datasets name and loaders lay out.
template <class S>
concept sample_schema = detail::is_schema<S>;

}  // namespace trireme

// ---- trireme/data/tensor_view.hpp ------------------------------------------------------------------------

// A typed look at memory that somebody else owns: a dense, row-major tensor whose extents stand in its type, the
// first one possibly known at run time only. It is what a batch hands out for each field.

namespace trireme {

/// A dense row-major tensor of rank 1 or more that owns nothing, as in
/// `tensor_view<const float, std::dynamic_extent, 3>`.
///
/// Shape      the first extent may be std::dynamic_extent (known at run time); the others are static and not zero
/// Threads    a value, as safe as a pointer; valid as long as the memory behind it (for a batch: its lease)
template <class T, std::size_t First, std::size_t... Rest>
class tensor_view {
    static_assert(((Rest != std::dynamic_extent && Rest > 0) && ...),
                  "trireme: only the first extent of a tensor_view may be dynamic, and inner extents are not zero");

  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;

    static constexpr std::size_t rank = 1 + sizeof...(Rest);
    /// Elements of one row, that is of everything but the first extent.
    static constexpr std::size_t row_elements = (std::size_t{1} * ... * Rest);

    /// Over `rows` rows at `data`; for a static first extent `rows` has to equal it.
    constexpr tensor_view(T* data, std::size_t rows) noexcept : data_(data), rows_(rows) {
        TRIREME_ASSERT(First == std::dynamic_extent || First == rows,
                       "a tensor_view with a static first extent was given another number of rows");
    }
    constexpr explicit tensor_view(T* data) noexcept requires(First != std::dynamic_extent)
        : data_(data), rows_(First) {}

    /// A view that may write is a view that may read; a static first extent may be forgotten.
    template <class U, std::size_t OtherFirst>
    requires(std::is_same_v<T, const U> || std::is_same_v<T, U>) &&
        (First == OtherFirst || First == std::dynamic_extent)
        // NOLINTNEXTLINE(google-explicit-constructor): as std::span
        constexpr tensor_view(const tensor_view<U, OtherFirst, Rest...>& other) noexcept
        : data_(other.data()),
    rows_(other.extent(0)) {}

    constexpr T* data() const noexcept { return data_; }
    /// Number of elements.
    constexpr std::size_t size() const noexcept { return rows_ * row_elements; }
    constexpr std::size_t size_bytes() const noexcept { return size() * sizeof(T); }
    constexpr bool empty() const noexcept { return rows_ == 0; }

    /// The i-th extent; extent(0) is the number of rows.
    constexpr std::size_t extent(std::size_t i) const noexcept {
        TRIREME_ASSERT(i < rank, "a tensor_view was asked for an extent it does not have");
        return extents()[i];
    }
    constexpr std::array<std::size_t, rank> extents() const noexcept { return {rows_, Rest...}; }

    /// The element at these indices, as many as the rank; checked in debug builds.
    template <class... Index>
    requires(sizeof...(Index) == rank && (std::is_integral_v<Index> && ...)) constexpr T& operator()(
        Index... index) const noexcept {
        const std::size_t at[rank] = {static_cast<std::size_t>(index)...};
        const auto limit = extents();
        std::size_t flat = 0;
        for (std::size_t i = 0; i < rank; ++i) {
            TRIREME_ASSERT(at[i] < limit[i], "an index of a tensor_view is outside its extent");
            flat = flat * limit[i] + at[i];
        }
        return data_[flat];
    }

    /// Row i: a view of one rank less, or the element itself when this view has rank 1.
    constexpr decltype(auto) row(std::size_t i) const noexcept {
        TRIREME_ASSERT(i < rows_, "a row of a tensor_view is outside its first extent");
        if constexpr (rank == 1) {
            return (data_[i]);
        } else {
            return tensor_view<T, Rest...>(data_ + i * row_elements);
        }
    }
    /// Elements of row i, flat.
    constexpr std::span<T, row_elements> row_span(std::size_t i) const noexcept {
        TRIREME_ASSERT(i < rows_, "a row of a tensor_view is outside its first extent");
        return std::span<T, row_elements>(data_ + i * row_elements, row_elements);
    }

    /// The first `rows` rows.
    constexpr tensor_view<T, std::dynamic_extent, Rest...> first(std::size_t rows) const noexcept {
        TRIREME_ASSERT(rows <= rows_, "a tensor_view has fewer rows");
        return {data_, rows};
    }

    /// All elements, flat.
    constexpr std::span<T> span() const noexcept { return {data_, size()}; }

    constexpr T* begin() const noexcept requires(rank == 1) { return data_; }
    constexpr T* end() const noexcept requires(rank == 1) { return data_ + rows_; }
    constexpr T& operator[](std::size_t i) const noexcept requires(rank == 1) { return row(i); }

  private:
    T* data_;
    std::size_t rows_;
};

}  // namespace trireme

// ---- trireme/data/row.hpp --------------------------------------------------------------------------------

// The two sides of a slot: `row`, where a dataset writes one sample, and `batch_fields`, where a trainer reads them
// all. Both are a base address and two numbers; the rest follows from the schema.

namespace trireme {

namespace detail::say {

inline message wrong_element_count(std::string_view field, std::size_t needed, std::size_t given) {
    return {"field \"" + std::string(field) + "\" takes " + std::to_string(needed) + " elements, but was given " +
                std::to_string(given),
            "row.set<\"" + std::string(field) + "\">",
            "make the sample the size that the schema states (crop, pad), or change the schema's extents"};
}

}  // namespace detail::say

namespace detail {

template <class Range>
concept countable = requires(const Range& r) {
    std::begin(r);
    { std::distance(std::begin(r), std::end(r)) } -> std::convertible_to<std::ptrdiff_t>;
};

template <class From, class To>
concept converts_exactly = requires(From&& from) {
    To{std::forward<From>(from)};
};

}  // namespace detail

/// One row of a slot, the place where a dataset writes one sample. Hands out memory, never copies it.
///
/// Needs      base: a slot of Schema::bytes(batch) bytes, 64-byte aligned; index < batch
/// Threads    different rows may be written at the same time; one row by one thread
/// Processes  a value made in the process that writes; the address in it means nothing elsewhere
template <sample_schema Schema>
class row {
  public:
    using schema = Schema;

    row(std::byte* base, std::size_t batch, std::size_t index) noexcept
        : base_(base), batch_(batch), index_(index) {
        TRIREME_ASSERT(index < batch, "a row lies outside its batch");
    }

    /// Where the field's elements go: `std::span<T, N>`, flat; for a scalar field `T&`. The bytes in it are those
    /// of an earlier batch until they are written: write all of them.
    template <fixed_string Name>
    decltype(auto) get() const noexcept {
        using field = typename Schema::template field_of<Name>;
        auto* at = address<Schema::template index_of<Name>>();
        if constexpr (field::rank == 0) {
            return (*at);
        } else {
            return std::span<typename field::element, field::elements>(at, field::elements);
        }
    }

    /// The same memory with its extents: `tensor_view<T, 28, 28>`.
    template <fixed_string Name>
    auto view() const noexcept requires(Schema::template field_of<Name>::rank > 0) {
        using field = typename Schema::template field_of<Name>;
        using view_type = typename field::template rebind<tensor_view, typename field::element>;
        return view_type(address<Schema::template index_of<Name>>());
    }

    /// Copies a whole field from a range of as many elements.
    ///
    /// Throws     usage_error naming the field, the needed and the given number; nothing is written then
    template <fixed_string Name, detail::countable Range>
    requires(Schema::template field_of<Name>::rank > 0) void set(const Range& from) const {
        using field = typename Schema::template field_of<Name>;
        static_assert(detail::converts_exactly<decltype(*std::begin(from)), typename field::element>,
                      "trireme: row.set would narrow the elements (double to float, int to uint8); convert them "
                      "yourself and write through row.get<name>()");
        const auto given = static_cast<std::size_t>(std::distance(std::begin(from), std::end(from)));
        if (given != field::elements)
            throw usage_error(detail::say::wrong_element_count(Name.view(), field::elements, given));
        std::copy(std::begin(from), std::end(from), address<Schema::template index_of<Name>>());
    }
    /// The same from a list in braces.
    template <fixed_string Name>
    requires(Schema::template field_of<Name>::rank >
             0) void set(std::initializer_list<typename Schema::template field_of<Name>::element> from) const {
        set<Name, std::initializer_list<typename Schema::template field_of<Name>::element>>(from);
    }
    /// Writes a scalar field.
    template <fixed_string Name>
    requires(Schema::template field_of<Name>::rank ==
             0) void set(typename Schema::template field_of<Name>::element value) const noexcept {
        get<Name>() = value;
    }

    /// Zeroes every field: what a row without a sample holds.
    void clear() const noexcept { clear_fields(std::make_index_sequence<Schema::count>{}); }

  private:
    template <std::size_t I>
    auto* address() const noexcept {
        using field = typename Schema::template field_at<I>;
        std::byte* at = base_ + Schema::template offset_at<I>(batch_) + index_ * field::row_bytes;
        return reinterpret_cast<typename field::element*>(at);
    }
    template <std::size_t... I>
    void clear_fields(std::index_sequence<I...>) const noexcept {
        (std::memset(static_cast<void*>(address<I>()), 0, Schema::template field_at<I>::row_bytes), ...);
    }

    std::byte* base_;
    std::size_t batch_;
    std::size_t index_;
};

/// All rows of a slot, read in place: `auto [image, label] = batch.fields();`.
///
/// Shape      per field tensor_view<const T, std::dynamic_extent, extents...> with `rows()` rows
/// Threads    a value, as safe as a pointer; valid as long as the slot is leased
template <sample_schema Schema>
class batch_fields {
  public:
    using schema = Schema;

    /// A slot laid out for `batch` rows of which the first `rows` are shown.
    batch_fields(const std::byte* base, std::size_t batch, std::size_t rows) noexcept
        : base_(base), batch_(batch), rows_(rows) {
        TRIREME_ASSERT(rows <= batch, "more rows than the batch has");
    }
    batch_fields(const std::byte* base, std::size_t batch) noexcept : batch_fields(base, batch, batch) {}

    std::size_t rows() const noexcept { return rows_; }

    /// One tensor per field, in the schema's order.
    auto fields() const noexcept { return all_fields(std::make_index_sequence<Schema::count>{}); }

    /// The tensor of one field.
    template <fixed_string Name>
    auto get() const noexcept {
        return at<Schema::template index_of<Name>>();
    }

    /// The same with the first `rows` rows only, e.g. the valid ones.
    batch_fields first(std::size_t rows) const noexcept {
        TRIREME_ASSERT(rows <= rows_, "more rows than the batch has");
        return {base_, batch_, rows};
    }

  private:
    template <std::size_t I>
    auto at() const noexcept {
        using field = typename Schema::template field_at<I>;
        using view_type =
            typename field::template rebind<tensor_view, const typename field::element, std::dynamic_extent>;
        const std::byte* at = base_ + Schema::template offset_at<I>(batch_);
        return view_type(reinterpret_cast<const typename field::element*>(at), rows_);
    }
    template <std::size_t... I>
    auto all_fields(std::index_sequence<I...>) const noexcept {
        return std::tuple(at<I>()...);
    }

    const std::byte* base_;
    std::size_t batch_;
    std::size_t rows_;
};

}  // namespace trireme

// ---- trireme/data/batch.hpp ------------------------------------------------------------------------------

// A batch in the trainer's hand: typed tensors over a slot, read in place.

namespace trireme {

/// One batch. The slot under it belongs to the holder until the batch is dropped; several may be kept, as many as
/// the loader has slots. Move-only; may outlive the loader.
///
/// Shape    fields(): one tensor per field, [rows(), extents...], row-major; rows() is the batch size on every step
/// Threads  may be read from many, and dropped on another thread than it was taken on
template <sample_schema Schema>
class batch {
  public:
    batch() noexcept = default;
    batch(raw_lease lease, std::size_t rows) noexcept : lease_(std::move(lease)), rows_(rows) {}

    /// `auto [image, label] = batch.fields();`
    auto fields() const noexcept { return view().fields(); }
    /// `batch.get<"image">()`
    template <fixed_string Name>
    auto get() const noexcept {
        return view().template get<Name>();
    }
    /// Rows in memory: the batch size, whatever the step.
    std::size_t rows() const noexcept { return rows_; }
    /// Rows that hold a sample of this epoch: all, but at the last step and where samples were skipped.
    std::size_t valid_rows() const noexcept {
        const auto states = lease_.row_states();
        return static_cast<std::size_t>(std::count(states.begin(), states.end(), row_state::valid));
    }
    bool valid(std::size_t row) const noexcept { return lease_.row_states()[row] == row_state::valid; }
    row_state state(std::size_t row) const noexcept { return lease_.row_states()[row]; }

    std::uint64_t epoch() const noexcept { return lease_.request().epoch; }
    /// The batch's place in its epoch, 0 .. steps-1.
    std::uint64_t step() const noexcept { return lease_.request().step; }

    /// Gives the slot back before the batch dies; its memory must not be used afterwards.
    void release() noexcept { lease_.release(); }
    /// False once released or moved from.
    explicit operator bool() const noexcept { return lease_.valid(); }
    const raw_lease& lease() const noexcept { return lease_; }

  private:
    batch_fields<Schema> view() const noexcept { return batch_fields<Schema>(lease_.data(), rows_); }

    raw_lease lease_;
    std::size_t rows_ = 0;
};

}  // namespace trireme

// ---- trireme/data/byte_source.hpp ------------------------------------------------------------------------

// Byte sources: where a reader of a file format gets a whole file from. The floor has plain files; compressed ones
// come from the zlib wing.

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

// ---- trireme/data/context.hpp ----------------------------------------------------------------------------

// What a dataset is told about the sample it makes, beside the index: epoch, random numbers that belong to the
// sample, who makes it, and whether anybody still wants it.

namespace trireme {

/// Which sample of which epoch of which run: all that its random numbers depend on.
struct sample_key {
    std::uint64_t seed = 0;
    std::uint64_t epoch = 0;
    std::uint64_t index = 0;
    friend constexpr bool operator==(const sample_key&, const sample_key&) = default;
};

namespace detail {

// For one seed different epochs give different keys, and for one epoch different seeds do: mix64 is a bijection.
constexpr std::uint64_t fold_key(std::uint64_t seed, std::uint64_t epoch) noexcept {
    return mix64(mix64(seed ^ 0x7472697265'6d65ULL) + epoch * 0x9e3779b97f4a7c15ULL);
}

}  // namespace detail

/// How whoever runs a worker tells it to stop: `word` has reached `at_least`. A flag (0, 1) and a phase that only
/// grows both fit. The word may lie in shared memory.
struct stop_signal {
    const std::atomic<std::uint32_t>* word = nullptr;
    std::uint32_t at_least = 1;

    bool requested() const noexcept { return word != nullptr && word->load(std::memory_order_relaxed) >= at_least; }
};

/// Goes with every `read`. Made per sample; nothing in it outlives the call.
///
/// Threads    belongs to the call that got it
class sample_context {
  public:
    explicit sample_context(sample_key key, worker_id worker = {}, std::uint32_t attempt = 0,
                            stop_signal stop = {}) noexcept
        : key_(key),
          rng_(detail::fold_key(key.seed, key.epoch), key.index),
          stop_(stop),
          worker_(worker),
          attempt_(attempt) {}

    std::uint64_t index() const noexcept { return key_.index; }
    std::uint64_t epoch() const noexcept { return key_.epoch; }
    std::uint64_t seed() const noexcept { return key_.seed; }

    /// The sample's own random numbers: a function of seed, epoch and index, whatever the engine, the number of
    /// workers or ranks, and however often the sample is redone. Models std::uniform_random_bit_generator; call it
    /// by reference, a copy repeats what the original draws.
    philox& rng() noexcept { return rng_; }

    /// Who makes the sample. For messages and caches; a result must not depend on it.
    worker_id worker() const noexcept { return worker_; }
    /// How often this part of the batch was begun before, by workers that died.
    std::uint32_t attempt() const noexcept { return attempt_; }

    /// True when the batch is no longer wanted. A `read` that takes long should look, and may return at once then:
    /// what it has written is thrown away.
    bool stop_requested() const noexcept { return stop_.requested(); }

  private:
    sample_key key_;
    philox rng_;
    stop_signal stop_;
    worker_id worker_;
    std::uint32_t attempt_;
};

}  // namespace trireme

// ---- trireme/data/dataset.hpp ----------------------------------------------------------------------------

// Datasets: what a user writes to feed a loader.

namespace trireme {

/// A dataset that can make any sample at any time, map style.
///
///   D::schema                    a trireme::schema<field<...>...>
///   d.size()                     number of samples, the same for as long as d lives
///   d.read(index, row, context)  writes every field of sample `index`, 0 <= index < size(); may throw anything
///   d.fingerprint()              optional: a number that differs when the content does; compared between ranks
///
/// The compiler cannot check: `read` is const because several threads call it at the same time; it writes every
/// field (the row holds another sample's bytes before); what it writes depends on index, epoch and context.rng()
/// only, so that a sample redone after a worker's death is the same; it looks at context.stop_requested() when it
/// takes long. Reference model: counting_dataset below.
template <class D>
concept map_dataset = requires {
    typename D::schema;
}
&&sample_schema<typename D::schema>&& requires(const D& d, std::uint64_t index, row<typename D::schema> r,
                                               sample_context& context) {
    { d.size() } -> std::convertible_to<std::uint64_t>;
    d.read(index, r, context);
};

/// The smallest dataset: sample i is the number i. For first steps, tests and dry runs.
struct counting_dataset {
    using schema = trireme::schema<field<"value", std::uint64_t>>;

    std::uint64_t samples = 0;

    std::uint64_t size() const { return samples; }
    void read(std::uint64_t index, row<schema> r, sample_context&) const { r.get<"value">() = index; }
};
static_assert(map_dataset<counting_dataset>);

namespace explain {  // one sentence per requirement; the first that fails is what the user reads

template <class D>
consteval bool map_dataset() {
    static_assert(
        requires { typename D::schema; },
        "trireme: a dataset names its fields: 'using schema = trireme::schema<trireme::field<\"x\", float>>;'. "
        "Copy counting_dataset, trireme/data/dataset.hpp");
    static_assert(sample_schema<typename D::schema>,
                  "trireme: a dataset's 'schema' is a trireme::schema<field<...>...>, trireme/data/schema.hpp");
    static_assert(
        requires(const D& d) {
            { d.size() } -> std::convertible_to<std::uint64_t>;
        },
        "trireme: a dataset says how many samples it has: 'std::uint64_t size() const'");
    static_assert(
        requires(const D& d, std::uint64_t i, row<typename D::schema> r, sample_context& c) { d.read(i, r, c); },
        "trireme: a dataset makes one sample: 'void read(std::uint64_t index, trireme::row<schema>, "
        "trireme::sample_context&) const'; const, because several threads call it");
    static_assert(trireme::map_dataset<D>,
                  "trireme: not a map_dataset; compare with counting_dataset, trireme/data/dataset.hpp");
    return true;
}

}  // namespace explain

/// What ranks compare so that they do not train on different data: the dataset's own fingerprint() if it has one,
/// otherwise its size and layout.
template <map_dataset D>
std::uint64_t dataset_fingerprint(const D& d) {
    if constexpr (requires {
                      { d.fingerprint() } -> std::convertible_to<std::uint64_t>;
                  }) {
        return static_cast<std::uint64_t>(d.fingerprint());
    } else {
        return hasher().add(static_cast<std::uint64_t>(d.size())).add(D::schema::hash()).value();
    }
}

}  // namespace trireme

// ---- trireme/data/sampling.hpp ---------------------------------------------------------------------------

// How an epoch is cut into steps, ranks and rows: pure arithmetic, the same on every rank, so that all ranks make
// the same number of steps and every sample goes where it should, whatever the number of ranks or workers.

namespace trireme {

/// What happens where the samples do not fill the last global batch.
enum class tail : std::uint8_t {
    pad,    ///< the batch is filled up with samples from the head of the epoch; those rows are not valid
    drop,   ///< the samples that do not fill a global batch are left out in this epoch
    exact,  ///< every sample once; rows without one are zero and not valid; equally many steps on all ranks
};

/// "pad", "drop", "exact".
constexpr std::string_view tail_name(tail t) noexcept {
    return t == tail::pad ? "pad" : t == tail::drop ? "drop" : "exact";
}

namespace detail::say {

inline message no_samples() {
    return {"the dataset has no samples", "sampling_plan, size() is 0",
            "check the path and the filter that made the dataset"};
}
inline message bad_batch_size(std::uint64_t batch_size) {
    return {"a batch of " + std::to_string(batch_size) + " samples is not possible", "sampling_plan",
            "give a batch size (per rank) from 1 to 2^32"};
}
inline message bad_shard(shard s) {
    return {"rank " + std::to_string(s.index) + " of " + std::to_string(s.count) + " does not exist",
            "sampling_plan, shard",
            "give .shard = {.index = rank, .count = ranks} with index < count, or world.shard()"};
}
inline message too_many_samples(std::uint64_t n) {
    return {"a dataset of " + std::to_string(n) + " samples is not possible, the largest has 2^63", "sampling_plan",
            "check what the dataset's size() returns; a negative number turns into a large one"};
}
inline message nothing_left_after_drop(std::uint64_t n, std::uint64_t batch_size, std::uint32_t ranks) {
    return {"tail::drop leaves no batch: " + std::to_string(n) + " samples do not fill one global batch of " +
                std::to_string(batch_size * ranks) + " (" + std::to_string(ranks) + " ranks, " +
                std::to_string(batch_size) + " each)",
            "sampling_plan", "fewer ranks, a smaller batch_size, or tail::pad or tail::exact"};
}

}  // namespace detail::say

/// What a plan is made from. `batch_size` is per rank.
struct sampling_options {
    std::uint64_t samples = 0;
    std::uint64_t batch_size = 1;
    trireme::shard shard = {};
    trireme::tail tail = trireme::tail::pad;
};

/// The steps of one epoch, as one rank sees them. With R ranks of B rows a global batch has G = R*B samples, and
/// row i of rank r at step t is the epoch's position t*G + i*R + r: the global batches depend on G only, not on R.
///
/// Threads    an immutable value
class sampling_plan {
  public:
    /// Throws     usage_error naming the numbers: no samples, a batch or shard that cannot be, nothing left (drop)
    constexpr explicit sampling_plan(const sampling_options& o) : o_(o) {
        constexpr std::uint64_t most = std::uint64_t{1} << 63;
        if (o.samples == 0) throw usage_error(detail::say::no_samples());
        if (o.samples > most) throw usage_error(detail::say::too_many_samples(o.samples));
        if (o.shard.index >= o.shard.count) throw usage_error(detail::say::bad_shard(o.shard));
        // 2^31 ranks times 2^32 rows stay below 2^63, so that no position overflows.
        if (o.batch_size == 0 || o.batch_size > std::uint64_t{1} << 32 || o.shard.count > std::uint32_t{1} << 31)
            throw usage_error(detail::say::bad_batch_size(o.batch_size));
        const std::uint64_t g = global_batch();
        steps_ = o.samples / g;
        if (o.tail != tail::drop && o.samples % g != 0) ++steps_;
        if (steps_ == 0)
            throw usage_error(detail::say::nothing_left_after_drop(o.samples, o.batch_size, o.shard.count));
    }

    /// Steps of an epoch, the same on every rank.
    constexpr std::uint64_t steps() const noexcept { return steps_; }
    constexpr std::uint64_t samples() const noexcept { return o_.samples; }
    constexpr std::uint64_t batch_size() const noexcept { return o_.batch_size; }
    constexpr std::uint64_t global_batch() const noexcept { return o_.batch_size * o_.shard.count; }
    constexpr trireme::shard shard() const noexcept { return o_.shard; }
    constexpr trireme::tail tail() const noexcept { return o_.tail; }

    /// The place in the epoch that belongs to a row; may be samples() or more at the last step.
    constexpr std::uint64_t raw_position(std::uint64_t step, std::uint64_t row) const noexcept {
        return step * global_batch() + row * o_.shard.count + o_.shard.index;
    }

    /// How many rows of this rank's batch are valid, a prefix; fewer than the batch size at the last step only.
    constexpr std::uint64_t valid_rows(std::uint64_t step) const noexcept {
        TRIREME_ASSERT(step < steps_, "a step lies behind the end of the epoch");
        const std::uint64_t first = raw_position(step, 0);
        if (first >= o_.samples) return 0;
        const std::uint64_t rows = (o_.samples - 1 - first) / o_.shard.count + 1;
        return rows < o_.batch_size ? rows : o_.batch_size;
    }
    /// How many rows hold a sample: all of them but for `exact`, where the others are zero.
    constexpr std::uint64_t filled_rows(std::uint64_t step) const noexcept {
        return o_.tail == tail::exact ? valid_rows(step) : o_.batch_size;
    }
    /// Valid rows over all ranks at this step: what a mean over samples divides by.
    constexpr std::uint64_t global_valid_rows(std::uint64_t step) const noexcept {
        const std::uint64_t first = step * global_batch(), left = o_.samples - first;
        return left < global_batch() ? left : global_batch();
    }

    /// The position in the epoch whose sample goes into a filled row: padding rows begin again at the head.
    constexpr std::uint64_t position(std::uint64_t step, std::uint64_t row) const noexcept {
        TRIREME_ASSERT(row < filled_rows(step), "this row holds no sample");
        const std::uint64_t p = raw_position(step, row);
        return p < o_.samples ? p : p % o_.samples;
    }

    /// The samples of rows first_row, first_row + 1, ... of this rank's batch, under a bound order.
    ///
    /// Returns    how many of `out` hold a sample, a prefix: fewer than asked only at the last step of `exact`
    template <class BoundOrder>
    constexpr std::size_t fill(const BoundOrder& order, std::uint64_t step, std::uint64_t first_row,
                               std::span<std::uint64_t> out) const noexcept {
        TRIREME_ASSERT(order.size() == o_.samples, "the order is bound to another number of samples");
        TRIREME_ASSERT(first_row + out.size() <= o_.batch_size, "more rows than the batch has");
        const std::uint64_t valid = valid_rows(step);
        std::size_t done = 0;
        if (first_row < valid) {
            done = static_cast<std::size_t>(valid - first_row < out.size() ? valid - first_row : out.size());
            order.fill(raw_position(step, first_row), o_.shard.count, out.first(done));
        }
        if (o_.tail == tail::exact) return done;
        for (; done < out.size(); ++done) out[done] = order.at(position(step, first_row + done));
        return done;
    }

    /// What all ranks have to agree on before the first step; the rank itself is not part of it.
    constexpr std::uint64_t hash(std::uint64_t seed, std::string_view order_kind, std::uint64_t schema_hash,
                                 std::uint64_t dataset_fingerprint) const noexcept {
        return hasher()
            .add("trireme sampling 1")
            .add(o_.samples)
            .add(seed)
            .add(o_.batch_size)
            .add(o_.shard.count)
            .add(static_cast<std::uint64_t>(o_.tail))
            .add(order_kind)
            .add(schema_hash)
            .add(dataset_fingerprint)
            .value();
    }

  private:
    sampling_options o_;
    std::uint64_t steps_ = 0;
};

}  // namespace trireme

// ---- trireme/data/loader_options.hpp ---------------------------------------------------------------------

// What a loader can be told.

namespace trireme {

/// What happens when a dataset's `read` throws.
enum class on_error : std::uint32_t {
    raise,  ///< the batch's turn comes, and `remote_error` names worker, batch, sample and text
    skip,   ///< the row is zeroed and marked `row_state::skipped`; the epoch goes on
};

/// Options of a `loader`, filled by designated initialisers; every default is a sensible one.
struct loader_options {
    std::uint32_t batch_size = 1;             ///< rows of a batch, per rank
    std::uint64_t seed = 0;                   ///< of the order and of the samples' generators
    trireme::shard shard = {};                ///< this rank's share: world.shard()
    trireme::tail tail = trireme::tail::pad;  ///< of the last global batch
    std::uint32_t prefetch = 0;               ///< slots; 0: 4 MiB worth, 4 to 64, 2 a worker and 1
    std::chrono::nanoseconds timeout = std::chrono::seconds(120);  ///< for one batch
    std::chrono::nanoseconds grace = std::chrono::seconds(3);      ///< for workers to leave at shutdown
    trireme::on_error on_error = trireme::on_error::raise;
    trireme::on_death on_death = trireme::on_death::respawn;  ///< of a worker process
    trireme::delivery delivery = trireme::delivery::in_order;
    std::uint32_t parts = 0;      ///< shares of a batch; 0: by workers and rows
    const char* name = "loader";  ///< for messages
};

}  // namespace trireme

// ---- trireme/data/detail/feistel.hpp ---------------------------------------------------------------------

// A keyed bijection of 0 .. 2^width-1, and by cycle walking of 0 .. n-1: the machine behind `shuffled`.

namespace trireme::detail {

/// A Feistel network over exactly bit_width(n-1) bits, so that a walk takes less than two steps on average, also at
/// n = 2^k + 1. The halves may differ by a bit: the rounds change them in turn, which works for any two widths.
///
/// Source     cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002; as a
///            shuffle: Mitchell, Stokes, Frank, Holmes, ACM TOPC 9(1), 2022, with 24 rounds. Ours has 12: from 8
///            on the statistics of tests/data/order_test.cpp are clean, with 6 neighbours are not.
class feistel {
  public:
    static constexpr unsigned rounds = 12;
    static constexpr std::size_t lanes = 4;  // evaluated together, so that multiplications overlap or vectorise

    /// Any 2 <= n <= 2^63.
    constexpr void bind(std::uint64_t n, std::uint64_t key, std::uint64_t stream) noexcept {
        n_ = n;
        const auto width = static_cast<unsigned>(std::bit_width(n - 1));
        // One bit has no two halves: the network then works on two bits and walks.
        right_bits_ = width < 2 ? 1 : (width + 1) / 2;
        left_bits_ = width < 2 ? 1 : width / 2;
        for (unsigned i = 0; i < rounds; ++i) {
            const auto words = philox::block(key, stream, i);
            factor_[i] = std::uint64_t{words[1]} << 32 | words[0] | 1;
            summand_[i] = std::uint64_t{words[3]} << 32 | words[2];
        }
    }

    constexpr std::uint64_t forward(std::uint64_t x) const noexcept {
        do {
            std::uint64_t l = left(x), r = right(x);
            for (unsigned i = 0; i < rounds; i += 2) {
                l ^= round(r, i) >> (64 - left_bits_);
                r ^= round(l, i + 1) >> (64 - right_bits_);
            }
            x = join(l, r);
        } while (x >= n_);
        return x;
    }

    constexpr std::uint64_t backward(std::uint64_t x) const noexcept {
        do {
            std::uint64_t l = left(x), r = right(x);
            for (unsigned i = rounds; i > 0; i -= 2) {
                r ^= round(l, i - 1) >> (64 - right_bits_);
                l ^= round(r, i - 2) >> (64 - left_bits_);
            }
            x = join(l, r);
        } while (x >= n_);
        return x;
    }

    /// out[i] = forward(first + i * stride)
    constexpr void forward_many(std::uint64_t first, std::uint64_t stride,
                                std::span<std::uint64_t> out) const noexcept {
        // Values that land outside 0 .. n-1 are collected and go round again together: a walk of single values
        // would stop the lanes from working side by side.
        constexpr std::size_t chunk = 64;
        for (std::size_t base = 0; base < out.size(); base += chunk) {
            std::uint64_t value[chunk];
            std::uint8_t place[chunk];
            std::size_t open = out.size() - base < chunk ? out.size() - base : chunk;
            for (std::size_t i = 0; i < open; ++i) {
                value[i] = first + (base + i) * stride;
                place[i] = static_cast<std::uint8_t>(i);
            }
            for (std::size_t i = open; i % lanes != 0; ++i) value[i] = 0;  // fills up the last group
            while (open > 0) {
                for (std::size_t i = 0; i < open; i += lanes) rounds_over(value + i);
                std::size_t kept = 0;
                for (std::size_t i = 0; i < open; ++i) {
                    const std::uint64_t v = value[i];
                    out[base + place[i]] = v;
                    value[kept] = v;
                    place[kept] = place[i];
                    kept += v >= n_ ? 1 : 0;
                }
                open = kept;
            }
        }
    }

  private:
    // Multiply-shift with random factor and summand: the upper bits of a*x + b are strongly universal for inputs of
    // up to 32 bits (Dietzfelbinger, STACS 1996). One multiplication a round, and as clean in our statistics as two
    // of MurmurHash3's, which take up to twice as long.
    constexpr std::uint64_t round(std::uint64_t x, unsigned i) const noexcept {
        return x * factor_[i] + summand_[i];
    }
    constexpr std::uint64_t left(std::uint64_t x) const noexcept { return x >> right_bits_; }
    constexpr std::uint64_t right(std::uint64_t x) const noexcept {
        return x & ((std::uint64_t{1} << right_bits_) - 1);
    }
    constexpr std::uint64_t join(std::uint64_t l, std::uint64_t r) const noexcept { return l << right_bits_ | r; }
    // Four lanes in named variables: compilers keep these in registers at every level of optimisation.
    constexpr void rounds_over(std::uint64_t* v) const noexcept {
        std::uint64_t l0 = left(v[0]), l1 = left(v[1]), l2 = left(v[2]), l3 = left(v[3]);
        std::uint64_t r0 = right(v[0]), r1 = right(v[1]), r2 = right(v[2]), r3 = right(v[3]);
        const unsigned left_shift = 64 - left_bits_, right_shift = 64 - right_bits_;
        for (unsigned k = 0; k < rounds; k += 2) {
            l0 ^= round(r0, k) >> left_shift, l1 ^= round(r1, k) >> left_shift;
            l2 ^= round(r2, k) >> left_shift, l3 ^= round(r3, k) >> left_shift;
            r0 ^= round(l0, k + 1) >> right_shift, r1 ^= round(l1, k + 1) >> right_shift;
            r2 ^= round(l2, k + 1) >> right_shift, r3 ^= round(l3, k + 1) >> right_shift;
        }
        v[0] = join(l0, r0), v[1] = join(l1, r1), v[2] = join(l2, r2), v[3] = join(l3, r3);
    }

    std::uint64_t n_ = 0;
    unsigned left_bits_ = 1, right_bits_ = 1;
    std::array<std::uint64_t, rounds> factor_{}, summand_{};
};

}  // namespace trireme::detail

// ---- trireme/data/order.hpp ------------------------------------------------------------------------------

// Orders: which sample stands at which position of an epoch. An order is a bijection of 0 .. n-1 that depends on
// the epoch and the seed only, can be asked at any position without the ones before, and takes no memory that
// grows with the number of samples.

namespace trireme {

/// An order bound to a number of samples, a seed and an epoch.
///
///   b.size()                      n
///   b.at(position)                the sample's index, for position < n
///   b.position_of(index)          the inverse
///   b.fill(first, stride, out)    out[i] = at(first + i * stride); all positions < n
///
/// The compiler cannot check: at() is a bijection of 0 .. n-1, fill() agrees with it, and a copy
/// gives the same answers.
template <class B>
concept bound_order = std::is_trivially_copyable_v<B> &&
    requires(const B& b, std::uint64_t position, std::span<std::uint64_t> out) {
    { b.size() }
    noexcept->std::same_as<std::uint64_t>;
    { b.at(position) }
    noexcept->std::same_as<std::uint64_t>;
    { b.position_of(position) }
    noexcept->std::same_as<std::uint64_t>;
    { b.fill(position, position, out) }
    noexcept;
};

/// In which order an epoch goes through the samples.
///
///   O::kind                       its name; part of the plan that ranks compare
///   o.bind(n, seed, epoch)        the order of that epoch, a bound_order; n >= 1
///
/// The compiler cannot check: bind is a pure function, the same on every machine and in every build.
/// Reference model: sequential below.
template <class O>
concept order = std::copy_constructible<O> && requires(const O& o, std::uint64_t number) {
    { O::kind } -> std::convertible_to<std::string_view>;
    { o.bind(number, number, number) } -> bound_order;
};

/// 0, 1, 2, ...: evaluation, and data that is already mixed.
struct sequential {
    static constexpr std::string_view kind = "sequential";

    class bound {
      public:
        constexpr explicit bound(std::uint64_t n) noexcept : n_(n) {}
        constexpr std::uint64_t size() const noexcept { return n_; }
        constexpr std::uint64_t at(std::uint64_t position) const noexcept { return position; }
        constexpr std::uint64_t position_of(std::uint64_t index) const noexcept { return index; }
        constexpr void fill(std::uint64_t first, std::uint64_t stride,
                            std::span<std::uint64_t> out) const noexcept {
            for (std::uint64_t& index : out) index = first, first += stride;
        }

      private:
        std::uint64_t n_;
    };

    constexpr bound bind(std::uint64_t n, std::uint64_t, std::uint64_t) const noexcept { return bound(n); }
};
static_assert(order<sequential>);

namespace detail::say {

inline message order_too_large(std::uint64_t n) {
    return {"an order over " + std::to_string(n) + " samples is not possible, the largest has 2^63",
            "shuffled::bind", "check what the dataset's size() returns; a negative number turns into a large one"};
}

}  // namespace detail::say

/// Every epoch another permutation, given by a seed. Nothing is stored per sample: the permutation is computed
/// where it is asked for, by a keyed Feistel network of exact bit width with cycle walking; up to 4096 samples,
/// where such networks are at their weakest and a table is small, it is a Fisher-Yates shuffle.
///
/// Threads    values; a bound order may be read from several threads at once
/// Source     docs/how-it-works/order.md; statistics and golden values: tests/data/order_test.cpp
struct shuffled {
    static constexpr std::string_view kind = "shuffled";

    /// Up to so many samples the permutation is a table of 16-bit indices inside the bound order.
    static constexpr std::uint64_t table_limit = 4096;

    class bound {
      public:
        constexpr bound(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) noexcept : n_(n) {
            const std::uint64_t key =
                mix64(seed ^ 0x73687566'666c65ULL);  // apart from the samples' own random numbers
            if (n_ > table_limit) network_.bind(n, key, epoch);
            if (n_ <= table_limit) fisher_yates(key, epoch);
        }

        constexpr std::uint64_t size() const noexcept { return n_; }

        constexpr std::uint64_t at(std::uint64_t position) const noexcept {
            TRIREME_ASSERT(position < n_, "a position lies behind the end of the order");
            return n_ <= table_limit ? table_[position] : network_.forward(position);
        }

        /// Where in this epoch sample `index` stands. Up to 4096 samples it is searched for.
        constexpr std::uint64_t position_of(std::uint64_t index) const noexcept {
            TRIREME_ASSERT(index < n_, "an index lies behind the end of the order");
            if (n_ > table_limit) return network_.backward(index);
            std::uint64_t position = 0;
            while (table_[position] != index) ++position;
            return position;
        }

        /// out[i] = at(first + i * stride), many at once: several times as fast as one by one.
        constexpr void fill(std::uint64_t first, std::uint64_t stride,
                            std::span<std::uint64_t> out) const noexcept {
            TRIREME_ASSERT(out.empty() || first + (out.size() - 1) * stride < n_,
                           "positions behind the end of the order");
            if (n_ > table_limit) return network_.forward_many(first, stride, out);
            for (std::uint64_t& index : out) index = table_[first], first += stride;
        }

      private:
        // Durstenfeld's form, from the front. Draws are 32 bits; those that would favour some places are drawn
        // again (Lemire, ACM TOMACS 29(1), 2019), so every permutation is as likely as the generator makes it.
        constexpr void fisher_yates(std::uint64_t key, std::uint64_t epoch) noexcept {
            for (std::size_t i = 0; i < n_; ++i) table_[i] = static_cast<std::uint16_t>(i);
            std::uint64_t blocks = 0;
            unsigned left = 0;
            std::array<std::uint32_t, 4> words{};
            for (std::size_t i = 0; i + 1 < n_; ++i) {
                const auto choices = static_cast<std::uint32_t>(n_ - i);
                std::uint64_t product = 0;
                do {
                    if (left == 0) words = philox::block(key, epoch, blocks++), left = 4;
                    product = std::uint64_t{words[--left]} * choices;
                } while (static_cast<std::uint32_t>(product) < choices &&
                         static_cast<std::uint32_t>(product) < (0U - choices) % choices);
                const std::size_t from = i + static_cast<std::size_t>(product >> 32);
                const std::uint16_t taken = table_[from];
                table_[from] = table_[i];
                table_[i] = taken;
            }
        }

        std::uint64_t n_;
        detail::feistel network_;
        std::array<std::uint16_t, table_limit> table_;
    };

    /// The permutation of `epoch`: distinct for distinct epochs and seeds.
    ///
    /// Needs      1 <= n <= 2^63
    /// Throws     usage_error for a larger n
    constexpr bound bind(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) const {
        if (n > std::uint64_t{1} << 63) throw usage_error(detail::say::order_too_large(n));
        return bound(n, seed, epoch);
    }
};
static_assert(order<shuffled>);

namespace explain {

template <class O>
consteval bool order() {
    static_assert(
        requires {
            { O::kind } -> std::convertible_to<std::string_view>;
        },
        "trireme: an order has a name: 'static constexpr std::string_view kind'. Copy trireme::sequential, "
        "trireme/data/order.hpp");
    static_assert(
        requires(const O& o) { o.bind(std::uint64_t{1}, std::uint64_t{1}, std::uint64_t{1}); },
        "trireme: an order binds to an epoch: 'bind(n, seed, epoch) const'. Copy trireme::sequential, "
        "trireme/data/order.hpp");
    static_assert(
        requires(const O& o) {
            { o.bind(std::uint64_t{1}, std::uint64_t{1}, std::uint64_t{1}) } -> bound_order;
        },
        "trireme: what bind() returns is trivially copyable and has noexcept size(), at(position), "
        "position_of(index), fill(first, stride, out). Copy trireme::sequential, trireme/data/order.hpp");
    static_assert(trireme::order<O>,
                  "trireme: not an order; compare with trireme::sequential, trireme/data/order.hpp");
    return true;
}

}  // namespace explain

}  // namespace trireme

// ---- trireme/data/detail/batch_maker.hpp -----------------------------------------------------------------

// What every engine's worker does: turn a claimed part of a batch into rows.

namespace trireme::detail {

/// The recipe: shared by all workers, read only.
template <class Data, class Order>
struct recipe {
    const Data* data = nullptr;
    Order order;
    sampling_plan plan;
    std::uint64_t seed = 0;
    on_error errors = on_error::raise;
};

/// One worker's state around the recipe: the order of the epoch in hand.
template <class Data, class Order>
class batch_maker {
    using schema = typename Data::schema;
    using bound = decltype(std::declval<const Order&>().bind(1, 1, 1));

  public:
    explicit batch_maker(const recipe<Data, Order>& r) noexcept : recipe_(r) {}

    /// Makes the claimed part and publishes it. Anything that `read` throws ends in the part's error record.
    template <class Worker>
    void make(Worker& worker, const part_claim& claim) {
        auto& memory = worker.memory();
        const batch_request request = memory.head(claim.slot).request;
        if (worker.cancelled(claim)) return static_cast<void>(worker.publish(claim, part_state::voided));
        std::uint64_t sample = 0;
        try {
            if (!bound_ || bound_epoch_ != request.epoch) {
                bound_.emplace(recipe_.order.bind(recipe_.plan.samples(), recipe_.seed, request.epoch));
                bound_epoch_ = request.epoch;
            }
            worker.begin(claim);
            if (!fill(worker, claim, request, sample))
                return static_cast<void>(worker.publish(claim, part_state::voided));
        } catch (...) {
            auto& record = memory.trouble(claim.slot, claim.part).record;
            record = {};
            describe_current_exception(record);
            record.worker = worker.index();
            record.pid = static_cast<std::int32_t>(::getpid());
            record.sample = sample;
            return static_cast<void>(worker.publish(claim, part_state::failed));
        }
        worker.hook().at(step::worker_filled);
        worker.publish(claim, part_state::ready);
    }

    /// A worker's life: claim, make, until told to stop. `alive()` is asked once a slice and may end it.
    template <class Worker, class Alive>
    void run(Worker& worker, Alive&& alive) {
        part_claim claim;
        for (;;) {
            switch (worker.next(claim, deadline::in(std::chrono::milliseconds(250)))) {
                case next_claim::claimed: {
                    const user_section here;
                    make(worker, claim);
                    break;
                }
                case next_claim::stopping:
                    return;
                case next_claim::nothing_yet:
                    if (!alive()) return;
                    break;
            }
        }
    }

  private:
    /// False when the batch was cancelled meanwhile.
    template <class Worker>
    bool fill(Worker& worker, const part_claim& claim, const batch_request& request, std::uint64_t& sample) {
        auto& memory = worker.memory();
        const auto& plan = recipe_.plan;
        const auto states = memory.row_states(claim.slot);
        const auto valid = static_cast<std::uint32_t>(plan.valid_rows(request.step));
        std::byte* const base = memory.payload(claim.slot);
        const std::uint32_t rows = memory.geometry().rows;
        std::array<std::uint64_t, 64> indices;  // many at once: several times as fast as one by one
        for (std::uint32_t first = claim.first_row; first < claim.last_row;) {
            const auto wanted = (std::min)(std::uint32_t{indices.size()}, claim.last_row - first);
            const auto filled = static_cast<std::uint32_t>(
                plan.fill(*bound_, request.step, first, std::span(indices).first(wanted)));
            for (std::uint32_t i = 0; i < wanted; ++i) {
                const std::uint32_t at = first + i;
                const row<schema> out(base, rows, at);
                if (i >= filled) {
                    out.clear();
                    states[at] = row_state::empty;
                    continue;
                }
                sample = indices[i];
                worker.record(sample);
                states[at] = at < valid ? row_state::valid : row_state::padding;
                read(worker, claim, request, sample, out, states[at]);
                if (at == claim.first_row) worker.hook().at(step::worker_half_filled);
                if (worker.cancelled(claim) || worker.told_to_stop()) return false;
            }
            first += wanted;
        }
        return true;
    }

    template <class Worker>
    void read(Worker& worker, const part_claim& claim, const batch_request& request, std::uint64_t sample,
              const row<schema>& out, row_state& state) {
        sample_context context({recipe_.seed, request.epoch, sample}, worker_id{worker.index()}, claim.attempt,
                               stop_signal{&worker.memory().control().phase, phase_stopping});
        if (recipe_.errors == on_error::raise) return static_cast<void>(recipe_.data->read(sample, out, context));
        try {
            recipe_.data->read(sample, out, context);
        } catch (...) {
            out.clear();
            state = row_state::skipped;
        }
    }

    const recipe<Data, Order>& recipe_;
    std::optional<bound> bound_;
    std::uint64_t bound_epoch_ = 0;
};

/// A dataset may want to do something once in each worker, before its first sample: open files, seed a library.
template <class Data>
void start_up(const Data& data, worker_id w) {
    if constexpr (requires { data.start_up(w); }) data.start_up(w);
}

}  // namespace trireme::detail

// ---- trireme/data/engine/caller.hpp ----------------------------------------------------------------------

// engine::caller: batches are made where they are asked for, by the thread that asks. No worker, no wake, no copy.

namespace trireme::engine {

/// For cheap data, for debugging, and as the reference the other engines are compared with byte by byte.
struct caller {
    static constexpr const char* name = "engine::caller";
    using backing = trireme::backing::heap;

    std::uint32_t worker_count() const noexcept { return 1; }
    /// Nobody makes anything ahead, so nobody spins.
    static constexpr bool works_ahead = false;

    template <class Core>
    class crew {
      public:
        crew(const caller&, ring<backing>& r, std::shared_ptr<const Core> core, const loader_options&)
            : core_(std::move(core)), worker_(r.memory(), worker_id{0}, 1, scope::threads), maker_(core_->recipe) {
            start_up();
        }
        /// Makes the batch that is taken next, unless it is there.
        void help() {
            part_claim claim;
            while (worker_.try_claim(claim)) {
                maker_.make(worker_, claim);
                if (worker_.memory().complete(claim.batch)) return;
            }
        }
        void watch() const noexcept {}
        bool ready() const noexcept { return true; }
        std::optional<std::string> stop() noexcept { return std::nullopt; }

      private:
        void start_up() {
            try {
                detail::start_up(core_->data, worker_id{0});
            } catch (...) {
                error_record record;
                detail::describe_current_exception(record);
                record.pid = static_cast<std::int32_t>(::getpid());
                detail::end_ring(worker_.memory(), record, wait::futex{});
            }
        }

        std::shared_ptr<const Core> core_;
        ring_worker<> worker_;
        typename Core::maker maker_;
    };
};

}  // namespace trireme::engine

// ---- trireme/data/detail/worker_count.hpp ----------------------------------------------------------------

// How many workers an engine starts when it is not told, how long they spin, and where they may run.

namespace trireme::detail {

/// The CPUs of this process's job on this host, divided among the local ranks if a launcher says how many there
/// are.
inline std::uint32_t cpus_of_this_rank() {
    static const auto all = static_cast<std::uint32_t>((std::max)(1U, cpu_budget::discover().compute()));
    return (std::max)(1U, all / local_ranks());
}

/// All CPUs but the trainer's, at least one.
inline std::uint32_t default_workers() { return (std::max)(1U, cpus_of_this_rank() - 1U); }

/// About the cost of one wake when every worker and the trainer have a CPU each; otherwise whoever waits makes
/// room.
inline std::chrono::nanoseconds loader_spin(std::uint32_t workers) {
    return workers + 1 <= cpus_of_this_rank() ? std::chrono::microseconds(50) : std::chrono::microseconds(0);
}

/// Workers use the mask the process was started with, not the one core that a library pinned its main thread to.
inline void use_process_cpus() {
    if (thread_cpus() != process_cpus()) static_cast<void>(try_bind_this_thread(process_cpus()));
}

/// Throws usage_error when the CUDA driver is initialised in this process: a forked child could not use it, and
/// what the driver holds would be inherited in an undefined state. (Initialised, not only loaded:
/// NVIDIA/DALI#3671.)
inline void refuse_after_cuda(const char* who) {
    void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    using count_fn = int (*)(int*);
    const auto count = reinterpret_cast<count_fn>(::dlsym(library, "cuDeviceGetCount"));
    int devices = 0;
    constexpr int not_initialised = 3;  // CUDA_ERROR_NOT_INITIALIZED
    const bool alive = count != nullptr && count(&devices) != not_initialised;
    ::dlclose(library);
    if (alive)
        throw usage_error({std::string(who) + " cannot fork here: the CUDA driver is initialised in this process",
                           "pid " + std::to_string(::getpid()),
                           "make the loader before the first CUDA call, or use engine::threads"});
}

}  // namespace trireme::detail

// ---- trireme/data/engine/forked.hpp ----------------------------------------------------------------------

// engine::forked: batches are made ahead by worker processes, which may crash, hang or leak without the trainer.

namespace trireme::engine {

/// `workers` processes inherit the dataset copy-on-write and write into shared slots. They are forked, watched and
/// replaced by a zygote that is forked when the loader is made, so make the loader before foreign threads start and
/// before CUDA is initialised; where that cannot be, it refuses with the reason.
///
/// Hook   tests kill a worker at every step of the protocol; others leave it alone
template <step_hook Hook = no_steps>
struct basic_forked {
    static constexpr const char* name = "engine::forked";
    using backing = trireme::backing::memfd;

    std::uint32_t workers = 0;  ///< 0: what affinity and quota leave beside the trainer
    Hook hook{};

    std::uint32_t worker_count() const { return workers != 0 ? workers : detail::default_workers(); }
    static constexpr bool works_ahead = true;

    template <class Core>
    class crew {
      public:
        crew(const basic_forked& engine, ring<backing>& r, std::shared_ptr<const Core> core,
             const loader_options& options)
            : memory_(r.memory()), count_(engine.worker_count()) {
            detail::refuse_after_cuda(name);
            const auto memory = r.memory();
            const auto spin = detail::loader_spin(count_);
            const pid_t trainer = ::getpid();
            r.backing().inherit(true);
            const auto hide = [&r] { r.backing().inherit(false); };
            try {
                processes_ = worker_processes(
                    {.who = name, .count = count_, .grace = options.grace},
                    [memory, core, spin, trainer, hook = engine.hook](worker_id w, std::uint32_t incarnation) {
                        return work(memory, *core, w, incarnation, spin, trainer, hook);
                    },
                    [memory, policy = options.on_death, hook = engine.hook](worker_id w, pid_t pid,
                                                                            exit_status status) {
                        return bury(memory, w.value, pid, status, policy, hook);
                    });
            } catch (...) {
                hide();
                throw;
            }
            hide();
        }

        void help() const noexcept {}
        /// Throws  peer_error when the zygote, and with it every worker, is dead
        void watch() {
            if (const auto status = processes_.lost())
                throw peer_error(zygote_lost(processes_.zygote_pid(), *status));
        }
        bool ready() const noexcept {
            for (std::uint32_t w = 0; w < count_; ++w) {
                if (memory_.worker(w).ready.load(std::memory_order_acquire) == 0) return false;
            }
            return true;
        }
        std::optional<std::string> stop() noexcept {
            processes_.stop();
            return std::nullopt;
        }
        pid_t zygote_pid() const noexcept { return processes_.zygote_pid(); }

        static message zygote_lost(pid_t pid, exit_status status) {
            return {
                "the loader's zygote (pid " + std::to_string(pid) + ") " + describe(status) +
                    ", and with it all loader workers",
                "pid " + std::to_string(::getpid()),
                "look for whoever kills processes here (the kernel's log tells of the OOM killer); make the loader "
                "anew"};
        }

      private:
        static int work(const detail::ring_memory& memory, const Core& core, worker_id w, std::uint32_t incarnation,
                        std::chrono::nanoseconds spin, pid_t trainer, const Hook& hook) {
            ring_worker<wait::futex, Hook> worker(memory, w, incarnation, scope::processes, wait::futex{spin},
                                                  hook);
            try {
                detail::use_process_cpus();
                detail::start_up(core.data, w);
            } catch (...) {
                error_record record;
                detail::describe_current_exception(record);
                record.worker = w.value;
                record.pid = static_cast<std::int32_t>(::getpid());
                detail::end_ring(memory, record, wait::futex{});
                return start_up_failed;
            }
            worker.set_ready();
            const auto watched = pidfd::open(trainer);
            typename Core::maker maker(core.recipe);
            maker.run(worker, [&watched] { return !watched.dead(); });
            return 0;
        }

        /// In the zygote. True when the worker is to be started anew.
        static bool bury(const detail::ring_memory& memory, std::uint32_t w, pid_t pid, exit_status status,
                         on_death policy, const Hook& hook) {
            if (memory.control().fatal.load(std::memory_order_acquire) == detail::ring_over) return false;
            detail::reap(memory, w, pid, status, policy, wait::futex{}, hook);
            if (pid != 0 && detail::within_budget(memory.worker(w))) return true;
            error_record record;
            record.kind = static_cast<std::uint32_t>(errc::peer);
            record.worker = w;
            record.pid = static_cast<std::int32_t>(pid);
            record.signal = status.signal;
            record.sample = memory.worker(w).dead_sample;
            record.text.assign(pid == 0
                                   ? "worker " + std::to_string(w) + " could not be forked"
                                   : "worker " + std::to_string(w) + " (pid " + std::to_string(pid) + ") " +
                                         describe(status) + ", the " + std::to_string(detail::respawn_budget + 1) +
                                         "th death of this worker without progress in between");
            detail::end_ring(memory, record, wait::futex{});
            return false;
        }

        static constexpr int start_up_failed = 113;

        detail::ring_memory memory_;
        std::uint32_t count_;
        worker_processes processes_;
    };
};

using forked = basic_forked<>;

}  // namespace trireme::engine

// ---- trireme/data/engine/threads.hpp ---------------------------------------------------------------------

// engine::threads: batches are made ahead by threads of this process. The default: C++ has no interpreter lock.

namespace trireme::engine {

/// `workers` threads share the trainer's address space; `read` must be safe to call from all of them at once.
/// A read that never returns cannot be killed: after the grace its thread is abandoned with its memory, and a line
/// says so. Use engine::forked for code that may hang or crash.
struct threads {
    static constexpr const char* name = "engine::threads";
    using backing = trireme::backing::heap;

    std::uint32_t workers = 0;  ///< 0: what affinity and quota leave beside the trainer

    std::uint32_t worker_count() const { return workers != 0 ? workers : detail::default_workers(); }
    static constexpr bool works_ahead = true;

    template <class Core>
    class crew {
      public:
        crew(const threads& engine, ring<backing>& r, std::shared_ptr<const Core> core,
             const loader_options& options)
            : state_(std::make_shared<shared>(std::move(core), r.arena())), grace_(options.grace) {
            const std::uint32_t count = engine.worker_count();
            const auto spin = detail::loader_spin(count);
            threads_.reserve(count);
            for (std::uint32_t w = 0; w < count; ++w) {
                const std::string label = "tri-load-" + std::to_string(w);
                state_->running.fetch_add(1, std::memory_order_relaxed);
                try {
                    threads_.emplace_back(label.c_str(), [state = state_, w, spin] {
                        work(*state, w, spin);
                        state->running.fetch_sub(1, std::memory_order_release);
                        futex_wake(state->running);
                    });
                } catch (...) {
                    state_->running.fetch_sub(1, std::memory_order_relaxed);
                    r.stop();
                    static_cast<void>(stop());
                    throw;
                }
            }
        }
        ~crew() { static_cast<void>(stop()); }

        void help() const noexcept {}
        void watch() const noexcept {}
        bool ready() const noexcept { return state_->ready.load(std::memory_order_acquire) == threads_.size(); }

        /// Waits for the threads to leave, at most the grace. A sentence if some had to be abandoned.
        std::optional<std::string> stop() noexcept {
            const auto until = deadline::in(grace_);
            auto& running = state_->running;
            for (auto n = running.load(std::memory_order_acquire); n != 0 && !until.passed();
                 n = running.load(std::memory_order_acquire)) {
                futex_wait(running, n, until.slice(std::chrono::milliseconds(50)));
            }
            const auto stuck = running.load(std::memory_order_acquire);
            for (auto& t : threads_) stuck == 0 ? t.join() : t.abandon();
            threads_.clear();
            if (stuck == 0) return std::nullopt;
            return std::to_string(stuck) +
                   " loader thread(s) did not return from read within the grace and were "
                   "abandoned with their memory";
        }

      private:
        /// What a thread needs even when the loader has gone without it.
        struct shared {
            shared(std::shared_ptr<const Core> c, std::shared_ptr<detail::ring_arena<backing>> a)
                : core(std::move(c)), arena(std::move(a)) {}
            std::shared_ptr<const Core> core;
            std::shared_ptr<detail::ring_arena<backing>> arena;
            std::atomic<std::uint32_t> running{0}, ready{0};
        };

        static void work(shared& state, std::uint32_t w, std::chrono::nanoseconds spin) {
            ring_worker<> worker(state.arena->memory, worker_id{w}, 1, scope::threads, wait::futex{spin});
            typename Core::maker maker(state.core->recipe);
            try {
                const user_section here;
                detail::use_process_cpus();
                detail::start_up(state.core->data, worker_id{w});
            } catch (...) {
                error_record record;
                detail::describe_current_exception(record);
                record.worker = w;
                record.pid = static_cast<std::int32_t>(::getpid());
                return detail::end_ring(state.arena->memory, record, wait::futex{});
            }
            state.ready.fetch_add(1, std::memory_order_release);
            maker.run(worker, [] { return true; });
        }

        std::shared_ptr<shared> state_;
        std::vector<registered_thread> threads_;
        std::chrono::nanoseconds grace_;
    };
};

}  // namespace trireme::engine

// ---- trireme/data/idx.hpp --------------------------------------------------------------------------------

// IDX files, the format of the MNIST family: a magic number, an element type, extents, then the elements, all in
// big-endian order. Nothing in a file is believed before it was compared with the number of bytes there are.

namespace trireme {

/// Element types of IDX files, with the numbers that stand in the file.
enum class idx_type : std::uint8_t {
    uint8 = 0x08,
    int8 = 0x09,
    int16 = 0x0B,
    int32 = 0x0C,
    float32 = 0x0D,
    float64 = 0x0E,
};

/// Bytes of one element; 0 for a number that names no type.
constexpr std::size_t element_bytes(idx_type t) noexcept {
    switch (t) {
        case idx_type::uint8:
        case idx_type::int8:
            return 1;
        case idx_type::int16:
            return 2;
        case idx_type::int32:
        case idx_type::float32:
            return 4;
        case idx_type::float64:
            return 8;
    }
    return 0;
}

namespace detail {

template <class T>
inline constexpr idx_type idx_type_of = static_cast<idx_type>(0);
template <>
inline constexpr idx_type idx_type_of<std::uint8_t> = idx_type::uint8;
template <>
inline constexpr idx_type idx_type_of<std::int8_t> = idx_type::int8;
template <>
inline constexpr idx_type idx_type_of<std::int16_t> = idx_type::int16;
template <>
inline constexpr idx_type idx_type_of<std::int32_t> = idx_type::int32;
template <>
inline constexpr idx_type idx_type_of<float> = idx_type::float32;
template <>
inline constexpr idx_type idx_type_of<double> = idx_type::float64;

}  // namespace detail

namespace detail::say {

inline std::string hex(std::uint32_t value, int digits) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%0*x", digits, value);
    return text;
}
inline message idx_ends_early(const std::string& name, std::uint64_t needed, std::uint64_t given) {
    return {name + " ends at offset " + std::to_string(given) + " inside the IDX header, expected at least " +
                std::to_string(needed) + " bytes, found " + std::to_string(given),
            "idx_file", "the file is cut short or no IDX file: fetch it again"};
}
inline message idx_bad_magic(const std::string& name, std::uint32_t found) {
    const bool gzip = found >> 16 == 0x1f8b;
    return {
        name + " is no IDX file: offset 0: expected magic 0x0000TTDD (type, extents), found " + hex(found, 8) +
            (gzip ? " (gzip)" : ""),
        "idx_file",
        gzip ? "read it through trireme::zlib::gzip, <trireme/zlib/gzip.hpp>" : "check that it is the right file"};
}
inline message idx_bad_type(const std::string& name, unsigned found) {
    return {
        name + ": offset 2: expected an element type 0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e, found " + hex(found, 2),
        "idx_file", "the file is damaged or no IDX file"};
}
inline message idx_no_extents(const std::string& name) {
    return {name + ": offset 3: expected at least one extent, found 0", "idx_file",
            "the file is damaged or no IDX file"};
}
inline message idx_wrong_size(const std::string& name, std::uint64_t header, const std::string& needed,
                              std::uint64_t found) {
    return {name + ": offset " + std::to_string(header) + ": the header promises " + needed +
                " bytes of elements, found " + std::to_string(found),
            "idx_file", "the file is cut short, damaged or has something behind its end: fetch it again"};
}
inline message idx_wrong_kind(const std::string& name, unsigned type, const std::string& needed,
                              const std::string& found) {
    return {name + ": expected " + needed + ", found " + found + " of type " + hex(type, 2), "idx_file",
            "give the right file; images and labels may be swapped"};
}
inline message idx_counts_differ(const std::string& images, std::uint64_t image_count, const std::string& labels,
                                 std::uint64_t label_count) {
    return {images + " has " + std::to_string(image_count) + " images, but " + labels + " has " +
                std::to_string(label_count) + " labels",
            "idx_images", "both files must belong to the same set (train or t10k)"};
}

}  // namespace detail::say

/// The content of one IDX file, checked. Cheap to copy: copies share the bytes, which never change.
///
/// Threads    may be read from several threads at once
class idx_file {
  public:
    /// Reads and checks a file. `source` decides how: plain_file, or zlib::gzip from the wing.
    ///
    /// Blocks     as long as the disk takes
    /// Throws     system_error, usage_error; both name the file, the latter also offset, expected and found
    template <byte_source Source = plain_file>
    static idx_file open(const std::string& path, const Source& source = {}) {
        return idx_file(source.load(path), path);
    }

    /// Takes bytes that are already in memory; `name` stands in messages.
    explicit idx_file(std::vector<std::byte> bytes, std::string name = "idx bytes") : name_(std::move(name)) {
        auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
        bytes_ = {owned->data(), owned->size()};
        owner_ = std::move(owned);
        parse();
    }
    /// Looks at bytes that the caller keeps alive and unchanged.
    explicit idx_file(std::span<const std::byte> bytes, std::string name = "idx bytes")
        : name_(std::move(name)), bytes_(bytes) {
        parse();
    }

    const std::string& name() const noexcept { return name_; }
    idx_type type() const noexcept { return type_; }
    /// Extents, the number of items first; at least one.
    const std::vector<std::uint64_t>& extents() const noexcept { return extents_; }
    /// Number of items: the first extent.
    std::uint64_t size() const noexcept { return extents_[0]; }
    /// Elements of one item.
    std::uint64_t item_elements() const noexcept { return item_elements_; }
    /// "60000 x 28 x 28"
    std::string shape() const {
        std::string text;
        for (const std::uint64_t extent : extents_) text += (text.empty() ? "" : " x ") + std::to_string(extent);
        return text;
    }

    /// The elements as they lie in the file, big-endian.
    std::span<const std::byte> payload() const noexcept { return bytes_.subspan(header_bytes()); }
    /// The bytes of item i.
    std::span<const std::byte> item(std::uint64_t i) const {
        const std::uint64_t bytes = item_elements_ * element_bytes(type_);
        if (i >= size()) throw usage_error(out_of_range(i, size(), "item"));
        return payload().subspan(i * bytes, bytes);
    }

    /// Element number i, in the machine's own byte order.
    ///
    /// Throws     usage_error when T is not what the file holds, or i lies behind its end
    template <class T>
    T at(std::uint64_t i) const {
        static_assert(detail::idx_type_of<T> != static_cast<idx_type>(0),
                      "trireme: IDX files hold uint8, int8, int16, int32, float or double");
        if (detail::idx_type_of<T> != type_)
            throw usage_error(detail::say::idx_wrong_kind(
                name_, static_cast<unsigned>(type_),
                "elements of type " + detail::say::hex(static_cast<unsigned>(detail::idx_type_of<T>), 2), shape()));
        const std::uint64_t elements = size() * item_elements_;
        if (i >= elements) throw usage_error(out_of_range(i, elements, "element"));
        using bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
        bits value = 0;
        for (std::size_t b = 0; b < sizeof(T); ++b)
            value = static_cast<bits>(value << 8 | std::to_integer<bits>(payload()[i * sizeof(T) + b]));
        if constexpr (std::is_floating_point_v<T>) {
            return std::bit_cast<T>(value);
        } else {
            return static_cast<T>(value);
        }
    }

  private:
    std::size_t header_bytes() const noexcept { return 4 + 4 * extents_.size(); }
    std::uint32_t big_endian(std::size_t at) const noexcept {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(bytes_[at + i]);
        return value;
    }
    message out_of_range(std::uint64_t i, std::uint64_t limit, const char* what) const {
        return {name_ + " has " + std::to_string(limit) + " " + what + "s, asked for number " + std::to_string(i),
                "idx_file", "count from 0"};
    }

    void parse() {
        if (bytes_.size() < 4) throw usage_error(detail::say::idx_ends_early(name_, 4, bytes_.size()));
        const std::uint32_t magic = big_endian(0);
        if (magic >> 16 != 0) throw usage_error(detail::say::idx_bad_magic(name_, magic));
        type_ = static_cast<idx_type>(magic >> 8 & 0xff);
        const std::size_t rank = magic & 0xff;
        if (element_bytes(type_) == 0) throw usage_error(detail::say::idx_bad_type(name_, magic >> 8 & 0xff));
        if (rank == 0) throw usage_error(detail::say::idx_no_extents(name_));
        const std::size_t header = 4 + 4 * rank;
        if (bytes_.size() < header) throw usage_error(detail::say::idx_ends_early(name_, header, bytes_.size()));

        const std::uint64_t found = bytes_.size() - header;
        std::uint64_t items = 1, needed = element_bytes(type_);
        bool overflow = false;
        for (std::size_t i = 0; i < rank; ++i) {
            extents_.push_back(big_endian(4 + 4 * i));
            if (i > 0) overflow |= __builtin_mul_overflow(items, extents_[i], &items);
            overflow |= __builtin_mul_overflow(needed, extents_[i], &needed);
        }
        if (overflow || needed != found)
            throw usage_error(detail::say::idx_wrong_size(
                name_, header, overflow ? "more than 2^64" : std::to_string(needed), found));
        item_elements_ = items;
    }

    std::string name_;
    std::shared_ptr<const std::vector<std::byte>> owner_;
    std::span<const std::byte> bytes_;
    std::vector<std::uint64_t> extents_;
    std::uint64_t item_elements_ = 0;
    idx_type type_ = idx_type::uint8;
};

}  // namespace trireme

// ---- trireme/data/idx_images.hpp -------------------------------------------------------------------------

// A ready dataset: images and labels from two IDX files, as MNIST, Fashion-MNIST, KMNIST and EMNIST come.

namespace trireme {

/// Grey images of `Rows` x `Cols` bytes with a label each: `idx_images<28, 28>{"images-idx3-ubyte",
/// "labels-idx1-ubyte"}`. Keeps the files' bytes in memory; copies share them.
///
/// Threads    `read` may run in several threads at once
template <std::size_t Rows, std::size_t Cols>
class idx_images {
  public:
    using schema = trireme::schema<field<"image", std::uint8_t, Rows, Cols>, field<"label", std::int64_t>>;

    /// Throws     usage_error naming files and numbers: a file is not what it should be, or the counts differ
    idx_images(idx_file images, idx_file labels) : images_(std::move(images)), labels_(std::move(labels)) {
        if (images_.type() != idx_type::uint8 || images_.extents().size() != 3 || images_.extents()[1] != Rows ||
            images_.extents()[2] != Cols)
            throw usage_error(detail::say::idx_wrong_kind(
                images_.name(), static_cast<unsigned>(images_.type()),
                "images n x " + std::to_string(Rows) + " x " + std::to_string(Cols) + " of type 0x08",
                images_.shape()));
        if (labels_.type() != idx_type::uint8 || labels_.extents().size() != 1)
            throw usage_error(detail::say::idx_wrong_kind(labels_.name(), static_cast<unsigned>(labels_.type()),
                                                          "labels n of type 0x08", labels_.shape()));
        if (images_.size() != labels_.size())
            throw usage_error(
                detail::say::idx_counts_differ(images_.name(), images_.size(), labels_.name(), labels_.size()));
    }
    /// Reads both files; `source` is plain_file, or zlib::gzip from the wing.
    ///
    /// Blocks     as long as the disk takes
    /// Throws     system_error, usage_error; both name the file
    template <byte_source Source = plain_file>
    idx_images(const std::string& images, const std::string& labels, const Source& source = {})
        : idx_images(idx_file::open(images, source), idx_file::open(labels, source)) {}

    std::uint64_t size() const noexcept { return images_.size(); }
    std::int64_t label(std::uint64_t index) const { return labels_.at<std::uint8_t>(index); }

    void read(std::uint64_t index, row<schema> r, sample_context&) const {
        const auto pixels = images_.item(index);
        std::memcpy(r.template get<"image">().data(), pixels.data(), pixels.size());
        r.template get<"label">() = label(index);
    }

    /// Count and all labels, and a part of the images: cheap, and different for train and test.
    std::uint64_t fingerprint() const {
        hasher h;
        h.add(size()).add(as_text(labels_.payload()));
        for (std::uint64_t i = 0; i < size(); i += 1 + size() / 64) h.add(as_text(images_.item(i)));
        return h.value();
    }

  private:
    static std::string_view as_text(std::span<const std::byte> bytes) noexcept {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    idx_file images_;
    idx_file labels_;
};
static_assert(map_dataset<idx_images<28, 28>>);

}  // namespace trireme

// ---- trireme/data/loader.hpp -----------------------------------------------------------------------------

// The loader: batches of a dataset, made ahead by whatever engine, taken in place.

namespace trireme {

/// Who makes the samples: engine::caller, engine::threads, engine::forked.
///
///   E::backing            where the slots live
///   E::name               for messages
///   e.worker_count()      how many make parts at once
///   E::crew<Core>         made from (engine, ring, core, options): help(), watch(), ready(), stop()
///
/// The compiler cannot check: every claimed part is published once; `stop` returns within the grace.
/// Reference model: engine::caller.
template <class E>
concept loader_engine = std::copy_constructible<E> && requires(const E& e) {
    typename E::backing;
    { E::name } -> std::convertible_to<const char*>;
    { e.worker_count() } -> std::convertible_to<std::uint32_t>;
    { E::works_ahead } -> std::convertible_to<bool>;
};

namespace detail {

/// What workers share, and what an abandoned thread keeps alive.
template <class Data, class Order>
struct loader_core {
    using maker = batch_maker<Data, Order>;

    loader_core(Data d, Order order, const loader_options& o)
        : data(std::move(d)),
          recipe{&data, std::move(order),
                 sampling_plan({static_cast<std::uint64_t>(data.size()), o.batch_size, o.shard, o.tail}), o.seed,
                 o.on_error} {}
    Data data;
    detail::recipe<Data, Order> recipe;
};

}  // namespace detail

/// Yields a dataset's batches, epoch by epoch. What it yields is a function of dataset, seed, epoch, order and
/// global batch size; engine, number of workers, timing, deaths and respawns do not show.
///
///   loader train{dataset, engine::forked{.workers = 4}, {.batch_size = 64, .seed = 42}};
///   for (auto&& batch : train.epoch(0)) { auto [image, label] = batch.fields(); ... }
///
/// Threads    one consumer; the batches it took may be read and dropped anywhere
/// Blocks     the constructor until the workers are started; iteration at most options.timeout a batch; the
/// destructor
///            at most options.grace + 2 s
/// Throws     usage_error, system_error at construction; what `next` throws in iteration
/// Crash      a killed worker's rows are made again by another (on_death::respawn) or raise peer_error; the
/// trainer's
///            death ends all workers; nothing is left in /dev/shm, which is not used
template <map_dataset Data, order Order = sequential, loader_engine Engine = engine::threads,
          observer Observer = stderr_observer>
class loader {
    using core_type = detail::loader_core<Data, Order>;
    using schema = typename Data::schema;

  public:
    using batch_type = trireme::batch<schema>;

    explicit loader(Data data, loader_options options = {})
        : loader(std::move(data), Order{}, Engine{}, std::move(options)) {}
    loader(Data data, Engine engine, loader_options options = {})
        : loader(std::move(data), Order{}, std::move(engine), std::move(options)) {}
    loader(Data data, Order order, loader_options options = {})
        : loader(std::move(data), std::move(order), Engine{}, std::move(options)) {}
    loader(Data data, Order order, Engine engine, loader_options options = {}, Observer observer = {})
        : options_(std::move(options)),
          engine_(std::move(engine)),
          observer_(std::move(observer)),
          core_(std::make_shared<const core_type>(std::move(data), std::move(order), options_)),
          ring_(ring_for(options_, engine_.worker_count(), plan_of().steps())),
          crew_(engine_, ring_, core_, options_) {}
    loader(loader&&) = delete;  // workers and iterators know where it is
    ~loader() {
        ring_.cancel();
        ring_.stop();
        if (const auto trouble = crew_.stop()) note(severity::warning, *trouble);
    }

    /// Steps of an epoch, the same on every rank.
    std::uint64_t steps() const noexcept { return plan_of().steps(); }
    std::uint64_t size() const noexcept { return plan_of().samples(); }
    const sampling_plan& sampling() const noexcept { return plan_of(); }
    const Data& dataset() const noexcept { return core_->data; }
    std::uint32_t workers() const noexcept { return ring_.geometry().workers; }
    std::uint32_t slot_count() const noexcept { return ring_.geometry().slots; }

    /// What all ranks have to agree on before the first step: world.agree("loader", train.plan_hash()).
    std::uint64_t plan_hash() const {
        return plan_of().hash(options_.seed, Order::kind, schema::hash(), dataset_fingerprint(core_->data));
    }

    /// What was chosen: one line for the user.
    std::string plan() const {
        const auto& g = ring_.geometry();
        return std::string(options_.name) + ": " + std::to_string(size()) + " samples, " + std::to_string(steps()) +
               " steps of " + std::to_string(g.rows) + " rows (rank " + std::to_string(options_.shard.index) +
               " of " + std::to_string(options_.shard.count) + "), " + std::string(Order::kind) + ", " +
               Engine::name + " with " + std::to_string(g.workers) + " worker(s), " + std::to_string(g.slots) +
               " slots of " + format_bytes(g.payload_bytes) + ", " + std::to_string(g.parts) + " part(s) a batch";
    }

    class iterator;
    class epoch_range;

    /// The batches of an epoch, for a range-for. Starting one gives up what is left of the one before; an epoch
    /// that follows the last by the same distance as before was prefetched over the seam.
    epoch_range epoch(std::uint64_t number) { return epoch_range(*this, number); }

    /// Begins an epoch: `next` yields its batches. Never waits.
    void start(std::uint64_t epoch) {
        const bool expected = take_epoch_ == epoch && take_step_ == 0;
        if (!expected) {
            ring_.cancel();
            take_epoch_ = open_epoch_ = epoch;
            take_step_ = open_step_ = 0;
        }
        if (started_) distance_ = epoch - last_started_;
        last_started_ = epoch;
        // What was prefetched beyond this epoch was a guess of the distance; start() of that one finds out.
        started_ = true;
        delivered_ = 0;
        may_open_ = true;
        fill_ring();
    }

    /// The next batch of the epoch that was started, or an empty one after its last.
    ///
    /// Blocks     until the batch is complete, at most options.timeout
    /// Throws     remote_error (a read threw: worker, batch, sample, text), peer_error (a worker died too often, or
    ///            on_death::raise; the zygote is gone), timeout_error (which sample is in whose hands), usage_error
    ///            (all slots are held by the caller). The loader can be started again afterwards
    [[nodiscard]] batch_type next() {
        if (!started_)
            throw usage_error({"next() before start(): no epoch was begun", std::string(options_.name),
                               "for (auto&& batch : loader.epoch(e)), or loader.start(e)"});
        if (delivered_ == steps()) return {};
        const auto until = deadline::in(options_.timeout);
        const auto watch = [this] { check_health(); };
        check_notices();
        for (;;) {
            fill_ring();
            if (ring_.in_flight() != 0) break;
            check_health();
            ring_.wait_for_vacancy(until, watch);
        }
        auto lease = ring_.try_take();
        if (!lease) {
            const auto since = now_ns();
            crew_.help();
            lease = ring_.take(until, watch);
            waited_ += now_ns() - since;
        }
        ++delivered_;
        if (++take_step_ == steps()) take_epoch_ += distance_, take_step_ = 0;
        if (options_.on_error == trireme::on_error::raise || lease->failure() != nullptr) raise_failure(*lease);
        return batch_type(std::move(*lease), ring_.geometry().rows);
    }

    /// Waits until every worker has finished its start-up, and makes the slots' pages present here, so that the
    /// first epoch pays for neither. Call it before building the model. Throws   timeout_error, and what start-up
    /// threw (remote_error)
    void warm_start() {
        const auto until = deadline::in(options_.timeout);
        const auto memory = ring_.memory();
        for (std::uint32_t s = 0; s < ring_.geometry().slots; ++s)
            warm(memory.payload(s), static_cast<std::size_t>(ring_.geometry().payload_bytes));
        while (!crew_.ready()) {
            check_health();
            if (until.passed())
                throw timeout_error({"the loader's workers did not finish their start-up before the deadline",
                                     std::string(options_.name), "a longer loader_options::timeout"});
            ::usleep(500);
        }
    }

    /// How long `next` waited for batches that were not there yet, over the loader's life. (engine::caller makes
    /// them meanwhile.)
    std::chrono::nanoseconds waited() const noexcept { return std::chrono::nanoseconds(waited_); }

    /// For tests and tools: the ring's memory (who made what, pids of workers), read only.
    const detail::ring_memory memory() const noexcept { return ring_.memory(); }
    auto& crew() noexcept { return crew_; }

  private:
    using ring_type = ring<typename Engine::backing>;

    const sampling_plan& plan_of() const noexcept { return core_->recipe.plan; }

    static ring_options ring_for(const loader_options& o, std::uint32_t workers, std::uint64_t steps) {
        ring_options r;
        r.name = o.name;
        r.geometry.rows = o.batch_size;
        r.geometry.workers = workers;
        r.geometry.payload_bytes = schema::bytes(o.batch_size);
        const std::uint64_t stride = (std::max)(r.geometry.slot_stride(), std::uint64_t{page_bytes});
        // Few enough to stay in the last-level cache, since what is written there is read there: 8 slots of 4.6 MiB
        // are less than half as fast as 3. Enough that no worker waits for the trainer, and not many epochs ahead.
        const std::uint64_t least = (std::max)(std::uint64_t{4}, std::uint64_t{2} * workers + 1);
        const std::uint64_t by_bytes =
            (std::min)({std::uint64_t{64}, 4_MiB / stride, (std::max)(std::uint64_t{8}, steps)});
        r.geometry.slots = o.prefetch != 0 ? o.prefetch : static_cast<std::uint32_t>((std::max)(least, by_bytes));
        // A part of a small batch is made sooner than it is claimed.
        const std::uint32_t shares = workers == 1 || r.geometry.payload_bytes < 256_KiB ? workers : 2 * workers;
        const std::uint32_t wanted = o.parts != 0 ? o.parts : shares;
        r.geometry.parts = (std::min)({wanted, max_parts, o.batch_size});
        r.order = o.delivery;
        if (Engine::works_ahead) r.spin = detail::loader_spin(workers);
        return r;
    }

    /// Opens what there is room for: this epoch's batches, then the next's (in order only: as ready, an early batch
    /// of the next epoch would overtake).
    void fill_ring() {
        ring_.refill([this](batch_request& request) {
            if (!may_open_) return false;
            request.epoch = open_epoch_;
            request.step = open_step_;
            if (++open_step_ == steps()) {
                open_epoch_ += distance_;
                open_step_ = 0;
                may_open_ = options_.delivery == trireme::delivery::in_order;
            }
            return true;
        });
    }

    /// Two loads of a line that hardly ever changes.
    void check_notices() {
        const auto& control = ring_.memory().control();
        if (control.fatal.load(std::memory_order_acquire) == detail::ring_over)
            throw_record(control.last_words, std::nullopt);
        if (control.deaths.load(std::memory_order_relaxed) != deaths_seen_) report_deaths();
    }
    void check_health() {
        check_notices();
        crew_.watch();
    }

    /// One line for each worker that died since the last look; under on_death::raise an error for the first.
    void report_deaths() {
        const auto memory = ring_.memory();
        deaths_seen_ = memory.control().deaths.load(std::memory_order_acquire);
        for (std::uint32_t w = 0; w < ring_.geometry().workers; ++w) {
            const auto& line = memory.worker(w);
            const auto deaths = line.deaths.load(std::memory_order_acquire);
            auto& seen = deaths_of_[w];
            if (deaths == seen) continue;
            seen = deaths;
            std::string text = "worker " + std::to_string(w) + " (pid " +
                               std::to_string(line.dead_pid.load(std::memory_order_relaxed)) + ") " +
                               describe(line.last_status);
            if (line.was_filling != 0) {
                text += " while it made batch " +
                        std::to_string(memory.head(memory.slot_of(line.dead_batch)).request.step);
                if (line.dead_sample != no_sample) text += ", sample " + std::to_string(line.dead_sample);
            }
            if (options_.on_death == trireme::on_death::raise)
                throw peer_error(
                    {text, std::string(options_.name) + ", pid " + std::to_string(::getpid()),
                     "loader_options::on_death = respawn has it redone by another worker; look at that "
                     "sample, or for the OOM killer in the kernel's log"});
            note(severity::warning, text + ": started anew, its rows are made again");
        }
    }

    void raise_failure(const raw_lease& lease) {
        if (const error_record* const r = lease.failure()) throw_record(*r, lease.request().step);
    }
    [[noreturn]] void throw_record(const error_record& r, std::optional<std::uint64_t> step) const {
        const auto place_of = std::string(options_.name) + ", worker " + std::to_string(r.worker) + " (pid " +
                              std::to_string(r.pid) + ")" + (step ? ", batch " + std::to_string(*step) : "");
        if (r.kind == static_cast<std::uint32_t>(errc::peer))
            throw peer_error({std::string(r.text.view()) +
                                  (r.sample != no_sample ? "; sample " + std::to_string(r.sample) : "") +
                                  (step ? " of batch " + std::to_string(*step) : ""),
                              place_of, "look at that sample with engine::caller under a debugger, or skip it"});
        if (!step)
            throw remote_error({"the start-up of worker " + std::to_string(r.worker) + " failed: " + describe(r),
                                place_of, "mend the dataset's start_up"});
        throw remote_error(
            {"sample " + std::to_string(r.sample) + " of batch " + std::to_string(*step) +
                 " failed: " + describe(r),
             place_of,
             "mend the sample or the dataset's read; loader_options::on_error = skip goes on without it"});
    }
    void note(severity level, const std::string& text) const noexcept {
        observer_(event{level, options_.name, text});
    }

    loader_options options_;
    Engine engine_;
    [[no_unique_address]] Observer observer_;
    std::shared_ptr<const core_type> core_;
    ring_type ring_;
    typename Engine::template crew<core_type> crew_;
    std::uint64_t take_epoch_ = 0, take_step_ = 0;   // what the oldest batch in flight is
    std::uint64_t open_epoch_ = 0, open_step_ = 0;   // what is opened next
    std::uint64_t distance_ = 1, last_started_ = 0;  // between the epochs that the user asks for
    std::uint64_t delivered_ = 0, waited_ = 0;
    std::uint32_t deaths_seen_ = 0;
    std::array<std::uint32_t, max_workers> deaths_of_{};
    bool started_ = false, may_open_ = false;
};

/// Input iterator over an epoch's batches: `*it` is a batch that may be moved away and kept.
template <map_dataset Data, order Order, loader_engine Engine, observer Observer>
class loader<Data, Order, Engine, Observer>::iterator {
  public:
    using value_type = batch_type;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    explicit iterator(loader* from) : from_(from) { ++*this; }
    batch_type& operator*() noexcept { return current_; }
    batch_type* operator->() noexcept { return &current_; }
    iterator& operator++() {
        current_ = batch_type();  // its slot is free before the next is waited for
        current_ = from_->next();
        return *this;
    }
    bool operator==(std::default_sentinel_t) const noexcept { return !current_ && done(); }

  private:
    bool done() const noexcept { return from_->delivered_ == from_->steps(); }
    loader* from_;
    batch_type current_;
};

template <map_dataset Data, order Order, loader_engine Engine, observer Observer>
class loader<Data, Order, Engine, Observer>::epoch_range {
  public:
    epoch_range(loader& from, std::uint64_t number) : from_(&from), number_(number) {}
    iterator begin() {
        from_->start(number_);
        return iterator(from_);
    }
    std::default_sentinel_t end() const noexcept { return {}; }

  private:
    loader* from_;
    std::uint64_t number_;
};

template <map_dataset Data>
loader(Data, loader_options) -> loader<Data>;
template <map_dataset Data>
loader(Data) -> loader<Data>;
template <map_dataset Data, loader_engine Engine>
loader(Data, Engine, loader_options) -> loader<Data, sequential, Engine>;
template <map_dataset Data, loader_engine Engine>
loader(Data, Engine) -> loader<Data, sequential, Engine>;
template <map_dataset Data, order Order>
loader(Data, Order, loader_options) -> loader<Data, Order>;
template <map_dataset Data, order Order>
loader(Data, Order) -> loader<Data, Order>;
template <map_dataset Data, order Order, loader_engine Engine>
loader(Data, Order, Engine, loader_options) -> loader<Data, Order, Engine>;
template <map_dataset Data, order Order, loader_engine Engine>
loader(Data, Order, Engine) -> loader<Data, Order, Engine>;
template <map_dataset Data, order Order, loader_engine Engine, observer Observer>
loader(Data, Order, Engine, loader_options, Observer) -> loader<Data, Order, Engine, Observer>;

}  // namespace trireme

// ---- trireme/dist/reduction.hpp --------------------------------------------------------------------------

// What collectives work on and how they combine it: element types, and the reductions sum, product, minimum,
// maximum and mean.

namespace trireme {

/// The type of an element as a value, for signatures and plans. `bytes` is any other trivially copyable type, which
/// can be moved but not reduced.
enum class dtype : std::uint8_t { bytes, f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64 };

constexpr const char* name(dtype t) noexcept {
    constexpr const char* names[] = {"byte",  "half",  "bfloat16", "float",  "double", "int8",  "int16",
                                     "int32", "int64", "uint8",    "uint16", "uint32", "uint64"};
    return names[static_cast<std::size_t>(t)];
}
constexpr std::size_t size_of(dtype t) noexcept {
    constexpr std::uint8_t sizes[] = {1, 2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8};
    return sizes[static_cast<std::size_t>(t)];
}

namespace detail {
template <class T>
consteval dtype dtype_for() {
    if constexpr (std::same_as<T, half>) return dtype::f16;
    if constexpr (std::same_as<T, bfloat16>) return dtype::bf16;
    if constexpr (std::same_as<T, float>) return dtype::f32;
    if constexpr (std::same_as<T, double>) return dtype::f64;
    if constexpr (std::integral<T> && !std::same_as<T, bool>) {
        constexpr dtype of_signed[] = {dtype::i8, dtype::i16, dtype::i32, dtype::i64};
        constexpr dtype of_unsigned[] = {dtype::u8, dtype::u16, dtype::u32, dtype::u64};
        constexpr std::size_t log2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        return std::signed_integral<T> ? of_signed[log2] : of_unsigned[log2];
    }
    return dtype::bytes;
}
}  // namespace detail

template <class T>
inline constexpr dtype dtype_of = detail::dtype_for<std::remove_cv_t<T>>();

/// A type that can be reduced: half, bfloat16, float, double, and the integers of 8 to 64 bits.
template <class T>
concept element = std::same_as<T, std::remove_cv_t<T>> && dtype_of<T>
!= dtype::bytes;

/// A type that can be moved between ranks: its bytes are its value.
template <class T>
concept movable_bytes = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>;

namespace detail {
/// In what a reduction of T accumulates: half types in float, everything else in itself.
template <class T>
struct accumulator {
    using type = T;
};
template <>
struct accumulator<half> {
    using type = float;
};
template <>
struct accumulator<bfloat16> {
    using type = float;
};
template <class T>
using accumulator_t = typename accumulator<T>::type;

template <class A>
inline constexpr bool floating = std::floating_point<A>;

/// Integers are combined as unsigned ones of at least 32 bits: overflow wraps and is never undefined.
template <class A>
using wrapping_t = std::conditional_t<(sizeof(A) < 4), std::uint32_t, std::make_unsigned_t<A>>;

template <class A>
constexpr A wrapping_sum(A a, A b) noexcept {
    return static_cast<A>(static_cast<wrapping_t<A>>(a) + static_cast<wrapping_t<A>>(b));
}
template <class A>
constexpr A wrapping_product(A a, A b) noexcept {
    return static_cast<A>(static_cast<wrapping_t<A>>(a) * static_cast<wrapping_t<A>>(b));
}
}  // namespace detail

/// The ways to combine one element of every rank. All of them go through the ranks in rank order, so the result has
/// the same bits on every rank, for every size and timing. Half types are accumulated in float and rounded once.
namespace reduce {

/// Integers wrap. NaN on any rank gives NaN.
struct sum_of {
    static constexpr const char* name = "sum";
    static constexpr std::uint8_t id = 1;
    template <class A>
    static constexpr A combine(A a, A b) noexcept {
        if constexpr (detail::floating<A>)
            return a + b;
        else
            return detail::wrapping_sum(a, b);
    }
};
struct product_of {
    static constexpr const char* name = "product";
    static constexpr std::uint8_t id = 2;
    template <class A>
    static constexpr A combine(A a, A b) noexcept {
        if constexpr (detail::floating<A>)
            return a * b;
        else
            return detail::wrapping_product(a, b);
    }
};
/// As NCCL's: of a number and a NaN, the number; NaN only where every rank has NaN.
struct minimum_of {
    static constexpr const char* name = "minimum";
    static constexpr std::uint8_t id = 3;
    template <class A>
    static constexpr A combine(A a, A b) noexcept {
        if constexpr (detail::floating<A>)
            return b < a || a != a ? b : a;
        else
            return b < a ? b : a;
    }
};
/// As NCCL's: of a number and a NaN, the number; NaN only where every rank has NaN.
struct maximum_of {
    static constexpr const char* name = "maximum";
    static constexpr std::uint8_t id = 4;
    template <class A>
    static constexpr A combine(A a, A b) noexcept {
        if constexpr (detail::floating<A>)
            return b > a || a != a ? b : a;
        else
            return b > a ? b : a;
    }
};
/// The sum, divided by the number of ranks before it is rounded to a half type: two halves of 40000 have the mean
/// 40000, although their sum is infinite. Floating point only.
struct mean_of {
    static constexpr const char* name = "mean";
    static constexpr std::uint8_t id = 5;
    template <class A>
    static constexpr A combine(A a, A b) noexcept {
        return a + b;
    }
};

inline constexpr sum_of sum{};
inline constexpr product_of product{};
inline constexpr minimum_of minimum{};
inline constexpr maximum_of maximum{};
inline constexpr mean_of mean{};

constexpr const char* name_of(std::uint8_t id) noexcept {
    constexpr const char* names[] = {"none", "sum", "product", "minimum", "maximum", "mean"};
    return id < 6 ? names[id] : "unknown";
}

}  // namespace reduce

/// One of the five reductions above.
template <class R>
concept reduction = std::same_as<R, reduce::sum_of> || std::same_as<R, reduce::product_of> ||
    std::same_as<R, reduce::minimum_of> || std::same_as<R, reduce::maximum_of> || std::same_as<R, reduce::mean_of>;

namespace explain {
/// One sentence for each thing that `all_reduce<T>(..., R)` asks for.
template <class T, class R>
consteval bool reduction() {
    static_assert(
        element<T>,
        "trireme: this type cannot be reduced: use half, bfloat16, float, double or an integer of 8 to 64 "
        "bits (trireme/dist/reduction.hpp)");
    static_assert(trireme::reduction<R>,
                  "trireme: not a reduction: use reduce::sum, product, minimum, maximum or mean "
                  "(trireme/dist/reduction.hpp)");
    static_assert(
        !std::same_as<R, reduce::mean_of> || dtype_of<T> == dtype::bytes || !std::numeric_limits<T>::is_integer,
        "trireme: the mean of integers is not an integer: reduce with reduce::sum and divide as you need");
    return true;
}
}  // namespace explain

}  // namespace trireme

// ---- trireme/dist/bucket.hpp -----------------------------------------------------------------------------

// Buckets: gradients that are reduced together. A bucket is a short list of ranges of the gradient arena, never a
// copy of anything.

namespace trireme {

/// How gradients are cut into buckets: a bucket is closed by the gradient with which it reaches its limit, so it
/// may be larger than that by less than one gradient, and a gradient is never split. A small first bucket starts
/// the reduction early.
struct buckets {
    std::size_t first = 1_MiB;  ///< bytes, of the first bucket of each element type
    std::size_t cap = 25_MiB;   ///< bytes, of the others
    friend constexpr bool operator==(buckets, buckets) = default;
};

/// Bytes [begin, end) of the gradient arena, all of one element type.
struct arena_range {
    std::size_t begin = 0;
    std::size_t end = 0;
    friend constexpr bool operator==(arena_range, arena_range) = default;
};

struct bucket {
    dtype type = dtype::f32;
    std::vector<std::uint32_t> parameters;  ///< in the order in which they are expected
    std::vector<arena_range> ranges;        ///< ascending, merged where they touch
};

}  // namespace trireme

// ---- trireme/dist/plan.hpp -------------------------------------------------------------------------------

// The plan of a model's gradients: where each parameter lies in the arena, and which gradients are reduced together
// in which order. A pure function of the list of parameters and the limits, so that every rank makes the same one.

namespace trireme {

/// A parameter of the model. A parameter that several layers share is one entry, with `uses` set to how often
/// backward adds to its gradient in a step; it is ready after that many calls of ready().
struct param_spec {
    std::string name;
    std::vector<std::size_t> shape;
    dtype type = dtype::f32;
    std::uint32_t uses = 1;

    std::size_t count() const noexcept {
        return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, [](auto a, auto b) { return a * b; });
    }
    std::size_t bytes() const noexcept { return count() * size_of(type); }
};

/// "'fc1.weight' [512, 784] float"
inline std::string describe(const param_spec& p) {
    std::string text = "'" + p.name + "' [";
    for (std::size_t i = 0; i < p.shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(p.shape[i]);
    return text + "] " + name(p.type) + (p.uses == 1 ? "" : ", used " + std::to_string(p.uses) + " times");
}

namespace detail::say {
inline message parameter_not_real(const param_spec& p) {
    return {"parameter " + describe(p) + " cannot be averaged over ranks", "pid " + std::to_string(::getpid()),
            "parameters are half, bfloat16, float or double; keep others out of the layout"};
}
inline message parameter_twice(const std::string& name) {
    return {"two parameters are called '" + name + "'", "pid " + std::to_string(::getpid()),
            "give each its own name; a tensor that two layers share is one entry with uses = 2"};
}
}  // namespace detail::say

class plan {
  public:
    /// Each parameter starts at a multiple of this many bytes; the gaps stay zero.
    static constexpr std::size_t alignment = cache_line;

    /// `parameters` in the order of forward: gradients are expected in reverse.
    /// Throws  usage_error: a type that has no mean, or a name given twice
    explicit plan(std::vector<param_spec> parameters, buckets limits = {})
        : parameters_(std::move(parameters)), limits_(limits), places_(parameters_.size()) {
        std::map<std::string, int> seen;
        for (const auto& p : parameters_) {
            if (p.type != dtype::f16 && p.type != dtype::bf16 && p.type != dtype::f32 && p.type != dtype::f64)
                throw usage_error(detail::say::parameter_not_real(p));
            if (seen[p.name]++ != 0) throw usage_error(detail::say::parameter_twice(p.name));
        }
        std::vector<std::uint32_t> order(parameters_.size());
        std::iota(order.rbegin(), order.rend(), 0U);
        for (const dtype t : {dtype::f64, dtype::f32, dtype::f16, dtype::bf16}) {  // a type's parameters in a row
            const std::size_t begin = bytes_;
            for (const std::uint32_t i : order) {
                if (parameters_[i].type != t) continue;
                places_[i] = bytes_;
                bytes_ = align_up(bytes_ + parameters_[i].bytes(), alignment);
            }
            if (bytes_ != begin) regions_[static_cast<std::size_t>(t)] = {begin, bytes_};
        }
        cut(order);
    }

    const std::vector<param_spec>& parameters() const noexcept { return parameters_; }
    const std::vector<bucket>& cuts() const noexcept { return buckets_; }
    buckets limits() const noexcept { return limits_; }
    /// Bytes of the arena.
    std::size_t bytes() const noexcept { return bytes_; }
    /// Where parameter `i` starts in the arena, in bytes.
    std::size_t place(std::size_t i) const noexcept { return places_[i]; }
    /// The part of the arena that holds the parameters of one type.
    arena_range region(dtype t) const noexcept { return regions_[static_cast<std::size_t>(t)]; }
    /// Which bucket parameter `i` is in.
    std::size_t bucket_of(std::size_t i) const noexcept { return bucket_of_[i]; }

    /// Cuts anew, for gradients that arrive in `order` (every parameter once). Places stay.
    void cut(const std::vector<std::uint32_t>& order) {
        struct open_bucket {
            bucket content;
            std::size_t bytes = 0;
            std::size_t last = 0;  // position of its latest parameter in `order`
            bool first = true;     // of its type
        };
        std::map<dtype, open_bucket> open;
        std::vector<open_bucket> closed;
        const auto close = [&](open_bucket& b) {
            const bool any = !b.content.parameters.empty();
            if (any) closed.push_back(b);
            b = {{}, 0, 0, b.first && !any};
        };
        for (std::size_t at = 0; at < order.size(); ++at) {
            const param_spec& p = parameters_[order[at]];
            open_bucket& b = open[p.type];
            b.content.type = p.type;
            b.content.parameters.push_back(order[at]);
            b.bytes += p.bytes();
            b.last = at;
            if (b.bytes >= (b.first ? limits_.first : limits_.cap)) close(b);
        }
        for (auto& [type, b] : open) close(b);
        // Reduced in the order in which they are full.
        std::sort(closed.begin(), closed.end(),
                  [](const open_bucket& a, const open_bucket& b) { return a.last < b.last; });
        buckets_.clear();
        bucket_of_.assign(parameters_.size(), 0);
        for (auto& b : closed) {
            for (const std::uint32_t i : b.content.parameters) {
                bucket_of_[i] = buckets_.size();
                if (parameters_[i].count() == 0) continue;
                b.content.ranges.push_back({places_[i], align_up(places_[i] + parameters_[i].bytes(), alignment)});
            }
            merge(b.content.ranges);
            buckets_.push_back(std::move(b.content));
        }
    }

    /// What must be equal on all ranks, one line for each thing: the first line that differs is the error.
    std::vector<std::string> lines() const {
        std::vector<std::string> all;
        all.push_back("library version " + std::to_string(version.major_part) + "." +
                      std::to_string(version.minor_part) + "." + std::to_string(version.patch_part));
        all.push_back("buckets{" + std::to_string(limits_.first) + ", " + std::to_string(limits_.cap) + "}");
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            all.push_back("parameter " + std::to_string(i) + " " + describe(parameters_[i]));
        return all;
    }
    std::uint64_t hash() const {
        hasher h;
        for (const auto& line : lines()) h.add(line);
        return h.value();
    }

  private:
    static void merge(std::vector<arena_range>& r) {
        std::sort(r.begin(), r.end(), [](arena_range a, arena_range b) { return a.begin < b.begin; });
        std::size_t kept = 0;
        for (std::size_t i = 1; i < r.size(); ++i) {
            if (r[kept].end == r[i].begin)
                r[kept].end = r[i].end;
            else
                r[++kept] = r[i];
        }
        if (!r.empty()) r.resize(kept + 1);
    }

    std::vector<param_spec> parameters_;
    buckets limits_;
    std::vector<std::size_t> places_;
    arena_range regions_[16]{};
    std::size_t bytes_ = 0;
    std::vector<bucket> buckets_;
    std::vector<std::size_t> bucket_of_;
};

}  // namespace trireme

// ---- trireme/dist/detail/ddp_say.hpp ---------------------------------------------------------------------

// The sentences of ddp.

namespace trireme::detail::say {

inline message ready_too_often(const param_spec& p, std::string who) {
    return {"the gradient of " + describe(p) +
                " was marked ready more often than it is used in a step (uses = " + std::to_string(p.uses) + ")",
            std::move(who),
            "call ready() once for each use of a parameter, and finish() at the end of each step; for a parameter "
            "that several layers share set param_spec::uses"};
}
inline message not_ready(const std::vector<const param_spec*>& missing, std::string who) {
    std::string text = missing.size() == 1 ? "the gradient of " : "the gradients of ";
    for (std::size_t i = 0; i < missing.size() && i < 3; ++i) text += (i == 0 ? "" : ", ") + describe(*missing[i]);
    if (missing.size() > 3) text += " and " + std::to_string(missing.size() - 3) + " more";
    return {
        text + (missing.size() == 1 ? " was" : " were") + " not marked ready before finish()", std::move(who),
        "call ready() for every parameter in every step that ends with finish(); one that has no gradient in this "
        "step keeps zeros and is marked ready as well"};
}
inline message no_such_parameter(std::size_t i, std::size_t count, std::string who) {
    return {"parameter " + std::to_string(i) + " of " + std::to_string(count), std::move(who),
            "count from 0 in the order of the layout"};
}
inline message no_such_name(const std::string& name, std::string who) {
    return {"there is no parameter '" + name + "'", std::move(who), "see the names in the layout"};
}
inline message wrong_type(const param_spec& p, dtype asked, std::string who) {
    return {"parameter " + describe(p) + " was asked for as " + name(asked), std::move(who),
            "ask for the type that the layout gives it"};
}
inline message scope_opened_late(std::size_t marked, std::size_t count, std::string who) {
    return {"no_sync() was opened in the middle of a step: " + std::to_string(marked) + " of " +
                std::to_string(count) + " gradients are ready already",
            std::move(who), "open the scope before the first ready() of the step, around the whole backward pass"};
}

}  // namespace trireme::detail::say

// ---- trireme/dist/detail/failure.hpp ---------------------------------------------------------------------

// A failure on its way to the user: as a value in one process, and as a record that the first rank to find out
// writes into shared memory for all others.

namespace trireme::detail {

struct failure {
    static constexpr std::uint32_t nobody = 0xffffffff;

    errc kind = errc::peer;
    std::string what;
    std::string hint;
    std::uint32_t about = nobody;  ///< the rank that failed
};

/// Throws the error of the failure's kind; `where` names the rank that speaks.
[[noreturn]] inline void throw_failure(const failure& f, std::string where) {
    message m{f.what, std::move(where), f.hint};
    switch (f.kind) {
        case errc::timeout:
            throw timeout_error(std::move(m));
        case errc::peer:
            throw peer_error(std::move(m));
        case errc::remote:
            throw remote_error(std::move(m));
        case errc::mismatch:
            throw mismatch_error(std::move(m));
        case errc::system:
        case errc::usage:
            break;
    }
    throw usage_error(std::move(m));
}

/// Written once, by whoever is first. Zeroed memory is an empty record.
struct alignas(flag_line) failure_record {
    static constexpr std::uint32_t empty = 0, writing = 1, written = 2;

    std::atomic<std::uint32_t> state;
    std::uint32_t kind;  ///< an errc
    std::uint32_t about;
    std::uint32_t reserved;
    fixed_text<880> what;
    fixed_text<336> hint;

    /// False when somebody was first.
    bool write(const failure& f) noexcept {
        std::uint32_t expected = empty;
        if (!state.compare_exchange_strong(expected, writing, std::memory_order_seq_cst)) return false;
        kind = static_cast<std::uint32_t>(f.kind);
        about = f.about;
        what.assign(f.what);
        hint.assign(f.hint);
        state.store(written, std::memory_order_seq_cst);  // (F)
        return true;
    }
    bool any() const noexcept { return state.load(std::memory_order_seq_cst) != empty; }
    /// Empty also while the writer writes (or died writing: then its death is found by itself).
    std::optional<failure> read() const {
        if (state.load(std::memory_order_seq_cst) != written) return std::nullopt;  // (F) pairs with write
        failure f{static_cast<errc>(kind), std::string(what.view()), std::string(hint.view()), about};
        if (what.truncated()) f.what += "... (cut: of " + std::to_string(what.full_length()) + " bytes)";
        return f;
    }
};
static_assert(std::is_standard_layout_v<failure_record> && sizeof(failure_record) % flag_line == 0);

}  // namespace trireme::detail

// ---- trireme/dist/detail/say.hpp -------------------------------------------------------------------------

// The sentences of the group: what is said when ranks call different things, die, leave or stay away.

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

// ---- trireme/dist/detail/plan_check.hpp ------------------------------------------------------------------

// Do all ranks have the same plan, and the same parameters? Over any transport, with an error on every rank that
// names the ranks and the first thing that differs.

namespace trireme::detail {

namespace say {
inline message plans_differ(const std::string& first, const std::string& other, std::uint32_t other_rank,
                            std::string who) {
    const auto or_none = [](const std::string& s) { return s.empty() ? std::string("no further parameter") : s; };
    return {
        "the ranks have different plans: " + or_none(first) + " on rank 0, but " + or_none(other) + " on rank " +
            std::to_string(other_rank),
        std::move(who),
        "build the layout from the same model on every rank: same names, shapes, types, order and bucket limits"};
}
inline message parameters_differ(const param_spec& p, const std::vector<std::uint32_t>& ranks, std::string who) {
    return {"the parameters differ between the ranks before the first update: " + describe(p) + " of " +
                list_ranks(ranks) + " is not that of rank 0",
            std::move(who),
            "call broadcast() after the parameters are initialised, or initialise them from the same seed on every "
            "rank"};
}
}  // namespace say

/// The lines of every rank, padded to one length: only after the hashes have differed.
template <class Transport>
std::vector<std::vector<std::string>> gather_lines(Transport& t, const std::vector<std::string>& mine) {
    std::string text;
    for (const auto& line : mine) text += line + "\n";
    const std::uint64_t length = text.size();
    std::vector<std::uint64_t> lengths(t.size());
    t.all_gather(std::span(&length, 1), lengths);
    const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
    text.resize(longest, '\n');
    std::vector<char> all(longest * t.size());
    t.all_gather(std::span<const char>(text), all);
    std::vector<std::vector<std::string>> lines(t.size());
    for (std::uint32_t r = 0; r < t.size(); ++r) {
        std::string_view rest(all.data() + r * longest, lengths[r]);
        while (!rest.empty()) {
            const std::size_t end = rest.find('\n');
            lines[r].emplace_back(rest.substr(0, end));
            rest.remove_prefix(end + 1);
        }
    }
    return lines;
}

/// A collective call. Throws mismatch_error on every rank unless all plans are equal.
template <class Transport>
void check_plans(Transport& t, const plan& p, const std::string& who) {
    const std::uint64_t mine = p.hash();
    std::vector<std::uint64_t> hashes(t.size());
    t.all_gather(std::span(&mine, 1), hashes);
    const auto odd = std::find_if(hashes.begin(), hashes.end(), [&](auto h) { return h != hashes[0]; });
    if (odd == hashes.end()) return;
    const auto lines = gather_lines(t, p.lines());
    const auto r = static_cast<std::uint32_t>(odd - hashes.begin());
    const auto at = [&](std::uint32_t rank, std::size_t i) {
        return i < lines[rank].size() ? lines[rank][i] : std::string();
    };
    std::size_t i = 0;
    while (at(0, i) == at(r, i) && (!at(0, i).empty() || !at(r, i).empty())) ++i;
    throw mismatch_error(say::plans_differ(at(0, i), at(r, i), r, who));
}

inline std::uint64_t hash_bytes(const std::byte* p, std::size_t n) noexcept {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL ^ n;
    for (; n >= 8; p += 8, n -= 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdULL;
        h ^= h >> 32;
    }
    std::uint64_t tail = 0;
    std::memcpy(&tail, p, n);
    return mix64(h ^ tail);
}

/// A collective call. Throws mismatch_error on every rank unless the parameters have the same bytes.
template <class Transport>
void check_parameters(Transport& t, const plan& p, const std::byte* arena, const std::string& who) {
    const std::size_t n = p.parameters().size();
    std::vector<std::uint64_t> mine(n), all(n * t.size());
    for (std::size_t i = 0; i < n; ++i) mine[i] = hash_bytes(arena + p.place(i), p.parameters()[i].bytes());
    t.all_gather(mine, all);
    for (std::size_t i = 0; i < n; ++i) {
        std::vector<std::uint32_t> odd;
        for (std::uint32_t r = 1; r < t.size(); ++r)
            if (all[r * n + i] != all[i]) odd.push_back(r);
        if (!odd.empty()) throw mismatch_error(say::parameters_differ(p.parameters()[i], odd, who));
    }
}

}  // namespace trireme::detail

// ---- trireme/dist/detail/step_clock.hpp ------------------------------------------------------------------

// How long a bucket may take: unless the user says so, 60 s in the first step, which loads and warms things up, and
// then max(30 s, 20 x the median of the last steps).

namespace trireme::detail {

class step_clock {
  public:
    explicit step_clock(std::optional<std::chrono::nanoseconds> fixed) noexcept : fixed_(fixed) {}

    /// A step has ended.
    void step(deadline::clock::time_point now) noexcept {
        if (steps_++ != 0) last_[(steps_ - 2) % last_.size()] = now - before_;
        before_ = now;
    }
    std::chrono::nanoseconds timeout() const noexcept {
        using std::chrono::seconds;
        if (fixed_) return *fixed_;
        if (steps_ == 0) return seconds(60);
        auto sorted = last_;
        const auto n = static_cast<std::ptrdiff_t>((std::min)(steps_ - 1, last_.size()));
        if (n == 0) return seconds(60);
        std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
        return (std::max)(std::chrono::nanoseconds(seconds(30)), sorted[static_cast<std::size_t>(n / 2)] * 20);
    }

  private:
    std::optional<std::chrono::nanoseconds> fixed_;
    std::array<std::chrono::nanoseconds, 15> last_{};
    deadline::clock::time_point before_{};
    std::size_t steps_ = 0;
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/bucket_queue.hpp ----------------------------------------------------------------

// Buckets on their way: full ones are started strictly in order, at most 32 operations at a time, and are counted
// off as they are reduced. Used from one thread: the caller's or the communication thread.

namespace trireme::detail {

template <class Channel>
class bucket_queue {
  public:
    using completion_type =
        decltype(std::declval<Channel&>().start_all_reduce(std::declval<std::span<float>>(), reduce::mean));
    static constexpr std::size_t most_in_flight = 32;

    bucket_queue(Channel& c, std::byte* gradients) : channel_(&c), gradients_(gradients) {
        in_flight_.resize(most_in_flight);
    }

    /// A new step, with these buckets; they outlive it.
    void begin(const std::vector<bucket>& all) noexcept {
        all_ = &all;
        started_ = reduced_ = 0;
        next_range_ = 0;
        head_ = tail_ = 0;
    }
    std::size_t reduced() const noexcept { return reduced_; }

    /// What can be done without waiting while the first `full` buckets are full. True when something was.
    bool advance(std::size_t full) {
        bool any = start(full);
        any = channel_->progress() || any;
        return retire() || any;
    }
    /// Waits until the first `wanted` of the `full` buckets are reduced, or `stop()` (see wait_unless of the
    /// transports).
    template <class Stop>
    void wait(std::size_t wanted, std::size_t full, std::optional<deadline> until, Stop stop) {
        while (reduced_ < wanted) {
            if (advance(full) || reduced_ >= wanted) continue;
            if (stop()) return;
            completion_type& front = *in_flight_[head_ % most_in_flight].done;
            if constexpr (requires { front.wait_unless(until, stop); })
                front.wait_unless(until, stop);
            else
                front.wait(until ? *until : deadline::in(channel_->timeout()));
        }
    }

  private:
    struct flight {
        std::optional<completion_type> done;
        bool ends_bucket = false;
    };

    bool start(std::size_t full) {
        bool any = false;
        while (started_ < full && tail_ - head_ < most_in_flight) {
            const bucket& b = (*all_)[started_];
            flight& f = in_flight_[tail_ % most_in_flight];
            if (next_range_ < b.ranges.size()) {
                f.done.emplace(reduce_range(b.type, b.ranges[next_range_++]));
                f.ends_bucket = next_range_ == b.ranges.size();
            } else {  // a bucket of parameters without elements
                f.done.reset();
                f.ends_bucket = true;
            }
            ++tail_;
            if (f.ends_bucket) {
                ++started_;
                next_range_ = 0;
            }
            any = true;
        }
        return any;
    }
    bool retire() {
        bool any = false;
        while (head_ < tail_) {
            flight& f = in_flight_[head_ % most_in_flight];
            if (f.done && !f.done->done()) break;
            if (f.ends_bucket) ++reduced_;
            ++head_;
            any = true;
        }
        return any;
    }
    completion_type reduce_range(dtype t, arena_range r) {
        switch (t) {
            case dtype::f16:
                return reduce_as<half>(r);
            case dtype::bf16:
                return reduce_as<bfloat16>(r);
            case dtype::f64:
                return reduce_as<double>(r);
            default:
                return reduce_as<float>(r);
        }
    }
    template <class T>
    completion_type reduce_as(arena_range r) {
        const std::span<T> data(reinterpret_cast<T*>(gradients_ + r.begin), (r.end - r.begin) / sizeof(T));
        return channel_->start_all_reduce(data, reduce::mean);
    }

    Channel* channel_;
    std::byte* gradients_;
    const std::vector<bucket>* all_ = nullptr;
    std::vector<flight> in_flight_;  // a ring
    std::size_t head_ = 0, tail_ = 0;
    std::size_t started_ = 0, next_range_ = 0, reduced_ = 0;
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/spin_budget.hpp -----------------------------------------------------------------

// How long a rank spins before it parks.

namespace trireme::detail {

/// The CPUs that a thread may run on, as a value that travels.
struct affinity_mask {
    cpu_set_t set;

    /// Of the calling thread. Empty when the kernel has more CPUs than fit: then nobody spins.
    static affinity_mask mine() noexcept {
        affinity_mask m;
        CPU_ZERO(&m.set);
        if (::sched_getaffinity(0, sizeof m.set, &m.set) != 0) CPU_ZERO(&m.set);
        return m;
    }
    std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(CPU_COUNT(&set)); }
    bool within(const affinity_mask& other) const noexcept {
        cpu_set_t both;
        CPU_AND(&both, &set, &other.set);
        return CPU_EQUAL(&both, &set) != 0;
    }
};

/// The CPUs that this thread may run on; at least 1.
inline std::uint32_t usable_cpus() noexcept { return (std::max)(1U, affinity_mask::mine().count()); }

/// Whether every rank can have a CPU to itself: inside the CPUs of each rank, no more ranks than CPUs. Ranks that
/// are pinned to one CPU each pass, ranks that are pinned to the same one do not.
inline bool everybody_has_a_cpu(std::span<const affinity_mask> ranks) noexcept {
    return std::all_of(ranks.begin(), ranks.end(), [&](const affinity_mask& m) {
        const auto inside =
            std::count_if(ranks.begin(), ranks.end(), [&](const affinity_mask& o) { return o.within(m); });
        return static_cast<std::uint32_t>(inside) <= m.count();
    });
}

/// About the cost of a park and a wake when every rank has a CPU; nothing when a spinner would take the CPU away
/// from the rank it waits for.
inline std::chrono::nanoseconds spin_budget(bool room) noexcept {
    return room ? std::chrono::microseconds(100) : std::chrono::microseconds(0);
}

}  // namespace trireme::detail

// ---- trireme/dist/progress.hpp ---------------------------------------------------------------------------

// Who reduces buckets while backward goes on: the caller, inside ready(), or a thread of ours.

namespace trireme::progress {

/// Every ready() starts the buckets that are full and reduces this rank's share of those that all peers have
/// started; finish() does the rest. Costs no thread; right when every CPU computes.
struct in_caller {
    template <class Channel>
    class driver {
      public:
        driver(Channel& c, std::byte* gradients) : queue_(c, gradients) {}
        void begin(const std::vector<bucket>& all) { queue_.begin(all), full_ = 0; }
        void full(std::size_t n) noexcept { full_ = n; }
        bool advance() { return queue_.advance(full_); }
        std::size_t reduced() const noexcept { return queue_.reduced(); }
        void finish(std::optional<deadline> until) {
            queue_.wait(full_, full_, until, [] { return false; });
        }

      private:
        detail::bucket_queue<Channel> queue_;
        std::size_t full_ = 0;
    };
};

/// A registered thread starts and reduces buckets as they become full. Right when the plan leaves it a CPU: it
/// sleeps while there is nothing to do, and spins only if there are two CPUs for every rank.
struct thread {
    template <class Channel>
    class driver {
      public:
        driver(Channel& c, std::byte* gradients) : channel_(&c), queue_(c, gradients) {
            const bool room = 2 * c.size() <= detail::usable_cpus();
            spin_ = room ? std::chrono::microseconds(100) : std::chrono::microseconds(0);
            if constexpr (requires { c.set_spin(spin_); }) c.set_spin(spin_);
            runner_ = registered_thread("trireme-ddp", [this] { run(); });
        }
        driver(const driver&) = delete;
        driver& operator=(const driver&) = delete;
        ~driver() {
            stop_.store(1, std::memory_order_seq_cst);
            bell();
            runner_.join();
        }

        void begin(const std::vector<bucket>& all) {  // the thread rests: nothing is full
            all_ = &all;
            reduced_.store(0, std::memory_order_relaxed);
            full_.store(0, std::memory_order_relaxed);
            step_.fetch_add(1, std::memory_order_release);
        }
        void full(std::size_t n) noexcept {
            full_.store(static_cast<std::uint32_t>(n), std::memory_order_seq_cst);
            bell();
        }
        bool advance() {
            rethrow();
            return false;
        }
        std::size_t reduced() const noexcept { return reduced_.load(std::memory_order_acquire); }
        void finish(std::optional<deadline> until) {
            const std::uint32_t target = full_.load(std::memory_order_relaxed);
            const wait::futex how{spin_};
            for (;;) {
                const std::uint32_t seen = reduced_.load(std::memory_order_seq_cst);
                rethrow();
                if (seen >= target) return;
                if (until && until->passed()) {
                    const std::string what = "bucket " + std::to_string(seen) + " of " +
                                             std::to_string(all_->size()) + " was not reduced in time";
                    channel_->abort(what);
                    throw timeout_error({what,
                                         "ddp, rank " + std::to_string(channel_->rank()) + " of " +
                                             std::to_string(channel_->size()),
                                         "a later deadline, or see what the other ranks do"});
                }
                const deadline slice = deadline::in(std::chrono::milliseconds(50));
                how.until_different(reduced_, seen, until && until->at() < slice.at() ? *until : slice);
            }
        }

      private:
        bool interrupted(std::uint32_t known) const noexcept {
            return full_.load(std::memory_order_seq_cst) != known || stop_.load(std::memory_order_seq_cst) != 0;
        }
        void bell() noexcept {
            bell_.fetch_add(1, std::memory_order_seq_cst);
            futex_wake(bell_);
            if constexpr (requires { channel_->nudge(); }) channel_->nudge();
        }
        void rethrow() {
            if (failed_.load(std::memory_order_acquire) != 0) std::rethrow_exception(error_);
        }
        void tell(std::size_t n) noexcept {
            reduced_.store(static_cast<std::uint32_t>(n), std::memory_order_seq_cst);
            futex_wake(reduced_);
        }
        void run() {
            std::uint32_t step = 0;
            while (stop_.load(std::memory_order_seq_cst) == 0) {
                const std::uint32_t heard = bell_.load(std::memory_order_seq_cst);
                if (const auto now = step_.load(std::memory_order_acquire);
                    now != step && full_.load(std::memory_order_seq_cst) != 0) {
                    step = now;
                    queue_.begin(*all_);
                }
                const std::uint32_t full = full_.load(std::memory_order_seq_cst);
                if (failed_.load(std::memory_order_relaxed) != 0 || step_.load(std::memory_order_acquire) != step ||
                    queue_.reduced() >= full) {
                    futex_wait(bell_, heard, deadline::in(std::chrono::seconds(1)));
                    continue;
                }
                try {
                    const std::size_t before = queue_.reduced();
                    // One bucket at a time, so that each is told as soon as it is reduced.
                    queue_.wait(before + 1, full, std::nullopt, [&] { return interrupted(full); });
                    if (queue_.reduced() != before) tell(queue_.reduced());
                } catch (...) {
                    error_ = std::current_exception();
                    failed_.store(1, std::memory_order_release);
                    futex_wake(reduced_);
                }
            }
        }

        Channel* channel_;
        detail::bucket_queue<Channel> queue_;  // the thread's
        const std::vector<bucket>* all_ = nullptr;
        std::chrono::nanoseconds spin_{0};
        std::exception_ptr error_;
        alignas(flag_line) std::atomic<std::uint32_t> bell_{0};
        std::atomic<std::uint32_t> full_{0};
        std::atomic<std::uint32_t> step_{0};
        std::atomic<std::uint32_t> stop_{0};
        alignas(flag_line) std::atomic<std::uint32_t> reduced_{0};
        std::atomic<std::uint32_t> failed_{0};
        registered_thread runner_;
    };
};

}  // namespace trireme::progress

// ---- trireme/dist/transport.hpp --------------------------------------------------------------------------

// The concept of a transport: collectives among the ranks of a group. Its simplest model is `self`, a group of one
// (self.hpp), to be read as the documentation; thread_transport and shm_transport are the others of this floor.

namespace trireme {

namespace detail {
template <class T>
concept collective_calls = requires(T& t, std::span<float> data, std::span<const float> in, std::span<float> out,
                                    std::optional<deadline> until, const std::string& reason) {
    { std::as_const(t).rank() } -> std::same_as<std::uint32_t>;
    { std::as_const(t).size() } -> std::same_as<std::uint32_t>;
    t.all_reduce(data, reduce::sum, until);
    { t.start_all_reduce(data, reduce::mean) } -> completion;
    t.broadcast(data, trireme::rank{0}, until);
    t.all_gather(in, out, until);
    t.reduce_scatter(in, out, reduce::sum, until);
    t.barrier(until);
    { t.progress() } -> std::same_as<bool>;
    t.abort(reason);
    { t.health() } -> std::same_as<std::optional<std::string>>;
    { t.timeout() } -> std::same_as<std::chrono::nanoseconds>;
    t.set_timeout(std::chrono::nanoseconds{});
};
}  // namespace detail

/// One rank's end of a group. Every rank makes the same calls in the same order.
///
///   rank(), size()                       this rank, and how many there are
///   all_reduce(data, how, until)         data becomes the reduction over the ranks, in rank order, rounded once
///   start_all_reduce(data, how)          the same, begun: returns a completion; data is busy until it is done
///   broadcast(data, root, until)         data becomes that of root
///   all_gather(in, out, until)           out = in of rank 0, in of rank 1, ...
///   reduce_scatter(in, out, how, until)  out = this rank's part of the reduction of all in
///   barrier(until)                       returns when all ranks have called it
///   progress()                           what can be done for begun operations without waiting
///   allocate<T>(n)                       n zeroed elements that peers reach without copies; a collective call
///   channel()                            an independent sequence of operations, for another thread; collective
///   abort(reason), health()              ends the group for all; says whether and why it has ended
///   timeout(), set_timeout(t)            of calls that name no deadline
///   reproducible, host_memory            same bits from run to run? may the processor touch allocated memory?
///
/// `until` is an optional deadline. Sizes may be 0. Every call that waits watches for the death of whom it waits
/// for. The compiler cannot check: the operations of all ranks are compared before data changes, and a difference
/// is a mismatch_error on every rank; a rank that died is a peer_error that names it; after an error the group is
/// dead and says so at once; with one rank, every operation returns its input. Reference model: self,
/// trireme/dist/self.hpp. Suite: tests/conformance/transport_suite.hpp.
template <class T>
concept transport = std::movable<T> && detail::collective_calls<T> && requires(T& t, std::size_t n) {
    { T::reproducible } -> std::convertible_to<bool>;
    { T::host_memory } -> std::convertible_to<bool>;
    { t.template allocate<float>(n) } -> std::same_as<std::span<float>>;
    { t.template allocate<half>(n) } -> std::same_as<std::span<half>>;
    { t.channel() } -> detail::collective_calls;
};

namespace explain {
/// One sentence for each requirement of `transport`; the first that fails is what the user reads.
template <class T>
consteval bool transport() {
    static_assert(std::movable<T>,
                  "trireme: a transport moves (its user owns it). Copy self, trireme/dist/self.hpp");
    static_assert(
        requires(const T& t) {
            { t.rank() } -> std::same_as<std::uint32_t>;
            { t.size() } -> std::same_as<std::uint32_t>;
        },
        "trireme: a transport says who it is: 'std::uint32_t rank() const' and 'size() const'. Copy self, "
        "trireme/dist/self.hpp");
    static_assert(
        requires(T & t, std::size_t n) {
            { t.template allocate<float>(n) } -> std::same_as<std::span<float>>;
        },
        "trireme: a transport gives memory that its peers reach: 'template <class T> std::span<T> "
        "allocate(std::size_t n)'. Copy self, trireme/dist/self.hpp");
    static_assert(
        requires(T & t) {
            { t.channel() } -> detail::collective_calls;
        },
        "trireme: a transport gives independent ends with the collectives of trireme/dist/transport.hpp: "
        "'channel()'. Copy self, trireme/dist/self.hpp");
    static_assert(trireme::transport<T>,
                  "trireme: not a transport; compare with self, trireme/dist/self.hpp, and the list in "
                  "trireme/dist/transport.hpp");
    return true;
}
}  // namespace explain

}  // namespace trireme

// ---- trireme/dist/ddp.hpp --------------------------------------------------------------------------------

// Data parallelism: every rank holds the model and works on its own share of the data; gradients are averaged in
// buckets while backward still runs.

namespace trireme {

struct ddp_options {
    trireme::buckets buckets = {};  ///< sizes at which they close
    bool rebuild = true;           ///< after the first step, cut anew in the order in which rank 0's gradients came
    bool check_parameters = true;  ///< at the first finish(): are they the same on all ranks?
    std::optional<std::chrono::nanoseconds> timeout = {};  ///< of a bucket; default: 60 s in the first step, then
                                                           ///< max(30 s, 20 x median step)
};

/// What the last steps did.
struct ddp_stats {
    std::uint64_t steps = 0;  ///< finished ones, with reduction
    std::size_t bucket_count = 0;
    std::size_t reduced_before_last_ready = 0;  ///< buckets of the last step that were over before its last ready()
    std::uint64_t bytes = 0;                    ///< of gradient reduced since the start, on this rank
    std::uint64_t reductions = 0;               ///< buckets reduced since the start
    std::chrono::nanoseconds exposed{0};        ///< blocked in finish() since the start: communication not hidden
    std::chrono::nanoseconds last_exposed{0};
};

/// Parameters and gradients of a model, in memory that the ranks of a transport share, and their averaging.
///
///   tr::ddp net{tr::shm_transport{world}, layout};
///   init(net.parameters<float>());  net.broadcast();
///   for (...) { backward(..., [&](std::size_t i) { net.ready(i); });  net.finish();  update(net); }
///
/// Backward adds to grad(i) and calls ready(i) when it is complete, in any order; ranks may differ in it. After
/// finish() every gradient is the mean over the ranks, with the same bits on all of them. Whoever updates the
/// parameters sets the gradients to zero (zero_gradients).
///
/// Needs      the same layout and options on every rank
/// Blocks     the constructor until every rank is there; ready() never; finish() until all buckets are reduced
/// Throws     mismatch_error on every rank when plans or parameters differ, naming the first difference;
/// usage_error
///            naming the parameter when it is marked ready too often, or not at all (other ranks: remote_error);
///            what the transport throws: peer_error, remote_error, timeout_error
/// Threads    one at a time; with progress::thread one more thread reduces
/// Memory     a step allocates nothing, except after the first one
template <transport Transport, class Progress = progress::in_caller>
class ddp {
    static_assert(explain::transport<Transport>());
    static_assert(Transport::host_memory, "trireme: this ddp works on host memory");
    using channel_type = decltype(std::declval<Transport&>().channel("ddp"));
    using driver_type = typename Progress::template driver<channel_type>;

  public:
    /// While the scope lives, ready() and finish() do nothing: gradients add up on this rank. The outermost scope
    /// counts. The first step after it sends the sum.
    class no_sync_scope {
      public:
        explicit no_sync_scope(ddp& d) noexcept : ddp_(&d) { ++d.no_sync_; }
        no_sync_scope(const no_sync_scope&) = delete;
        no_sync_scope& operator=(const no_sync_scope&) = delete;
        ~no_sync_scope() { --ddp_->no_sync_; }

      private:
        ddp* ddp_;
    };

    ddp(Transport t, std::vector<param_spec> layout, ddp_options options = {}, Progress = {})
        : transport_(std::move(t)),
          options_(options),
          plan_(checked(plan(std::move(layout), options.buckets))),
          parameters_(transport_.template allocate<std::byte>(plan_.bytes()).data()),
          gradients_(transport_.template allocate<std::byte>(plan_.bytes()).data()),
          channel_(transport_.channel("ddp")),
          driver_(channel_, gradients_),
          uses_(plan_.parameters().size()),
          observed_(plan_.parameters().size()),
          clock_(options.timeout) {
        channel_.set_timeout(clock_.timeout());
        prepare();
    }
    ddp(const ddp&) = delete;
    ddp& operator=(const ddp&) = delete;

    std::uint32_t rank() const noexcept { return transport_.rank(); }
    std::uint32_t size() const noexcept { return transport_.size(); }
    const trireme::plan& plan_of() const noexcept { return plan_; }
    const ddp_stats& stats() const noexcept { return stats_; }
    /// For collectives of the user's own: they have a sequence of their own, so buckets may fly meanwhile.
    Transport& group() noexcept { return transport_; }

    std::size_t count() const noexcept { return plan_.parameters().size(); }
    /// Throws  usage_error when there is none of this name
    std::size_t index_of(const std::string& name) const {
        for (std::size_t i = 0; i < count(); ++i)
            if (plan_.parameters()[i].name == name) return i;
        throw usage_error(detail::say::no_such_name(name, me()));
    }
    /// Parameter `i`, row-major, 64-byte-aligned. Throws usage_error when it is of another type.
    template <class T>
    std::span<T> param(std::size_t i) const {
        return {reinterpret_cast<T*>(parameters_ + place<T>(i)), plan_.parameters()[i].count()};
    }
    /// The gradient of parameter `i`: backward adds to it.
    template <class T>
    std::span<T> grad(std::size_t i) const {
        return {reinterpret_cast<T*>(gradients_ + place<T>(i)), plan_.parameters()[i].count()};
    }
    /// All parameters of type T in a row, and all gradients, in the same order, with zeros between them: one loop
    /// updates a model.
    template <class T>
    std::span<T> parameters() const noexcept {
        return region<T>(parameters_);
    }
    template <class T>
    std::span<T> gradients() const noexcept {
        return region<T>(gradients_);
    }
    void zero_gradients() noexcept { std::memset(gradients_, 0, plan_.bytes()); }

    /// The parameters of rank 0, on every rank.
    void broadcast(std::optional<deadline> until = {}) {
        transport_.broadcast(std::span<std::byte>(parameters_, plan_.bytes()), trireme::rank{0}, until);
    }

    /// The gradient of parameter `i` is complete on this rank. Full buckets set off, and with progress::in_caller
    /// this rank's share of them is reduced as far as the peers are.
    void ready(std::size_t i) {
        if (i >= count()) throw usage_error(detail::say::no_such_parameter(i, count(), me()));
        if (no_sync_ != 0) return;
        const param_spec& p = plan_.parameters()[i];
        if (uses_[i] >= p.uses) give_up(detail::say::ready_too_often(p, me()));
        if (ready_count_ + 1 == count() && uses_[i] + 1 == p.uses) {
            driver_.advance();
            stats_.reduced_before_last_ready = driver_.reduced();
        }
        if (++uses_[i] == p.uses) {
            if (stats_.steps == 0) observed_[ready_count_] = static_cast<std::uint32_t>(i);
            ++ready_count_;
            if (--waiting_[plan_.bucket_of(i)] == 0) {
                while (full_ < waiting_.size() && waiting_[full_] == 0) ++full_;
                driver_.full(full_);
            }
        }
        driver_.advance();
    }
    /// Does what can be done for buckets on their way, without waiting; ready() calls it.
    void progress() { driver_.advance(); }
    /// How many buckets of this step are reduced.
    std::size_t reduced() const noexcept { return driver_.reduced(); }

    /// Waits until all gradients are averaged.
    void finish(std::optional<deadline> until = {}) {
        if (no_sync_ != 0) return;
        if (ready_count_ != count()) give_up(detail::say::not_ready(missing(), me()));
        if (stats_.steps == 0 && options_.check_parameters)
            detail::check_parameters(transport_, plan_, parameters_, me());
        const auto waited_from = deadline::clock::now();
        driver_.finish(until);
        const auto now = deadline::clock::now();
        stats_.last_exposed = now - waited_from;
        stats_.exposed += stats_.last_exposed;
        stats_.bytes += plan_.bytes();
        stats_.reductions += plan_.cuts().size();
        if (stats_.steps++ == 0 && options_.rebuild) rebuild();
        clock_.step(now);
        channel_.set_timeout(clock_.timeout());
        prepare();
    }

    /// Throws  usage_error when gradients of this step are ready already: half a step cannot be left out
    [[nodiscard]] no_sync_scope no_sync() {
        const std::size_t marked = static_cast<std::size_t>(
            std::count_if(uses_.begin(), uses_.end(), [](std::uint32_t n) { return n != 0; }));
        if (no_sync_ == 0 && marked != 0) throw usage_error(detail::say::scope_opened_late(marked, count(), me()));
        return no_sync_scope(*this);
    }

  private:
    std::string me() const {
        return "ddp, rank " + std::to_string(rank()) + " of " + std::to_string(size()) + ", pid " +
               std::to_string(::getpid());
    }
    trireme::plan checked(trireme::plan p) {
        detail::check_plans(transport_, p, me());
        return p;
    }
    template <class T>
    std::size_t place(std::size_t i) const {
        if (i >= count()) throw usage_error(detail::say::no_such_parameter(i, count(), me()));
        if (plan_.parameters()[i].type != dtype_of<T>)
            throw usage_error(detail::say::wrong_type(plan_.parameters()[i], dtype_of<T>, me()));
        return plan_.place(i);
    }
    template <class T>
    std::span<T> region(std::byte* arena) const noexcept {
        const arena_range r = plan_.region(dtype_of<T>);
        return {reinterpret_cast<T*>(arena + r.begin), (r.end - r.begin) / sizeof(T)};
    }
    std::vector<const param_spec*> missing() const {
        std::vector<const param_spec*> found;
        for (std::size_t i = 0; i < count(); ++i)
            if (uses_[i] < plan_.parameters()[i].uses) found.push_back(&plan_.parameters()[i]);
        return found;
    }
    /// This rank cannot go on with the step; the others are told.
    [[noreturn]] void give_up(message m) {
        channel_.abort(m.what);
        transport_.abort(m.what);
        throw usage_error(std::move(m));
    }
    void prepare() {
        waiting_.resize(plan_.cuts().size());
        for (std::size_t b = 0; b < waiting_.size(); ++b)
            waiting_[b] = static_cast<std::uint32_t>(plan_.cuts()[b].parameters.size());
        std::fill(uses_.begin(), uses_.end(), 0U);
        ready_count_ = 0;
        full_ = 0;
        stats_.bucket_count = plan_.cuts().size();
        driver_.begin(plan_.cuts());
    }
    void rebuild() {
        transport_.broadcast(observed_);
        plan_.cut(observed_);
    }

    Transport transport_;
    ddp_options options_;
    trireme::plan plan_;
    std::byte* parameters_;
    std::byte* gradients_;
    channel_type channel_;
    driver_type driver_;
    std::vector<std::uint32_t> uses_;     // of each parameter, in this step
    std::vector<std::uint32_t> waiting_;  // parameters of each bucket that are not ready
    std::vector<std::uint32_t> observed_;
    std::size_t ready_count_ = 0;
    std::size_t full_ = 0;  // buckets that are full, counted in order
    std::uint32_t no_sync_ = 0;
    detail::step_clock clock_;
    ddp_stats stats_;
};

template <class Transport>
ddp(Transport, std::vector<param_spec>) -> ddp<Transport>;
template <class Transport>
ddp(Transport, std::vector<param_spec>, ddp_options) -> ddp<Transport>;
template <class Transport, class Progress>
ddp(Transport, std::vector<param_spec>, ddp_options, Progress) -> ddp<Transport, Progress>;

}  // namespace trireme

// ---- trireme/dist/environment.hpp ------------------------------------------------------------------------

// What a launcher says about this process: RANK, WORLD_SIZE and friends, as torchrun sets them, read and checked.

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

// ---- trireme/dist/detail/launched.hpp --------------------------------------------------------------------

// Whether launch has made this process a rank.

namespace trireme::detail {

/// Set once, in a process that launch has forked, before the user's function runs.
inline std::optional<environment>& launched_as() {
    static std::optional<environment> place;
    return place;
}

}  // namespace trireme::detail

// ---- trireme/dist/detail/channel_layout.hpp --------------------------------------------------------------

// What a channel looks like in shared memory. A channel is one sequence of collectives among the ranks of a group:
// every rank publishes operation n in its own ring of entries and counts, in counters that only it writes, how far
// it has come. Nothing is ever reset and nothing is locked, so a rank that dies leaves a readable state.

namespace trireme::detail {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "flags in shared memory must be address-free");

/// Operation n of one rank. Everything but `seq` is written before `seq` is, and stays until the ring comes round.
struct alignas(flag_line) op_entry {
    static constexpr std::size_t inline_bytes = 88;

    std::atomic<std::uint64_t> seq;  ///< n + 1 once this is operation n
    std::uint64_t signature;         ///< operation, type, reduction, root: equal on every rank
    std::uint64_t count;             ///< elements: equal on every rank
    std::uint64_t place;    ///< where the input lies: 1 + segment in the upper 16 bits, offset; 0 = private
    std::uint32_t payload;  ///< 1 + bytes of input that lie in `bytes` or in the payload slot; 0 = none
    std::uint32_t reserved;
    std::byte bytes[inline_bytes];
};
static_assert(sizeof(op_entry) == flag_line && alignof(op_entry) == flag_line);

/// Counters of one rank, written by it alone. Monotone.
struct alignas(flag_line) rank_counters {
    std::atomic<std::uint64_t> done;  ///< operations that this rank has finished its part of
    std::byte pad1[flag_line - 8];
    std::atomic<std::uint64_t> put;     ///< staged chunks written
    std::atomic<std::uint64_t> worked;  ///< staged chunks combined
    std::byte pad2[flag_line - 16];
};
static_assert(sizeof(rank_counters) == 2 * flag_line);

/// Where one rank sleeps. `bell` is rung by others.
struct alignas(flag_line) rank_bell {
    std::atomic<std::uint32_t> bell;
    std::atomic<std::uint32_t> parked;  ///< 1 + the rank that this one waits for, 0 when awake
    std::atomic<std::uint32_t> left;    ///< 1 once this rank has closed its end, 2 if by an exception passing
    std::byte pad[flag_line - 12];
};
static_assert(sizeof(rank_bell) == flag_line);

struct alignas(flag_line) channel_header {
    std::uint64_t magic;
    std::uint64_t layout;
    failure_record aborted;
};

struct channel_options {
    std::size_t stage_bytes = 256_KiB;  ///< of a staging slot; four of them a rank
};

/// Where everything lies. A pure function of the number of ranks and the options.
struct channel_layout {
    static constexpr std::uint32_t entries = 64;         ///< operations in flight
    static constexpr std::uint32_t payload_slots = 16;   ///< of them with a small payload
    static constexpr std::size_t payload_bytes = 4_KiB;  ///< what counts as small
    // The parts of different ranks do not lie a power of two apart: ranks work at the same offset of all of them at
    // once, and a cache that is indexed by address bits would hold only few of them.
    static constexpr std::size_t skew = 1280;
    static constexpr std::size_t ring_stride = entries * sizeof(op_entry) + skew;
    static constexpr std::size_t payload_stride = payload_slots * payload_bytes + skew;
    static constexpr std::uint64_t magic = 0x656e6e6168437274ULL;

    std::uint32_t ranks = 1;
    std::size_t stage_bytes = 0;
    std::size_t counters = 0, bells = 0, rings = 0, payloads = 0, stages = 0, total = 0;

    constexpr explicit channel_layout(std::uint32_t rank_count, channel_options o = {})
        : ranks(rank_count), stage_bytes(align_up(o.stage_bytes, flag_line)) {
        counters = align_up(sizeof(channel_header), flag_line);
        bells = counters + ranks * sizeof(rank_counters);
        rings = bells + ranks * sizeof(rank_bell);
        payloads = align_up(rings + ranks * ring_stride, page_bytes);
        stages = payloads + ranks * payload_stride;
        total = align_up(stages + ranks * std::size_t{4} * stage_stride(), page_bytes);
    }
    constexpr std::size_t stage_stride() const noexcept { return stage_bytes + skew; }
    constexpr std::uint64_t hash() const noexcept {
        return hasher{}
            .add(version.major_part)
            .add(version.minor_part)
            .add(version.patch_part)
            .add(ranks)
            .add(stage_bytes)
            .add(total)
            .add(sizeof(op_entry))
            .add(sizeof(failure_record))
            .value();
    }
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/world_arena.hpp -----------------------------------------------------------------

// What the processes of a world share: who is who, how they ended, what failed first, and a channel for small
// things. One memory file, made by the launcher or by rank 0.

namespace trireme::detail {

struct alignas(flag_line) roster_line {
    std::atomic<std::uint64_t> start_time;  ///< with the pid it names a process for good; written before the pid
    std::atomic<std::int32_t> pid;          ///< 0 until known
    std::atomic<std::uint32_t> ended;       ///< 1 once `status` is written, by the launcher
    exit_status status;
    std::byte pad[flag_line - 24];
};
static_assert(sizeof(roster_line) == flag_line);

struct alignas(flag_line) world_header {
    std::uint64_t magic;
    std::uint64_t layout;
    std::uint32_t ranks;
    std::int32_t launcher;  ///< pid of the process that reaps the ranks, 0 when they were started by hand
    failure_record first;   ///< what went wrong first in this job
};

struct world_layout {
    static constexpr std::uint64_t magic = 0x64726f7774697274ULL;

    channel_layout control;
    std::size_t roster = 0, channel = 0, total = 0;

    constexpr explicit world_layout(std::uint32_t ranks) : control(ranks, {4_KiB}) {
        roster = align_up(sizeof(world_header), flag_line);
        channel = align_up(roster + ranks * sizeof(roster_line), page_bytes);
        total = channel + control.total;
    }
    constexpr std::uint64_t hash() const noexcept {
        return hasher{}.add(control.hash()).add(channel).add(total).add(sizeof(world_header)).value();
    }
};

/// A view of the arena by name. Owns nothing.
class world_arena {
  public:
    world_arena(std::byte* base, std::uint32_t ranks) : base_(base), layout_(ranks) {}

    void initialise(std::int32_t launcher) const noexcept {
        header().magic = world_layout::magic;
        header().layout = layout_.hash();
        header().ranks = layout_.control.ranks;
        header().launcher = launcher;
    }
    const world_layout& layout() const noexcept { return layout_; }
    std::uint32_t ranks() const noexcept { return layout_.control.ranks; }
    world_header& header() const noexcept { return *reinterpret_cast<world_header*>(base_); }
    roster_line& rank(std::uint32_t r) const noexcept {
        return reinterpret_cast<roster_line*>(base_ + layout_.roster)[r];
    }
    std::byte* channel() const noexcept { return base_ + layout_.channel; }

    void enter(std::uint32_t r, pid_t pid) const noexcept {
        rank(r).start_time.store(process_start_time(pid), std::memory_order_relaxed);
        rank(r).pid.store(pid, std::memory_order_release);
    }

  private:
    std::byte* base_;
    world_layout layout_;
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/launcher.hpp --------------------------------------------------------------------

// The process that has started the ranks: waits for them, writes down how each ended where the survivors can read
// it, ends those that do not go by themselves, and says what happened, the culprit first.

namespace trireme {

/// The exit status of a rank that leaves because another one failed (EX_TEMPFAIL of sysexits.h: nothing wrong
/// here).
inline constexpr int survivor_status = 75;

struct launch_options {
    std::chrono::nanoseconds speak = std::chrono::seconds(1);  ///< for survivors, after the first failure
    std::chrono::nanoseconds grace = std::chrono::seconds(3);  ///< between SIGTERM and SIGKILL
};

}  // namespace trireme

namespace trireme::detail {

namespace say {
inline std::string rank_ended(std::uint32_t r, pid_t pid, exit_status s, bool forced) {
    std::string text = "rank " + std::to_string(r) + " (pid " + std::to_string(pid) + ") ";
    if (forced) return text + "did not leave by itself after another rank failed, and " + describe(s);
    if (s.signal == 0 && s.code == survivor_status) return text + "left with status 75 because another rank failed";
    return text + describe(s);
}
inline std::string threads_per_rank(unsigned threads, std::uint32_t ranks, std::uint32_t cpus) {
    return "OMP_NUM_THREADS=" + std::to_string(threads) + " for each of " + std::to_string(ranks) + " ranks on " +
           std::to_string(cpus) + " usable CPUs (it was not set)";
}
}  // namespace say

/// Waits for the ranks and returns what the launching program should exit with.
class launcher {
  public:
    launcher(world_arena arena, launch_options o) : arena_(arena), options_(o) {}

    void add(child rank) {
        arena_.enter(static_cast<std::uint32_t>(ranks_.size()), rank.pid());
        ranks_.push_back({std::move(rank), {}, false, false});
    }

    /// Blocks  until every rank has ended; once one has failed, for at most speak + grace and the time to kill
    int wait() {
        enum class phase { running, speaking, terminating, killed } now = phase::running;
        deadline next = deadline::never();
        while (std::any_of(ranks_.begin(), ranks_.end(), [](const entry& e) { return !e.over; })) {
            sleep_until_change(next);
            for (std::uint32_t r = 0; r < ranks_.size(); ++r)
                note(r, now == phase::terminating || now == phase::killed);
            const bool failed = std::any_of(ranks_.begin(), ranks_.end(),
                                            [](const entry& e) { return e.over && !e.status.success(); });
            if (now == phase::running && failed) {
                now = phase::speaking;
                next = deadline::in(options_.speak);
            } else if (now == phase::speaking && next.passed()) {
                now = phase::terminating;
                next = deadline::in(options_.grace);
                send(SIGTERM);
            } else if (now == phase::terminating && next.passed()) {
                now = phase::killed;
                next = deadline::never();
                send(SIGKILL);
            }
            report(false);
        }
        report(true);
        return status();
    }

  private:
    struct entry {
        child process;
        exit_status status;
        bool over;
        bool forced;
        bool told = false;
    };

    void sleep_until_change(deadline next) {
        std::vector<pollfd> p;
        for (const entry& e : ranks_)
            if (!e.over) p.push_back({e.process.handle().descriptor().get(), POLLIN, 0});
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(next.left()).count();
        ::poll(p.data(), p.size(), next.is_never() ? -1 : static_cast<int>(ms) + 1);
    }
    void note(std::uint32_t r, bool forced) {
        entry& e = ranks_[r];
        if (e.over) return;
        const auto status = e.process.poll();
        if (!status) return;
        e.status = *status;
        e.over = true;
        e.forced = forced && !status->success() && status->code != survivor_status;
        if (!e.status.success() && !survivor(e) && !e.forced && first_failed_ < 0)
            first_failed_ = static_cast<int>(r);
        roster_line& line = arena_.rank(r);
        line.status = *status;
        line.ended.store(1, std::memory_order_release);
    }
    static bool survivor(const entry& e) noexcept {
        return e.status.signal == 0 && e.status.code == survivor_status;
    }
    void send(int signal) {
        for (const entry& e : ranks_)
            if (!e.over) e.process.send(signal);
    }
    /// The rank whose failure came first: what the ranks recorded, if that rank has failed; else what was seen
    /// first.
    int culprit() const {
        if (const auto f = arena_.header().first.read(); f && f->about < ranks_.size()) {
            const entry& e = ranks_[f->about];
            if (e.over && !e.status.success() && !survivor(e)) return static_cast<int>(f->about);
            if (!e.over) return -1;  // it will fail in a moment
        }
        return first_failed_;
    }
    void report(bool all) {
        const int first = culprit();
        if (first >= 0) tell(static_cast<std::uint32_t>(first));
        if (first < 0 && !all) return;
        for (std::uint32_t r = 0; r < ranks_.size(); ++r) tell(r);
    }
    void tell(std::uint32_t r) {
        entry& e = ranks_[r];
        if (!e.over || e.told || e.status.success()) return;
        e.told = true;
        stderr_observer{}({severity::warning, "launch", say::rank_ended(r, e.process.pid(), e.status, e.forced)});
    }
    int status() const {
        if (const int c = culprit(); c >= 0) return ranks_[static_cast<std::size_t>(c)].status.shell_status();
        for (const entry& e : ranks_)
            if (!e.status.success()) return e.status.shell_status();
        return 0;
    }

    world_arena arena_;
    launch_options options_;
    std::vector<entry> ranks_;
    int first_failed_ = -1;
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/channel_memory.hpp --------------------------------------------------------------

// A channel's shared memory, by name.

namespace trireme::detail {

/// The memory of a channel, by name.
class channel_memory {
  public:
    channel_memory(std::byte* base, channel_layout layout) : base_(base), layout_(layout) {}

    const channel_layout& layout() const noexcept { return layout_; }
    channel_header& header() const noexcept { return *reinterpret_cast<channel_header*>(base_); }
    rank_counters& counters(std::uint32_t r) const noexcept {
        return reinterpret_cast<rank_counters*>(base_ + layout_.counters)[r];
    }
    rank_bell& bell(std::uint32_t r) const noexcept {
        return reinterpret_cast<rank_bell*>(base_ + layout_.bells)[r];
    }
    op_entry& entry(std::uint32_t r, std::uint64_t n) const noexcept {
        std::byte* const ring = base_ + layout_.rings + r * channel_layout::ring_stride;
        return reinterpret_cast<op_entry*>(ring)[n % channel_layout::entries];
    }
    /// Where the small input of operation n lies: in its entry, or in a slot of its own.
    std::byte* payload(std::uint32_t r, std::uint64_t n, std::size_t bytes) const noexcept {
        if (bytes <= op_entry::inline_bytes) return entry(r, n).bytes;
        return base_ + layout_.payloads + r * channel_layout::payload_stride +
               n % channel_layout::payload_slots * channel_layout::payload_bytes;
    }
    std::byte* stage(std::uint32_t r, std::uint64_t slot) const noexcept {
        return base_ + layout_.stages + (r * std::size_t{4} + slot) * layout_.stage_stride();
    }

  private:
    std::byte* base_;
    channel_layout layout_;
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/full_fence.hpp ------------------------------------------------------------------

// A full memory fence: stores before it are visible before loads after it read.

namespace trireme::detail {

inline void full_fence() noexcept {
#if defined(__SANITIZE_THREAD__)
    // g++ refuses fences in this mode, because ThreadSanitizer does not see them; a locked operation is one.
    std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace trireme::detail

// ---- trireme/dist/detail/watch.hpp -----------------------------------------------------------------------

// Who tells a waiting rank that its wait is in vain: a watch knows whether the job has failed and which ranks are
// dead.

namespace trireme::detail {

/// What a channel asks between two slices of a wait.
///
///   cause()      the failure that the job as a whole has recorded, if any
///   dead(rank)   how that rank ended ("rank 1 (pid 4711) was killed by signal 9 (SIGKILL)"), empty while it lives
///   first(t)     records `t` for the job unless something is recorded already; returns what is recorded
///
/// The compiler cannot check: after dead(r) answered, no store of that rank arrives any more.
template <class W>
concept watch = requires(W& w, std::uint32_t r, failure t) {
    { w.cause() } -> std::same_as<std::optional<failure>>;
    { w.dead(r) } -> std::same_as<std::optional<std::string>>;
    { w.first(std::move(t)) } -> std::same_as<failure>;
};

/// For ranks that are threads of one process: they cannot die alone.
struct no_watch {
    std::optional<failure> cause() const { return std::nullopt; }
    std::optional<std::string> dead(std::uint32_t) const { return std::nullopt; }
    failure first(failure t) const { return t; }
};
static_assert(watch<no_watch>);

}  // namespace trireme::detail

// ---- trireme/dist/detail/channel_wait.hpp ----------------------------------------------------------------

// How ranks meet on a channel: what a rank publishes, how another waits for it, and what ends a wait that is in
// vain.

namespace trireme::detail {

struct channel_settings {
    const char* name = "channel";
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< of a wait that names no deadline
    std::chrono::nanoseconds spin{0};                             ///< before a wait parks
};

/// One rank's end of a channel, without the operations.
template <watch Watch>
class channel_end {
  public:
    channel_end(channel_memory memory, std::uint32_t me, channel_settings settings, Watch& watch)
        : shared_(memory), me_(me), settings_(settings), watch_(&watch) {}
    channel_end(const channel_end&) = delete;
    channel_end& operator=(const channel_end&) = delete;
    ~channel_end() {
        // An exception on its way out is about to be told (launch does); "it left" must not be told first.
        const bool thrown_out = std::uncaught_exceptions() > exceptions_at_birth_;
        shared_.bell(me_).left.store(thrown_out ? 2 : 1, std::memory_order_seq_cst);
        ring_all();
    }

    std::uint32_t rank() const noexcept { return me_; }
    std::uint32_t size() const noexcept { return shared_.layout().ranks; }
    const channel_settings& settings() const noexcept { return settings_; }
    void set_timeout(std::chrono::nanoseconds t) noexcept { settings_.timeout = t; }
    void set_spin(std::chrono::nanoseconds t) noexcept { settings_.spin = t; }

    /// Ends the channel for every rank. They get `t` from their next wait at the latest.
    /// Threads  any
    void abort(const failure& t) noexcept {
        shared_.header().aborted.write(t);
        ring_all();
    }
    /// What ended this channel, if anything has.
    std::optional<failure> health() const { return shared_.header().aborted.read(); }
    /// Makes a wait of this rank in another thread look at its stop condition.
    /// Threads  any
    void nudge() noexcept {
        if (shared_.bell(me_).parked.load(std::memory_order_seq_cst) != 0) ring(me_);  // (P)
    }

  protected:
    enum class counter : std::uint8_t { entry, done, put, worked };
    /// A word of every rank, and the value that all of them must reach.
    struct need {
        const std::byte* first = nullptr;  // of rank 0
        std::size_t stride = 0;
        std::uint64_t target = 0;
        bool joined = false;  // whether who lacks it has joined the operation already
    };

    // --- what there is to see ---------------------------------------------------------------------------------

    need everyone(counter c, std::uint64_t target) const noexcept {
        const auto at = [](const std::atomic<std::uint64_t>& word) {
            return reinterpret_cast<const std::byte*>(&word);
        };
        const rank_counters& first = shared_.counters(0);
        switch (c) {
            case counter::entry:
                return {at(shared_.entry(0, target - 1).seq), channel_layout::ring_stride, target, false};
            case counter::done:
                return {at(first.done), sizeof(rank_counters), target, true};
            case counter::put:
                return {at(first.put), sizeof(rank_counters), target, true};
            case counter::worked:
                break;
        }
        return {at(first.worked), sizeof(rank_counters), target, true};
    }
    static std::uint64_t seen(const need& w, std::uint32_t r) noexcept {
        // seq_cst: a waiter that has stored `parked` must see whatever was published before (P).
        return reinterpret_cast<const std::atomic<std::uint64_t>*>(w.first + r * w.stride)
            ->load(std::memory_order_seq_cst);
    }
    /// The first rank that is not there yet, or size().
    std::uint32_t first_missing(const need& w) const noexcept {
        const std::uint32_t ranks = size();
        std::uint32_t r = 0;
        while (r < ranks && seen(w, r) >= w.target) ++r;
        return r;
    }
    bool all_there(const need& w) const noexcept { return first_missing(w) == size(); }
    bool done_everywhere(std::uint64_t target) noexcept {
        if (done_by_all_ >= target) return true;
        const need w = everyone(counter::done, target);
        std::uint64_t least = ~std::uint64_t{0};
        for (std::uint32_t r = 0; r < size(); ++r) {
            const auto d = seen(w, r);
            if (d < target) return false;
            least = (std::min)(least, d);
        }
        done_by_all_ = least;
        return true;
    }

    // --- publishing -------------------------------------------------------------------------------------------

    /// Lets every rank that looks see it. Those that sleep are told by `announce`, which is due before this rank
    /// sleeps itself or returns to its caller: an operation between ranks that spin pays for one fence, not for
    /// two.
    void publish(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
        word.store(value, std::memory_order_release);
        unannounced_ = true;
    }
    void announce() noexcept {
        if (!unannounced_) return;
        unannounced_ = false;
        full_fence();  // (P) pairs with the waiter's store of `parked`: one of the two sees the other
        for (std::uint32_t r = 0; r < size(); ++r)
            if (r != me_ && shared_.bell(r).parked.load(std::memory_order_seq_cst) == me_ + 1) ring(r);
    }
    void ring(std::uint32_t r) noexcept {
        shared_.bell(r).bell.fetch_add(1, std::memory_order_seq_cst);
        futex_wake(shared_.bell(r).bell);
    }
    void ring_all() noexcept {
        for (std::uint32_t r = 0; r < size(); ++r)
            if (shared_.bell(r).parked.load(std::memory_order_seq_cst) != 0) ring(r);
    }

    // --- waiting ----------------------------------------------------------------------------------------------

    /// True when every rank has got to `w`; false on `stop()`; throws when it is in vain. `what()` says for what it
    /// is.
    template <class Stop, class What>
    bool await(const need& w, std::optional<deadline> until, Stop stop, What what) {
        // A peer is often a few cache misses behind.
        for (int i = 0; settings_.spin.count() > 0 && i < 32; ++i) {
            if (all_there(w)) return true;
            cpu_relax();
        }
        announce();
        if (settings_.spin.count() > 0 && spin_for(w, stop)) return all_there(w);
        const auto start = deadline::clock::now();
        const deadline end = until ? *until : deadline::in(settings_.timeout);
        rank_bell& mine = shared_.bell(me_);
        constexpr auto look_every = std::chrono::milliseconds(50);
        auto next_look = start + look_every;
        for (;;) {
            std::uint32_t r = first_missing(w);
            if (r == size()) return true;
            if (stop()) return false;
            mine.parked.store(r + 1, std::memory_order_seq_cst);  // (P)
            const std::uint32_t heard = mine.bell.load(std::memory_order_seq_cst);
            r = first_missing(w);
            if (r < size() && !stop() && !shared_.header().aborted.any() &&
                shared_.bell(r).left.load(std::memory_order_seq_cst) != 1 &&
                mine.parked.load(std::memory_order_relaxed) == r + 1)
                futex_wait(mine.bell, heard, end.slice(look_every));
            mine.parked.store(0, std::memory_order_relaxed);
            if (all_there(w)) return true;
            throw_if_aborted();
            const auto now = deadline::clock::now();
            const bool ended = end.passed();
            if (now >= next_look || ended || shared_.bell(first_of(w)).left.load(std::memory_order_seq_cst) == 1) {
                next_look = now + look_every;
                look(w, ended, now - start, what);
            }
        }
    }
    std::uint32_t first_of(const need& w) const noexcept { return (std::min)(first_missing(w), size() - 1); }

    template <class Stop>
    bool spin_for(const need& w, Stop stop) const noexcept {
        const auto end = deadline::clock::now() + settings_.spin;
        do {
            for (int i = 0; i < 64; ++i) {
                if (all_there(w)) return true;
                cpu_relax();
            }
            if (stop()) return true;
        } while (deadline::clock::now() < end);
        return false;
    }

    /// Is there still hope? Throws if not.
    template <class What>
    void look(const need& w, bool ended, std::chrono::nanoseconds waited, What what) {
        if (auto cause = watch_->cause()) fail(std::move(*cause));
        std::vector<std::uint32_t> missing, gone;
        for (std::uint32_t r = 0; r < size(); ++r) {
            if (seen(w, r) >= w.target) continue;
            const auto how = shared_.bell(r).left.load(std::memory_order_seq_cst);
            const bool left = how == 1 || (how == 2 && waited > std::chrono::seconds(1));
            auto end = watch_->dead(r);
            // It may have finished this operation between our last look and its end: then that is no failure.
            if ((left || end) && seen(w, r) >= w.target) continue;
            missing.push_back(r);
            if (end) fail(watch_->first(say::peer_ended(r, *end, what(), w.joined)));
            if (left) gone.push_back(r);
        }
        if (!gone.empty()) fail(watch_->first(say::peer_left(gone, what())));
        if (ended && !missing.empty()) fail(say::nobody_came(missing, w.joined, what(), waited));
    }

    // --- failing ----------------------------------------------------------------------------------------------

    std::string me() const { return speaker(settings_.name, me_, size()); }
    [[noreturn]] void fail(failure t) {
        abort(t);
        failure_ = t;
        throw_failure(t, me());
    }
    void throw_if_aborted() {
        if (auto t = shared_.header().aborted.read()) {
            failure_ = t;
            throw_failure(*t, me());
        }
    }
    void refuse_if_failed() {
        if (failure_) throw_failure(say::group_is_dead(*failure_), me());
        if (shared_.header().aborted.any()) throw_if_aborted();
    }

    channel_memory shared_;
    std::uint32_t me_;
    channel_settings settings_;

  private:
    Watch* watch_;
    bool unannounced_ = false;
    std::uint64_t done_by_all_ = 0;  // a lower bound of what all ranks are done with
    std::optional<failure> failure_;
    int exceptions_at_birth_ = std::uncaught_exceptions();
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/reduce_block.hpp ----------------------------------------------------------------

// The inner loops of reductions: one element of every source, in order, to every destination, in blocks that stay
// in the first cache.

namespace trireme::detail {

/// Sources are added in order; the result goes to every destination. A destination may be one of the sources.
struct reduce_job {
    const std::byte* const* sources = nullptr;
    std::byte* const* destinations = nullptr;
    std::uint32_t source_count = 0;
    std::uint32_t destination_count = 0;
    std::uint32_t ranks = 1;  ///< what a mean divides by
    std::size_t count = 0;    ///< elements
};
using reduce_function = void (*)(const reduce_job&);

// Loops of a constant number of rounds over restricted pointers: that is what g++ -O2 vectorises.
inline constexpr std::size_t lane = 64;

template <class R, class T>
inline void accumulate_lane(accumulator_t<T>* __restrict acc, const T* __restrict x) noexcept {
    for (std::size_t i = 0; i < lane; ++i) acc[i] = R::combine(acc[i], static_cast<accumulator_t<T>>(x[i]));
}
template <class T>
inline void load_lane(accumulator_t<T>* __restrict acc, const T* __restrict x) noexcept {
    for (std::size_t i = 0; i < lane; ++i) acc[i] = static_cast<accumulator_t<T>>(x[i]);
}
template <class T>
inline void store_lane(T* __restrict out, const accumulator_t<T>* __restrict acc) noexcept {
    for (std::size_t i = 0; i < lane; ++i) out[i] = static_cast<T>(acc[i]);
}

/// Two sources that are also the two destinations: the commonest case, in one pass.
template <class R, class T>
inline void pair_lane(T* __restrict a, T* __restrict b, [[maybe_unused]] T scale) noexcept {
    for (std::size_t i = 0; i < lane; ++i) {
        T v = R::combine(a[i], b[i]);
        if constexpr (std::same_as<R, reduce::mean_of>) v = v * scale;
        a[i] = v;
        b[i] = v;
    }
}
template <class R, class T>
void reduce_pair(T* a, T* b, std::size_t n) noexcept {
    constexpr T scale = std::same_as<R, reduce::mean_of> ? static_cast<T>(0.5) : static_cast<T>(1);
    std::size_t i = 0;
    for (; i + lane <= n; i += lane) pair_lane<R>(a + i, b + i, scale);
    for (; i < n; ++i) {
        T v = R::combine(a[i], b[i]);
        if constexpr (std::same_as<R, reduce::mean_of>) v = v * scale;
        a[i] = v;
        b[i] = v;
    }
}

/// Divides by the number of ranks: by an exact reciprocal where there is one, which rounds in the same way.
template <class A>
void divide_block(A* acc, std::size_t n, std::uint32_t ranks) noexcept {
    const A by = static_cast<A>(ranks);
    if (std::has_single_bit(ranks)) {
        const A reciprocal = static_cast<A>(1) / by;
        for (std::size_t i = 0; i < n; ++i) acc[i] *= reciprocal;
    } else {
        for (std::size_t i = 0; i < n; ++i) acc[i] /= by;
    }
}

template <class R, class T>
void reduce_blocks(const reduce_job& job) noexcept {
    using A = accumulator_t<T>;
    const auto source = [&](std::uint32_t s) { return reinterpret_cast<const T*>(job.sources[s]); };
    const auto destination = [&](std::uint32_t d) { return reinterpret_cast<T*>(job.destinations[d]); };
    if constexpr (std::same_as<A, T>) {
        if (job.source_count == 2 && job.destination_count == 2 && job.ranks == 2 &&
            job.sources[0] == job.destinations[0] && job.sources[1] == job.destinations[1]) {
            reduce_pair<R>(destination(0), destination(1), job.count);
            return;
        }
    }
    constexpr std::size_t block = 4_KiB / sizeof(A);
    alignas(cache_line) A acc[block];
    [[maybe_unused]] alignas(cache_line) T narrow[block];
    for (std::size_t at = 0; at < job.count; at += block) {
        const std::size_t n = (std::min)(block, job.count - at);
        const std::size_t whole = n - n % lane;
        for (std::uint32_t s = 0; s < job.source_count; ++s) {
            const T* const x = source(s) + at;
            if (s == 0) {
                for (std::size_t i = 0; i < whole; i += lane) load_lane<T>(acc + i, x + i);
                for (std::size_t i = whole; i < n; ++i) acc[i] = static_cast<A>(x[i]);
            } else {
                for (std::size_t i = 0; i < whole; i += lane) accumulate_lane<R, T>(acc + i, x + i);
                for (std::size_t i = whole; i < n; ++i) acc[i] = R::combine(acc[i], static_cast<A>(x[i]));
            }
        }
        if constexpr (std::same_as<R, reduce::mean_of>) divide_block(acc, n, job.ranks);
        const std::byte* result = reinterpret_cast<const std::byte*>(acc);
        if constexpr (!std::same_as<A, T>) {
            for (std::size_t i = 0; i < whole; i += lane) store_lane<T>(narrow + i, acc + i);
            for (std::size_t i = whole; i < n; ++i) narrow[i] = static_cast<T>(acc[i]);
            result = reinterpret_cast<const std::byte*>(narrow);
        }
        for (std::uint32_t d = 0; d < job.destination_count; ++d)
            std::memcpy(destination(d) + at, result, n * sizeof(T));
    }
}

}  // namespace trireme::detail

// ---- trireme/dist/detail/operation.hpp -------------------------------------------------------------------

// An operation as one rank asks for it, which part of it this rank does, and how it is cut into staged chunks. Pure
// functions over memory: no waiting, no sharing.

namespace trireme::detail {

/// `count` is elements of `data` (all_reduce, broadcast), of the input (all_gather) or of the output
/// (reduce_scatter). Where input and output are the same buffer, `in == out`.
struct request {
    op_signature signature;
    std::uint64_t count = 0;
    const std::byte* in = nullptr;
    std::size_t in_bytes = 0;
    std::byte* out = nullptr;
    reduce_function reduce = nullptr;

    /// Whether rank `r` contributes input.
    bool gives(std::uint32_t r) const noexcept {
        return signature.kind != op_kind::barrier && (signature.kind != op_kind::broadcast || signature.root == r);
    }
};

struct slice {
    std::size_t begin = 0, end = 0;
    constexpr std::size_t count() const noexcept { return end - begin; }
};
/// The elements that rank `r` owns: whole cache lines, so that two ranks never write to one line of a buffer.
/// `width` is a power of two.
constexpr slice slice_of(std::size_t count, std::size_t width, std::uint32_t r, std::uint32_t ranks) noexcept {
    const int shift = std::countr_zero(cache_line) - std::countr_zero(width);
    const std::size_t lines = (count + (std::size_t{1} << shift) - 1) >> shift;
    const auto border = [&](std::size_t i) { return (std::min)(count, (lines * i / ranks) << shift); };
    return {r == 0 ? 0 : border(r), r + 1 == ranks ? count : border(r + 1)};
}

inline void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

/// Makes this rank's result by reading the inputs of all ranks; writes nothing but `out`.
inline void pull(const request& q, const std::byte** sources, std::uint32_t me, std::uint32_t ranks) {
    const std::size_t width = size_of(q.signature.type);
    const std::size_t bytes = q.count * width;
    switch (q.signature.kind) {
        case op_kind::all_reduce:
            q.reduce({sources, &q.out, ranks, 1, ranks, q.count});
            break;
        case op_kind::reduce_scatter:
            for (std::uint32_t r = 0; r < ranks; ++r) sources[r] += me * bytes;
            q.reduce({sources, &q.out, ranks, 1, ranks, q.count});
            break;
        case op_kind::all_gather:
            for (std::uint32_t r = 0; r < ranks; ++r) copy(q.out + r * bytes, sources[r], bytes);
            break;
        case op_kind::broadcast:
            if (me != q.signature.root) copy(q.out, sources[q.signature.root], bytes);
            break;
        case op_kind::barrier:
            break;
    }
}

/// How an operation on private memory goes through slots of `stage_bytes`: `chunks` times put, work, take.
///
/// all_reduce       chunk k is a range of the vector; of it I put what others own, combine what I own, take the
/// rest reduce_scatter   chunk k is one range of every rank's part: the slot holds one piece for each rank
/// all_gather       chunk k is a range of the input
/// broadcast        the same, and only the root puts
struct staging_plan {
    std::uint64_t chunks = 0;
    std::size_t per_chunk = 0;  ///< elements: of a chunk, or of one rank's piece of it (reduce_scatter)
    std::uint32_t ranks = 1;

    staging_plan() = default;
    staging_plan(const request& q, std::uint32_t rank_count, std::size_t stage_bytes) : ranks(rank_count) {
        per_chunk = stage_bytes / size_of(q.signature.type);
        if (q.signature.kind == op_kind::reduce_scatter) per_chunk = (std::max)(per_chunk / ranks, std::size_t{1});
        chunks = (q.count + per_chunk - 1) / per_chunk;
    }

    slice elements(const request& q, std::uint64_t k) const noexcept {
        return {k * per_chunk, (std::min)(static_cast<std::size_t>(q.count), (k + 1) * per_chunk)};
    }

    void put(const request& q, std::uint64_t k, std::byte* slot, std::uint32_t me) const noexcept {
        const std::size_t w = size_of(q.signature.type);
        const slice c = elements(q, k);
        switch (q.signature.kind) {
            case op_kind::all_reduce:
                for (std::uint32_t r = 0; r < ranks; ++r) {
                    if (r == me) continue;
                    const slice s = slice_of(c.count(), w, r, ranks);
                    copy(slot + s.begin * w, q.in + (c.begin + s.begin) * w, s.count() * w);
                }
                break;
            case op_kind::reduce_scatter:
                for (std::uint32_t r = 0; r < ranks; ++r)
                    if (r != me) copy(slot + r * per_chunk * w, q.in + (r * q.count + c.begin) * w, c.count() * w);
                break;
            case op_kind::all_gather:
            case op_kind::broadcast:
                if (q.gives(me)) copy(slot, q.in + c.begin * w, c.count() * w);
                break;
            case op_kind::barrier:
                break;
        }
    }

    /// `slots[r]` is where rank r has put chunk k; `result` is my slot for what others take.
    void work(const request& q, std::uint64_t k, const std::byte** slots, std::byte* result,
              std::uint32_t me) const noexcept {
        const std::size_t w = size_of(q.signature.type);
        const slice c = elements(q, k);
        switch (q.signature.kind) {
            case op_kind::all_reduce: {
                const slice s = slice_of(c.count(), w, me, ranks);
                for (std::uint32_t r = 0; r < ranks; ++r)
                    slots[r] = r == me ? q.in + (c.begin + s.begin) * w : slots[r] + s.begin * w;
                std::byte* const to[] = {q.out + (c.begin + s.begin) * w, result + s.begin * w};
                q.reduce({slots, to, ranks, 2, ranks, s.count()});
                break;
            }
            case op_kind::reduce_scatter: {
                for (std::uint32_t r = 0; r < ranks; ++r)
                    slots[r] = r == me ? q.in + (me * q.count + c.begin) * w : slots[r] + me * per_chunk * w;
                std::byte* const to[] = {q.out + c.begin * w};
                q.reduce({slots, to, ranks, 1, ranks, c.count()});
                break;
            }
            case op_kind::all_gather:
                for (std::uint32_t r = 0; r < ranks; ++r)
                    copy(q.out + (r * q.count + c.begin) * w, r == me ? q.in + c.begin * w : slots[r],
                         c.count() * w);
                break;
            case op_kind::broadcast:
                if (me != q.signature.root) copy(q.out + c.begin * w, slots[q.signature.root], c.count() * w);
                break;
            case op_kind::barrier:
                break;
        }
    }

    /// `slots[r]` holds rank r's result of chunk k.
    void take(const request& q, std::uint64_t k, const std::byte** slots, std::uint32_t me) const noexcept {
        if (q.signature.kind != op_kind::all_reduce) return;
        const std::size_t w = size_of(q.signature.type);
        const slice c = elements(q, k);
        for (std::uint32_t r = 0; r < ranks; ++r) {
            if (r == me) continue;
            const slice s = slice_of(c.count(), w, r, ranks);
            copy(q.out + (c.begin + s.begin) * w, slots[r] + s.begin * w, s.count() * w);
        }
    }
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/channel.hpp ---------------------------------------------------------------------

// The collective engine: one rank's end of a channel (channel_layout.hpp).
//
// Operation n goes like this. Every rank publishes its entry n (A). When the entries of all ranks are there, each
// rank compares them before any data changes, then does its part: it reduces the slice it owns, reading the buffers
// of all ranks in rank order and writing the result to all of them, and counts itself done (B). The operation is
// complete when all are done: 2n bytes of memory traffic a rank, the lower bound, and two waits. Payloads that fit
// in the entries need only (A): every rank sums all of them itself. Memory that peers cannot reach goes through
// staging slots in chunks (C). All three are steps of one machine that never blocks, so progress can be made from
// anywhere.

namespace trireme::detail {

/// One rank's end. Not thread-safe: one thread at a time.
template <watch Watch>
class channel : public channel_end<Watch> {
    using end = channel_end<Watch>;
    using end::all_there;
    using end::announce;
    using end::await;
    using end::done_everywhere;
    using end::everyone;
    using end::fail;
    using end::me_;
    using end::publish;
    using end::refuse_if_failed;
    using end::shared_;
    using typename end::counter;
    using typename end::need;

  public:
    using end::size;

    /// `base` is zeroed memory of `layout.total` bytes that all ranks share, and outlives this.
    channel(std::byte* base, channel_layout layout, std::uint32_t me, channel_settings settings, Watch& watch)
        : end(channel_memory(base, layout), me, settings, watch),
          local_(channel_layout::entries),
          sources_(layout.ranks),
          destinations_(layout.ranks) {}

    /// Memory that every rank can reach: rank r's block starts at `base + r * stride`. Same order on every rank.
    void add_segment(std::byte* base, std::size_t stride, std::size_t bytes) {
        segments_.push_back({base, stride, bytes});
    }

    /// Publishes an operation and returns its number. Waits only when 64 of them are in flight.
    std::uint64_t post(const request& r) {
        const std::uint64_t n = put_down(r, {});
        announce();
        return n;
    }

    /// Does what can be done now, without waiting. True when an operation got further.
    bool progress() {
        refuse_if_failed();
        bool any = false;
        while (step()) any = true;
        announce();
        return any;
    }
    /// True when operation `n` is over on this rank: its result is there, and nobody touches its memory any more.
    bool complete(std::uint64_t n) noexcept {
        if (finished_ <= n) return false;
        if (size() == 1) return true;
        if (posted_ - n > channel_layout::entries) return true;  // its entry was reused, so everybody was done
        return !local_[n % channel_layout::entries].read_by_others || done_everywhere(n + 1);
    }
    void wait(std::uint64_t n, std::optional<deadline> until = {}) {
        static_cast<void>(wait_unless(n, until, [] { return false; }));
    }
    /// As wait, but returns false as soon as `stop()`, which another thread makes true and then calls `nudge`.
    template <class Stop>
    bool wait_unless(std::uint64_t n, std::optional<deadline> until, Stop stop) {
        refuse_if_failed();
        for (;;) {
            while (step()) {}
            if (complete(n)) {
                announce();
                return true;
            }
            const std::uint64_t oldest = (std::min)(n, finished_);
            if (!await(what_is_missing(n), until, stop, [&] { return described(oldest); })) return false;
        }
    }
    void run(const request& r, std::optional<deadline> until = {}) { wait(put_down(r, until), until); }

  private:
    struct segment {
        std::byte* base = nullptr;
        std::size_t stride = 0;
        std::size_t bytes = 0;
    };
    struct operation {
        request ask;
        enum class way : std::uint8_t { waiting, inlined, direct, staged } how = way::waiting;
        bool read_by_others = false;
        staging_plan staging;
        std::uint64_t put = 0, worked = 0, taken = 0;  // chunks of this operation
        std::uint64_t put_base = 0;                    // chunks of the channel before it
    };

    // --- posting ----------------------------------------------------------------------------------------------

    std::uint64_t put_down(const request& r, std::optional<deadline> until) {
        refuse_if_failed();
        const std::uint64_t n = posted_;
        make_room(n, until);
        operation& o = local_[n % channel_layout::entries];
        o.ask = r;
        o.how = operation::way::waiting;
        o.read_by_others = false;
        op_entry& e = shared_.entry(me_, n);
        e.signature = r.signature.packed();
        e.count = r.count;
        e.place = 0;
        e.payload = 0;
        if (r.gives(me_) && size() > 1) {
            if (r.in_bytes > op_entry::inline_bytes) e.place = place_of(r.in, r.in_bytes);
            // A copy costs more than the second wait of the direct way from about 512 bytes on, but much less than
            // the staged way, which private memory would have to take.
            const std::size_t small_enough = e.place != 0 ? 512 : channel_layout::payload_bytes;
            if (r.in_bytes <= op_entry::inline_bytes || (r.in_bytes <= small_enough && slot_is_free(n))) {
                e.payload = 1 + static_cast<std::uint32_t>(r.in_bytes);
                if (r.in_bytes > 0) std::memcpy(shared_.payload(me_, n, r.in_bytes), r.in, r.in_bytes);
            }
        }
        posted_ = n + 1;
        publish(e.seq, n + 1);  // (A)
        return n;
    }
    void make_room(std::uint64_t n, std::optional<deadline> until) {
        if (n < channel_layout::entries) return;
        const std::uint64_t target = n - channel_layout::entries + 1;  // entry n takes the place of n - 64
        if (size() == 1) {
            while (step()) {}
            return;
        }
        while (!done_everywhere(target)) {
            while (step()) {}
            const std::uint64_t oldest = (std::min)(target - 1, finished_);
            await(
                finished_ < target ? what_is_missing(target - 1) : everyone(counter::done, target), until,
                [] { return false; }, [&] { return described(oldest); });
        }
    }
    bool slot_is_free(std::uint64_t n) noexcept {
        return n < channel_layout::payload_slots || done_everywhere(n - channel_layout::payload_slots + 1);
    }
    std::uint64_t place_of(const std::byte* p, std::size_t bytes) const noexcept {
        for (std::size_t s = segments_.size(); s-- > 0;) {
            const std::byte* const mine = segments_[s].base + me_ * segments_[s].stride;
            if (p >= mine && p + bytes <= mine + segments_[s].bytes)
                return (static_cast<std::uint64_t>(s) + 1) << 48 | static_cast<std::uint64_t>(p - mine);
        }
        return 0;
    }
    std::byte* at_place(std::uint32_t r, std::uint64_t place) const noexcept {
        const segment& s = segments_[(place >> 48) - 1];
        return s.base + r * s.stride + (place & 0xffffffffffffULL);
    }

    // --- the machine ------------------------------------------------------------------------------------------

    /// One step of the oldest operation that is not finished here. False when it has to wait, or there is none.
    bool step() {
        if (finished_ == posted_) return false;
        operation& o = local_[finished_ % channel_layout::entries];
        if (size() == 1) {  // whatever the operation, the result is the input
            copy(o.ask.out, o.ask.in, o.ask.in_bytes);
            ++finished_;
            return true;
        }
        if (o.how == operation::way::waiting) {
            if (!all_there(everyone(counter::entry, finished_ + 1))) return false;
            compare_entries();
            choose_way(o);
        }
        switch (o.how) {
            case operation::way::inlined:
                run_inlined(o);
                break;
            case operation::way::direct:
                run_direct(o);
                break;
            case operation::way::staged:
                if (!step_staged(o)) return false;
                if (o.taken < o.staging.chunks) return true;
                break;
            case operation::way::waiting:
                return false;
        }
        publish(shared_.counters(me_).done, ++finished_);  // (B)
        return true;
    }

    void compare_entries() {
        const op_entry& mine = shared_.entry(me_, finished_);
        for (std::uint32_t r = 0; r < size(); ++r) {
            const op_entry& e = shared_.entry(r, finished_);
            if (e.signature != mine.signature || e.count != mine.count) refuse_mismatch();
        }
    }
    [[noreturn]] void refuse_mismatch() {
        const op_entry& first = shared_.entry(0, finished_);
        std::vector<std::uint32_t> like_first, like_other;
        const op_entry* other = nullptr;
        for (std::uint32_t r = 0; r < size(); ++r) {
            const op_entry& e = shared_.entry(r, finished_);
            if (e.signature == first.signature && e.count == first.count) {
                like_first.push_back(r);
            } else if (other == nullptr || (e.signature == other->signature && e.count == other->count)) {
                other = &e;
                like_other.push_back(r);
            }
        }
        fail(say::collectives_differ(
            finished_, describe(op_signature::unpack(first.signature), first.count), list_ranks(like_first),
            describe(op_signature::unpack(other->signature), other->count), list_ranks(like_other)));
    }

    void choose_way(operation& o) {
        const request& q = o.ask;
        bool payloads = true, reachable = true;
        for (std::uint32_t r = 0; r < size(); ++r) {
            if (!q.gives(r)) continue;
            const op_entry& e = shared_.entry(r, finished_);
            payloads = payloads && e.payload != 0;
            reachable = reachable && e.place != 0;
        }
        if (payloads || q.in_bytes == 0) {
            o.how = operation::way::inlined;
        } else if (reachable) {
            o.how = operation::way::direct;
            o.read_by_others = q.gives(me_);
        } else {
            o.how = operation::way::staged;
            o.staging = staging_plan(q, size(), shared_.layout().stage_bytes);
            o.put = o.worked = o.taken = 0;
            o.put_base = staged_chunks_;
            staged_chunks_ += o.staging.chunks;
        }
    }

    void run_inlined(operation& o) {
        if (o.ask.in_bytes == 0) return;
        for (std::uint32_t r = 0; r < size(); ++r) sources_[r] = shared_.payload(r, finished_, o.ask.in_bytes);
        pull(o.ask, sources_.data(), me_, size());
    }
    void run_direct(operation& o) {
        const request& q = o.ask;
        for (std::uint32_t r = 0; r < size(); ++r) {
            const op_entry& e = shared_.entry(r, finished_);
            sources_[r] = e.place != 0 ? at_place(r, e.place) : nullptr;
        }
        if (q.signature.kind != op_kind::all_reduce) {
            pull(q, sources_.data(), me_, size());
            return;
        }
        const std::size_t width = size_of(q.signature.type);
        const slice mine = slice_of(q.count, width, me_, size());
        for (std::uint32_t r = 0; r < size(); ++r) {
            destinations_[r] = const_cast<std::byte*>(sources_[r]) + mine.begin * width;
            sources_[r] = destinations_[r];
        }
        q.reduce({sources_.data(), destinations_.data(), size(), size(), size(), mine.count()});
    }

    /// (C) Three sub-steps a chunk, two chunks in flight: put what others need into my slot, combine my part of
    /// everybody's, take the parts that others combined. A chunk's slots are free again once all have combined it.
    bool step_staged(operation& o) {
        bool any = false;
        const staging_plan& plan = o.staging;
        rank_counters& mine = shared_.counters(me_);
        if (o.put < plan.chunks && o.put < o.taken + 2) {
            plan.put(o.ask, o.put, shared_.stage(me_, o.put & 1), me_);
            publish(mine.put, o.put_base + ++o.put);
            any = true;
        }
        if (o.worked < o.put && all_there(everyone(counter::put, o.put_base + o.worked + 1))) {
            for (std::uint32_t r = 0; r < size(); ++r) sources_[r] = shared_.stage(r, o.worked & 1);
            plan.work(o.ask, o.worked, sources_.data(), shared_.stage(me_, 2 + (o.worked & 1)), me_);
            publish(mine.worked, o.put_base + ++o.worked);
            any = true;
        }
        if (o.taken < o.worked && all_there(everyone(counter::worked, o.put_base + o.taken + 1))) {
            for (std::uint32_t r = 0; r < size(); ++r) sources_[r] = shared_.stage(r, 2 + (o.taken & 1));
            plan.take(o.ask, o.taken, sources_.data(), me_);
            ++o.taken;
            any = true;
        }
        return any;
    }

    // --- waiting ----------------------------------------------------------------------------------------------

    need what_is_missing(std::uint64_t n) const noexcept {
        if (finished_ > n) return everyone(counter::done, n + 1);
        const operation& o = local_[finished_ % channel_layout::entries];
        if (o.how != operation::way::staged) return everyone(counter::entry, finished_ + 1);
        if (o.taken < o.worked) return everyone(counter::worked, o.put_base + o.taken + 1);
        return everyone(counter::put, o.put_base + o.worked + 1);
    }

    /// "all_reduce(sum) of 1000 float (operation 12)"
    std::string described(std::uint64_t n) const {
        const request& q = local_[n % channel_layout::entries].ask;
        return describe(q.signature, q.count) + " (operation " + std::to_string(n) + ")";
    }

    std::vector<operation> local_;  // the ring of this rank's operations, without what others need to see
    std::vector<segment> segments_;
    std::vector<const std::byte*> sources_;  // scratch
    std::vector<std::byte*> destinations_;   // scratch
    std::uint64_t posted_ = 0;
    std::uint64_t finished_ = 0;       // operations that this rank has done its part of
    std::uint64_t staged_chunks_ = 0;  // chunks of the staged operations so far: the same on every rank
};

}  // namespace trireme::detail

// ---- trireme/dist/detail/world_watch.hpp -----------------------------------------------------------------

// The death watch of a world: a pidfd for every other rank, and the record of what failed first.

namespace trireme::detail {

/// Threads  any; every channel of the world asks this
class world_watch {
  public:
    world_watch(world_arena arena, std::uint32_t me) : arena_(arena), me_(me), peers_(arena.ranks()) {}

    std::optional<failure> cause() const { return arena_.header().first.read(); }

    /// How rank `r` ended, empty while it lives or has not come yet.
    std::optional<std::string> dead(std::uint32_t r) {
        if (r == me_) return std::nullopt;
        const std::scoped_lock hold(lock_);
        roster_line& line = arena_.rank(r);
        if (line.ended.load(std::memory_order_acquire) == 0) {
            peer& p = peers_[r];
            if (!p.known) {
                p.pid = line.pid.load(std::memory_order_acquire);
                if (p.pid == 0) return std::nullopt;
                p.handle = pidfd::open(p.pid);
                // The number may have been given to another process between its end and our call.
                if (p.handle.valid() &&
                    process_start_time(p.pid) != line.start_time.load(std::memory_order_relaxed) &&
                    !p.handle.dead())
                    p.handle = pidfd();
                p.known = true;
            }
            if (p.handle.valid() && !p.handle.dead()) return std::nullopt;
            // The launcher writes how it ended as soon as it has reaped it, about now.
            if (arena_.header().launcher != 0)
                for (int i = 0; i < 100 && line.ended.load(std::memory_order_acquire) == 0; ++i) ::usleep(2000);
        }
        return "rank " + std::to_string(r) + " (pid " + std::to_string(line.pid.load(std::memory_order_relaxed)) +
               ") " + (line.ended.load(std::memory_order_acquire) != 0 ? describe(line.status) : "died");
    }

    /// The first failure of the job: this one, unless there is one.
    failure first(failure f) {
        if (arena_.header().first.write(f)) return f;
        auto earlier = cause();
        return earlier ? *std::move(earlier) : std::move(f);
    }

  private:
    struct peer {
        bool known = false;
        pid_t pid = 0;
        pidfd handle;
    };
    world_arena arena_;
    std::uint32_t me_;
    std::mutex lock_;
    std::vector<peer> peers_;
};
static_assert(watch<world_watch>);

}  // namespace trireme::detail

// ---- trireme/dist/detail/world_state.hpp -----------------------------------------------------------------

// A world as one process holds it: the arena, its place in it, and the sockets over which descriptors travel.

namespace trireme {

struct world_options {
    std::chrono::nanoseconds start_timeout = std::chrono::seconds(60);  ///< until every rank has joined
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);        ///< of a call that names no deadline
    std::chrono::nanoseconds spin = std::chrono::nanoseconds(-1);  ///< before a wait sleeps; negative: 100 us if
                                                                   ///< every local rank has a CPU, else none
};

}  // namespace trireme

namespace trireme::detail {

class world_state {
  public:
    /// `links`: on rank 0 one socket for every other rank (index = rank), else one, to rank 0.
    world_state(environment place, mapping arena, std::vector<private_descriptor> links, world_options o)
        : world_state(std::move(place), std::move(arena), backing::heap(), std::move(links), o) {}
    /// A world of one, in memory of its own.
    explicit world_state(world_options o)
        : world_state(environment{}, mapping(), backing::heap("world of one", world_layout(1).total), {}, o) {}
    world_state(const world_state&) = delete;
    world_state& operator=(const world_state&) = delete;

    const environment& place() const noexcept { return place_; }
    std::uint32_t rank() const noexcept { return place_.rank; }
    std::uint32_t size() const noexcept { return place_.size; }
    const world_options& options() const noexcept { return options_; }
    /// How long waits spin. Every rank calls it: where ranks are pinned, only all of them together know.
    std::chrono::nanoseconds settle_spin() {
        if (options_.spin.count() >= 0) return options_.spin;
        const affinity_mask mine = affinity_mask::mine();
        std::vector<affinity_mask> all(size());
        control_.run({{op_kind::all_gather, dtype::bytes, 0, 0},
                      sizeof mine,
                      reinterpret_cast<const std::byte*>(&mine),
                      sizeof mine,
                      reinterpret_cast<std::byte*>(all.data()),
                      nullptr});
        const auto spin = spin_budget(everybody_has_a_cpu(all));
        control_.set_spin(spin);
        return spin;
    }
    world_watch& watch() noexcept { return watch_; }
    channel<world_watch>& control() noexcept { return control_; }
    const world_arena& arena() const noexcept { return arena_; }
    std::string me() const { return speaker("world", rank(), size()); }

    /// The descriptor that rank 0 gives, on every rank; rank 0 passes it, the others an empty one.
    fd share(fd_ref mine, std::optional<deadline> until) {
        const deadline end = until ? *until : deadline::in(options_.timeout);
        ++shares_;
        if (rank() == 0) {
            const int number = mine.get();
            for (std::uint32_t r = 1; r < size(); ++r) {
                if (send_message(links_[r].ref(), std::as_bytes(std::span(&shares_, 1)), std::span(&number, 1),
                                 end))
                    continue;
                fail_link(r, end);
            }
            return fd(::fcntl(number, F_DUPFD_CLOEXEC, 0));
        }
        for (;;) {
            std::uint64_t number = 0;
            std::size_t length = 0;
            std::vector<fd> got;
            switch (receive_message(links_[0].ref(), std::as_writable_bytes(std::span(&number, 1)), length, got,
                                    end.slice(std::chrono::milliseconds(50)))) {
                case received::message:
                    if (number == shares_ && got.size() == 1) return std::move(got.front());
                    throw system_error({"a descriptor of rank 0 did not arrive", me(),
                                        "see whether the limit of open files is reached (ulimit -n)"},
                                       EMFILE);
                case received::closed:
                    fail_link(0, end);
                case received::nothing:
                    if (auto f = watch_.cause()) throw_failure(*f, me());
                    if (watch_.dead(0) || end.passed()) fail_link(0, end);
            }
        }
    }

    /// What this rank failed of; every other rank's next wait throws it.
    void fail(const std::string& text) noexcept {
        watch_.first({errc::remote, "rank " + std::to_string(rank()) + " failed: " + text,
                      "see the output of rank " + std::to_string(rank()), rank()});
    }

  private:
    world_state(environment place, mapping arena, backing::heap heap, std::vector<private_descriptor> links,
                world_options o)
        : place_(std::move(place)),
          options_(o),
          mapped_(std::move(arena)),
          heap_(std::move(heap)),
          links_(std::move(links)),
          arena_(mapped_.size() != 0 ? mapped_.data() : heap_.data(), place_.size),
          watch_(arena_, place_.rank),
          control_(arena_.channel(), arena_.layout().control, place_.rank,
                   channel_settings{"world", o.timeout,
                                    o.spin.count() >= 0 ? o.spin : spin_budget(place_.local_size <= usable_cpus())},
                   watch_) {
        if (mapped_.size() != 0) mapped_.inherit(false);  // workers that this rank forks have no business here
        arena_.enter(place_.rank, ::getpid());
        set_local_ranks(place_.local_size);  // loaders and pools divide the host's CPUs by it
    }
    [[noreturn]] void fail_link(std::uint32_t r, deadline end) {
        // A closed socket is seen a moment before the process behind it is dead.
        for (int i = 0; i < 50; ++i) {
            if (auto gone = watch_.dead(r)) {
                const failure f = watch_.first(say::peer_ended(r, *gone, "the exchange of shared memory", true));
                throw_failure(f, me());
            }
            if (end.passed()) break;
            ::usleep(2000);
        }
        if (end.passed())
            throw timeout_error(
                {"rank " + std::to_string(r) + " did not take part in the exchange of shared memory", me(),
                 "see what that rank is doing (it is alive), or raise the timeout"});
        throw_failure(watch_.first(say::peer_left({r}, "the exchange of shared memory")), me());
    }

    environment place_;
    world_options options_;
    mapping mapped_;
    backing::heap heap_;
    std::vector<private_descriptor> links_;
    world_arena arena_;
    world_watch watch_;
    channel<world_watch> control_;
    std::uint64_t shares_ = 0;
};

}  // namespace trireme::detail

// ---- trireme/dist/store.hpp ------------------------------------------------------------------------------

// A store for finding each other: small values under names, in files of one folder.

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

// ---- trireme/dist/detail/rendezvous.hpp ------------------------------------------------------------------

// How processes that were started one by one find each other: rank 0 makes the arena, listens on an abstract socket
// with a random name, and writes that name into a file that the others can guess. Whoever connects proves by the
// random number that it read the file of this very process, so files left by dead jobs are harmless.

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

// ---- trireme/dist/detail/contiguous.hpp ------------------------------------------------------------------

// How the collectives take their data, and what they say when its size cannot be right.

namespace trireme::detail {

/// Anything contiguous: a vector, an array, a span.
template <class C>
concept contiguous = requires(C& c) {
    std::span(c);
};
template <contiguous C>
using element_of = typename decltype(std::span(std::declval<C&>()))::value_type;

inline message sizes_do_not_fit(const char* operation, std::size_t in, std::size_t out, std::uint32_t ranks,
                                std::string who) {
    return {std::string(operation) + " of " + std::to_string(in) + " elements into " + std::to_string(out) +
                " over " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"),
            std::move(who),
            std::string(operation) == "all_gather" ? "make the output as long as the inputs of all ranks together"
                                                   : "make the input as long as the outputs of all ranks together"};
}
inline message no_such_root(const char* operation, std::uint32_t root, std::uint32_t ranks, std::string who) {
    return {
        std::string(operation) + " from rank " + std::to_string(root) + " in a group of " + std::to_string(ranks),
        std::move(who), "name a rank from 0 to " + std::to_string(ranks - 1)};
}

}  // namespace trireme::detail

// ---- trireme/dist/detail/host_transport.hpp --------------------------------------------------------------

// What the transports between ranks of one host have in common: the user's calls, turned into requests of a
// channel. They differ in the fabric, which knows where shared memory comes from and who watches over the ranks.

namespace trireme {

struct transport_options {
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< of a collective that names no deadline
    std::optional<std::chrono::nanoseconds> spin =
        {};  ///< before a wait sleeps; default: 100 us if every rank has a CPU
};

}  // namespace trireme

namespace trireme::detail {

/// Any trivially copyable type moves as what it is, or as bytes.
template <class T>
constexpr std::size_t units(std::size_t elements) noexcept {
    return dtype_of<T> == dtype::bytes ? elements * sizeof(T) : elements;
}

/// An operation under way on a channel. Refers to the transport, which must outlive it.
template <class Watch>
class pending {
  public:
    pending(channel<Watch>& c, std::uint64_t n) noexcept : channel_(&c), number_(n) {}

    /// Makes progress, never waits. Throws like the operation.
    bool done() {
        if (channel_->complete(number_)) return true;
        channel_->progress();
        return channel_->complete(number_);
    }
    void wait(std::optional<deadline> until = {}) { channel_->wait(number_, until); }
    void wait(deadline until) { channel_->wait(number_, until); }
    /// As wait, but false as soon as `stop()`; whoever makes that true then calls `nudge` of the collectives.
    template <class Stop>
    bool wait_unless(std::optional<deadline> until, Stop stop) {
        return channel_->wait_unless(number_, until, stop);
    }

  private:
    channel<Watch>* channel_;
    std::uint64_t number_;
};

/// The collectives, on one channel of its own. Moves, does not copy; one thread at a time.
template <class Fabric>
class host_collectives {
  public:
    using watch_type = typename Fabric::watch_type;
    using completion_type = pending<watch_type>;

    host_collectives(std::shared_ptr<Fabric> fabric, channel_settings settings, channel_options options)
        : fabric_(std::move(fabric)) {
        const channel_layout layout(fabric_->size(), options);
        std::byte* const base = fabric_->share(layout.total, 0, settings.name);
        channel_ = std::make_unique<channel<watch_type>>(base, layout, fabric_->rank(), settings, fabric_->watch());
        for (const auto& s : fabric_->segments()) channel_->add_segment(s.base, s.stride, s.bytes);
    }

    std::uint32_t rank() const noexcept { return fabric_->rank(); }
    std::uint32_t size() const noexcept { return fabric_->size(); }

    /// `data` of every rank becomes the reduction of all of them, in rank order. Same size on every rank.
    template <contiguous Data, class R>
    void all_reduce(Data&& data, R how, std::optional<deadline> until = {}) {
        channel_->run(all_reduce_request(std::span(data), how), until);
    }
    /// The same, started: `data` belongs to the operation until the completion is done.
    template <contiguous Data, class R>
    [[nodiscard]] completion_type start_all_reduce(Data&& data, R how) {
        return {*channel_, channel_->post(all_reduce_request(std::span(data), how))};
    }
    /// `data` of every rank becomes what it is on `root`.
    template <contiguous Data>
    void broadcast(Data&& data, trireme::rank root = trireme::rank{0}, std::optional<deadline> until = {}) {
        using T = element_of<Data>;
        static_assert(movable_bytes<T>,
                      "trireme: only trivially copyable values that are no pointers move between ranks");
        if (root.value >= size()) throw usage_error(no_such_root("broadcast", root.value, size(), me()));
        const auto bytes = std::as_writable_bytes(std::span(data));
        channel_->run({{op_kind::broadcast, dtype_of<T>, 0, root.value},
                       units<T>(std::span(data).size()),
                       bytes.data(),
                       bytes.size(),
                       bytes.data(),
                       nullptr},
                      until);
    }
    /// `out` becomes the `in` of rank 0, rank 1, ...; out.size() == in.size() * size(). `in` may be this rank's
    /// part of `out`.
    template <contiguous In, contiguous Out>
    void all_gather(In&& input, Out&& output, std::optional<deadline> until = {}) {
        using T = element_of<In>;
        static_assert(movable_bytes<T>,
                      "trireme: only trivially copyable values that are no pointers move between ranks");
        const std::span<const T> in(input);
        const std::span<T> out(output);
        if (out.size() != in.size() * size())
            throw usage_error(sizes_do_not_fit("all_gather", in.size(), out.size(), size(), me()));
        const auto bytes = std::as_bytes(in);
        channel_->run({{op_kind::all_gather, dtype_of<T>, 0, 0},
                       units<T>(in.size()),
                       bytes.data(),
                       bytes.size(),
                       std::as_writable_bytes(out).data(),
                       nullptr},
                      until);
    }
    /// `out` becomes this rank's part of the reduction of all `in`; in.size() == out.size() * size(). `out` may be
    /// this rank's part of `in`.
    template <contiguous In, contiguous Out, class R>
    void reduce_scatter(In&& input, Out&& output, R, std::optional<deadline> until = {}) {
        using T = element_of<In>;
        const std::span<const T> in(input);
        const std::span<T> out(output);
        static_assert(explain::reduction<T, R>());
        if (in.size() != out.size() * size())
            throw usage_error(sizes_do_not_fit("reduce_scatter", in.size(), out.size(), size(), me()));
        const auto bytes = std::as_bytes(in);
        channel_->run({{op_kind::reduce_scatter, dtype_of<T>, R::id, 0},
                       out.size(),
                       bytes.data(),
                       bytes.size(),
                       std::as_writable_bytes(out).data(),
                       &reduce_blocks<R, T>},
                      until);
    }
    /// Returns when every rank has called it.
    void barrier(std::optional<deadline> until = {}) { channel_->run({}, until); }

    /// Does what can be done for started operations without waiting. True when something got further.
    bool progress() { return channel_->progress(); }
    /// Ends the group for every rank: their calls throw remote_error with `reason`.
    void abort(const std::string& reason) noexcept {
        channel_->abort({errc::remote, "rank " + std::to_string(rank()) + " gave up: " + reason, "see that rank"});
    }
    /// Empty while the group works, else why it does not.
    std::optional<std::string> health() {
        auto t = channel_->health();
        return t ? std::optional<std::string>(std::move(t->what)) : std::nullopt;
    }
    /// Of a call that names no deadline.
    std::chrono::nanoseconds timeout() const noexcept { return channel_->settings().timeout; }
    void set_timeout(std::chrono::nanoseconds t) noexcept { channel_->set_timeout(t); }
    /// How long a wait spins before it sleeps.
    void set_spin(std::chrono::nanoseconds t) noexcept { channel_->set_spin(t); }
    /// Makes a `wait_unless` in another thread look at its stop condition.
    void nudge() noexcept { channel_->nudge(); }

  protected:
    template <class T, std::size_t Extent, class R>
    static request all_reduce_request(std::span<T, Extent> data, R) {
        static_assert(explain::reduction<T, R>());
        const auto bytes = std::as_writable_bytes(data);
        return {{op_kind::all_reduce, dtype_of<T>, R::id, 0},
                data.size(),
                bytes.data(),
                bytes.size(),
                bytes.data(),
                &reduce_blocks<R, T>};
    }
    std::string me() const { return speaker(channel_->settings().name, rank(), size()); }

    std::shared_ptr<Fabric> fabric_;
    std::unique_ptr<channel<watch_type>> channel_;
};

struct shared_segment {
    std::byte* base = nullptr;
    std::size_t stride = 0;
    std::size_t bytes = 0;
};

/// How far the blocks of two ranks lie apart: an odd number of pages, for the reason given in channel_layout.hpp.
/// An all-reduce of 1 MiB took 92 us with blocks 2^28 bytes apart and takes 12.5 us like this; with distances that
/// are no multiple of a page, one of 25 MiB takes 15 % longer (2 ranks, Zen 4).
constexpr std::size_t block_stride(std::size_t bytes) noexcept {
    return (align_up(bytes, page_bytes) / page_bytes | 1) * page_bytes;
}

template <class Fabric>
class host_transport : public host_collectives<Fabric> {
    using base = host_collectives<Fabric>;

  public:
    using channel_type = host_collectives<Fabric>;
    /// Same inputs, same bits: on all ranks, for every size and timing, from run to run.
    static constexpr bool reproducible = true;
    /// The processor reads and writes the memory of this transport.
    static constexpr bool host_memory = true;

    using base::base;

    /// `n` zeroed elements that the collectives reach without copying. Every rank calls it with the same `n`.
    /// Memory  page-aligned; belongs to the transport and is freed with it
    template <movable_bytes T>
    [[nodiscard]] std::span<T> allocate(std::size_t n) {
        const std::size_t bytes = n * sizeof(T);
        const std::size_t stride = block_stride(bytes);
        std::byte* const first = this->fabric_->share(stride * this->size(), stride, "memory");
        this->fabric_->segments().push_back({first, stride, bytes});
        this->channel_->add_segment(first, stride, bytes);
        return {reinterpret_cast<T*>(first + this->rank() * stride), n};
    }
    /// A sequence of collectives of its own: ranks may begin operations on it and on the transport in any order,
    /// and from different threads. Every rank calls it. It reaches the memory allocated before it was made.
    ///
    /// A call that waits makes progress on its own sequence only: with one thread for both, ranks wait in one
    /// order.
    [[nodiscard]] channel_type channel(const char* name = "channel") {
        auto settings = this->channel_->settings();
        settings.name = name;
        return channel_type(this->fabric_, settings, channel_options{});
    }
};

}  // namespace trireme::detail

// ---- trireme/dist/world.hpp ------------------------------------------------------------------------------

// A world: the processes that train together, as one of them sees it. Small sums, barriers, agreement on plans, and
// the death watch that makes every wait end.

namespace trireme {

namespace detail::say {
inline message disagreement(std::string_view name, const std::vector<std::uint32_t>& first,
                            const std::vector<std::uint32_t>& others, std::string where) {
    return {"the ranks disagree about the " + std::string(name) + ": " + list_ranks(others) +
                (others.size() == 1 ? " has" : " have") + " another one than " + list_ranks(first),
            std::move(where),
            "let every rank build it from the same data, options and seed, with the same program"};
}
inline message already_launched(std::uint32_t rank, std::uint32_t size) {
    return {"this process is rank " + std::to_string(rank) + " of " + std::to_string(size) +
                " already: launch has made its world",
            "pid " + std::to_string(::getpid()), "use the world that launch passes to the function"};
}
}  // namespace detail::say

/// This process's view of the job.
///
/// Blocks     the constructor until every rank has joined, at most start_timeout (60 s)
/// Throws     usage_error naming the variable (environment.hpp), timeout_error naming the missing ranks; the
///            collective calls throw peer_error (a rank died: who, and how), remote_error (a rank failed: its
///            text), timeout_error (who did not come), mismatch_error (the ranks called different things)
/// Threads    one at a time
/// Processes  of one host. Transports made from a world keep it alive
class world {
  public:
    /// What the launcher says (RANK, WORLD_SIZE, ...); alone when no launcher speaks.
    explicit world(world_options options = {}) : state_(find(options)) {}
    explicit world(std::shared_ptr<detail::world_state> state) noexcept : state_(std::move(state)) {}

    std::uint32_t rank() const noexcept { return state_->rank(); }
    std::uint32_t size() const noexcept { return state_->size(); }
    std::uint32_t local_rank() const noexcept { return state_->place().local_rank; }
    std::uint32_t local_size() const noexcept { return state_->place().local_size; }
    /// This rank's share of the data of the job, and of the resources of the host.
    trireme::shard shard() const noexcept { return {rank(), size()}; }
    trireme::shard local_shard() const noexcept { return {local_rank(), local_size()}; }

    /// Returns when every rank has called it.
    void barrier(std::optional<deadline> until = {}) { state_->control().run({}, until); }
    /// The sum of one number of every rank, on every rank.
    template <element T>
    [[nodiscard]] T sum(T mine, std::optional<deadline> until = {}) {
        return reduced(mine, reduce::sum, until);
    }
    template <element T>
    [[nodiscard]] T largest(T mine, std::optional<deadline> until = {}) {
        return reduced(mine, reduce::maximum, until);
    }
    template <element T>
    [[nodiscard]] T smallest(T mine, std::optional<deadline> until = {}) {
        return reduced(mine, reduce::minimum, until);
    }
    /// The value of `root`, on every rank.
    template <movable_bytes T>
    [[nodiscard]] T broadcast(T value, trireme::rank root = trireme::rank{0}, std::optional<deadline> until = {}) {
        auto* const p = reinterpret_cast<std::byte*>(&value);
        state_->control().run(
            {{detail::op_kind::broadcast, dtype::bytes, 0, root.value}, sizeof(T), p, sizeof(T), p, nullptr},
            until);
        return value;
    }
    /// The values of rank 0, 1, ...
    template <movable_bytes T>
    [[nodiscard]] std::vector<T> gather(const T& mine, std::optional<deadline> until = {}) {
        std::vector<T> all(size());
        state_->control().run({{detail::op_kind::all_gather, dtype::bytes, 0, 0},
                               sizeof(T),
                               reinterpret_cast<const std::byte*>(&mine),
                               sizeof(T),
                               reinterpret_cast<std::byte*>(all.data()),
                               nullptr},
                              until);
        return all;
    }
    /// Throws mismatch_error on every rank, naming the ranks, unless all of them pass the same hash.
    void agree(std::string_view name, std::uint64_t hash, std::optional<deadline> until = {}) {
        const auto all = gather(hash, until);
        std::vector<std::uint32_t> first, others;
        for (std::uint32_t r = 0; r < size(); ++r) (all[r] == all[0] ? first : others).push_back(r);
        if (!others.empty()) throw mismatch_error(detail::say::disagreement(name, first, others, state_->me()));
    }
    /// A descriptor of rank 0, on every rank. Rank 0 passes it; what the others pass is not looked at.
    [[nodiscard]] fd share_fd(fd_ref of_rank_0, std::optional<deadline> until = {}) {
        return state_->share(of_rank_0, until);
    }
    /// Tells the job that this rank has failed: waits of the other ranks throw remote_error with `text`. The first
    /// failure of a job is the one that is told.
    void fail(const std::string& text) noexcept { state_->fail(text); }

    const std::shared_ptr<detail::world_state>& state() const noexcept { return state_; }

  private:
    static std::shared_ptr<detail::world_state> find(const world_options& o) {
        if (const auto& place = detail::launched_as())
            throw usage_error(detail::say::already_launched(place->rank, place->size));
        const auto e = read_environment();
        return e ? detail::meet(*e, o) : std::make_shared<detail::world_state>(o);
    }
    template <class T, class R>
    T reduced(T mine, R, std::optional<deadline> until) {
        auto* const p = reinterpret_cast<std::byte*>(&mine);
        state_->control().run({{detail::op_kind::all_reduce, dtype_of<T>, R::id, 0},
                               1,
                               p,
                               sizeof(T),
                               p,
                               &detail::reduce_blocks<R, T>},
                              until);
        return mine;
    }
    std::shared_ptr<detail::world_state> state_;
};

}  // namespace trireme

// ---- trireme/dist/launch.hpp -----------------------------------------------------------------------------

// launch(n, fn): one program, any launcher. Starts n ranks on this host, or joins the job that somebody else
// started, and runs fn in each.

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

// ---- trireme/dist/self.hpp -------------------------------------------------------------------------------

// The transport of a group of one: every operation returns its input. No memory is shared, nothing waits, nothing
// costs; a program that is written for many ranks runs alone on it. It is also what a transport looks like at its
// simplest.

namespace trireme {

namespace detail {

/// The collectives of one rank.
class collectives_of_one {
  public:
    std::uint32_t rank() const noexcept { return 0; }
    std::uint32_t size() const noexcept { return 1; }

    /// The sum, product, minimum, maximum or mean of one value is that value.
    template <contiguous Data, class R>
    void all_reduce(Data&& data, R, std::optional<deadline> = {}) {
        static_assert(explain::reduction<element_of<Data>, R>());
        static_cast<void>(data);
        refuse_if_aborted();
    }
    template <contiguous Data, class R>
    [[nodiscard]] completed start_all_reduce(Data&& data, R how) {
        all_reduce(data, how);
        return {};
    }
    template <contiguous Data>
    void broadcast(Data&&, trireme::rank root = trireme::rank{0}, std::optional<deadline> = {}) {
        static_assert(movable_bytes<element_of<Data>>,
                      "trireme: only trivially copyable values move between ranks");
        refuse_if_aborted();
        if (root.value != 0) throw usage_error(no_such_root("broadcast", root.value, 1, "self"));
    }
    template <contiguous In, contiguous Out>
    void all_gather(In&& in, Out&& out, std::optional<deadline> = {}) {
        copy_same_size("all_gather", std::span<const element_of<In>>(in), std::span<element_of<In>>(out));
    }
    template <contiguous In, contiguous Out, class R>
    void reduce_scatter(In&& in, Out&& out, R, std::optional<deadline> = {}) {
        static_assert(explain::reduction<element_of<In>, R>());
        copy_same_size("reduce_scatter", std::span<const element_of<In>>(in), std::span<element_of<In>>(out));
    }
    void barrier(std::optional<deadline> = {}) { refuse_if_aborted(); }

    bool progress() { return false; }
    void abort(const std::string& reason) { aborted_ = "rank 0 gave up: " + reason; }
    std::optional<std::string> health() const { return aborted_; }
    std::chrono::nanoseconds timeout() const noexcept { return timeout_; }
    void set_timeout(std::chrono::nanoseconds t) noexcept { timeout_ = t; }

  private:
    template <class T>
    void copy_same_size(const char* operation, std::span<const T> in, std::span<T> out) {
        refuse_if_aborted();
        if (in.size() != out.size())
            throw usage_error(sizes_do_not_fit(operation, in.size(), out.size(), 1, "self"));
        if (in.data() != out.data()) std::copy(in.begin(), in.end(), out.begin());
    }
    void refuse_if_aborted() const {
        if (aborted_)
            throw remote_error({"this group failed before: " + *aborted_, "self, rank 0 of 1", "make a new group"});
    }
    std::optional<std::string> aborted_;
    std::chrono::nanoseconds timeout_ = std::chrono::seconds(30);
};

}  // namespace detail

/// A transport for a job of one rank.
/// Threads  one at a time      Blocks  never
class self : public detail::collectives_of_one {
  public:
    using channel_type = detail::collectives_of_one;
    static constexpr bool reproducible = true;
    static constexpr bool host_memory = true;

    /// `n` zeroed elements, 4096-byte-aligned. They belong to the transport and are freed with it.
    template <movable_bytes T>
    [[nodiscard]] std::span<T> allocate(std::size_t n) {
        const std::size_t bytes = (std::max)(n * sizeof(T), std::size_t{1});
        return {reinterpret_cast<T*>(blocks_.emplace_back("self", bytes).data()), n};
    }
    [[nodiscard]] channel_type channel(const char* = "channel") const { return {}; }

  private:
    std::vector<backing::heap> blocks_;
};
static_assert(transport<self>);

}  // namespace trireme

// ---- trireme/dist/shm_transport.hpp ----------------------------------------------------------------------

// The transport between processes of one host: gradients lie in memory that all ranks map, every rank reduces the
// slice it owns and writes the result to all. 2n bytes of memory traffic a rank, the lower bound.

namespace trireme {

namespace detail {

class shm_fabric {
  public:
    using watch_type = world_watch;

    explicit shm_fabric(std::shared_ptr<world_state> w) : world_(std::move(w)) {}

    std::uint32_t rank() const noexcept { return world_->rank(); }
    std::uint32_t size() const noexcept { return world_->size(); }
    watch_type& watch() noexcept { return world_->watch(); }
    std::vector<shared_segment>& segments() noexcept { return segments_; }

    /// Every rank calls it with the same size: they get the same memory, zeroed and reserved. `stride` is the
    /// distance of the ranks' blocks, 0 when the memory is not divided.
    std::byte* share(std::size_t bytes, std::size_t stride, const char* what) {
        if (size() == 1) return heaps_.emplace_back(what, bytes).data();
        world w(world_);
        w.agree(std::string("size of shared memory (") + what + ", this rank asks for " + format_bytes(bytes) + ")",
                bytes);
        struct outcome {
            std::int32_t number = 0;
            fixed_text<256> text;
        } result;
        memfd file;
        if (rank() == 0) {
            try {
                file = memfd("trireme transport", bytes);
            } catch (const system_error& e) {
                result.number = e.code().value();
                result.text.assign(e.parts().what);
            }
        }
        result = w.broadcast(result);
        if (result.number != 0)
            throw system_error({std::string(result.text.view()), speaker("shm_transport, ", rank(), size()),
                                "smaller buffers, or a larger memory limit for this job (memory.max)"},
                               result.number);
        memfd mine(w.share_fd(file.descriptor()));
        const mapping& view = maps_.emplace_back(mine);
        view.inherit(false);
        if (stride != 0) warm(view.data() + stride * rank(), (std::min)(stride, bytes - stride * rank()));
        return view.data();
    }

  private:
    std::shared_ptr<world_state> world_;
    std::vector<mapping> maps_;
    std::vector<backing::heap> heaps_;
    std::vector<shared_segment> segments_;
};

}  // namespace detail

/// The collectives among the ranks of a world on one host.
///
/// Memory from `allocate` is reduced in place, without copies; other memory goes through staging slots, about three
/// times slower. Half types are accumulated in float and rounded once; results have the same bits on all ranks.
///
/// Blocks     the constructor until every rank is there
/// Throws     peer_error (names rank, pid and how it ended), remote_error (a rank failed: its text), timeout_error,
///            mismatch_error (the ranks called different things; no buffer was changed). After any of them the
///            transport is dead on every rank, and says so at once
/// Threads    one at a time; `channel()` gives an end for another thread
/// Crash      nothing is left behind: the memory has no name
class shm_transport : public detail::host_transport<detail::shm_fabric> {
  public:
    explicit shm_transport(const world& w, transport_options options = {})
        : host_transport(std::make_shared<detail::shm_fabric>(w.state()),
                         detail::channel_settings{"shm_transport", options.timeout,
                                                  options.spin ? *options.spin : w.state()->settle_spin()},
                         detail::channel_options{}) {}
};
static_assert(transport<shm_transport>);

}  // namespace trireme

// ---- trireme/dist/thread_transport.hpp -------------------------------------------------------------------

// Ranks that are threads of one process: the algorithm of shm_transport, where sanitizers can see it.

namespace trireme {

namespace detail {
/// What the ranks of a thread_group share while they build transports on it.
struct thread_meeting {
    explicit thread_meeting(std::uint32_t n) : ranks(n), spin(spin_budget(n <= usable_cpus())) {}

    const std::uint32_t ranks;
    const std::chrono::nanoseconds
        spin;  // by the CPUs of the thread that made the group: its threads may be pinned
    std::mutex lock;
    std::condition_variable changed;
    std::uint64_t round = 0;    // allocations so far
    std::uint32_t arrived = 0;  // ranks that wait for the next one
    std::size_t bytes = 0;
    std::vector<backing::heap> blocks;
    std::string failure;
};
}  // namespace detail

/// A world of threads: one object, given to every thread.
class thread_group {
  public:
    explicit thread_group(world_size ranks) : meeting_(std::make_shared<detail::thread_meeting>(ranks.value)) {
        if (ranks.value == 0)
            throw usage_error({"a group of 0 threads", "", "thread_group{world_size{n}} with n of at least 1"});
    }
    std::uint32_t size() const noexcept { return meeting_->ranks; }
    const std::shared_ptr<detail::thread_meeting>& meeting() const noexcept { return meeting_; }

  private:
    std::shared_ptr<detail::thread_meeting> meeting_;
};

namespace detail {

class thread_fabric {
  public:
    using watch_type = no_watch;

    thread_fabric(std::shared_ptr<thread_meeting> m, std::uint32_t rank, std::chrono::nanoseconds timeout)
        : meeting_(std::move(m)), rank_(rank), timeout_(timeout) {}

    std::uint32_t rank() const noexcept { return rank_; }
    std::uint32_t size() const noexcept { return meeting_->ranks; }
    watch_type& watch() noexcept { return watch_; }
    std::vector<shared_segment>& segments() noexcept { return segments_; }

    /// Every rank calls it with the same size: they get the same memory.
    std::byte* share(std::size_t bytes, std::size_t, const char* what) {
        thread_meeting& m = *meeting_;
        std::unique_lock hold(m.lock);
        const std::uint64_t round = m.round;
        if (m.arrived == 0) {
            m.bytes = bytes;
            try {
                m.blocks.emplace_back(what, bytes);
            } catch (const std::exception& e) { m.failure = e.what(); }
        } else if (m.bytes != bytes && m.failure.empty()) {
            m.failure = "the ranks ask for different sizes: " + std::to_string(m.bytes) + " and " +
                        std::to_string(bytes) + " bytes";
        }
        if (++m.arrived == m.ranks) {
            m.arrived = 0;
            ++m.round;
            m.changed.notify_all();
        } else if (!m.changed.wait_for(hold, timeout_, [&] { return m.round != round; })) {
            throw timeout_error({"only " + std::to_string(m.arrived) + " of " + std::to_string(m.ranks) +
                                     " threads asked for shared memory",
                                 speaker("thread_transport", rank_, size()),
                                 "make the transport, and allocate, in every thread of the group"});
        }
        if (!m.failure.empty())
            throw mismatch_error({"shared memory for " + std::string(what) + ": " + m.failure,
                                  speaker("thread_transport", rank_, size()),
                                  "let every rank allocate the same sizes in the same order"});
        return m.blocks[round].data();
    }

  private:
    std::shared_ptr<thread_meeting> meeting_;
    std::uint32_t rank_;
    std::chrono::nanoseconds timeout_;
    watch_type watch_;
    std::vector<shared_segment> segments_;
};

}  // namespace detail

/// One rank of a thread_group. Each thread makes its own.
/// Blocks   the constructor until every thread of the group is there
/// Throws   timeout_error, mismatch_error; see transport.hpp for the collectives
/// Threads  one object a thread
class thread_transport : public detail::host_transport<detail::thread_fabric> {
  public:
    thread_transport(const thread_group& group, trireme::rank me, transport_options options = {})
        : host_transport(std::make_shared<detail::thread_fabric>(group.meeting(), me.value, options.timeout),
                         detail::channel_settings{"thread_transport", options.timeout,
                                                  options.spin ? *options.spin : group.meeting()->spin},
                         detail::channel_options{}) {}
};
static_assert(transport<thread_transport>);

}  // namespace trireme
