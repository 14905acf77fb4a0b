/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that lies: speaks the protocol to one client at a time, and breaks it where a test says
 * so.
 *
 * Runs in a thread of its own. The knobs are set before it starts and only read afterwards.
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

struct kvpool_fake {
	/* Knobs. */
	void (*hello)(struct kvpool_hello *hello); /* NULL: as it should be */
	uint32_t hello_bytes;                      /* 0: all */
	bool hello_with_fd;
	const struct kvpool_refused *refuse; /* in answer to ATTACH; borrowed */
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
	_Atomic uint32_t attaches;   /* ATTACH messages that came */
	struct kvpool_attach attach; /* the last; read it once `attaches` says so */
};

/* Fails the test by itself. */
void kvpool_fake_start(struct kvpool_fake *fake);

/* A second time does nothing. */
void kvpool_fake_stop(struct kvpool_fake *fake);

#endif
