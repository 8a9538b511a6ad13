#pragma once
// How the collectives take their data, and what they say when its size cannot be right.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <unistd.h>

#include <trireme/core/error.hpp>

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
