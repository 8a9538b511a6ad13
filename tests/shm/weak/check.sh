#!/usr/bin/env bash
# Compiles the ring's headers against relacy's atomics and explores them: ring.cpp says what.
#
#   check.sh [ROUNDS]    each scenario so many times (5000; with TRIREME_SOAK=1 200000)
#
# Exit status: 0 good, 1 not, 77 skipped (no relacy).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
include=$here/../../../include
compiler=g++  # clang 14 has no std::source_location with this standard library
rounds=${1:-$([ "${TRIREME_SOAK:-0}" = 1 ] && echo 200000 || echo 5000)}

if ! command -v "$compiler" > /dev/null || ! echo '#include <relacy/relacy.hpp>' | "$compiler" -std=c++20 -w -fsyntax-only -x c++ - 2> /dev/null; then
    echo "skipped: relacy's headers or g++ are not installed (Debian: apt-get install relacy-dev g++)"
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/trireme/shm" "$work/trireme/sys"
cp "$here/futex.hpp" "$work/trireme/sys"
# The sizes that the layout asserts are those of real atomics.
for header in shm/{ring_layout,ring_worker,reaper,lease,ring}.hpp sys/wait.hpp; do
    sed -e 's/std::atomic</weak::atomic</g' -e 's/^static_assert(sizeof(slot_head).*//' \
        -e 's|#include <atomic>|#include <weak/atomic.hpp>|' "$include/trireme/$header" > "$work/trireme/$header"
done
"$compiler" -std=c++20 -O1 -w -I"$work" -I"$here/.." -I"$include" "$here/ring.cpp" -o "$work/ring"
"$work/ring" "$work" "$rounds"
