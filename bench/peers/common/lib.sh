# Shared by the areas' run.sh; sourced by them. Sets T (build folder), Q (how a program is started), CXX.
set -u
T=$PEERS_TMP CXX=${CXX:-g++}
Q="bash $PEERS_ROOT/common/quiet.sh timeout ${PEERS_TIMEOUT:-300}"
cd "$PEERS_ROOT/$area" || exit 1

left_out() { echo "left out: $*" >&2; }

# build NAME COMPILER...: makes $T/NAME, or says that the peer is left out. The compiler's words are in $T/NAME.log.
build() {
    local name=$1
    shift
    rm -f "$T/$name"
    "$@" -o "$T/$name" >"$T/$name.log" 2>&1 && return 0
    left_out "$name does not build here ($(grep -m1 -E 'error:|cannot find' "$T/$name.log" || tail -n1 "$T/$name.log"))"
    return 1
}
# start NAME ARGUMENT...: runs $T/NAME if it was built.
start() {
    local name=$1
    shift
    [ -x "$T/$name" ] || return 0
    $Q "$T/$name" "$@" || left_out "$name failed"
}
has_python() { "$PYTHON" -c "import $1" 2>/dev/null || { left_out "$PYTHON has no $1"; return 1; }; }

what=${1:-all}
[ $# = 0 ] || shift
bounds() { [ "$what" != peers ]; }
peers() { [ "$what" != bounds ]; }
