/* The ring's protocol as a Promela model: slots x parts words, claims, deaths, cancel, parking, shutdown.
 *
 * What is explored: every interleaving (sequentially consistent) of WORKERS workers, one consumer and one reaper, with
 * up to CRASHES kills, each between any two steps of a worker. Waits have NO time-outs, so a state in which everybody
 * waits and work exists is reported as an invalid end state. Checked besides (assertions):
 *   - a taken batch holds its own payload in every READY part, never a torn one, and keeps it as long as it is leased;
 *   - batches come in order (or, AS_READY, in any order), each exactly once, none is lost unless it was cancelled;
 *   - only the owner, or the reaper for an owner that is dead, takes a word out of FILLING;
 *   - after shutdown every worker is gone and no word is FILLING.
 *
 * A line with a tag "step: NAME" is the moment of that name in include/trireme/shm/steps.hpp; steps_match.py compares
 * the two lists. What carries no tag is not a step of ours: deaths, respawns, the inside of the kernel's futex calls,
 * and decisions that a process takes from what it has already loaded.
 *
 * Two or more loads or stores share one atomic step only where a finer grain adds nothing but needless rings:
 *   - "are all words of batch k done?": DONE(k) is stable until the consumer has taken batch k;
 *   - "bump the bell, then FUTEX_WAKE" by consumer and reaper, which are not killed here (workers do it in two steps);
 *   - "came back from FUTEX_WAIT, cleared awaited": a stale `awaited` rings once too often.
 *
 * Variants: AS_READY, THROWS (a read may throw half-way), POLLING (the consumer never parks, as with a spinning
 * wait policy or try_take), ANY_CLAIM (workers claim below the floor too, and void there), EARLY_STOP, MISSES.
 * Mutants, -DM_x, each of which check.sh expects to fail, stand where they bite.
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef PARTS
#define PARTS 2
#endif
#ifndef BATCHES
#define BATCHES 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef RESPAWNS
#define RESPAWNS 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2 /* a part is tried this often; then it is FAILED */
#endif
#ifndef LEASES
#define LEASES 1 /* held at once by the consumer */
#endif
#define WORDS (SLOTS * PARTS)

/* ---- shared memory ------------------------------------------------------------------------------------------- */

#define IDLE 0
#define OPEN 1
#define FILLING 2
#define READY 3
#define FAILED 4
#define VOID 5
#define NOBODY 15

/* One 64-bit word per part, state | attempt | owner | seq: all four change together, in one store or CAS. */
byte state[WORDS], attempt[WORDS], owner[WORDS], seq[WORDS];
byte request[SLOTS];  /* which samples: here, the batch number */
byte payload[WORDS];  /* the rows of the part: a batch number, or */
#define TORN 99

byte floor;   /* batches below it are cancelled */
byte awaited; /* 0: the consumer does not wait; seq + 1; or ANY */
#define ANY 255
bool stopping; /* the phase: run or stop */
byte sleepers; /* bit w: worker w is about to park, or parked */

/* A bell is a counter, and a waiter compares it with the value it sampled: "changed since I sampled" is one bit per
 * waiter. Outside of sample..park the bit is kept 1, a value nobody reads. `parked` is the kernel's queue. */
bool consumer_bell_changed = 1, consumer_parked;
byte workers_bell_changed, workers_parked;

#define BIT(w) (1 << (w))
#define EVERYBODY (BIT(WORKERS) - 1)

/* ---- the world: who lives, what must be true ------------------------------------------------------------------ */

#define GONE 0
#define UP 1
#define DEAD 2 /* killed, and the kernel confirms it */
byte alive[WORKERS];
byte crashes, respawns, cancels;
byte delivered, cancelled; /* bit k: batch k was taken; was dropped by a cancel */

/* ---- quantifiers: Promela has none ----------------------------------------------------------------------------- */

#define ANY_WORD(test)                                                                                                 \
  (test(0) || (WORDS > 1 && test(1 % WORDS)) || (WORDS > 2 && test(2 % WORDS)) || (WORDS > 3 && test(3 % WORDS)))
#define PICK_WORD(test, p)                                                                                             \
  ::test(0) -> p = 0 ::(WORDS > 1 && test(1 % WORDS)) -> p = 1 % WORDS                                                 \
  ::(WORDS > 2 && test(2 % WORDS)) -> p = 2 % WORDS ::(WORDS > 3 && test(3 % WORDS)) -> p = 3 % WORDS
