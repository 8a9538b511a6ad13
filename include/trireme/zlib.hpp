#pragma once
// The wing `zlib`: byte sources that read gzip; links trireme::zlib.
// This list is kept by scripts/list_headers.py.

#include <trireme/zlib/gzip.hpp>
