#!/usr/bin/env bash
# What our headers cost a file that includes them, measured like the peers' (peers/compile): the umbrella (`trireme`),
# each floor and wing (`trireme-core`, ...), and the single header (`trireme-single`). PEERS_REPS: rounds (default 5).
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
include=$here/../include
unit() { PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-python3}" "$here/peers/compile/include_time.py" "$@"; }

unit trireme '#include <trireme/trireme.hpp>' "-I$include"
for list in "$include"/trireme/*.hpp; do
    name=$(basename "$list" .hpp)
    [ "$name" = trireme ] || unit "trireme-$name" "#include <trireme/$name.hpp>" "-I$include"
done
unit trireme-single '#include <trireme/trireme.hpp>' "-I$here/../single_include"
