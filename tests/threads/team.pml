/* The team's protocol (include/trireme/threads/detail/team.hpp) as a Promela model: announcing a loop, naps and
 * wakes, claims of parts, and the caller's wait for the last one.
 *
 * Explored is every interleaving (sequentially consistent) of one caller, which runs LOOPS loops for a number of
 * threads of its choice and then stops the team, with HELPERS helpers that give up spinning whenever they like. No
 * wait has a time-out, so a lost wake is an invalid end state. Checked besides:
 *   - every part of every loop is run exactly once, and while the job is the one it belongs to;
 *   - in the end no helper is booked as rising.
 * Mutants, -DM_x, stand where they bite; team_model.sh expects each to fail.
 */
#ifndef HELPERS
#define HELPERS 2
#endif
#ifndef LOOPS
#define LOOPS 3
#endif
#define STOP 255
#define LOOP(w) ((w) >> 2)
#define THREADS(w) ((w) & 3)
#define BIT(k) (1 << (k))

byte word, bell, asleep, rising, finished, awaited;
byte claimed[HELPERS], done[HELPERS], runs[HELPERS];
bit queued[HELPERS], caller_queued; /* in the kernel's futex queues */
byte job, gone;

proctype helper(byte k) {
    byte seen, now, b, last;
next:
    if /* spins, and finds a word or gives up */
    :: word != seen -> now = word; goto found
    :: true
    fi;
#ifdef M_BIT_SET_ONCE
    atomic { asleep = asleep | BIT(k) };
#endif
nap:
#ifndef M_BELL_LATE
    b = bell;
#endif
#ifndef M_BIT_SET_ONCE
    atomic { asleep = asleep | BIT(k) };
#endif
#ifdef M_BELL_LATE
    b = bell;
#endif
    if
#ifndef M_NO_RECHECK
    :: word != seen -> skip
    :: else ->
#else
    :: true ->
#endif
        atomic { if :: bell == b -> queued[k] = 1 :: else fi };
        queued[k] == 0
    fi;
#ifndef M_BIT_SET_ONCE
    d_step { b = asleep & BIT(k); asleep = asleep & ~BIT(k) };
#ifndef M_NO_TOGGLE
    if :: b == 0 -> rising = rising ^ BIT(k) :: else fi;
#endif
#endif
    now = word;
    if :: now == seen -> goto nap :: else fi;
#ifdef M_BIT_SET_ONCE
    d_step { b = asleep & BIT(k); asleep = asleep & ~BIT(k) };
    if :: b == 0 -> rising = rising ^ BIT(k) :: else fi;
#endif
found:
    skip;
    d_step { seen = now; now = 0; b = 0; last = 0 }; /* zeroed when of no more use: fewer states */
    if :: seen == STOP -> goto end :: else fi;
    if :: k + 1 >= THREADS(seen) -> goto next :: else fi;
    last = claimed[k];
    if :: last >= LOOP(seen) -> last = 0; goto next :: else fi;
#ifdef M_BLIND_CLAIM
    claimed[k] = LOOP(seen);
#else
    atomic { if :: claimed[k] == last -> claimed[k] = LOOP(seen); last = 0 :: else -> last = 0; goto next fi };
#endif
    d_step { assert(job == LOOP(seen)); runs[k]++ };
#ifdef M_LOOKS_BEFORE_DONE
    b = awaited;
    d_step { assert(job == LOOP(seen)); done[k] = LOOP(seen) };
#else
    d_step { assert(job == LOOP(seen)); done[k] = LOOP(seen) };
    b = awaited;
#endif
    if
    :: b == k + 1 -> b = 0; finished++; caller_queued = 0
    :: else -> b = 0
    fi;
    goto next;
end:
    gone++
}

byte found, n, among;

inline wake_sleepers() {
    found = asleep & among;
    if
    :: found != 0 ->
        d_step { found = found & asleep; asleep = asleep & ~found };
        rising = rising ^ found;
        if
        :: found != 0 ->
            bell++;
            d_step {
                k = 0;
                do
                :: k < HELPERS -> if :: (found & BIT(k)) != 0 -> queued[k] = 0 :: else fi; k++
                :: else -> break
                od;
                k = 0;
                found = 0
            }
        :: else
        fi
    :: else
    fi
}

proctype caller() {
    byte loop, k, seen;
    do
    :: loop < LOOPS ->
        atomic {
            loop++;
            if :: n = 2 :: HELPERS > 1 -> n = HELPERS + 1 fi;
            among = (1 << (n - 1)) - 1;
            job = loop
        };
        word = (loop << 2) | n;
        wake_sleepers();
        k = 0;
        do
        :: k + 1 < n ->
            if
            :: done[k] == loop -> goto joined
            :: true
            fi;
            atomic {
                if
                :: claimed[k] != loop -> claimed[k] = loop; runs[k]++; goto joined
                :: else
                fi
            };
#ifndef M_DOES_NOT_WAIT
            if
            :: done[k] == loop -> goto joined
            :: true -> awaited = k + 1
            fi;
            do
            :: seen = finished;
               if :: done[k] == loop -> break :: else fi;
               atomic { if :: finished == seen -> caller_queued = 1 :: else fi };
               caller_queued == 0
            od;
#endif
joined:
            atomic { assert(runs[k] == 1); awaited = 0; seen = 0; runs[k] = 0; k++ }
        :: else -> break
        od
    :: else -> break
    od;
    among = (1 << HELPERS) - 1;
    word = STOP;
#ifndef M_STOPS_IN_SILENCE
    wake_sleepers();
#endif
    gone == HELPERS;
    assert(rising == 0)
}

init {
    byte i;
    atomic {
        do :: i < HELPERS -> run helper(i); i++ :: else -> break od;
        run caller()
    }
}