#define ANY_SLOT(test) (test(0) || (SLOTS > 1 && test(1 % SLOTS)) || (SLOTS > 2 && test(2 % SLOTS)))
#define PICK_SLOT(test, s)                                                                                             \
  ::test(0) -> s = 0 ::(SLOTS > 1 && test(1 % SLOTS)) -> s = 1 % SLOTS ::(SLOTS > 2 && test(2 % SLOTS)) -> s = 2 % SLOTS
#define ALL_WORKERS(test) (test(0) && (WORKERS < 2 || test(1 % WORKERS)) && (WORKERS < 3 || test(2 % WORKERS)))
#if SLOTS * PARTS > 4 || SLOTS > 3 || PARTS > 2 || WORKERS > 3 || BATCHES > 8
#error "ring.pml: the quantifiers above are written out for 4 words, 3 slots, 2 parts, 3 workers, 8 batches"
#endif

#define WORD_DONE(p, k) (seq[p] == (k) && (state[p] == READY || state[p] == FAILED || state[p] == VOID))
#define BATCH_DONE(s, k)                                                                                               \
  (WORD_DONE((s) * PARTS, k) && (PARTS < 2 || WORD_DONE((s) * PARTS + (1 % PARTS), k)))
#define IS_GONE(w) (alive[w] == GONE)
#define NO_WORKERS ALL_WORKERS(IS_GONE)

/* ---- a worker -------------------------------------------------------------------------------------------------- */

#ifdef M_TICKET /* claims by taking a number first: whoever dies with the number takes the work along */
byte ticket;
#define CLAIMABLE(p)                                                                                                   \
  (ticket < BATCHES * PARTS && (p) == ticket % WORDS && state[p] == OPEN && seq[p] == ticket / PARTS)
#define NEXT_TICKET ticket++
#else
#define NEXT_TICKET skip
#ifdef ANY_CLAIM
#define CLAIMABLE(p) (state[p] == OPEN)
#else
#define CLAIMABLE(p) (state[p] == OPEN && seq[p] >= floor)
#endif
#endif

/* A filler that sees it publishes unfilled. */
#ifdef H_FILLER_IGNORES_FLOOR
#define GIVEN_UP(k) false
#else
#define GIVEN_UP(k) ((k) < floor || stopping)
#endif

/* SIGKILL here: what it kept privately is gone, the kernel takes it off the futex queue, its bit in `sleepers` stays. */
#define MAY_DIE                                                                                                        \
  atomic {                                                                                                             \
    crashes < CRASHES -> crashes++;                                                                                    \
    alive[me] = DEAD;                                                                                                  \
    workers_parked = workers_parked & (EVERYBODY - BIT(me));                                                           \
    workers_bell_changed = workers_bell_changed | BIT(me);                                                             \
    FORGET;                                                                                                            \
    goto unborn                                                                                                        \
  }
#define FORGET p = 0; k = 0; outcome = 0

