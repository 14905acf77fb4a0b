/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one frame: its record, the generations of its use, clients that write and read, and
 * the deaths of all of them, the daemon's between any two stores.
 *
 * What a life of the daemon leaves is what it stored, in program order; so memory is plain here.
 * It stands under "Kept", what dies with the daemon under "Private". A next life keeps handles: a
 * record names its owner, each lease has a note, a client that comes back with its token goes on.
 * For what it cannot tell by these there is the past (src/adopt.c), which is all that a daemon has
 * that keeps no handles.
 *
 *	reserve()      kvpool_cache_reserve(), kvpool_space_take(), kvpool_block_begin()
 *	finish()       kvpool_cache_commit(): block_ready(), void_end(); kvpool_cache_abort()
 *	match()        kvpool_cache_match(), the note, the reply, kvpool_cache_settle()
 *	lease_over()   lease_end(), for kvpool_cache_release() and kvpool_lease_end_all()
 *	forget()       kvpool_tree_kill(): kill_one(), kill_reserved()
 *	give()         forget() in blocks.c, for kvpool_block_evict(), kvpool_block_relax(). Between
 *	               its stores the block is being evicted: neither READY, nor does its check fit
 *	hang_up()      the same in daemon/peer.c
 *	end_client()   kvpool_client_leave(), kvpool_cache_holder_quarantine()
 *	free_client()  kvpool_client_free(), ghost_free(): kvpool_cache_holder_free()
 *	let_go()       kvpool_cache_release(), kvpool_ghost_retire()
 *	adopt()        kvpool_cache_adopt(), adopt_clients()
 *	end_past()     kvpool_cache_end_past()
 *	"vouch"        kvpool_session_lost(), which kvpool_load() asks after it has copied
 *
 * A copy is two words, so that a torn one is seen; both say which generation they are of. `alive`
 * is what the kernel says of all processes of a client and all copies of its socket together: as
 * long as it is 1 the client may write. `sock` is 0 when the socket has ended, whoever ended it.
 *
 * Proven by exhaustive search:
 *	- who leases a block, and vouches for what it read, has read that generation, whole. It
 *	  vouches when its session has not ended, or a next life has taken it back;
 *	- what is READY was committed whole, in this life and in those after it, and nobody writes
 *	  there;
 *	- a frame is given to a writer only where no other may still write;
 *	- a frame is given back once;
 *	- the check of a record at rest fits;
 *	- once everybody is gone the frame comes to be free, and no note and no entry is left: so it
 *	  is in every last state, and there is no cycle (pan -l with -DNP).
 *
 * Not in here: clients that attach anew, several frames, the tree, rot of records, a device that
 * writes on after its process.
 *
 * Sizes, by macro: WRITERS, READERS (3 clients at most), GENERATIONS (3 at most), DEATHS of the
 * daemon, and TROUBLES: a socket that ends while its process lives, a client that the operator
 * evicts, a FORGET, a note that rots.
 *
 * Variants that must fail, by macro:
 *	NO_QUARANTINE         a writer's frame is free when its client is over
 *	QUARANTINE_BY_SOCKET  quarantine ends with the socket
 *	FORGETFUL             adoption takes frames in quarantine for free ones
 *	RETIRE_EARLY          said with a copy under way
 *	PAST_BY_SOCKET        the past does not wait for a client that came back and is over, but
 *	                      lives (needs two TROUBLES)
 *	SEAL_EARLY            a record's check is stored before its last field
 *	NOTE_LATE             a lease's note is written after the reply
 *	NOTE_KEPT_LATE        a note is cleared after what it holds was let go
 *	UNCOUNTED             eviction does not look at leases that were adopted
 *	BELIEF                a note that does not fit holds nothing
 *	MARK_LATE             that a client was ended is stored after its leases' notes were cleared
 *	NO_VOUCH              a reader does not look at its socket
 *	NO_HANG_UP            leases of an evicted client end, its socket does not
 */

#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef READERS
#define READERS 1
#endif
#ifndef GENERATIONS
#define GENERATIONS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef TROUBLES
#define TROUBLES 1
#endif

#define CLIENTS 3
#define USED    (WRITERS + READERS)

/* enum kvpool_block_state */
#define FREE        0
#define RESERVED    1
#define READY       2
#define DEAD        3
#define VOID        4
#define QUARANTINED 5

