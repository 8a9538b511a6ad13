#pragma once
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