proctype worker(byte me) {
  byte p;       /* the word in hand */
  byte k;       /* its batch */
  byte outcome; /* READY, FAILED or VOID */
#ifdef M_AWAITED_BEFORE_PUBLISH
  bool wanted;
#endif

unborn:
end_unborn:
  alive[me] == UP;

look: /* the claim order is a policy: any OPEN word may be the one */
  if
  :: atomic {
       true ->
       if
       :: stopping -> alive[me] = GONE; goto unborn
       :: !stopping && ANY_WORD(CLAIMABLE) ->
          if
          PICK_WORD(CLAIMABLE, p)
          fi;
          k = seq[p];
          NEXT_TICKET
#ifdef MISSES /* a scan is not atomic: it may overlook what is opened behind it */
       :: !stopping -> goto park
#else
       :: else -> goto park
#endif
       fi
     }
  :: MAY_DIE
  fi;

  /* The CAS compares the whole word. That attempts may differ is left out: it would only look again. */
  if
  :: atomic {
       true ->
       if
#ifdef M_CLAIM_IGNORES_SEQ
       :: state[p] == OPEN -> seq[p] = k; state[p] = FILLING; owner[p] = me
#elif defined(M_BLIND_CLAIM) /* a store: two that saw the word OPEN both have it */
       :: state[p] != READY -> state[p] = FILLING; owner[p] = me
#else
       :: state[p] == OPEN && seq[p] == k -> state[p] = FILLING; owner[p] = me /* step: worker_claimed */
#endif
       :: else -> FORGET; goto look
       fi
     }
  :: MAY_DIE
  fi;

  if
  :: atomic { /* the floor is looked at here once more; a filler that misses it only works in vain */
       true ->
       if
       :: GIVEN_UP(k) -> outcome = VOID; goto publish
       :: else -> outcome = READY /* step: worker_recorded */
       fi
     }
  :: MAY_DIE
  fi;

  if
  :: payload[p] = TORN /* step: worker_half_filled */
  :: MAY_DIE
  fi;

  if
  :: atomic {
       true ->
       if
       :: GIVEN_UP(k) -> outcome = VOID /* cancelled meanwhile: no more rows */
       :: else -> payload[p] = request[p / PARTS] /* step: worker_filled */
       fi
     }
#ifdef THROWS
  :: outcome = FAILED
#endif
  :: MAY_DIE
  fi;

publish:
#ifdef M_AWAITED_BEFORE_PUBLISH /* "nobody waits": but then somebody does */
  if
  :: atomic {
       true -> wanted = (awaited == k + 1 || awaited == ANY)
     }
  :: MAY_DIE
  fi;
#endif
#ifdef M_CHECK_BEFORE_PUBLISH /* two that finish the last two parts at once do not see one another */
  if
  :: atomic {
       (PARTS < 2 || WORD_DONE((p / PARTS) * PARTS + PARTS - 1 - p % PARTS, k)) ->
       assert(state[p] == FILLING && owner[p] == me);
       state[p] = outcome; owner[p] = NOBODY; attempt[p] = 0
     }
  :: !(PARTS < 2 || WORD_DONE((p / PARTS) * PARTS + PARTS - 1 - p % PARTS, k)) ->
     atomic {
       assert(state[p] == FILLING && owner[p] == me);
       state[p] = outcome; owner[p] = NOBODY; attempt[p] = 0; FORGET; goto look
     }
  :: MAY_DIE
  fi;
#else
  if
  :: atomic {
       true ->
#ifdef M_EARLY_RECLAIM
#ifdef M_BLIND_PUBLISH
       seq[p] = k; state[p] = outcome; owner[p] = NOBODY; attempt[p] = 0
#else
       if
       :: state[p] == FILLING && owner[p] == me && seq[p] == k ->
          state[p] = outcome; owner[p] = NOBODY; attempt[p] = 0
       :: else -> FORGET; goto look
       fi
#endif
#else
       assert(state[p] == FILLING && owner[p] == me && seq[p] == k); /* so the CAS cannot fail */
       state[p] = outcome; owner[p] = NOBODY; attempt[p] = 0 /* step: worker_published */
#endif
     }
  :: MAY_DIE
  fi;
#endif

  if
  :: atomic {
       true -> outcome = 0;
       if
#ifdef M_OWN_PART_ONLY /* "I rang if all was mine": nobody rings for a batch that two have made */
       :: PARTS == 1 -> p = 0
#else
       :: BATCH_DONE(p / PARTS, k) -> p = 0 /* step: worker_checked_batch */
#endif
       :: else -> FORGET; goto look
       fi
     }
  :: MAY_DIE
  fi;

  if
  :: atomic {
       true ->
       if
#ifdef M_AWAITED_BEFORE_PUBLISH
       :: wanted -> k = 0
#else
       :: awaited == k + 1 || awaited == ANY -> k = 0 /* step: worker_checked_awaited */
#endif
       :: else -> FORGET; goto look
       fi
     }
  :: MAY_DIE
  fi;

  if
  :: consumer_bell_changed = 1 /* step: worker_rang */
  :: MAY_DIE
  fi;

  if
  :: atomic { consumer_parked = 0; goto look } /* step: worker_woke */
  :: MAY_DIE
  fi;

park: /* an eventcount: flag, sample, look again, and only then sleep */
#ifndef M_FLAG_LATE
  if
  :: sleepers = sleepers | BIT(me) /* step: worker_flagged */
  :: MAY_DIE
  fi;
#endif

#ifndef M_SAMPLE_LATE
  if
  :: workers_bell_changed = workers_bell_changed & (EVERYBODY - BIT(me)) /* step: worker_sampled */
  :: MAY_DIE
  fi;
#endif

#ifndef M_NO_RECHECK
  do /* the phase, then word by word, as the code does it */
  :: atomic {
       p < WORDS ->
       if
#ifdef M_RECHECK_IGNORES_PHASE
       :: CLAIMABLE(p) -> p = 0; goto unflag
#else
       :: (p == 0 && stopping) || CLAIMABLE(p) -> p = 0; goto unflag /* step: worker_rechecked */
#endif
       :: else -> p++
       fi;
       if
       :: p == WORDS -> p = 0; break
       :: else
       fi
     }
  :: MAY_DIE
  od;
#endif

#ifdef M_SAMPLE_LATE
  if
  :: workers_bell_changed = workers_bell_changed & (EVERYBODY - BIT(me))
  :: MAY_DIE
  fi;
#endif
#ifdef M_FLAG_LATE
  if
  :: sleepers = sleepers | BIT(me)
  :: MAY_DIE
  fi;
#endif

  if
  :: atomic { /* FUTEX_WAIT compares the bell with the sample and queues, in one */
       true ->
       if
       :: workers_bell_changed & BIT(me)
       :: else -> workers_parked = workers_parked | BIT(me); workers_bell_changed = workers_bell_changed | BIT(me)
       fi
     }
  :: MAY_DIE
  fi;

  if
  :: !(workers_parked & BIT(me)) /* step: worker_parked */
  :: MAY_DIE
  fi;

unflag:
  if
  :: atomic {
       sleepers = sleepers & (EVERYBODY - BIT(me)); /* step: worker_unflagged */
       workers_bell_changed = workers_bell_changed | BIT(me);
       goto look
     }
  :: MAY_DIE
  fi
}

