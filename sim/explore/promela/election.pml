/*
 * The protocol of a lease on a quorum of nodes, told a second time and apart from the TypeScript and the Lua: three nodes, two clients,
 * one crash. A node has an owner and a counter. A client asks every node to grant and, if the numbers differ, to confirm one of them.
 * Requests arrive in any order and at any time, also after the client has decided; answers may be lost; releases and ends of leases come
 * in any order.
 *
 * Checked in every state: nobody wins while another holds, and a token is above all that were given before its client began.
 *
 *   spin -a election.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m200000
 *
 * With -DNO_CRASH no node forgets; with -DCLOCKS_MAD keys are gone at any time, and then only tokens are promised. Wrong variants,
 * which test/sim/promela.test.ts finds: ONE_PHASE, CONFIRM_BELOW, EXCLUSION (with CLOCKS_MAD), NO_SIT_OUT, NUMBERS_FROM_NOTHING.
 */
#define N 3
#define C 2
#define QUORUM 2
#define NOBODY 7
/* Numbers are at most this. */
#define MOST 8

#define IDLE 0
#define RUNNING 1
#define WON 2
#define LOST 3

#define at(c, n) ((c) * N + (n))
#define bit(t) (1 << (t))

/* A node. */
byte owner[N] = NOBODY;
byte fence[N];
bool up[N] = true;

/* A client: `floor` is the highest token that was given before it began; `over`: its validity is. */
byte phase[C];
byte token[C];
byte floor[C];
bool over[C];
/* What it has asked to be confirmed, and of each node: whether the acquire has arrived, the last number and all votes it heard of. */
short asked[C];
bool arrived[C * N];
byte last[C * N];
short votes[C * N];

/* The highest number of all, and who had begun at the crash. */
byte top;
bool crashed;
bool begun_at_crash[C];

hidden byte i;

inline lift(n, value) {
  assert(value <= MOST);
  fence[n] = value;
  if
  :: value > top -> top = value
  :: else
  fi
}

inline hear(c, n, t) {
  last[at(c, n)] = t;
  votes[at(c, n)] = votes[at(c, n)] | bit(t)
}

/* Grants to whom it likes if it is free: with the next number. */
#define can_acquire(c, n) (up[n] && !arrived[at(c, n)] && phase[c] != IDLE)
inline acquire(c, n) {
  arrived[at(c, n)] = true;
  if
  :: owner[n] == NOBODY ->
    owner[n] = c;
    lift(n, fence[n] + 1);
    if
    :: phase[c] == RUNNING -> hear(c, n, fence[n])
    :: true
    fi
  :: else
  fi
}

/* Says yes, and has its counter at the number then, only if it is still the client's and the counter not above. */
#ifdef CONFIRM_BELOW
#define may_confirm(n, t) true
#else
#define may_confirm(n, t) (fence[n] <= t)
#endif
#define can_confirm(c, n, t) (up[n] && (asked[c] & bit(t)) && owner[n] == c && may_confirm(n, t) && !(votes[at(c, n)] & bit(t)))
inline confirm(c, n, t) {
  if
  :: fence[n] < t -> lift(n, t)
  :: else
  fi;
  if
  :: phase[c] == RUNNING -> hear(c, n, t)
  :: true
  fi
}

#define ours(c) ((last[at(c, 0)] > 0) + (last[at(c, 1)] > 0) + (last[at(c, 2)] > 0))
#define not_above(c, n, t) (last[at(c, n)] > 0 && last[at(c, n)] <= t)
#define acceptable(c, t) (not_above(c, 0, t) + not_above(c, 1, t) + not_above(c, 2, t) >= QUORUM)
/* The lowest number that a quorum can still accept. */
#define to_ask(c, t) (phase[c] == RUNNING && acceptable(c, t) && !acceptable(c, t - 1) && !(asked[c] & bit(t)))

#define voted(c, n, t) ((votes[at(c, n)] & bit(t)) != 0)
#ifdef ONE_PHASE
/* A quorum has granted: the highest of the numbers that it heard of will do. */
#define has_won(c, t) (ours(c) >= QUORUM && (last[at(c, 0)] == t || last[at(c, 1)] == t || last[at(c, 2)] == t) && last[at(c, 0)] <= t && last[at(c, 1)] <= t && last[at(c, 2)] <= t)
#else
#define has_won(c, t) (voted(c, 0, t) + voted(c, 1, t) + voted(c, 2, t) >= QUORUM)
#endif

