#pragma once
// Orders: which sample stands at which position of an epoch. An order is a bijection of 0 .. n-1 that depends on
// the epoch and the seed only, can be asked at any position without the ones before, and takes no memory that
// grows with the number of samples.

#include <trireme/core/assert.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/core/philox.hpp>
#include <trireme/data/detail/feistel.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

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
