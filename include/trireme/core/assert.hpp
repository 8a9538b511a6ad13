#pragma once
// TRIREME_ASSERT: for what only a bug in the calling code explains. It is the one macro that may differ between
// builds, and it never changes a layout or which function is called.

#include <cstdio>
#include <cstdlib>

namespace trireme::detail {

[[noreturn]] inline void assertion_failed(const char* what, const char* expression, const char* file,
                                          unsigned line) noexcept {
    std::fprintf(stderr, "trireme: %s\n  where  %s:%u: %s\n  try    this is a bug in the calling code\n", what,
                 file, line, expression);
    std::abort();
}

}  // namespace trireme::detail

#if defined(NDEBUG)
#define TRIREME_ASSERT(condition, what) static_cast<void>(0)
#else
#define TRIREME_ASSERT(condition, what) \
    ((condition)                        \
         ? static_cast<void>(0)         \
         : ::trireme::detail::assertion_failed((what), #condition, __FILE__, static_cast<unsigned>(__LINE__)))
#endif