/* ---- the reaper ------------------------------------------------------------------------------------------------ */

#define IS_DEAD(w) (alive[w] == DEAD)
#define OWNED_BY_DEAD(p) (state[p] == FILLING && owner[p] == w)
#define RECLAIMABLE_TOO_EARLY(p) (state[p] == FILLING && attempt[p] == 0 && !stopping)

#define RING_ALL_WORKERS workers_bell_changed = EVERYBODY; workers_parked = 0

#define RESPAWN                                                                                                        \
  if                                                                                                                   \
  :: respawns < RESPAWNS && !stopping -> respawns++; alive[w] = UP                                                     \
  :: else -> alive[w] = GONE                                                                                           \
  fi

proctype reaper() {
  byte w, p;

end_idle:
  do
  :: atomic { /* the kernel reported w: whatever w did is done */
       IS_DEAD(0) -> w = 0
     } -> goto reap
  :: atomic { WORKERS > 1 && IS_DEAD(1 % WORKERS) -> w = 1 % WORKERS } -> goto reap
  :: atomic { WORKERS > 2 && IS_DEAD(2 % WORKERS) -> w = 2 % WORKERS } -> goto reap
#ifdef M_EARLY_RECLAIM /* "it has been silent for long": it is still writing */
  :: atomic {
       ANY_WORD(RECLAIMABLE_TOO_EARLY) ->
       if
       PICK_WORD(RECLAIMABLE_TOO_EARLY, p)
       fi;
       attempt[p] = 1; owner[p] = NOBODY; state[p] = OPEN; p = 0
     } -> RING_ALL_WORKERS
#endif
  od;

reap:
#ifdef M_RESPAWN_FIRST
  atomic { sleepers = sleepers & (EVERYBODY - BIT(w)); RESPAWN };
#endif
#ifdef M_RING_FIRST
  atomic { consumer_bell_changed = 1; consumer_parked = 0; RING_ALL_WORKERS };
#endif
#ifndef M_NO_RECLAIM
  atomic { /* a worker holds one word at most */
    if
    :: ANY_WORD(OWNED_BY_DEAD) ->
       if
       PICK_WORD(OWNED_BY_DEAD, p)
       fi;
       owner[p] = NOBODY;
       if
       :: attempt[p] + 1 < ATTEMPTS -> attempt[p]++; state[p] = OPEN /* step: reaper_reclaimed */
       :: attempt[p] + 1 >= ATTEMPTS -> attempt[p] = 0; state[p] = FAILED
       :: seq[p] < floor -> attempt[p] = 0; state[p] = VOID
       fi
    :: else -> p = WORDS
    fi
  };
#ifndef M_REAPER_TRUSTS_FLOOR
  /* A cancel may have passed the word while it was FILLING, after the reaper had looked at the floor. Both store and
   * then look at the other's word: whoever is second voids it. */
  atomic {
    if
    :: p < WORDS && state[p] == OPEN && seq[p] < floor -> attempt[p] = 0; state[p] = VOID
    :: else
    fi;
    p = 0
  };
#endif
  p = 0;
#endif

#ifndef M_RESPAWN_FIRST
  atomic { /* respawned after the reclaim: a word with this owner is then the new worker's */
#if !defined(H_NO_CLEAR) && !defined(M_CLEAR_LATE)
    sleepers = sleepers & (EVERYBODY - BIT(w)); /* step: reaper_cleared */
#endif
    RESPAWN;
    w = 0
  };
#endif

  /* The dead one may have published and not rung, or have been woken for work that it did not take: ring always. */
#if !defined(M_NO_RING_CONSUMER) && !defined(M_RING_FIRST)
  d_step { consumer_bell_changed = 1; consumer_parked = 0 }; /* step: reaper_rang_consumer */
#endif
#if !defined(M_NO_RING_WORKERS) && !defined(M_RING_FIRST)
  d_step { RING_ALL_WORKERS }; /* step: reaper_rang_workers */
#endif
#ifdef M_CLEAR_LATE /* the bit may be its successor's by now (to be run with one worker) */
  sleepers = 0;
#endif
  goto end_idle
}

