#!/usr/bin/env bash
# Explores ring.pml with spin: the configurations below must hold, the mutants must fail for the stated reason.
#
#   check.sh                 everything, about two minutes on one core
#   check.sh holds|mutants   one half
#   check.sh NAME...         the named ones
#   check.sh --soak [...]    the larger configurations as well (also with TRIREME_SOAK=1)
#   check.sh --trail NAME    one, and the way to the error, step by step
#
# Each search is exhaustive and single-threaded, within 4 GB. Exit status: 0 good, 1 not, 77 skipped (no spin or gcc).
set -euo pipefail
shopt -s extglob
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# What must hold: name, options.  Default: 2 workers, 1 slot, 2 parts, 2 batches, 1 kill, no respawn (see ring.pml).
holds='
two-parts            -DSLOTS=1 -DPARTS=2 -DBATCHES=2
two-parts-respawn    -DSLOTS=1 -DPARTS=2 -DBATCHES=2 -DRESPAWNS=1
two-slots-respawn    -DSLOTS=2 -DPARTS=1 -DBATCHES=3 -DRESPAWNS=1
two-slots-two-parts  -DSLOTS=2 -DPARTS=2 -DBATCHES=2
one-worker-respawn   -DWORKERS=1 -DSLOTS=2 -DPARTS=2 -DBATCHES=3 -DRESPAWNS=1 -DCANCELS=1
throws-no-retry      -DSLOTS=1 -DPARTS=2 -DBATCHES=2 -DTHROWS -DATTEMPTS=1
scan-misses          -DSLOTS=1 -DPARTS=2 -DBATCHES=2 -DMISSES
early-stop           -DSLOTS=1 -DPARTS=2 -DBATCHES=2 -DEARLY_STOP -DCANCELS=1
two-leases-cancel    -DSLOTS=2 -DPARTS=1 -DBATCHES=3 -DLEASES=2 -DCANCELS=1
cancel               -DSLOTS=1 -DPARTS=2 -DBATCHES=3 -DCANCELS=1
cancel-any-claim     -DSLOTS=1 -DPARTS=2 -DBATCHES=3 -DCANCELS=1 -DANY_CLAIM
cancel-polling       -DSLOTS=1 -DPARTS=2 -DBATCHES=3 -DCANCELS=1 -DPOLLING
as-ready             -DSLOTS=2 -DPARTS=1 -DBATCHES=3 -DAS_READY
as-ready-cancel      -DSLOTS=2 -DPARTS=1 -DBATCHES=3 -DAS_READY -DCANCELS=1 -DCRASHES=0
as-ready-one-worker  -DWORKERS=1 -DSLOTS=2 -DPARTS=1 -DBATCHES=4 -DAS_READY -DCANCELS=1 -DRESPAWNS=1
ends                 -DSLOTS=1 -DPARTS=1 -DBATCHES=2 -DLIVENESS
'

# Left out without harm, and why ring.pml has it all the same.
#   no-clear              a stale bit makes the consumer ring for nobody, once per opening: it costs a system call
#   filler-ignores-floor  a filler that misses the floor publishes READY, which counts as done as well: time lost
#   any-claim-no-void     if workers claim below the floor too, they void what consumer and reaper do not
holds+='
harmless-no-clear              -DSLOTS=1 -DPARTS=2 -DBATCHES=2 -DH_NO_CLEAR
harmless-filler-ignores-floor  -DSLOTS=1 -DPARTS=2 -DBATCHES=3 -DCANCELS=1 -DH_FILLER_IGNORES_FLOOR
harmless-any-claim-no-void     -DSLOTS=1 -DPARTS=2 -DBATCHES=3 -DCANCELS=1 -DANY_CLAIM -DM_NO_VOID -DM_REAPER_TRUSTS_FLOOR
'

