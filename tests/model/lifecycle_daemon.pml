/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon of lifecycle.pml. No client sees its stores to record, notes and private memory, so these need no
 * moment of their own: what it does for one request or event is one atomic step, in which it may
 * die before and after each store.
 */

#define KILLED   deaths < DEATHS -> deaths++; up = 0
#define STORE(x) x; if :: true :: KILLED; goto dies fi

inline become(s)
{
	changing = 1;
	STORE(state = s);
	check = SUM;
	STORE(changing = 0)
}

inline give()
{
	changing = 1;
	STORE(state = FREE);
	owner = 0;
	crc = 0;
	check = SUM;
	changing = 0;
	assert(!vacant);
	STORE(vacant = 1)
}

inline answer(c, what)
{
	request[c] = NOTHING;
	handle[c] = 0;
	STORE(reply[c] = (alive[c] -> what : 0))
}

inline reserve(c)
{
	assert(!HANDS);
	vacant = 0;
	changing = 1;
	STORE(generation++);
	STORE(owner = c + 1);
	STORE(state = RESERVED);
	check = SUM;
	STORE(changing = 0);
	hand[c] = (alive[c] && handle[c] != GIVEN_UP -> generation : 0);
	answer(c, generation)
}

#define MINE(c) (OWNS(c) && state != QUARANTINED && generation == handle[c])

/* COMMIT and ABORT. */
inline finish(c)
{
	if
	:: MINE(c) && state == RESERVED && request[c] == COMMIT ->
		assert(WHOLE);
		changing = 1;
#ifndef SEAL_EARLY
		STORE(crc = generation);
#endif
		STORE(owner = 0);
		STORE(state = READY);
		check = SUM;
#ifdef SEAL_EARLY
		STORE(skip);
		crc = generation;
#endif
		STORE(changing = 0)
	:: MINE(c) && (state == VOID || request[c] == ABORT) -> give()
	:: !MINE(c)
	fi;
	answer(c, DONE)
}

inline write_note(c)
{
	STORE(note[c] = generation);
	STORE(seal[c] = generation)
}

inline clear_note(c)
{
	note[c] = 0;
	STORE(seal[c] = 0)
}

inline match(c)
{
	assert(WHOLE && crc == generation);
#ifndef NOTE_LATE
	write_note(c);
	answer(c, generation);
#else
	answer(c, generation);
	write_note(c);
#endif
	lease[c] = 1
}

inline lease_over(c)
{
	if
	:: lease[c] ->
#ifndef NOTE_KEPT_LATE
		clear_note(c);
#endif
		lease[c] = 0;
#ifdef NOTE_KEPT_LATE
		if
		:: MAY_GO -> give()
		:: else
		fi;
		clear_note(c)
#endif
	:: else
	fi
}

/* Where nobody leases a READY block this is what an eviction is. */
inline forget()
{
	if
	:: state == RESERVED -> become(VOID)
	:: state == READY -> become(DEAD)
	fi
}

inline hang_up(c)
{
#ifndef NO_HANG_UP
	sock[c] = 0;
#endif
	request[c] = NOTHING;
	STORE(handle[c] = 0)
}

inline end_client(c)
{
#ifndef MARK_LATE
	STORE(entry[c] = MARKED);
#endif
	hang_up(c);
	lease_over(c);
	if
	:: OWNS(c) && state == RESERVED -> become(VOID)
	:: else
	fi;
	if
	:: OWNS(c) && state == VOID ->
#ifdef NO_QUARANTINE
		give()
#else
		become(QUARANTINED)
#endif
	:: else
	fi;
#ifdef MARK_LATE
	STORE(entry[c] = MARKED);
#endif
	stage[c] = ENDED
}

/* Nothing of it is left, or what there is can be written by nobody. */
inline free_client(c)
{
	if
	:: OWNS(c) -> give()
	:: else
	fi;
	stage[c] = GONE;
	old[c] = 0;
	STORE(entry[c] = 0)
}

#ifdef QUARANTINE_BY_SOCKET
#define OVER(c) (stage[c] == ENDED)
#else
#ifdef PAST_BY_SOCKET
#define OVER(c) (stage[c] == ENDED && (!alive[c] || !OWNS(c)))
#else
#define OVER(c) (stage[c] == ENDED && (!alive[c] || (!OWNS(c) && !old[c])))
#endif
#endif

inline resume(c)
{
	if
	:: stage[c] == GHOST && entry[c] != MARKED && alive[c] ->
		stage[c] = SERVED;
		sock[c] = 1;
		answer(c, TAKEN)
	:: else -> answer(c, DONE)
	fi
}

