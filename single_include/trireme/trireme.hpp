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
#include <bit>
#include <cerrno>
#include <chrono>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

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