soak='
soak-2x2x2-respawn       -DSLOTS=2 -DPARTS=2 -DBATCHES=3 -DRESPAWNS=1
soak-three-workers       -DWORKERS=3 -DSLOTS=1 -DPARTS=2 -DBATCHES=2
soak-three-two-slots     -DWORKERS=3 -DSLOTS=2 -DPARTS=1 -DBATCHES=3
soak-two-kills           -DSLOTS=1 -DPARTS=2 -DBATCHES=3 -DCRASHES=2 -DRESPAWNS=1 -DCANCELS=1
soak-two-kills-attempts  -DSLOTS=1 -DPARTS=2 -DBATCHES=2 -DCRASHES=2 -DRESPAWNS=2 -DATTEMPTS=3
soak-two-cancels         -DSLOTS=2 -DPARTS=1 -DBATCHES=5 -DCANCELS=2
soak-cancel-respawn      -DSLOTS=1 -DPARTS=2 -DBATCHES=3 -DRESPAWNS=1 -DCANCELS=1 -DEARLY_STOP
soak-as-ready-respawn    -DSLOTS=2 -DPARTS=1 -DBATCHES=3 -DAS_READY -DRESPAWNS=1 -DTHROWS
soak-as-ready-cancel     -DSLOTS=2 -DPARTS=1 -DBATCHES=3 -DAS_READY -DCANCELS=1
soak-as-ready-2x2x2      -DSLOTS=2 -DPARTS=2 -DBATCHES=3 -DAS_READY
soak-ends-two-parts      -DSLOTS=1 -DPARTS=2 -DBATCHES=2 -DLIVENESS
'

# What must fail: name, how, options. "stuck": everybody waits and work exists. "wrong": an assertion.
mutants='
worker-does-not-recheck         stuck  -DM_NO_RECHECK
worker-flags-after-recheck      stuck  -DM_FLAG_LATE
worker-samples-after-recheck    stuck  -DM_SAMPLE_LATE
worker-rechecks-words-only      stuck  -DM_RECHECK_IGNORES_PHASE
consumer-does-not-recheck       stuck  -DM_NO_CONSUMER_RECHECK
consumer-samples-after-recheck  stuck  -DM_CONSUMER_SAMPLES_LATE
consumer-awaits-after-recheck   stuck  -DM_AWAIT_LATE
recheck-ignores-the-end         stuck  -DM_RECHECK_IGNORES_THE_END -DWORKERS=1
owed-ring-not-paid              stuck  -DM_NO_FLUSH
owed-ring-not-paid-polling      stuck  -DM_NO_FLUSH -DPOLLING
stop-does-not-ring              stuck  -DM_STOP_WITHOUT_RING
publisher-looks-before          stuck  -DM_CHECK_BEFORE_PUBLISH
publisher-does-not-look         stuck  -DM_OWN_PART_ONLY
publisher-reads-awaited-before  stuck  -DM_AWAITED_BEFORE_PUBLISH
claim-by-ticket                 stuck  -DM_TICKET
claim-by-store                  wrong  -DM_BLIND_CLAIM
claim-ignores-seq               stuck  -DM_CLAIM_IGNORES_SEQ
reaper-does-not-reclaim         stuck  -DM_NO_RECLAIM
reaper-does-not-ring-consumer   stuck  -DM_NO_RING_CONSUMER
reaper-does-not-ring-workers    stuck  -DM_NO_RING_WORKERS
reaper-rings-before-reclaim     stuck  -DM_RING_FIRST
reaper-clears-after-ring        stuck  -DM_CLEAR_LATE -DWORKERS=1 -DPARTS=1 -DRESPAWNS=1
reaper-respawns-before-reclaim  wrong  -DM_RESPAWN_FIRST -DRESPAWNS=1
reclaim-from-the-living         wrong  -DM_EARLY_RECLAIM
reclaim-and-blind-publish       wrong  -DM_EARLY_RECLAIM -DM_BLIND_PUBLISH
open-before-request             wrong  -DM_OPEN_BEFORE_REQUEST
take-on-one-part                wrong  -DM_TAKE_ON_LAST_PART
cancel-does-not-void            stuck  -DM_NO_VOID -DCANCELS=1 -DBATCHES=3
reaper-trusts-an-old-floor      stuck  -DM_REAPER_TRUSTS_FLOOR -DCANCELS=1 -DBATCHES=3
cancel-voids-by-store           wrong  -DM_BLIND_VOID -DCANCELS=1 -DBATCHES=3
cancel-reopens-early            wrong  -DM_REOPEN_EARLY -DCANCELS=1 -DBATCHES=3
'

