/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between blocks and an engine's paged memory, many blocks and planes a call.
 *
 * Called with a channel, by its thread. Planes, pages and blocks are the caller's and are looked at
 * only during the call.
 */
#include "client/channel.h"
#include "client/copy.h"
#include "client/layout.h"
#include "client/view.h"

#include <errno.h>

/* Pieces that go to one gather or scatter; more make no difference to the speed of the copy. */
#define BATCH 64u

/* One call's arguments; all borrowed. */
struct paged {
	struct kvpool_channel *channel;
	const struct kvpool_layout *layout;
	const struct kvpool_block *blocks;
	const struct kvpool_plane *planes;
	const uint32_t *pages;
	const char *verb;
	uint32_t group, n, shard, n_planes, n_tables;
	uint64_t total; /* of all planes, for one block */
	uint64_t life;  /* of the blocks loaded through the channel's link; 0: none yet */
};

#define REFUSE(paged, ...) kvpool_failure_set(&(paged)->channel->failure, -EINVAL, __VA_ARGS__)

/* The plane's memory does not wrap, and each of its pages keeps to itself. */
static bool plausible(const struct kvpool_plane *plane)
{
	uint64_t bytes, end;

	if (plane->bytes == 0 || plane->n_pages == 0)
		return true;
	if (plane->n_pages > 1 && plane->stride < plane->bytes)
		return false;
	return plane->base && plane->bytes <= SIZE_MAX &&
	       !__builtin_mul_overflow(plane->stride, plane->n_pages - 1, &bytes) &&
	       !__builtin_add_overflow(bytes, plane->bytes, &bytes) &&
	       !__builtin_add_overflow((uint64_t)(uintptr_t)plane->base, bytes, &end);
}

static int check_pages(const struct paged *paged, uint32_t p)
{
	const struct kvpool_plane *plane = &paged->planes[p];
	const uint32_t *row;

	if (paged->n == 0)
		return 0; /* there may be no `pages` to point into */
	row = paged->pages + (size_t)plane->table * paged->n;
	for (uint32_t i = 0; i < paged->n; i++)
		if (KVPOOL_UNLIKELY(row[i] >= plane->n_pages))
			return REFUSE(paged, "%s: page %u of block %u: plane %u has %u pages",
				      paged->verb, row[i], i, p, plane->n_pages);
	return 0;
}

/* All that can be known before a byte is copied; and the total. */
static int check(struct paged *paged)
{
	uint64_t slot;
	int r = kvpool_view_check(paged->channel, paged->layout, paged->group, paged->shard);

	if (r != 0)
		return r;
	if ((paged->n > 0 && !paged->blocks) || (paged->n_planes > 0 && !paged->planes) ||
	    (paged->n > 0 && paged->n_planes > 0 && !paged->pages))
		return REFUSE(paged, "%s: blocks, planes or pages are nowhere", paged->verb);
	slot = paged->layout->wire.groups[paged->group].slot_bytes;
	for (uint32_t p = 0; p < paged->n_planes; p++) {
		const struct kvpool_plane *plane = &paged->planes[p];

		if (plane->table >= paged->n_tables)
			return REFUSE(paged, "%s: plane %u goes by table %u of %u", paged->verb, p,
				      plane->table, paged->n_tables);
		if (!plausible(plane))
			return REFUSE(paged, "%s: plane %u: base, stride and bytes make no sense",
				      paged->verb, p);
		if (plane->bytes > slot - paged->total)
			return REFUSE(paged, "%s: with plane %u the pages are more than a slot",
				      paged->verb, p);
		paged->total += plane->bytes;
		r = check_pages(paged, p);
		if (r != 0)
			return r;
	}
	return 0;
}

/* The pages of block i in `count` planes from `first` on. Returns their bytes together. */
static uint64_t find_pages(const struct paged *paged, uint32_t i, uint32_t first, uint32_t count,
			   struct kvpool_piece *pieces)
{
	uint64_t bytes = 0;

	for (uint32_t k = 0; k < count; k++) {
		const struct kvpool_plane *plane = &paged->planes[first + k];
		uint64_t page = paged->pages[(size_t)plane->table * paged->n + i];

		/* A plane of no bytes may have no base either. */
		pieces[k].address =
			plane->bytes ? (uint8_t *)plane->base + page * plane->stride : plane->base;
		pieces[k].bytes = plane->bytes;
		bytes += plane->bytes;
	}
	return bytes;
}

