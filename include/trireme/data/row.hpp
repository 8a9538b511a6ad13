#pragma once
// The two sides of a slot: `row`, where a dataset writes one sample, and `batch_fields`, where a trainer reads them
// all. Both are a base address and two numbers; the rest follows from the schema.

#include <trireme/core/assert.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/fixed_string.hpp>
#include <trireme/data/schema.hpp>
#include <trireme/data/tensor_view.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

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