trail=0 want_soak=${TRIREME_SOAK:-0} wanted=()
for argument in "$@"; do
    case $argument in
        --soak) want_soak=1 ;;
        --trail) trail=1 ;;
        -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        -*) echo "check.sh: unknown option $argument; see check.sh --help" >&2; exit 1 ;;
        *) wanted+=("$argument") ;;
    esac
done
for program in spin gcc; do
    if ! command -v "$program" > /dev/null; then
        echo "skipped: $program is not installed (Debian: apt-get install spin gcc)"
        exit 77
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/ring.pml" "$work"
cd "$work"
mkdir unreached

is_wanted() {  # is_wanted GROUP NAME; an empty line of a table is not
    [ -n "$2" ] || return 1
    [ ${#wanted[@]} -eq 0 ] && return 0
    local w
    for w in "${wanted[@]}"; do [ "$w" = "$1" ] || [ "$w" = "$2" ] && return 0; done
    return 1
}

fail() {  # fail NAME OPTIONS SENTENCE
    echo "FAILED $1: $3" >&2
    echo "  where  spin -a $2 ring.pml" >&2
    echo "  try    tests/model/check.sh --trail $1" >&2
    exit 1
}

# explore NAME OPTIONS SPEED: leaves the report in pan.out, the number of errors in $errors.
explore() {
    local name=$1 options=$2 speed=$3 build=(-DSAFETY) run=()
    if [[ $options == *LIVENESS* ]]; then build=(-DNFAIR=3) run=(-a -f); fi
    [[ $name == soak-* ]] && build+=(-DCOLLAPSE)
    rm -f pan.* ./*.trail
    # shellcheck disable=SC2086
    spin -a $options ring.pml > spin.out 2>&1 || { cat spin.out >&2; fail "$name" "$options" "spin refuses the model"; }
    gcc -w "$speed" "${build[@]}" -DMEMLIM=4000 -o pan pan.c || fail "$name" "$options" "the verifier does not compile"
    ./pan "${run[@]}" -m1000000 > pan.out 2>&1 || true
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
    [ -n "$errors" ] || { tail -n 5 pan.out >&2; fail "$name" "$options" "the search ended without a result"; }
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
    reason=$(sed -n 's/^pan:[0-9]*: \(.*\) (at depth.*/\1/p' pan.out)
    if [ $trail = 1 ] && [ "$errors" != 0 ]; then
        # shellcheck disable=SC2086
        spin -t -p $options ring.pml
    fi
}

checked=0
while read -r name options; do
    is_wanted holds "$name" || continue
    explore "$name" "$options" -O1
    [ "$errors" = 0 ] || fail "$name" "$options" "${reason:0:120}"
    if grep -qE "Search not completed|max search depth too small|out of memory" pan.out; then
        fail "$name" "$options" "the search is not exhaustive"
    fi
    [[ $options == *LIVENESS* ]] || sed -n 's/^\t\(ring.pml:[0-9]*\), state [0-9]*, \(.*\)/\1 \2/p' pan.out | sort -u > "unreached/$name"
    printf 'holds  %-32s %10s states\n' "$name" "$states"
    checked=$((checked + 1))
done <<< "$holds$([ "$want_soak" = 1 ] && echo "$soak")"

# A statement that no configuration reaches is not checked at all; the processes' ends are no statements of ours.
if [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" holds "* ]]; then
    for list in unreached/*; do
        if [ -e all ]; then comm -12 all "$list" > both; else cp "$list" both; fi
        mv both all
    done
    if grep -v -e '-end-' all; then fail coverage "" "no configuration reaches the statements above"; fi
fi

while read -r name how options; do
    is_wanted mutants "$name" || continue
    explore "$name" "$options" -O0
    case $reason in
        "invalid end state") seen=stuck ;;
        "assertion violated "*) seen=wrong ;;
        *) seen=good ;;
    esac
    [ "$seen" = "$how" ] || fail "$name" "$options" "this mutant must be found $how, and the search finds it $seen"
    printf 'fails  %-32s %10s states  %s\n' "$name" "$states" "$how"
    checked=$((checked + 1))
done <<< "$mutants"

if [ $checked = 0 ]; then
    echo "check.sh: no configuration and no mutant is called ${wanted[*]}" >&2
    exit 1
fi
echo "$checked checked, each as expected"
