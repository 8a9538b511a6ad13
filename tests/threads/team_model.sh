#!/usr/bin/env bash
# Explores team.pml with spin: the team must hold, the mutants must fail. Exit status: 0 good, 1 not, 77 skipped.
#
#   team_model.sh            everything, half a minute
#   team_model.sh --trail M_X   the way to the error of a mutant, step by step
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for program in spin gcc; do
    command -v "$program" > /dev/null || { echo "skipped: $program is not installed (Debian: apt-get install spin gcc)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

explore() {  # explore OPTIONS...: sets $errors, $reason and $states
    rm -f pan.* ./*.trail
    spin -a "$@" "$here/team.pml" > spin.out 2>&1 || { cat spin.out >&2; exit 1; }
    gcc -w -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=2000 -o pan pan.c
    ./pan -m1000000 > pan.out 2>&1 || true
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
    reason=$(sed -n 's/^pan:[0-9]*: \(.*\) (at depth.*/\1/p' pan.out)
    [ -n "$errors" ] || { tail -n 5 pan.out >&2; exit 1; }
}
if [ "${1:-}" = --trail ]; then
    explore "-D$2" -DHELPERS=1 -DLOOPS=3
    spin -t -p "-D$2" -DHELPERS=1 -DLOOPS=3 "$here/team.pml"
    exit
fi

for sizes in "-DHELPERS=1 -DLOOPS=4" "-DHELPERS=2 -DLOOPS=2"; do
    # shellcheck disable=SC2086
    explore $sizes
    if [ "$errors" != 0 ] || grep -qE "not completed|too small|out of memory" pan.out; then
        echo "FAILED $sizes: ${reason:-the search is not exhaustive}" >&2
        exit 1
    fi
    printf 'holds  %-28s %10s states\n' "$sizes" "$states"
done
while read -r mutant how; do
    explore "-D$mutant" -DHELPERS=1 -DLOOPS=3
    case $reason in
        "invalid end state") seen=stuck ;;
        "assertion violated "*) seen=wrong ;;
        *) seen=good ;;
    esac
    [ "$seen" = "$how" ] || { echo "FAILED $mutant: to be found $how, and is found $seen" >&2; exit 1; }
    printf 'fails  %-28s %10s states  %s\n' "$mutant" "$states" "$how"
done << 'LIST'
M_BELL_LATE stuck
M_BIT_SET_ONCE stuck
M_NO_RECHECK stuck
M_NO_TOGGLE wrong
M_BLIND_CLAIM wrong
M_LOOKS_BEFORE_DONE stuck
M_DOES_NOT_WAIT wrong
M_STOPS_IN_SILENCE stuck
LIST