/* ---- the consumer ---------------------------------------------------------------------------------------------- */

/* What the consumer knows of a slot; private to it. */
#define EMPTY 0 /* never opened, or the last lease is dropped */
#define OPENED 1
#define LEASED 2
#define CANCELLED 3 /* somebody may still fill it */
byte use[SLOTS];
byte next_open; /* the next work to hand out; in order, it is the batch's number too */
byte next_take; /* in order: the next batch to take */
byte held;      /* leases */
bool owed;      /* words were opened, and sleepers were not rung for them */

#define OCCUPANT(s) (seq[(s) * PARTS])
#ifdef M_TAKE_ON_LAST_PART /* the parts are not done in order */
#define OCCUPANT_DONE(s) WORD_DONE((s) * PARTS + PARTS - 1, OCCUPANT(s))
#else
#define OCCUPANT_DONE(s) BATCH_DONE(s, OCCUPANT(s))
#endif
#define IS_OPENED(s) (use[s] == OPENED)
#define IS_LEASED(s) (use[s] == LEASED)
#define IN_FLIGHT ANY_SLOT(IS_OPENED)
#ifdef M_REOPEN_EARLY /* a cancelled batch is still being filled when its request and words are replaced */
#define IS_FREE(s) (use[s] == EMPTY || use[s] == CANCELLED)
#else
#define IS_FREE(s) (use[s] == EMPTY || (use[s] == CANCELLED && OCCUPANT_DONE(s)))
#endif

#ifdef AS_READY /* any free slot takes the next work, so a straggler holds up its own slot only */
byte next_seq[SLOTS]; /* slot s has the numbers s, s + SLOTS, ...: a word's number only grows */
#define NUMBER(s) next_seq[s]
#define OPENABLE(s) (next_open < BATCHES && IS_FREE(s))
#define TAKEABLE(s) (IS_OPENED(s) && OCCUPANT_DONE(s))
#define IS_IN_WORK(s) (use[s] == OPENED || use[s] == CANCELLED)
#define CAN_WAIT ANY_SLOT(IS_IN_WORK)
#define AWAITED_NUMBER ANY
#define RECHECK(s) (IN_FLIGHT -> TAKEABLE(s) : IS_FREE(s))
#else
#define NUMBER(s) next_open
#define OPENABLE(s) (next_open < BATCHES && (s) == next_open % SLOTS && IS_FREE(s))
#define TAKEABLE(s) (IS_OPENED(s) && OCCUPANT(s) == next_take && OCCUPANT_DONE(s))
#define NEXT_SLOT (next_take % SLOTS)
#define CAN_WAIT (use[NEXT_SLOT] == OPENED || use[NEXT_SLOT] == CANCELLED)
#define AWAITED_NUMBER (OCCUPANT(NEXT_SLOT) + 1) /* the batch, or the cancelled one that is in its way */
#define RECHECK(s) ((s) == NEXT_SLOT && (use[s] == OPENED -> TAKEABLE(s) : IS_FREE(s)))
#endif