static int store_block(const struct paged *paged, uint32_t i)
{
	const struct kvpool_block *block = &paged->blocks[i];
	struct kvpool_piece pieces[BATCH];
	struct kvpool_view view;
	uint8_t *to;
	int r = kvpool_view_open(paged->channel, paged->layout, paged->group, block, paged->shard,
				 &view);

	if (r != 0)
		return r;
	if (view.session->read_only) {
		r = kvpool_failure_literal(&paged->channel->failure, -EACCES,
					   "store pages: this handle may only read");
		goto out;
	}
	kvpool_segments_warm(view.session->segments, block->segment, view.offset, paged->total);
	to = view.address;
	for (uint32_t p = 0; p < paged->n_planes; p += BATCH) {
		uint32_t count = KVPOOL_MIN(paged->n_planes - p, BATCH);
		uint64_t bytes = find_pages(paged, i, p, count, pieces);

		kvpool_copy_gather(kvpool_copy_best(), to, pieces, count);
		to += bytes;
	}
out:
	kvpool_view_close(paged->channel, &view);
	return r;
}

/*
 * Whether the block that was just read through the view is good. Blocks of the channel's own link
 * are asked about once, after the last of them: a system call a block would slow small ones down.
 */
static int vouch(struct paged *paged, const struct kvpool_view *view)
{
	uint64_t life = view->session->life;

	if (view->guest && kvpool_session_vouches(view->session))
		return 0;
	if (view->guest || (paged->life != 0 && paged->life != life))
		return kvpool_view_unvouched(paged->channel);
	paged->life = life;
	return 0;
}

/* The same for all that was put off. */
static int vouch_late(const struct paged *paged)
{
	const struct kvpool_link *link = paged->channel->link;

	if (paged->life == 0 ||
	    (link && link->session->life == paged->life && kvpool_session_vouches(link->session)))
		return 0;
	return kvpool_view_unvouched(paged->channel);
}

static int load_block(struct paged *paged, uint32_t i)
{
	struct kvpool_piece pieces[BATCH];
	struct kvpool_view view;
	const uint8_t *from;
	int r = kvpool_view_open(paged->channel, paged->layout, paged->group, &paged->blocks[i],
				 paged->shard, &view);

	if (r != 0)
		return r;
	from = view.address;
	for (uint32_t p = 0; p < paged->n_planes; p += BATCH) {
		uint32_t count = KVPOOL_MIN(paged->n_planes - p, BATCH);
		uint64_t bytes = find_pages(paged, i, p, count, pieces);

		kvpool_copy_scatter(kvpool_copy_best(), pieces, count, paged->total, from);
		from += bytes;
	}
	r = vouch(paged, &view);
	kvpool_view_close(paged->channel, &view);
	return r;
}

int kvpool_store_pages(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		       uint32_t group, const struct kvpool_block *blocks, uint32_t n,
		       uint32_t shard, const struct kvpool_plane *planes, uint32_t n_planes,
		       const uint32_t *pages, uint32_t n_tables)
{
	struct paged paged = {
		.channel = channel,
		.layout = layout,
		.blocks = blocks,
		.planes = planes,
		.pages = pages,
		.verb = "store pages",
		.group = group,
		.n = n,
		.shard = shard,
		.n_planes = n_planes,
		.n_tables = n_tables,
	};
	int r = check(&paged);

	for (uint32_t i = 0; r == 0 && i < n; i++)
		if (blocks[i].block != 0)
			r = store_block(&paged, i);
	return r;
}

int kvpool_load_pages(struct kvpool_channel *channel, const struct kvpool_layout *layout,
		      uint32_t group, const struct kvpool_block *blocks, uint32_t n, uint32_t shard,
		      const struct kvpool_plane *planes, uint32_t n_planes, const uint32_t *pages,
		      uint32_t n_tables)
{
	struct paged paged = {
		.channel = channel,
		.layout = layout,
		.blocks = blocks,
		.planes = planes,
		.pages = pages,
		.verb = "load pages",
		.group = group,
		.n = n,
		.shard = shard,
		.n_planes = n_planes,
		.n_tables = n_tables,
	};
	int r = check(&paged);

	for (uint32_t i = 0; r == 0 && i < n; i++)
		if (blocks[i].block == 0)
			r = REFUSE(&paged, "load pages: block %u was not granted", i);
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = load_block(&paged, i);
	return r == 0 ? vouch_late(&paged) : r;
}