/* Kept: the record. Owner 0 is nobody, or the past: all clients that an adoption found. */
byte state, generation, owner, crc;
short check;
#define SUM  (state + 8 * generation + 32 * crc + 128 * owner)
#define FITS (check == SUM)

/* Kept: a note for each lease (the generation, its check), an entry for each client. */
byte note[CLIENTS], seal[CLIENTS];
byte entry[CLIENTS]; /* 0: none */
#define ENTERED   1
#define MARKED    2 /* ended: no life takes its token any more */
#define ROTTEN(c) (note[c] && seal[c] != note[c])

/* The frame's bytes. */
byte word[2];
#define WHOLE (word[0] == generation && word[1] == generation)

/* What the kernel knows. */
bit up; /* a daemon serves */
bit alive[CLIENTS], sock[CLIENTS];

/* A channel each. A reply outlives the daemon, a request does not. */
#define NOTHING   0
#define RESERVE   1
#define COMMIT    2
#define ABORT     3
#define MATCH     4
#define RELEASE   5
#define RESUME    6
#define RETIRE    7
byte request[CLIENTS], handle[CLIENTS], reply[CLIENTS];
#define GIVEN_UP 13 /* handle: the client does not look for the answer any more */
#define DONE     14 /* an answer that grants nothing */
#define TAKEN    15 /* RESUME: goes on with what it held; DONE: it was refused */

/* Private to a life of the daemon. */
bit vacant;         /* the frame is in the list of free ones */
bit lease[CLIENTS]; /* as counted in the block */
bit held;           /* a note was not believed: whatever is READY stays */
bit old[CLIENTS];   /* may hold what nobody knows; for the past to wait for */
byte stage[CLIENTS];
#define GONE   0
#define GHOST  1 /* of an earlier life; did not resume yet */
#define SERVED 2
#define ENDED  3

/* What the asserts look at, and nobody else. */
byte hand[CLIENTS];  /* may write, as a grant of this generation said */
bit changing;        /* a change of the record is under way, or was cut short */
byte deaths, troubles;
#define TROUBLE (troubles < TROUBLES)

#ifndef UNCOUNTED
#define LEASED (lease[0] || lease[1] || lease[2])
#else
#define LEASED (deaths == 0 && (lease[0] || lease[1] || lease[2]))
#endif
#define OLD    (old[0] || old[1] || old[2])
#define HANDS  (hand[0] || hand[1] || hand[2])
#define MAY_GO ((state == READY || state == DEAD) && !LEASED && !held)
#define PAST   (held || (state == QUARANTINED && owner == 0))
#define OWNS(c) (owner == (c) + 1 && \
		 (state == RESERVED || state == VOID || state == QUARANTINED))

#include "lifecycle_daemon.pml"

/* Clients. A request goes out while the socket is open; who finds it ended may miss the answer. */

/* The client comes back with its token, and goes on with what it holds where that is taken. */
inline come_back(c)
{
	atomic { up && request[c] == NOTHING -> request[c] = RESUME; reply[c] = 0 };
	if
	:: atomic { reply[c] -> answered = reply[c]; reply[c] = 0 }
	/* Another death. */
	:: atomic { request[c] == NOTHING && !reply[c] && !sock[c] -> answered = 0 }
	fi
}

inline say_retire(c)
{
	atomic { up && request[c] == NOTHING -> request[c] = RETIRE }
}

