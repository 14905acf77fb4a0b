/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the resident set and names chains of it. No state of its own; main thread.
 */
#include "tools/bench/resident.h"

#include "tools/bench/keys.h"
#include "tools/interrupt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(30000000000)
#define PAUSE_MS    1
/* Blocks of one COMMIT, and reserved at most at a time. */
#define BATCH 32768u

/* The number of a chain in the key space: missing ones have the top bit. */
#define CHAIN(c, j)   ((uint64_t)(c) << 48 | (j))
#define CHAIN_MISSING (UINT64_C(1) << 63)

/* What one fill works with. */
struct fill {
	struct kvpool_bench_session *session; /* borrowed */
	struct kvpool_layout *layout;         /* borrowed */
	uint8_t *keys;                        /* owned: BATCH keys */
	struct kvpool_block *blocks;          /* owned: BATCH; the first n are reserved */
	uint32_t n;
	struct kvpool_progress progress;
};

/* What the shares left over becomes more chains of the shortest length. */
static void give_rest(struct kvpool_resident *resident, uint64_t blocks)
{
	struct kvpool_resident_class *shortest = &resident->classes[0];

	for (uint32_t c = 1; c < resident->n_classes; c++) {
		if (resident->classes[c].keys < shortest->keys)
			shortest = &resident->classes[c];
	}
	shortest->chains += blocks / shortest->keys;
	resident->blocks += blocks / shortest->keys * shortest->keys;
}

int kvpool_resident_plan(uint64_t blocks, const struct kvpool_bench_list *keys, bool lenient,
			 struct kvpool_resident *out)
{
	struct kvpool_resident resident = {0};

	for (uint32_t i = 0; i < keys->n; i++) {
		uint64_t chains;

		if (keys->values[i] > KVPOOL_RESIDENT_KEYS_MAX)
			return kvpool_bench_fail(-EINVAL, "%" PRIu64 " keys: a lookup takes %u",
						 keys->values[i], KVPOOL_RESIDENT_KEYS_MAX);
		chains = blocks / keys->n / keys->values[i];
		if (chains == 0 && lenient)
			continue;
		if (chains == 0)
			return kvpool_bench_fail(
				-EINVAL, "lookups of %" PRIu64 " keys need --resident %" PRIu64,
				keys->values[i], keys->values[i] * keys->n);
		resident.classes[resident.n_classes++] =
			(struct kvpool_resident_class){(uint32_t)keys->values[i], chains};
		resident.blocks += chains * keys->values[i];
	}
	if (resident.n_classes == 0)
		return kvpool_bench_fail(-EINVAL, "--resident %" PRIu64 " is too few", blocks);
	give_rest(&resident, blocks - resident.blocks);
	*out = resident;
	return 0;
}

uint64_t kvpool_resident_pool_bytes(const struct kvpool_resident *resident)
{
	uint64_t bytes = resident->blocks * KVPOOL_RESIDENT_SLOT_BYTES;

	bytes += bytes / 8;
	return KVPOOL_ROUND_UP(bytes + (UINT64_C(64) << 20), UINT64_C(64) << 20);
}

static int commit(struct fill *fill)
{
	int64_t done;

	if (fill->n == 0)
		return 0;
	done = kvpool_commit(fill->session->channel, fill->blocks, fill->n, KVPOOL_ALL_SHARDS, 0);
	if (done != (int64_t)fill->n)
		return kvpool_bench_fail(done < 0 ? (int)done : -EIO,
					 "COMMIT of %" PRIu32 " blocks", fill->n);
	fill->n = 0;
	return 0;
}

/*
 * Moves what was granted up to where the next batch ends. Returns how many leading keys need
 * nothing more: granted now, or there already (a pool that runs since an earlier fill).
 */
