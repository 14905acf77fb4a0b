/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process of a replay: see worker.h.
 *
 * This file is the process: its handle, its memory, its loop. request.c is what it does with one
 * request. One thread.
 */
#include "tools/replay/worker.h"

#include "shm/base.h"
#include "tools/exit_codes.h"
#include "tools/replay/layout.h"
#include "tools/replay/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Processes outnumber cores in a replay: a daemon that waits for its turn is not a dead one. */
#define DEADLINE_NS UINT64_C(2000000000)

#define ARENA_MIN (UINT64_C(2) << 20)

/* Keys, places and ranges of the longest request, with room to spare. */
static uint64_t arena_bytes(uint32_t blocks)
{
	return KVPOOL_MAX(ARENA_MIN, KVPOOL_ROUND_UP(((uint64_t)blocks + 64) * 64, 4096));
}

static int complain(const struct kvpool_worker_spec *spec, const char *what, int error,
		    const char *detail)
{
	fprintf(stderr, "kvpool-replay: process %u: %s: %s\n", spec->number, what,
		detail != NULL ? detail : strerror(-error));
	if (error == -ENOTCONN)
		return KVPOOL_EXIT_UNREACHABLE;
	if (error == -EACCES || error == -EDQUOT)
		return KVPOOL_EXIT_REFUSED;
	if (error == -EPROTO)
		return KVPOOL_EXIT_VERSION;
	return KVPOOL_EXIT_FAILURE;
}

static int open_pool(const struct kvpool_worker_spec *spec, struct kvpool_request_place *place)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.socket = spec->socket,
		.name = "kvpool-replay",
		.deadline_ns = DEADLINE_NS,
		.spin_ns = spec->spin_ns,
		.flags = KVPOOL_OPEN_REQUIRE,
		.arena_bytes = arena_bytes(spec->trace->blocks_max),
	};
	int error = kvpool_open(&options, &place->pool);

	if (error != 0)
		return complain(spec, spec->socket, error, NULL);
	error = kvpool_channel_open(place->pool, &place->channel);
	if (error == 0)
		error = kvpool_replay_layout(place->pool, spec->trace, spec->block_bytes,
					     &place->layout);
	if (error != 0)
		return complain(spec, spec->socket, error, kvpool_error(place->pool));
	return 0;
}

static int get_memory(const struct kvpool_worker_spec *spec, struct kvpool_request_place *place)
{
	uint32_t blocks = KVPOOL_MAX(spec->trace->blocks_max, 1u);
	int error = kvpool_engine_new(spec->block_bytes, &place->engine);

	if (error == 0)
		error = kvpool_replay_keys_new(kvpool_layout_fingerprint(place->layout),
					       &place->keys);
	if (error != 0)
		return complain(spec, "setting up", error, NULL);
	place->key_bytes = malloc((size_t)blocks * KVPOOL_KEY_SIZE);
	place->blocks = calloc(blocks, sizeof(*place->blocks));
	place->granted = calloc(blocks, sizeof(*place->granted));
	if (place->key_bytes == NULL || place->blocks == NULL || place->granted == NULL)
		return complain(spec, "setting up", -ENOMEM, NULL);
	return 0;
}

static void close_all(struct kvpool_request_place *place)
{
	kvpool_channel_close(place->channel);
	kvpool_close(place->pool);
	kvpool_engine_free(place->engine);
	kvpool_replay_keys_free(place->keys);
	free(place->key_bytes);
	free(place->blocks);
	free(place->granted);
}

static int replay(const struct kvpool_worker_spec *spec, struct kvpool_request_place *place)
{
	uint32_t i;

	while ((i = kvpool_board_take(spec->board)) != KVPOOL_BOARD_NONE) {
		const struct kvpool_trace_request *request = &spec->trace->requests[i];
		int error;

		if (request->previous != KVPOOL_TRACE_NONE &&
		    !kvpool_board_await(spec->board, request->previous))
			break;
		error = kvpool_request_serve(place, request);
		if (error != 0)
			return complain(spec, "computing keys", error, NULL);
		kvpool_board_done(spec->board, i);
	}
	place->figures->ended_ns = kvpool_engine_now();
	if (kvpool_attached(place->pool) == 0)
		return complain(spec, "the daemon went away", -ENOTCONN, kvpool_error(place->pool));
	return 0;
}

int kvpool_worker_run(const struct kvpool_worker_spec *spec)
{
	struct kvpool_request_place place = {
		.trace = spec->trace,
		.figures = kvpool_board_figures(spec->board, spec->number),
		.block_bytes = spec->block_bytes,
	};
	int code = open_pool(spec, &place);

	if (code == 0)
		code = get_memory(spec, &place);
	if (code == 0 && kvpool_board_gate(spec->board))
		code = replay(spec, &place);
	close_all(&place);
	return code;
}