proctype writer(byte c)
{
	byte g, answered;
	bit wrote;

	{
more:
		do
		:: atomic { sock[c] -> request[c] = RESERVE };
			if
			:: atomic { reply[c] -> g = reply[c]; reply[c] = 0 }
			:: atomic { !sock[c] && reply[c] -> g = reply[c]; reply[c] = 0; goto lost }
			:: atomic {
				!sock[c] ->
				handle[c] = (request[c] == RESERVE -> GIVEN_UP : 0);
				reply[c] = 0;
				hand[c] = 0;
				goto lost
			}
			fi;
copy:
			atomic { assert(state != READY); word[0] = g };
#ifdef RETIRE_EARLY
			if
			:: !sock[c] -> say_retire(c)
			:: skip
			fi;
#endif
			atomic {
				assert(state != READY);
				word[1] = g;
				hand[c] = 0;
				wrote = 1
			};
tell:
			if
			:: atomic { sock[c] -> request[c] = COMMIT; handle[c] = g }
			:: atomic { sock[c] -> request[c] = ABORT; handle[c] = g }
			:: atomic { !sock[c] -> goto lost }
			fi;
			if
			:: atomic { reply[c] -> reply[c] = 0; g = 0; wrote = 0 }
			:: atomic { !sock[c] -> reply[c] = 0; goto lost }
			fi
		:: atomic { !sock[c] -> goto lost }
		od;
lost:
		if
		:: come_back(c);
			if
			:: atomic { answered == 0 -> goto lost }
			:: atomic { answered == TAKEN && g && !wrote -> answered = 0; goto copy }
			:: atomic { answered == TAKEN && g && wrote -> answered = 0; goto tell }
			:: atomic { answered == TAKEN && !g -> answered = 0; say_retire(c) };
				atomic { request[c] == NOTHING -> goto more }
			:: atomic { answered == DONE -> hand[c] = 0; say_retire(c) }
			fi
		:: atomic { hand[c] = 0; say_retire(c) }
		:: atomic { hand[c] = 0 }
		fi;
		atomic { answered = 0; g = 0; wrote = 0; false }
	} unless { !alive[c] }
}

proctype reader(byte c)
{
	byte g, answered, first, second;

	{
		if
		:: atomic { sock[c] -> request[c] = MATCH }
		:: atomic { !sock[c] -> goto away }
		fi;
		if
		:: atomic { reply[c] -> g = reply[c]; reply[c] = 0 }
		:: atomic { !sock[c] -> reply[c] = 0; goto away }
		fi;
copy:
		first = word[0];
		second = word[1];
vouch:
		if
#ifndef NO_VOUCH
		:: atomic {
			sock[c] ->
#else
		:: atomic {
#endif
			assert(first == g && second == g);
			request[c] = RELEASE;
			handle[c] = g
		}
#ifndef NO_VOUCH
		:: !sock[c] ->
			/* Held all the while, or not believed. */
			come_back(c);
			if
			:: atomic { answered == 0 -> goto vouch }
			:: atomic { answered == TAKEN -> answered = 0; goto vouch }
			:: atomic { answered == TAKEN -> answered = 0; goto copy }
			:: atomic { answered == DONE -> say_retire(c) }
			fi
		:: atomic { !sock[c] -> say_retire(c) }
		:: !sock[c]
#endif
		fi;
away:
		atomic { g = 0; answered = 0; first = 0; second = 0; false }
	} unless { !alive[c] }
}

/* What happens to all of them. */

#define DIES(c) \
	atomic { alive[c] -> alive[c] = 0; sock[c] = 0; hand[c] = 0; reply[c] = 0 }
#define SOCKET_ENDS(c) \
	atomic { TROUBLE && alive[c] && sock[c] -> sock[c] = 0; troubles++ }
#define NOTE_ROTS(c) \
	atomic { TROUBLE && note[c] && seal[c] == note[c] -> seal[c] = 0; troubles++ }
#define EVERYBODY (alive[0] || alive[1] || alive[2])

proctype fate()
{
end:	do
	:: DIES(0)
	:: DIES(1)
	:: DIES(2)
	:: SOCKET_ENDS(0)
	:: SOCKET_ENDS(1)
	:: SOCKET_ENDS(2)
	:: NOTE_ROTS(0)
	:: NOTE_ROTS(1)
	:: NOTE_ROTS(2)
	/* The daemon lives on from here. */
	:: atomic { up && !EVERYBODY && deaths < DEATHS -> deaths = DEATHS }
	od
}

init {
	byte c;

	atomic {
		vacant = 1;
		up = 1;
		for (c : 0 .. USED - 1) {
			alive[c] = 1;
			sock[c] = 1;
			entry[c] = ENTERED;
			stage[c] = SERVED;
			if
			:: c < WRITERS -> run writer(c)
			:: else -> run reader(c)
			fi
		}
		c = 0;
		run daemon();
		run fate()
	};
	/* Everybody is gone, and the daemon has nothing left to do. */
	timeout;
	assert(up && !alive[0] && !alive[1] && !alive[2]);
	assert(state == FREE && vacant);
	assert(!note[0] && !note[1] && !note[2]);
	assert(!entry[0] && !entry[1] && !entry[2])
}
