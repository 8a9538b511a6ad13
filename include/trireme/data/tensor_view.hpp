#pragma once
// A typed look at memory that somebody else owns: a dense, row-major tensor whose extents stand in its type, the
// first one possibly known at run time only. It is what a batch hands out for each field.

#include <trireme/core/assert.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

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