/* RELEASE, and RETIRE, which is as good as the client's end. */
inline let_go(c)
{
	if
	:: (request[c] == RELEASE && note[c] == handle[c]) ||
	   (request[c] == RETIRE && stage[c] == GHOST) -> lease_over(c)
	:: else
	fi;
	if
	:: request[c] == RETIRE && stage[c] == GHOST -> free_client(c)
	:: request[c] == RETIRE && stage[c] == SERVED -> old[c] = 0
	:: else
	fi;
	request[c] = NOTHING;
	handle[c] = 0
}

inline end_past()
{
	for (i : 0 .. USED - 1) {
		if
		:: ROTTEN(i) && !lease[i] -> clear_note(i)
		:: else
		fi
	}
	i = 0;
	held = 0;
	if
	:: state == QUARANTINED && owner == 0 -> give()
	:: else
	fi
}

inline adopt_note(c)
{
	if
	:: note[c] == 0
	:: note[c] && seal[c] == note[c] ->
		if
		:: (state == READY || state == DEAD) && generation == note[c] ->
			lease[c] = 1
		:: else ->
			/* A change of the block was cut short: the past holds the frame. */
			assert(PAST);
			clear_note(c)
		fi
	:: ROTTEN(c) ->
#ifndef BELIEF
		held = 1
#else
		clear_note(c)
#endif
	fi
}

inline adopt()
{
	/* claim_ready(), claim_rest() */
	if
	:: state == FREE ->
		changing = 0;
		vacant = 1
	:: state != FREE && FITS ->
		assert(!changing);
		assert(state != READY || (WHOLE && crc == generation));
#ifdef FORGETFUL
		if
		:: state == QUARANTINED -> give()
		:: else
		fi
#endif
	:: state != FREE && !FITS ->
		assert(changing);
		STORE(owner = 0);
		become(QUARANTINED)
	fi;
	for (i : 0 .. USED - 1) {
		adopt_note(i)
	}
	i = 0;
	if
	:: PAST ->
		old[0] = (entry[0] != 0);
		old[1] = (entry[1] != 0);
		old[2] = (entry[2] != 0)
	:: else
	fi;
	up = 1
}

/* A request for what is not there yet waits, which stands for asking again. */
#define ASKED(c) (request[c] == RESUME || request[c] == RETIRE || (stage[c] == SERVED && ( \
		  (request[c] == RESERVE && vacant && generation < GENERATIONS) || \
		  request[c] == COMMIT || request[c] == ABORT || \
		  (request[c] == MATCH && state == READY) || request[c] == RELEASE)))

inline serve(c)
{
	if
	:: request[c] == RESERVE -> reserve(c)
	:: request[c] == COMMIT || request[c] == ABORT -> finish(c)
	:: request[c] == MATCH -> match(c)
	:: request[c] == RESUME -> resume(c)
	:: request[c] == RELEASE || request[c] == RETIRE -> let_go(c)
	fi
}

/* A socket that ended; a pidfd that tells of an end; the operator. */
#define ENDS_NOW(c) ((stage[c] == SERVED && (!sock[c] || TROUBLE)) || \
		     (stage[c] == GHOST && (!alive[c] || entry[c] == MARKED)))

#define EACH(condition) \
	if :: condition(0) -> c = 0 :: condition(1) -> c = 1 :: condition(2) -> c = 2 fi

proctype daemon()
{
	byte c, i;

end_serve:
	do
	:: atomic { EACH(ASKED); serve(c); c = 0 }
	:: atomic {
		EACH(ENDS_NOW);
		troubles = troubles + (stage[c] == SERVED && sock[c]);
		end_client(c);
		c = 0
	}
	:: atomic { EACH(OVER); free_client(c); c = 0 }
	/* Eviction; the end of what was forgotten and is not leased any more. */
	:: atomic { MAY_GO -> give() }
	:: atomic { TROUBLE && ((state == READY && !MAY_GO) || state == RESERVED) -> troubles++; forget() }
	:: atomic { PAST && !OLD -> end_past() }
	:: atomic { KILLED; goto dies }
	od;
dies:
	/* SIGKILL: the kernel closes its sockets, and its memory goes. */
	atomic {
		vacant = 0;
		held = 0;
		for (i : 0 .. CLIENTS - 1) {
			sock[i] = 0;
			request[i] = NOTHING;
			handle[i] = 0;
			lease[i] = 0;
			old[i] = 0;
			stage[i] = (entry[i] -> GHOST : GONE)
		}
		c = 0;
		i = 0
	};
	atomic { adopt(); goto end_serve }
}
