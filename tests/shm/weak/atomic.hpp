#pragma once
// A `std::atomic` whose loads may be as stale as C++ allows: relacy's, with the standard's spelling. Lines of the
// headers under test can be weakened to relaxed while the program runs, to see whether its order matters.

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <source_location>
#include <string_view>
#include <type_traits>

#include <relacy/relacy.hpp>
// Relacy takes over words of the language for code that is written for it.
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno
#undef EINVAL
#undef ETIMEDOUT
#undef EBUSY
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst

namespace weak {

/// The lines whose order is taken out; line 0: none.
struct weakened_line {
    std::string_view file;
    unsigned line = 0;
};
inline std::array<weakened_line, 2> weakened;

inline rl::memory_order order(std::memory_order o, const std::source_location& where) noexcept {
    for (const auto& w : weakened) {
        if (where.line() == w.line && std::string_view(where.file_name()).ends_with(w.file)) return rl::mo_relaxed;
    }
    switch (o) {
        case std::memory_order_relaxed:
            return rl::mo_relaxed;
        case std::memory_order_consume:
        case std::memory_order_acquire:
            return rl::mo_acquire;
        case std::memory_order_release:
            return rl::mo_release;
        case std::memory_order_acq_rel:
            return rl::mo_acq_rel;
        case std::memory_order_seq_cst:
            break;
    }
    return rl::mo_seq_cst;
}
inline rl::debug_info place(const std::source_location& where) noexcept {
    return {where.function_name(), where.file_name(), where.line()};
}

template <class T>
struct number_of {
    using type = T;
};
template <class T>
requires std::is_enum_v<T>
struct number_of<T> {
    using type = std::underlying_type_t<T>;
};

template <class T>
class atomic {
    using number = typename number_of<T>::type;
    using from = std::source_location;

  public:
    static constexpr bool is_always_lock_free = true;

    atomic() : atomic(T{}) {}
    explicit(false) atomic(T v) : value_(static_cast<number>(v)) {}
    atomic(const atomic&) = delete;

    T load(std::memory_order o = std::memory_order_seq_cst, from w = from::current()) const {
        return static_cast<T>(value_.load(order(o, w), place(w)));
    }
    void store(T v, std::memory_order o = std::memory_order_seq_cst, from w = from::current()) {
        value_.store(static_cast<number>(v), order(o, w), place(w));
    }
    bool compare_exchange_strong(T& seen, T v, std::memory_order o, from w = from::current()) {
        return value_.compare_exchange_strong(seen, v, order(o, w), place(w));
    }
    T fetch_add(T v, std::memory_order o, from w = from::current()) {
        return value_.fetch_add(v, order(o, w), place(w));
    }
    T fetch_or(T v, std::memory_order o, from w = from::current()) {
        return value_.fetch_or(v, order(o, w), place(w));
    }
    T fetch_and(T v, std::memory_order o, from w = from::current()) {
        return value_.fetch_and(v, order(o, w), place(w));
    }

    /// The kernel's two: it compares the value of this moment, and knows no time here.
    void futex_wait(T seen) const {
        auto& c = rl::ctx();
        auto& self = const_cast<rl::atomic<number>&>(value_);
        c.sched();
        c.atomic_thread_fence_seq_cst();
        {
            rl::preemption_disabler together(c);
            if (self.load(rl::mo_acquire, $) != seen) return;
        }
        static_cast<void>(self.wait(c, false, true, $));
    }
    int futex_wake(int count) {
        auto& c = rl::ctx();
        c.sched();
        c.atomic_thread_fence_seq_cst();
        return static_cast<int>(value_.wake(c, static_cast<rl::thread_id_t>((std::min)(count, 64)), $));
    }

  private:
    rl::atomic<number> value_;
};

}  // namespace weak