inline decide(c, how, t) {
  phase[c] = how;
  token[c] = t;
  for (i : 0 .. N - 1) {
    last[at(c, i)] = 0;
    votes[at(c, i)] = 0
  }
}

/* With mad clocks only tokens are promised. */
#if defined(CLOCKS_MAD) && !defined(EXCLUSION)
#define is_past_holder(other) true
#else
#define is_past_holder(other) over[other]
#endif

inline win(c, t) {
  assert(t > floor[c]);
  for (i : 0 .. C - 1) {
    assert(i == c || phase[i] != WON || (token[i] != t && is_past_holder(i)))
  }
  decide(c, WON, t);
  floor[c] = 0
}

/* A release that arrives: it lifts the counter to the token. */
#define can_release(c, n) (up[n] && phase[c] == WON && owner[n] == c)
inline release(c, n) {
  over[c] = true;
  owner[n] = NOBODY;
  if
  :: fence[n] < token[c] -> lift(n, token[c])
  :: else
  fi
}

/* Clocks keep their bounds: a key is there until the validity of its owner is over. */
#ifdef CLOCKS_MAD
#define can_expire(c, n) (owner[n] == c)
#else
#define can_expire(c, n) (owner[n] == c && (over[c] || phase[c] == LOST))
#endif

/* Whatever may happen next; t is a number that the search chooses. */
#define NUMBERS(option) option(1) option(2) option(3) option(4) option(5) option(6) option(7) option(8)
#define ASK(t) :: atomic { to_ask(c, t) -> asked[c] = asked[c] | bit(t) }
#define WIN(t) :: atomic { phase[c] == RUNNING && !over[c] && has_won(c, t) -> win(c, t) }
#define CONFIRM0(t) :: atomic { can_confirm(c, 0, t) -> confirm(c, 0, t) }
#define CONFIRM1(t) :: atomic { can_confirm(c, 1, t) -> confirm(c, 1, t) }
#define CONFIRM2(t) :: atomic { can_confirm(c, 2, t) -> confirm(c, 2, t) }
#define AT_NODE(n) \
  :: atomic { can_acquire(c, n) -> acquire(c, n) } \
  :: atomic { can_release(c, n) -> release(c, n) } \
  :: atomic { can_expire(c, n) -> owner[n] = NOBODY }

proctype client(byte c) {
  atomic {
    phase[c] = RUNNING;
    for (i : 0 .. C - 1) {
      if
      :: token[i] > floor[c] -> floor[c] = token[i]
      :: else
      fi
    }
  }
end:
  do
  AT_NODE(0)
  AT_NODE(1)
  AT_NODE(2)
  NUMBERS(ASK)
  NUMBERS(CONFIRM0)
  NUMBERS(CONFIRM1)
  NUMBERS(CONFIRM2)
  NUMBERS(WIN)
  :: atomic { phase[c] == RUNNING -> decide(c, LOST, 0) }
  :: atomic { !over[c] -> over[c] = true }
  od
}

/* A client that had begun before the crash holds nothing any more: its validity is over, or it never won. */
#define is_past(c) (!begun_at_crash[c] || over[c] || phase[c] == LOST)

inline crash(n) {
  crashed = true;
  owner[n] = NOBODY;
  fence[n] = 0;
  for (i : 0 .. C - 1) {
    begun_at_crash[i] = (phase[i] != IDLE)
  }
#ifdef NO_SIT_OUT
  fence[n] = top
#else
  up[n] = false
#endif
}

inline come_back(n) {
  up[n] = true;
  for (i : 0 .. C - 1) {
    begun_at_crash[i] = false
  }
#ifndef NUMBERS_FROM_NOTHING
  /* Proposals follow the clocks, which are beyond all that was numbered before. */
  fence[n] = top
#endif
}

/* All nodes are alike: it is enough if one of them crashes. */
#ifndef NO_CRASH
active proctype restart() {
  atomic { crash(0) };
#ifndef NO_SIT_OUT
end:
  atomic { is_past(0) && is_past(1) -> come_back(0) }
#endif
}
#endif

init {
  atomic {
    for (i : 0 .. C - 1) {
      run client(i)
    }
  }
}
