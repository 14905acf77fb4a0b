/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that lies: speaks the protocol to one client at a time, and breaks it where a test says
 * so.
 *
 * Runs in a thread of its own. The knobs are set before it starts, or by kvpool_fake_next_life(),
 * and only read otherwise.
 */
#ifndef KVPOOL_TESTS_FAKE_DAEMON_H
#define KVPOOL_TESTS_FAKE_DAEMON_H

#include "shm/channel.h"
#include "shm/handshake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum kvpool_fake_memory {
	KVPOOL_FAKE_GOOD = 0,
	KVPOOL_FAKE_UNSEALED,
	KVPOOL_FAKE_SHORT, /* than the message says */
	KVPOOL_FAKE_NO_MEMFD,
	KVPOOL_FAKE_GARBAGE, /* no header in it */
	KVPOOL_FAKE_ONE_FD_LESS,
	KVPOOL_FAKE_WRONG_NUMBER,
	KVPOOL_FAKE_WRONG_PAGES,
	KVPOOL_FAKE_REFUSED_UNKNOWN,
	KVPOOL_FAKE_OUT_OF_TURN,
};

/* What came that is not answered, or not by itself. Read under `lock`. */
struct kvpool_fake_log {
	struct kvpool_wire_claim claims[8192];
	uint32_t n_claims, claim_calls, last_calls; /* in all lives */
	uint64_t released[64];
	uint32_t n_released;
	struct kvpool_wire_handle aborted[64];
	uint32_t n_aborted;
	uint8_t retired[8][KVPOOL_TOKEN_BYTES];
	uint32_t n_retired;
};

struct kvpool_fake {
	/* Knobs. */
	uint64_t epoch; /* 0: some */
	/* Changes what a good daemon would say. NULL: nothing. */
	void (*welcome)(struct kvpool_welcome *welcome);
	bool hang_up_at_claim;
	void (*hello)(struct kvpool_hello *hello); /* NULL: as it should be */
	uint32_t hello_bytes;                      /* 0: all */
	bool hello_with_fd;
	const struct kvpool_refused *refuse; /* in answer to ATTACH; borrowed */
	bool refuse_once;                    /* clears `refuse` by itself */
	bool no_welcome;                     /* CHANNEL comes at once */
	enum kvpool_fake_memory channel, segment;
	/* Changes a good answer; `arena` is the channel's. NULL: answers are good. */
	void (*reply)(const struct kvpool_request *request, void *arena,
		      struct kvpool_reply *reply);

	/* The daemon's own. */
	char folder[64];
	char socket[96];
	int listener;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic bool over; /* hang up now; F3: cleared by the daemon once it has */
	_Atomic bool held; /* greets nobody: the knobs are being changed; seq_cst */
	pthread_mutex_t lock;
	struct kvpool_fake_log log;  /* lock */
	_Atomic uint32_t attaches;   /* ATTACH messages that came */
	struct kvpool_attach attach; /* the last; read it once `attaches` says so */
};

/* Fails the test by itself. */
void kvpool_fake_start(struct kvpool_fake *fake);

/*
 * Hangs up; `change` then sets the knobs of the next life, and forgets nothing of the log. Returns
 * when that life would greet.
 */
void kvpool_fake_next_life(struct kvpool_fake *fake, void (*change)(struct kvpool_fake *fake));

/* A second time does nothing. */
void kvpool_fake_stop(struct kvpool_fake *fake);

#endif
