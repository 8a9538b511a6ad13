#!/usr/bin/env bash
# The programs that time other libraries. Prints a JSON line per case.
#
#   bench/peers/run.sh [--install] AREA [all|bounds|peers|nothing] [NAME...]
#
# AREA: dataloader threads allreduce ddp ipc compile. `bounds` are what the bare work costs and need a compiler only;
# a peer that is not on this machine is left out with a word on stderr. NAMEs choose among an area's cases or programs.
# --install installs the peers' Debian packages first. Settings and cases: README.md.
set -u
PEERS_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
install=no
[ "${1:-}" != --install ] || { install=yes; shift; }
case ${1:-} in
    dataloader) need="python3-torch python3-numpy libtorch-dev dataset-fashion-mnist" ;;
    threads) need="libtbb-dev libthread-pool-dev libtorch-dev" ;;
    allreduce) need="libgloo-dev openmpi-bin libopenmpi-dev python3-torch" ;;
    ddp) need="python3-torch python3-numpy libopenblas0 dataset-fashion-mnist" ;;
    ipc) need="libboost-dev iceoryx libiceoryx-posh-dev" ;;
    compile) need="libtorch-dev libtbb-dev libboost-dev doctest-dev libeigen3-dev libgloo-dev libopenmpi-dev libthread-pool-dev" ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "run.sh: which area? dataloader threads allreduce ddp ipc compile" >&2; exit 2 ;;
esac
if [ $install = yes ]; then
    source "$PEERS_ROOT/../../scripts/lib.sh"
    signs=()
    for package in $need; do
        signs+=("$package:/var/lib/dpkg/info/${package}[.:]*list")
    done
    need "${signs[@]}" >&2
fi
[ "${2:-all}" != nothing ] || exit 0
case ${2:-all} in
    all | bounds | peers) ;;
    *) echo "run.sh: all, bounds, peers or nothing, not $2" >&2; exit 2 ;;
esac

export PEERS_ROOT PYTHON=${PYTHON:-/usr/bin/python3} PEERS_SRC=${PEERS_SRC:-/tmp/peers-src}
export PEERS_DATA=${PEERS_DATA:-/usr/share/datasets/fashion-mnist} PYTHONDONTWRITEBYTECODE=1
export OPENBLAS_CORETYPE=${OPENBLAS_CORETYPE:-Haswell} # OpenBLAS 0.3.21 does not know newer cores
if [ -z "${PEERS_TMP:-}" ]; then
    PEERS_TMP=$(mktemp -d /tmp/peers.XXXXXX)
    trap 'rm -rf "$PEERS_TMP"' EXIT
fi
export PEERS_TMP
mkdir -p "$PEERS_TMP"
if [ "${PEERS_QUICK:-0}" = 1 ]; then
    export PEERS_REPS=${PEERS_REPS:-2} PEERS_ROUNDS=${PEERS_ROUNDS:-1} PEERS_RANKS=${PEERS_RANKS:-2}
    export PEERS_ITER_DIV=${PEERS_ITER_DIV:-4} PEERS_DEFAULT_MALLOC=${PEERS_DEFAULT_MALLOC:-0} PEERS_WAIT=${PEERS_WAIT:-10}
fi
bash "$PEERS_ROOT/$1/run.sh" "${@:2}"
