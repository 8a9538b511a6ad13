#pragma once
// Whether launch has made this process a rank.

#include <optional>

#include <trireme/dist/environment.hpp>

namespace trireme::detail {

/// Set once, in a process that launch has forked, before the user's function runs.
inline std::optional<environment>& launched_as() {
    static std::optional<environment> place;
    return place;
}

}  // namespace trireme::detail
