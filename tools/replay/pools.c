/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemons of a replay: see pools.h.
 *
 * Main thread.
 */
#include "tools/replay/pools.h"

#include "tools/admin_client.h"
#include "tools/daemon_path.h"
#include "tools/exit_codes.h"
#include "tools/folder.h"
#include "tools/interrupt.h"
#include "tools/process.h"
#include "tools/replay/board.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Zeroing runs at some GiB a second; a machine that takes longer than this is out of memory. */
#define PATIENCE_S 120
#define POLL_MS    5

struct pool {
	struct kvpool_process process; /* zero: not ours */
	char socket[KVPOOL_ADMIN_SOCKET_BYTES];
	char admin[KVPOOL_ADMIN_SOCKET_BYTES];
	char log[32]; /* name in the folder */
	uint64_t bytes;
};

struct kvpool_pools {
	struct kvpool_folder folder; /* empty: nothing is ours */
	uint32_t n;
	struct pool pools[KVPOOL_BOARD_WORKERS_MAX];
};

static int spawn(struct kvpool_pools *pools, uint32_t i, uint64_t bytes, char *why,
		 size_t why_bytes)
{
	struct pool *pool = &pools->pools[i];
	char program[KVPOOL_DAEMON_PROGRAM_BYTES];
	char size[32];
	char name[32];
	char log[128];
	const char *arguments[] = {program,     "--socket", pool->socket, "--admin-socket",
				   pool->admin, "--size",   size,         NULL};
	struct kvpool_process_spec process = {.arguments = arguments, .log = log, .cpu = -1};
	int error;

	snprintf(name, sizeof(name), "pool%" PRIu32 ".sock", i);
	kvpool_folder_file(&pools->folder, name, pool->socket, sizeof(pool->socket));
	snprintf(name, sizeof(name), "pool%" PRIu32 "-admin.sock", i);
	kvpool_folder_file(&pools->folder, name, pool->admin, sizeof(pool->admin));
	snprintf(pool->log, sizeof(pool->log), "pool%" PRIu32 ".log", i);
	kvpool_folder_file(&pools->folder, pool->log, log, sizeof(log));
	snprintf(size, sizeof(size), "%" PRIu64, bytes);
	kvpool_daemon_path_find(NULL, program);
	error = kvpool_process_start(&process, &pool->process);
	if (error == 0)
		return 0;
	snprintf(why, why_bytes, "cannot start %s: %s", program, strerror(-error));
	return KVPOOL_EXIT_FAILURE;
}

/* Asks for the daemon's memory. 0 and whether it is still growing, or as the admin client. */
static int look(struct pool *pool, char *why, size_t why_bytes, bool *growing)
{
	json_t *status = NULL;
	int error = kvpool_admin_client_get(pool->admin, "/v1/status", why, why_bytes, &status);
	const json_t *memory = json_object_get(status, "pool");

	if (error != 0)
		return error;
	pool->bytes = (uint64_t)json_integer_value(json_object_get(memory, "bytes"));
	*growing = json_is_true(json_object_get(memory, "growing"));
	json_decref(status);
	return 0;
}

static int give_up(const struct kvpool_pools *pools, const struct pool *pool, char *why,
		   size_t why_bytes)
{
	if (pool->process.pid == 0)
		snprintf(why, why_bytes, "kvpoold ended; what it said is above");
	else
		snprintf(why, why_bytes, "kvpoold has no pool after %d s", PATIENCE_S);
	kvpool_folder_show(&pools->folder, pool->log);
	return KVPOOL_EXIT_FAILURE;
}

/*
 * Until the pool is populated, so that every run starts from the same memory. A daemon that runs
 * already need not show us its admin socket: its pool is then taken as it is.
 */
static int await(struct kvpool_pools *pools, struct pool *pool, char *why, size_t why_bytes)
{
	bool own = pool->process.pid != 0;
	time_t until = time(NULL) + PATIENCE_S;
	bool growing = true;

	for (;;) {
		int error = look(pool, why, why_bytes, &growing);

		if (error == KVPOOL_ADMIN_E_VERSION)
			return KVPOOL_EXIT_VERSION;
		if (error == 0 ? !growing : !own)
			return 0;
		if (kvpool_interrupt_asked()) {
			snprintf(why, why_bytes, "interrupted");
			return KVPOOL_EXIT_FAILURE;
		}
		if ((own && !kvpool_process_alive(&pool->process)) || time(NULL) > until)
			return give_up(pools, pool, why, why_bytes);
		kvpool_interrupt_pause(POLL_MS);
	}
}

static int start_own(struct kvpool_pools *pools, const struct kvpool_pools_spec *spec, char *why,
		     size_t why_bytes)
{
	int error = kvpool_folder_make(&pools->folder);
	uint32_t i;

	if (error != 0) {
		snprintf(why, why_bytes, "cannot make a temporary folder: %s", strerror(-error));
		return KVPOOL_EXIT_FAILURE;
	}
	for (i = 0; i < spec->n && error == 0; i++)
		error = spawn(pools, i, spec->bytes / spec->n, why, why_bytes);
	for (i = 0; i < spec->n && error == 0; i++)
		error = await(pools, &pools->pools[i], why, why_bytes);
	return error;
}

static int use_running(struct kvpool_pools *pools, const char *socket, char *why, size_t why_bytes)
{
	struct pool *pool = &pools->pools[0];

	if (strlen(socket) >= sizeof(pool->socket)) {
		snprintf(why, why_bytes, "the path of a socket has at most %zu bytes",
			 sizeof(pool->socket) - 1);
		return KVPOOL_EXIT_USAGE;
	}
	snprintf(pool->socket, sizeof(pool->socket), "%s", socket);
	if (kvpool_admin_client_beside(socket, pool->admin) != 0)
		return 0;
	return await(pools, pool, why, why_bytes);
}

int kvpool_pools_start(const struct kvpool_pools_spec *spec, char *why, size_t why_bytes,
		       struct kvpool_pools **out)
{
	struct kvpool_pools *pools = calloc(1, sizeof(*pools));
	int error;

	if (pools == NULL) {
		snprintf(why, why_bytes, "%s", strerror(ENOMEM));
		return KVPOOL_EXIT_FAILURE;
	}
	pools->n = spec->socket != NULL ? 1 : spec->n;
	if (spec->socket != NULL)
		error = use_running(pools, spec->socket, why, why_bytes);
	else
		error = start_own(pools, spec, why, why_bytes);
	if (error != 0) {
		kvpool_pools_stop(pools);
		return error;
	}
	*out = pools;
	return 0;
}

void kvpool_pools_stop(struct kvpool_pools *pools)
{
	uint32_t i;

	if (pools == NULL)
		return;
	for (i = 0; i < pools->n; i++)
		kvpool_process_stop(&pools->pools[i].process);
	kvpool_folder_remove(&pools->folder);
	free(pools);
}

const char *kvpool_pools_socket(const struct kvpool_pools *pools, uint32_t worker)
{
	return pools->pools[worker % pools->n].socket;
}

uint32_t kvpool_pools_count(const struct kvpool_pools *pools)
{
	return pools->n;
}

uint64_t kvpool_pools_bytes(const struct kvpool_pools *pools)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < pools->n; i++) {
		if (pools->pools[i].bytes == 0)
			return 0;
		bytes += pools->pools[i].bytes;
	}
	return bytes;
}
