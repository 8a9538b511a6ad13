#pragma once
// What collectives work on and how they combine it: element types, and the reductions sum, product, minimum,
// maximum and mean.

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <trireme/core/half.hpp>

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
