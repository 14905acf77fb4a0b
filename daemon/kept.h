/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an earlier life of the daemon left in the store, sorted: its state, its segments, a catalog
 * and the notes of its leases a domain, the pidfds of its clients' processes.
 *
 * Nothing is believed because it came back: names, kinds, sizes and seals are looked at here, what
 * the memory says by who adopts it. Where the state is missing or cannot be used, or the last lives
 * ended as soon as they had adopted it, all is dropped and the pool starts empty. Owned by main();
 * service thread only, before the pool's thread begins.
 */
#ifndef KVPOOL_DAEMON_KEPT_H
#define KVPOOL_DAEMON_KEPT_H

#include "daemon/state.h"
#include "daemon/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kvpool_kept_segment {
	struct kvpool_state_segment entry;
	uint32_t place; /* in the state */
	int fd;         /* owned; -1: taken */
};

struct kvpool_kept_catalog {
	uid_t uid;
	int fd; /* owned; -1: taken */
};

/* Notes of the leases of a user's domain. */
struct kvpool_kept_notes {
	uid_t uid;
	int fd; /* owned; -1: taken */
};

struct kvpool_kept_process {
	uint32_t client;
	uint32_t member;
	pid_t pid; /* 0: not visible from here */
	int pidfd; /* owned; -1: taken */
	char name[KVPOOL_STORE_NAME_BYTES];
};

struct kvpool_kept {
	struct kvpool_state *state; /* owned; NULL: nothing is kept */
	struct kvpool_kept_segment *segments;
	struct kvpool_kept_catalog *catalogs;
	struct kvpool_kept_notes *notes;
	struct kvpool_kept_process *processes;
	uint32_t n_segments, n_catalogs, n_notes, n_processes;
	uint64_t dropped; /* descriptors that came back and were of no use */
	char text[160];   /* why nothing could be kept, though something came back; or empty */
};

/*
 * Sorts and takes what is in the list; what is of no use leaves the store. Counts this life as one
 * that adopts. -ENOMEM.
 */
int kvpool_kept_sort(struct kvpool_store_list *list, struct kvpool_kept *out);

/* All leaves the store, the state too: the pool starts empty. */
void kvpool_kept_drop(struct kvpool_kept *kept, const char *why);

/* Closes what nobody took, and it leaves the store; the state stays the caller's. */
void kvpool_kept_finish(struct kvpool_kept *kept);

/* Names in the store. */
void kvpool_kept_segment_name(uint32_t id, char out[KVPOOL_STORE_NAME_BYTES]);
void kvpool_kept_catalog_name(uid_t uid, char out[KVPOOL_STORE_NAME_BYTES]);
void kvpool_kept_notes_name(uid_t uid, char out[KVPOOL_STORE_NAME_BYTES]);
void kvpool_kept_process_name(uint32_t client, uint32_t member, char out[KVPOOL_STORE_NAME_BYTES]);

#endif
