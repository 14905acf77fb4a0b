/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the next life of the daemon must know beside the catalogs: how the pool is divided, what
 * each segment is, which clients there were and whether they held anything.
 *
 * A memfd that outlives the daemon (store.h). Written by the daemon alone and never mapped by
 * anybody else; entries of segments under the pool's lock, the rest by the service thread. The
 * daemon may die at any instruction: an entry counts only where its check fits, and the check is
 * the last store of every change.
 */
#ifndef KVPOOL_DAEMON_STATE_H
#define KVPOOL_DAEMON_STATE_H

#include "daemon/memory.h"
#include "shm/base.h"
#include "shm/limits.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KVPOOL_STATE_NAME        "kvpool-state"
#define KVPOOL_STATE_MAJOR       1u
#define KVPOOL_STATE_MINOR       1u /* 1: entries of clients have an epoch */
#define KVPOOL_STATE_CLIENTS_MAX 16384u

/* Lives that ended so soon after they had adopted that the pool is given up. */
#define KVPOOL_STATE_CRASHES_MAX 3u

struct kvpool_state_sizes {
	uint64_t pool_bytes;
	uint64_t segment_bytes;
	uint64_t extent_bytes;
	uint64_t step_bytes;
	uint64_t blocks_max; /* of a domain, as configured */
};

struct kvpool_state_control {
	struct kvpool_state_sizes sizes;
	uint32_t sizes_check; /* CRC32C of `sizes` */
	uint32_t crashes;     /* adoptions since a life lasted */
	uint32_t next_segment;
	uint32_t next_client;
	uint64_t lives;
	uint8_t reserved[64];
};

KVPOOL_ASSERT_SIZE(struct kvpool_state_control, 128);

enum kvpool_state_flag {
	KVPOOL_STATE_LENT = 1u << 0, /* segment: clients may map it */
	KVPOOL_STATE_GPU = 1u << 1,  /* client: its device may still write for a while */
};

#define KVPOOL_STATE_NOBODY UINT32_MAX

/* Zeroes where there is none. */
struct kvpool_state_segment {
	uint32_t id;
	uint32_t uid; /* of the domain that it is lent to; NOBODY */
	uint32_t flags;
	uint32_t pages; /* enum kvpool_pages */
	uint32_t node;
	uint32_t check; /* CRC32C of the rest */
	uint64_t made;  /* bytes that are populated */
};

KVPOOL_ASSERT_SIZE(struct kvpool_state_segment, 32);

/* Zeroes where there is none. */
struct kvpool_state_client {
	uint32_t id; /* 0: there is none; stored last when it begins, first when it ends */
	uint32_t uid;
	uint8_t token[KVPOOL_TOKEN_BYTES];
	uint32_t flags;
	uint32_t check; /* CRC32C of all above */
	/*
	 * Not 0: may read or write blocks. Set before an answer that grants something is sent,
	 * cleared once all is given back.
	 */
	uint32_t holding;
	uint32_t members;     /* processes whose pidfd is in the store; never more than that */
	uint64_t epoch;       /* of the life in which it began */
	uint32_t epoch_check; /* CRC32C of `epoch` and `id`; does not fit where no client of this
				 version wrote it: then it cannot resume */
	uint8_t reserved[12];
};

KVPOOL_ASSERT_SIZE(struct kvpool_state_client, 64);

struct kvpool_state {
	struct kvpool_memory memory;           /* owned */
	struct kvpool_state_control *control;  /* borrowed: memory */
	struct kvpool_state_segment *segments; /* borrowed: memory */
	struct kvpool_state_client *clients;   /* borrowed: memory */
	uint32_t n_segments;
	uint32_t client_at; /* where the next search for a free entry starts */
};

enum {
	KVPOOL_STATE_E_FOREIGN = 1, /* no state of this version, or not whole */
	KVPOOL_STATE_E_FULL = 2,    /* as many clients as there may be */
};

/* A new one, which is put into the store. Negative errno. */
int kvpool_state_new(const struct kvpool_state_sizes *sizes, struct kvpool_state **out);

/* An earlier life's; takes `fd` on success. KVPOOL_STATE_E_FOREIGN, with `fault`; negative errno.
 */
int kvpool_state_adopt(int fd, const char **fault, struct kvpool_state **out);

/* Unmaps; the store keeps it. Takes NULL. */
void kvpool_state_free(struct kvpool_state *state);

/* Writes the entry of the segment in place `at`; `check` is filled in. */
void kvpool_state_segment_set(struct kvpool_state *state, uint32_t at,
			      const struct kvpool_state_segment *entry);

/* The entry as it was written; false where there is none that can be believed. */
bool kvpool_state_segment_get(const struct kvpool_state *state, uint32_t at,
			      struct kvpool_state_segment *out);

/* A new entry, not holding; `check` is filled in. KVPOOL_STATE_E_FULL. */
int kvpool_state_client_add(struct kvpool_state *state, const struct kvpool_state_client *entry,
			    struct kvpool_state_client **out);

void kvpool_state_client_flag(struct kvpool_state_client *entry, enum kvpool_state_flag flag);

/* Takes NULL. */
void kvpool_state_client_remove(struct kvpool_state_client *entry);

/* Whether the client can resume in a later life: it is known when it began. */
bool kvpool_state_client_resumable(const struct kvpool_state_client *entry);

/* From now on it cannot, in any life; it may hold what it held. */
void kvpool_state_client_never_resumes(struct kvpool_state_client *entry);

/* Whether it is an entry, as it was written. */
bool kvpool_state_client_valid(const struct kvpool_state_client *entry);

#endif
