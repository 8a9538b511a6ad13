#pragma once
// What one sample looks like: a list of named fields with element type and static extents. From it follows, at
// compile time, where every field of every row of a batch lies: one contiguous tensor [batch, extents...] per
// field, each at an offset that is a multiple of 64 bytes. Collating a batch is then nothing but writing row i.

#include <trireme/core/bytes.hpp>
#include <trireme/core/fixed_string.hpp>
#include <trireme/core/hash.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>

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
