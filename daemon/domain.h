/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trust domain: the clients of one user, their cache, its catalog, and the segments it was lent.
 *
 * Who belongs to which domain is decided by the kernel's word (SO_PEERCRED) alone. Lives from the
 * first attach until it has neither clients nor blocks. Owned by the server's list; service thread
 * only.
 *
 * Sharing the pool: a domain takes free segments as it needs them. Where none is free, a domain
 * that holds less than an equal share gets the coldest segment of the one that holds most. What was
 * asked for by a domain below its share is kept for it for a while.
 */
#ifndef KVPOOL_DAEMON_DOMAIN_H
#define KVPOOL_DAEMON_DOMAIN_H

#include "daemon/list.h"
#include "daemon/loop.h"
#include "daemon/memory.h"
#include "daemon/pool.h"
#include "shm/limits.h"
#include "src/cache.h"

#include <stdbool.h>
#include <sys/types.h>

struct kvpool_server;

struct kvpool_domain {
	struct kvpool_list link;      /* in server->domains */
	struct kvpool_server *server; /* borrowed */
	struct kvpool_cache *cache;   /* owned */
	struct kvpool_memory catalog; /* owned; the cache's for as long as it lives */
	struct kvpool_memory notes;   /* owned; likewise; none where nobody keeps it */
	struct kvpool_list segments;  /* owned: struct domain_segment */
	struct kvpool_source *expiry; /* owned timer: runs only while blocks are resident */
	uid_t uid;
	uint32_t n_segments;
	uint32_t n_clients; /* attached, quarantined, or of an earlier life */
	uint32_t n_past;    /* of these, those that may hold what an earlier life granted */
	uint64_t
		wanted_ns; /* when it asked for memory and got none; 0: has had what it asked for */
	bool taken_for;    /* a segment was taken for it and is being made anew */
	bool expiry_runs;
	bool to_verify; /* by the verification under way */
	char name[KVPOOL_NAME_BYTES];
};

enum {
	KVPOOL_DOMAIN_E_UNKNOWN = 1, /* no such segment here */
};

/* The domain of this user; NULL: there is none. */
struct kvpool_domain *kvpool_domain_find(struct kvpool_server *server, uid_t uid);

/* The same, made where there is none. Negative errno. */
int kvpool_domain_get(struct kvpool_server *server, uid_t uid, struct kvpool_domain **out);

/* What an earlier life left of a user's domain. */
struct kvpool_domain_left {
	uid_t uid;
	int catalog;             /* taken on success */
	int notes;               /* likewise, where they are of use; -1: did not come back */
	const uint32_t *clients; /* borrowed, ascending: those that may go on */
	uint32_t n_clients;
	bool others; /* these as in kvpool_cache_left */
	void (*lost)(void *cookie);
	void *cookie;
};

/*
 * The domain of an earlier life. There is none of this user yet. KVPOOL_CACHE_E_FOREIGN with
 * `result->fault`; negative errno.
 */
int kvpool_domain_adopt(struct kvpool_server *server, const struct kvpool_domain_left *left,
			struct kvpool_cache_adopted *result, struct kvpool_domain **out);

/* One client less may hold what an earlier life granted; the past ends with the last. */
void kvpool_domain_past_left(struct kvpool_domain *domain);

/* A client left, or could not be had: frees a domain that holds nothing any more. */
void kvpool_domain_client_left(struct kvpool_domain *domain);

/* Frees the domain; its clients are gone. */
void kvpool_domain_free(struct kvpool_domain *domain);

/*
 * A segment of this domain and the descriptor to send, both borrowed.
 * KVPOOL_DOMAIN_E_UNKNOWN; negative errno.
 */
int kvpool_domain_segment(struct kvpool_domain *domain, uint32_t id, bool read_only,
			  const struct kvpool_segment **segment, int *fd);

/* Blocks became READY: they expire one day. Cheap when that is known already. */
void kvpool_domain_stored(struct kvpool_domain *domain);

/* The pool made progress: hands what grew to its domains. */
void kvpool_domain_pool_progress(struct kvpool_server *server);

#endif
