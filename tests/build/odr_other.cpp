#include "everything_backward.hpp"

const void* category_seen_by_other();
unsigned version_seen_by_other();

const void* category_seen_by_other() { return &trireme::error_category(); }
unsigned version_seen_by_other() { return trireme::version.minor_part; }