static uint32_t keep_granted(struct fill *fill, uint32_t n)
{
	struct kvpool_block *got = fill->blocks + fill->n;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (got[i].block != 0)
			fill->blocks[fill->n++] = got[i];
		else if (got[i].generation != KVPOOL_RESERVE_EXISTS)
			break;
	}
	return i;
}

/* Keys from..from+n-1 of a chain, behind what is reserved already. */
static int reserve(struct fill *fill, uint64_t chain, uint32_t from, uint32_t n)
{
	struct kvpool_channel *channel = fill->session->channel;
	uint64_t until = kvpool_monotonic_ns() + PATIENCE_NS;
	uint8_t parent[KVPOOL_KEY_BYTES];

	while (n > 0) {
		uint32_t done = 0;
		int64_t got;

		if (from > 0)
			kvpool_bench_keys(chain, from - 1, 1, parent);
		kvpool_bench_keys(chain, from, n, fill->keys);
		got = kvpool_reserve(channel, fill->layout, 0, from > 0 ? parent : NULL, fill->keys,
				     n, 0, fill->blocks + fill->n);
		if (got < 0 && got != -ENOSPC)
			return kvpool_bench_fail((int)got, "RESERVE (%s)",
						 kvpool_channel_error(channel));
		if (got >= 0)
			done = keep_granted(fill, n);
		from += done;
		n -= done;
		if (n == 0)
			break;
		if (kvpool_monotonic_ns() > until)
			return kvpool_bench_fail(-ENOSPC, "the pool does not take the set (%s)",
						 kvpool_no_space_text(channel));
		if (kvpool_bench_interrupted() < 0)
			return -EINTR;
		if (done == 0)
			kvpool_interrupt_pause(PAUSE_MS);
	}
	return 0;
}

static int store_chain(struct fill *fill, uint64_t chain, uint32_t keys)
{
	int r = 0;

	for (uint32_t at = 0; r == 0 && at < keys;) {
		uint32_t n = KVPOOL_MIN(keys - at, BATCH - fill->n);

		r = reserve(fill, chain, at, n);
		at += n;
		if (r == 0 && fill->n == BATCH) {
			r = commit(fill);
			if (r == 0)
				r = kvpool_progress_step(&fill->progress);
		}
	}
	return r;
}

int kvpool_resident_fill(const struct kvpool_resident *resident,
			 struct kvpool_bench_session *session, struct kvpool_layout *layout)
{
	struct fill fill = {.session = session, .layout = layout};
	int r = 0;

	fill.keys = malloc((size_t)BATCH * KVPOOL_KEY_BYTES);
	fill.blocks = malloc((size_t)BATCH * sizeof(*fill.blocks));
	if (!fill.keys || !fill.blocks)
		r = -ENOMEM;
	kvpool_progress_start(&fill.progress, "fill", resident->blocks / BATCH);
	for (uint32_t c = 0; r == 0 && c < resident->n_classes; c++) {
		const struct kvpool_resident_class *class = &resident->classes[c];

		for (uint64_t j = 0; r == 0 && j < class->chains; j++)
			r = store_chain(&fill, CHAIN(c, j), class->keys);
	}
	if (r == 0)
		r = commit(&fill);
	kvpool_progress_end(&fill.progress);
	free(fill.keys);
	free(fill.blocks);
	return r;
}

void kvpool_resident_keys(const struct kvpool_resident *resident, uint32_t c, uint64_t j,
			  uint8_t *keys)
{
	kvpool_bench_keys(CHAIN(c, j), 0, resident->classes[c].keys, keys);
}

void kvpool_resident_pick(const struct kvpool_resident *resident, uint32_t c, uint64_t *random,
			  uint8_t *keys)
{
	kvpool_resident_keys(resident, c, kvpool_random_below(random, resident->classes[c].chains),
			     keys);
}

void kvpool_resident_pick_missing(uint32_t n, uint64_t *random, uint8_t *keys)
{
	kvpool_bench_keys(CHAIN_MISSING | kvpool_random(random) >> 1, 0, n, keys);
}
