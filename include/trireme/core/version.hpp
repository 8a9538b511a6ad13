#pragma once
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
