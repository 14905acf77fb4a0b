/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's one service thread: it owns the loop, the pool, the domains, the peers and the
 * listening socket, and runs the service turn (turn.c).
 *
 * Every object of the service layer holds a borrowed pointer to it. Only the service thread may
 * touch any of it.
 */
#ifndef KVPOOL_DAEMON_SERVER_H
#define KVPOOL_DAEMON_SERVER_H

#include "daemon/list.h"
#include "daemon/listener.h"
#include "daemon/loop.h"
#include "daemon/pool.h"
#include "daemon/spin.h"
#include "daemon/violation.h"
#include "daemon/waits.h"
#include "shm/wire.h"
#include "src/cache.h"

struct kvpool_channel;
struct kvpool_client;
struct kvpool_verify;

struct kvpool_server_config {
	enum kvpool_loop_kind loop;
	uint64_t spin_max_ns;
	struct kvpool_pool_config pool;
	uint64_t extent_bytes;
	uint32_t blocks_max;       /* of one domain; 0: as many as could fit */
	bool shared_catalog;       /* in a memfd; otherwise private memory of the daemon */
	uint32_t crash_window;     /* seconds after which a life that adopted lasted; 0: at once */
	uint32_t idle_limit;       /* seconds; 0: blocks never expire */
	uint32_t clients_max;      /* of the daemon */
	uint32_t leases_max;       /* per client; 0: the cache's default */
	uint32_t reservations_max; /* per client, in blocks; 0: no limit */
};

struct kvpool_server_counters {
	uint64_t requests[KVPOOL_OP_COUNT + 1]; /* the last: operations that do not exist */
	uint64_t replies;
	uint64_t bells_in;  /* doorbells of cold channels that rang */
	uint64_t bells_out; /* doorbells of sleeping clients that were rung */
	uint64_t turns;     /* of the service loop, with or without work */
	uint64_t sleeps;    /* times the loop went to wait */
	uint64_t attached;  /* members, ever */
	uint64_t refused;   /* connections and messages refused, ever */
	uint64_t takes;     /* segments that left a domain for another */
};

struct kvpool_server {
	struct kvpool_server_config config;
	uint64_t epoch;
	uint64_t start_ns; /* CLOCK_MONOTONIC */
	uint64_t now_ns;   /* CLOCK_MONOTONIC, as of this turn */

	/* Channels that are polled every turn: their clients need not ring. */
	struct kvpool_channel **hot; /* owned array of borrowed channels */
	uint32_t n_hot;
	uint32_t hot_capacity; /* at least n_channels, so that heating needs no memory */
	uint32_t n_channels;
	uint32_t sweep;      /* where to look next for a channel that cooled down */
	uint64_t look_ns;    /* sockets and timers are not looked at before */
	uint64_t tick_ns;    /* the caches are not told the time before */
	uint64_t poisonings; /* kvpool_sigbus_count() when it was last acted upon */
	struct kvpool_spin spin;
	struct kvpool_list bells; /* channels whose client may sleep on a reply */
	struct kvpool_server_counters counters;

	struct kvpool_loop *loop;          /* owned */
	struct kvpool_pool *pool;          /* owned */
	struct kvpool_source *pool_source; /* owned */
	struct kvpool_source *leave_timer; /* owned */
	struct kvpool_verify *verify;      /* owned; NULL: none was asked for yet */
	struct kvpool_listener listener;   /* fd -1 where not listening */
	struct kvpool_waits waits;         /* WAITs that are not answered yet */
	struct kvpool_violations violations;
	struct kvpool_list domains;
	struct kvpool_list clients;
	struct kvpool_list peers; /* with an open socket, attached or not */
	uint32_t n_domains;
	uint32_t n_clients; /* attached or quarantined */
	uint32_t n_pending; /* peers that are not attached yet */
	uint32_t next_client;

	struct kvpool_source *lasted; /* owned: this life did not end right after it began */
	struct kvpool_adoption {
		struct kvpool_cache_adopted sum; /* over all domains */
		uint64_t ns;                     /* that it took */
		uint64_t dropped;                /* descriptors of no use */
		uint32_t domains_empty;          /* whose blocks are not kept; the log says why */
		bool any;                        /* there was an earlier life */
		char fault[160];                 /* why its pool is not kept; or empty */
	} adoption;

	bool draining;     /* no new clients, no new reservations */
	bool leaving;      /* draining, to leave when that is done */
	bool leave;        /* the run ends with this turn */
	uint64_t leave_ns; /* it leaves then, whatever is held */
};

/* What this daemon offers: enum kvpool_feature. */
uint32_t kvpool_server_features(const struct kvpool_server *server);

/* Makes loop and pool; the populating thread starts. Negative errno, and a line says for what. */
int kvpool_server_new(const struct kvpool_server_config *config, struct kvpool_server **out);

/* Drops every peer, asserts that nothing is left, frees the pool. Takes NULL. */
void kvpool_server_free(struct kvpool_server *server);

/* Accepts clients on this listener from now on; takes it on success. -ENOMEM, -ENOSPC. */
int kvpool_server_listen(struct kvpool_server *server, struct kvpool_listener *listener);

/* Serves until kvpool_server_leave() is through. */
void kvpool_server_run(struct kvpool_server *server);

/*
 * No new clients and reservations; leaves once no reservation is left, at the latest in 1 s. Called
 * again: at once.
 */
void kvpool_server_leave(struct kvpool_server *server);

/*
 * No new clients and reservations, and stays: what is held is served on, and further members of
 * clients may come, for a writer may need them to finish.
 */
void kvpool_server_drain(struct kvpool_server *server);

/* Ends the draining; not where the daemon leaves. */
void kvpool_server_resume(struct kvpool_server *server);

/* Room in the hot list for one more channel. -ENOMEM. */
int kvpool_server_channel_added(struct kvpool_server *server);
void kvpool_server_channel_removed(struct kvpool_server *server);

#endif
