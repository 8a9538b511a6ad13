#!/usr/bin/env bash
# Called by ../run.sh.
area=ipc
source "$PEERS_ROOT/common/lib.sh"
F="-O2 -march=native -pthread -w"
build ipc $CXX -std=c++20 $F ipc.cpp -lrt || exit 0
bounds && start ipc bounds
peers || exit 0
start ipc peers
V=$(ls -d /usr/include/iceoryx/v* 2>/dev/null | tail -1)
if [ -z "$V" ] || ! command -v iox-roudi >/dev/null; then
    left_out "iceoryx is not there"
    exit 0
fi
cat >"$T/roudi.toml" <<'C'
[general]
version = 1
[[segment]]
[[segment.mempool]]
size = 256
count = 4000
[[segment.mempool]]
size = 8192
count = 2000
[[segment.mempool]]
size = 4194560
count = 24
C
if build ipc_iox $CXX -std=c++17 $F "-I$V" ipc_iox.cpp -liceoryx_posh -liceoryx_hoofs -liceoryx_platform -lrt -latomic; then
    # monitoring off: it would end clients that it has not heard from for a while
    iox-roudi -c "$T/roudi.toml" -m off -l warning >"$T/roudi.log" 2>&1 &
    roudi=$!
    sleep 3
    start ipc_iox 2>"$T/ipc_iox.err" | grep '^{'
    kill $roudi
    wait $roudi 2>/dev/null
fi
exit 0
