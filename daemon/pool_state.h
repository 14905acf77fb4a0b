/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service thread (pool.c) and the populating thread (populate.c) share; nobody else
 * includes this but the pool's own test.
 *
 * Everything is under `lock` unless its comment names the thread that it belongs to.
 */
#ifndef KVPOOL_DAEMON_POOL_STATE_H
#define KVPOOL_DAEMON_POOL_STATE_H

#include "daemon/nodes.h"
#include "daemon/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define KVPOOL_PLACE_NONE UINT32_MAX

enum kvpool_place_state {
	KVPOOL_PLACE_EMPTY = 0, /* no memfd */
	KVPOOL_PLACE_LIVE,      /* has a memfd; `made` bytes of it are populated */
	KVPOOL_PLACE_RELEASED,  /* came back: the thread wipes it, then it is EMPTY */
};

/* Room for one segment; the segments in it come and go. */
struct kvpool_place {
	struct kvpool_segment segment; /* service thread: what its user sees */

	enum kvpool_place_state state;
	bool lent;
	uid_t uid;   /* lent: of the domain; in an earlier life, until it is claimed */
	bool failed; /* the thread could not go on here; not tried again before the others */
	bool grown;  /* in the list of those that the service thread has not looked at */
	int fd;      /* owned; -1: EMPTY */
	uint32_t id;
	uint64_t made;
	enum kvpool_pages pages;
	enum kvpool_pages from; /* nothing better than this is tried; AUTO: anything */
	uint32_t node;
	uint32_t next_grown;
};

struct kvpool_pool {
	struct kvpool_pool_config config; /* constant */
	const char *root;          /* constant; borrowed: of /proc and /sys, "" outside tests */
	struct kvpool_nodes nodes; /* constant */
	uint32_t n_places;         /* constant */
	uint64_t start_ns;         /* constant */
	int event_fd;              /* constant; owned: there is something in `grown` */
	pthread_t thread;          /* service thread */

	pthread_mutex_t lock;
	pthread_cond_t changed;      /* service to populating thread: look again */
	struct kvpool_place *places; /* owned */
	uint32_t grown;              /* head of a list of places */
	uint32_t next_id;
	bool stop;
	bool growing;
	bool blocked; /* after a failure that others would share: nothing is tried for a while */
	int error;
	uint32_t error_place; /* where `error` arose */
	char error_text[160];
	int bind_error;
	uint64_t first_ns;
	uint64_t full_ns;
};

/* Notes in the state what the place is now. Takes the lock as held. */
void kvpool_place_note(struct kvpool_pool *pool, struct kvpool_place *place);

/*
 * As kvpool_pool_new(), on these nodes and with /proc and /sys below `root` (borrowed until
 * kvpool_pool_free()).
 */
int kvpool_pool_start(const struct kvpool_pool_config *config, const struct kvpool_nodes *nodes,
		      const char *root, struct kvpool_pool **out);

/* The populating thread; `argument` is the pool. */
void *kvpool_populate_main(void *argument);

#endif