#ifdef M_RECHECK_IGNORES_THE_END
#define THE_END false
#else
#define THE_END NO_WORKERS
#endif

#define INTACT(p, s) (state[p] != READY || payload[p] == request[s])
#define BATCH_INTACT(s) (BATCH_DONE(s, OCCUPANT(s)) && INTACT((s) * PARTS, s) && INTACT((s) * PARTS + PARTS - 1, s))

/* FUTEX_WAKE(m), whatever m the code asks for: any one of the queue, or all. */
#define RING_SOME_WORKERS                                                                                              \
  if                                                                                                                   \
  :: sleepers == 0                                                                                                     \
  :: else -> workers_bell_changed = EVERYBODY;                                                                         \
     if                                                                                                                \
     :: workers_parked = 0                                                                                             \
     :: (workers_parked & 1) -> workers_parked = workers_parked - 1                                                    \
     :: (workers_parked & 2) -> workers_parked = workers_parked - 2                                                    \
     :: (workers_parked & 4) -> workers_parked = workers_parked - 4                                                    \
     fi                                                                                                                \
  fi;                                                                                                                  \
  owed = 0

proctype consumer() {
  byte s, i;

#ifdef AS_READY
  atomic {
    for (i : 0 .. SLOTS - 1) {
      next_seq[i] = i
    }
    i = 0
  };
#endif

pass: /* one call of next(), or one turn in it; what is decided here rests on what stays true */
  atomic {
    if
#if CANCELS > 0
    :: cancels < CANCELS && next_open > 0 -> cancels++; goto cancel /* an early break, a change of plan */
#endif
#ifdef EARLY_STOP
    :: goto stop /* destroyed in the middle of everything */
#endif
    :: true ->
       if
       :: held == LEASES -> goto release
       :: else
       fi;
       if
       :: ANY_SLOT(OPENABLE) ->
          if
          PICK_SLOT(OPENABLE, s)
          fi;
#ifdef M_OPEN_BEFORE_REQUEST
          goto open
#else
          request[s] = next_open; goto open /* step: consumer_requested */
#endif
       :: else
       fi;
       if
       :: ANY_SLOT(TAKEABLE) ->
          if
          PICK_SLOT(TAKEABLE, s)
          fi;
          assert(BATCH_INTACT(s));
          assert(!((delivered | cancelled) & BIT(request[s])));
          delivered = delivered | BIT(request[s]);
          use[s] = LEASED; held++; next_take = OCCUPANT(s) + 1; s = 0; goto pass /* step: consumer_took */
       :: else
       fi;
       if
       :: next_open == BATCHES && !IN_FLIGHT -> assert((delivered | cancelled) == BIT(BATCHES) - 1); goto stop
       :: else
       fi;
       if
       :: NO_WORKERS -> goto stop /* next() throws: nobody is left to fill */
       :: !NO_WORKERS && !CAN_WAIT -> goto release /* it would wait for itself */
       :: else -> goto wait
       fi
    fi
  };

#if CANCELS > 0
cancel:
  atomic {
    for (i : 0 .. SLOTS - 1) {
      if
      :: IS_OPENED(i) -> use[i] = CANCELLED; cancelled = cancelled | BIT(request[i])
      :: else
      fi
    }
#ifdef AS_READY
    for (i : 0 .. SLOTS - 1) {
      if
      :: next_seq[i] >= floor + SLOTS -> floor = next_seq[i] - SLOTS + 1 /* above all that were opened */
      :: else
      fi
    }
    for (i : 0 .. SLOTS - 1) {
      do
      :: next_seq[i] < floor -> next_seq[i] = next_seq[i] + SLOTS
      :: else -> break
      od
    }
#else
    floor = next_open; next_take = next_open; /* step: consumer_raised_floor */
#endif
    i = 0
  };
#ifndef M_NO_VOID
#ifdef M_BLIND_VOID
voiding:
#endif
  do
  :: atomic {
       i < WORDS ->
       if
#ifdef M_BLIND_VOID /* a store: somebody may have claimed the word meanwhile */
       :: state[i] == OPEN && use[i / PARTS] == CANCELLED -> goto void
#else
       :: state[i] == OPEN && use[i / PARTS] == CANCELLED -> state[i] = VOID; attempt[i] = 0 /* step: consumer_voided */
#endif
       :: else
       fi;
       i++;
       if
       :: i == WORDS -> i = 0; goto pass
       :: else
       fi
     }
  od;
#ifdef M_BLIND_VOID
void:
  atomic {
    state[i] = VOID; owner[i] = NOBODY; attempt[i] = 0; i++;
    if
    :: i == WORDS -> i = 0; goto pass
    :: else -> goto voiding
    fi
  };
#endif
#else
  goto pass;
#endif
#endif

release:
  atomic {
    if
    PICK_SLOT(IS_LEASED, s)
    fi;
    assert(BATCH_INTACT(s));
    use[s] = EMPTY; held--; s = 0; goto pass
  };

open: /* one store per word; a worker may claim the first before the second is open */
  do
  :: atomic {
       i < PARTS ->
       seq[s * PARTS + i] = NUMBER(s); owner[s * PARTS + i] = NOBODY; attempt[s * PARTS + i] = 0;
       state[s * PARTS + i] = OPEN; i++ /* step: consumer_opened */
     }
  :: atomic { /* at low water it rings now; else it owes the ring */
       i == PARTS ->
#ifdef M_OPEN_BEFORE_REQUEST
       request[s] = next_open;
#endif
       i = 0; use[s] = OPENED; next_open++;
#ifdef AS_READY
       next_seq[s] = next_seq[s] + SLOTS;
#endif
       s = 0;
       if
       :: owed = 1
       :: true -> RING_SOME_WORKERS /* step: consumer_rang */
       fi;
       goto pass
     }
  od;

wait:
#ifndef M_NO_FLUSH
  if
  :: atomic { owed -> RING_SOME_WORKERS } /* at the latest here, whether it parks or polls */
  :: !owed
  fi;
#endif
#ifdef POLLING
  atomic {
    ANY_SLOT(RECHECK) || NO_WORKERS -> goto pass
  };
#endif
#ifndef M_AWAIT_LATE
  awaited = AWAITED_NUMBER; /* step: consumer_awaited */
#endif
#ifndef M_CONSUMER_SAMPLES_LATE
  consumer_bell_changed = 0; /* step: consumer_sampled */
#endif
#ifndef M_NO_CONSUMER_RECHECK
  do /* slot by slot, then whether there is an end to it */
  :: atomic {
       i < SLOTS ->
       if
       :: RECHECK(i) || (i == SLOTS - 1 && THE_END) ->
          i = 0; awaited = 0; consumer_bell_changed = 1; goto pass /* step: consumer_rechecked */
       :: else -> i++
       fi;
       if
       :: i == SLOTS -> i = 0; break
       :: else
       fi
     }
  od;
#endif
#ifdef M_CONSUMER_SAMPLES_LATE
  consumer_bell_changed = 0;
#endif
#ifdef M_AWAIT_LATE
  awaited = AWAITED_NUMBER;
#endif
  atomic {
    if
    :: consumer_bell_changed
    :: else -> consumer_parked = 1; consumer_bell_changed = 1
    fi
  };
  atomic { !consumer_parked -> awaited = 0; goto pass }; /* step: consumer_parked */

stop:
#ifdef M_STOP_WITHOUT_RING
  stopping = 1;
#else
  atomic { stopping = 1; RING_ALL_WORKERS }; /* step: consumer_stopped */
#endif
  atomic { /* join */
    NO_WORKERS ->
    for (i : 0 .. WORDS - 1) {
      assert(state[i] != FILLING)
    }
  }
}

init {
  byte i;
  atomic {
    for (i : 0 .. WORDS - 1) {
      owner[i] = NOBODY
    }
    workers_bell_changed = EVERYBODY;
    for (i : 0 .. WORKERS - 1) {
      alive[i] = UP;
      run worker(i)
    }
    run consumer();
    run reaper()
  }
}

#ifdef LIVENESS
ltl ends { <> stopping }
#endif
