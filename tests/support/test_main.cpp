// The one translation unit with doctest's implementation. Its crash handlers stay out: a forked child that dies on
// purpose would print a false report, and the parent could no longer see the signal.
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
