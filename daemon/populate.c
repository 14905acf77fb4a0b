/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The populating thread: makes segments and fills them with pages, and wipes those that came back.
 *
 * It works in steps and looks again before each what is most wanted: memory that is to be given
 * back first, then that some free segment has a step ready (so that whoever comes next is served at
 * once, however large the pool), then what is lent, then the rest. Owned by the pool; see
 * pool_state.h for what it shares with the service thread. It never holds the lock while it waits
 * for the kernel.
 */
#include "daemon/clock.h"
#include "daemon/host.h"
#include "daemon/kept.h"
#include "daemon/kill_point.h"
#include "daemon/pages.h"
#include "daemon/pool_state.h"
#include "daemon/segment.h"
#include "shm/base.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Pause after a failure: memory or descriptors may have come free elsewhere. */
#define RETRY_S 10

/* Ordinary memory that is left alone, so that populating does not call the kernel's OOM killer. */
#define SPARE_BYTES (UINT64_C(32) << 20)

enum work {
	WORK_NONE = 0,
	WORK_WIPE,
	WORK_MAKE,
	WORK_FILL,
};

static bool fillable(const struct kvpool_pool *pool, const struct kvpool_place *place)
{
	return place->state == KVPOOL_PLACE_LIVE && !place->failed &&
	       place->made < pool->config.segment_bytes;
}

/* What is most wanted now. Takes the lock as held. */
static enum work pick(struct kvpool_pool *pool, struct kvpool_place **out)
{
	struct kvpool_place *begun = NULL, *empty = NULL, *lent = NULL;
	bool served = false; /* a free segment has something ready */

	for (uint32_t i = 0; i < pool->n_places; i++) {
		struct kvpool_place *place = &pool->places[i];

		if (place->state == KVPOOL_PLACE_RELEASED) {
			*out = place;
			return WORK_WIPE;
		}
		if (place->state == KVPOOL_PLACE_LIVE && !place->lent && place->made > 0)
			served = true;
		if (empty == NULL && place->state == KVPOOL_PLACE_EMPTY && !place->failed)
			empty = place;
		if (fillable(pool, place)) {
			if (place->lent && lent == NULL)
				lent = place;
			if (!place->lent && begun == NULL)
				begun = place;
		}
	}
	if (pool->blocked)
		return WORK_NONE;
	*out = begun;
	if (lent != NULL && served)
		*out = lent;
	if (*out == NULL && empty == NULL)
		*out = lent;
	if (*out != NULL)
		return WORK_FILL;
	*out = empty;
	return empty == NULL ? WORK_NONE : WORK_MAKE;
}

/* The service thread is to look at this place. Takes the lock as held. */
static void tell(struct kvpool_pool *pool, struct kvpool_place *place)
{
	const uint64_t one = 1;

	if (place != NULL && !place->grown) {
		place->grown = true;
		place->next_grown = pool->grown;
		pool->grown = (uint32_t)(place - pool->places);
	}
	/* Fails only where 2^64 - 1 tellings are unread. */
	(void)!write(pool->event_fd, &one, sizeof(one));
}

/* `r`: negative errno. Takes the lock as held. */
static void fail(struct kvpool_pool *pool, struct kvpool_place *place, const char *step, int r,
		 bool all)
{
	place->failed = true;
	pool->blocked = pool->blocked || all;
	pool->error = -r;
	pool->error_place = (uint32_t)(place - pool->places);
	(void)snprintf(pool->error_text, sizeof(pool->error_text),
		       "segment %" PRIu32 " of %" PRIu32 ", %" PRIu64 " of %" PRIu64
		       " MiB populated, pages %s: %s: %s",
		       pool->error_place + 1, pool->n_places, place->made >> 20,
		       pool->config.segment_bytes >> 20, kvpool_pages_name(place->pages), step,
		       strerrordesc_np(-r));
	tell(pool, NULL);
}

/* Takes the lock as held. */
static void succeed(struct kvpool_pool *pool, struct kvpool_place *place)
{
	place->failed = false;
	if (pool->error != 0 && pool->error_place == (uint32_t)(place - pool->places)) {
		pool->error = 0;
		pool->error_text[0] = '\0';
	}
	if (place->made > 0 && pool->first_ns == 0)
		pool->first_ns = kvpool_clock_ns() - pool->start_ns;
	tell(pool, place);
}

/* Its memfd is closed, or about to be: nobody keeps it any more. Takes the lock as held. */
static void vacate(struct kvpool_pool *pool, struct kvpool_place *place)
{
	char name[KVPOOL_STORE_NAME_BYTES];

	if (pool->config.state) {
		kvpool_kept_segment_name(place->id, name);
		(void)kvpool_store_remove(name);
	}
	place->state = KVPOOL_PLACE_EMPTY;
	place->fd = -1;
	place->id = 0;
	place->made = 0;
	kvpool_kill_point(KVPOOL_KILL_SEGMENT_REMOVED);
	kvpool_place_note(pool, place);
}

/* ---- the three kinds of work; called without the lock ---- */

static void wipe(struct kvpool_pool *pool, struct kvpool_place *place)
{
	/* Nobody else touches a place that is RELEASED. */
	kvpool_segment_wipe(place->fd, pool->config.segment_bytes);
	kvpool_kill_point(KVPOOL_KILL_SEGMENT_WIPED);
	(void)pthread_mutex_lock(&pool->lock);
	vacate(pool, place);
	place->failed = false;
	place->from = KVPOOL_PAGES_AUTO;
	(void)pthread_mutex_unlock(&pool->lock);
}

static uint32_t node_of(const struct kvpool_pool *pool, const struct kvpool_place *place)
{
	if (!pool->config.numa || pool->nodes.n < 2 || pool->bind_error != 0)
		return KVPOOL_NODE_NONE;
	return pool->nodes.ids[(uint32_t)(place - pool->places) % pool->nodes.n];
}

/*
 * The memfd outlives us from now on. A store that takes no more is no failure: the next life has
 * this segment less. Takes the lock as held.
 */
static void keep(struct kvpool_pool *pool, struct kvpool_place *place)
{
	char name[KVPOOL_STORE_NAME_BYTES];

	kvpool_kill_point(KVPOOL_KILL_SEGMENT_MADE);
	kvpool_place_note(pool, place);
	kvpool_kill_point(KVPOOL_KILL_SEGMENT_NOTED);
	if (!pool->config.state)
		return;
	kvpool_kept_segment_name(place->id, name);
	(void)kvpool_store_put(name, place->fd);
	kvpool_kill_point(KVPOOL_KILL_SEGMENT_STORED);
}

static void make(struct kvpool_pool *pool, struct kvpool_place *place)
{
	enum kvpool_pages kinds[KVPOOL_PAGES_COUNT];
	struct kvpool_host host = {.available = 0};
	const char *step = "";
	int fd = -1, r = -ENOMEM;
	size_t n, i;

	/* Where nothing can be read there is still memory of the plain kind to try. */
	(void)kvpool_host_read(pool->root, &host);
	n = kvpool_pages_candidates(&host, pool->config.pages, place->from,
				    pool->config.segment_bytes, kinds);
	for (i = 0; i < n && r < 0; i++)
		r = kvpool_segment_make(kinds[i], pool->config.segment_bytes, &step, &fd);
	(void)pthread_mutex_lock(&pool->lock);
	place->pages = kinds[i - 1];
	if (r < 0) {
		fail(pool, place, step, r, true);
	} else {
		place->state = KVPOOL_PLACE_LIVE;
		place->fd = fd;
		place->id = pool->next_id++;
		place->node = node_of(pool, place);
		if (!pool->config.populate) {
			place->made = pool->config.segment_bytes;
			succeed(pool, place);
		}
		keep(pool, place);
	}
	(void)pthread_mutex_unlock(&pool->lock);
}

/* Whether populating may take this much more of the host's ordinary memory. */
static bool affordable(const struct kvpool_pool *pool, const struct kvpool_segment_fill *f)
{
	uint64_t room;

	if (kvpool_pages_reserved(f->pages) || kvpool_host_room(pool->root, &room) < 0)
		return true;
	return room >= SPARE_BYTES && room - SPARE_BYTES >= f->bytes;
}

/* A place could not be filled any further. Takes the lock as held. */
static void fill_failed(struct kvpool_pool *pool, struct kvpool_place *place, const char *step,
			int r)
{
	bool reserved = kvpool_pages_reserved(place->pages);

	/* Another kind of pages, unless somebody uses those of this kind already. */
	if (reserved && !place->lent && pool->config.pages == KVPOOL_PAGES_AUTO) {
		(void)close(place->fd);
		vacate(pool, place);
		place->from = place->pages + 1;
		return;
	}
	fail(pool, place, step, r, !reserved);
}

static void fill(struct kvpool_pool *pool, struct kvpool_place *place,
		 const struct kvpool_segment_fill *f)
{
	const char *step = "the host is short of memory";
	int bind_error = 0, r = -ENOMEM;

	if (affordable(pool, f))
		r = kvpool_segment_fill(f, &step, &bind_error);
	(void)pthread_mutex_lock(&pool->lock);
	if (bind_error != 0) {
		pool->bind_error = bind_error;
		place->node = KVPOOL_NODE_NONE;
	}
	/* It may have come back meanwhile; then it is wiped, and nothing is to be told. */
	if (place->state == KVPOOL_PLACE_LIVE) {
		if (r < 0) {
			fill_failed(pool, place, step, r);
		} else {
			place->made += f->bytes;
			kvpool_place_note(pool, place);
			kvpool_kill_point(KVPOOL_KILL_SEGMENT_FILLED);
			succeed(pool, place);
		}
	}
	(void)pthread_mutex_unlock(&pool->lock);
}

/* What the next step in this place is. Takes the lock as held. */
static struct kvpool_segment_fill fill_of(const struct kvpool_pool *pool,
					  const struct kvpool_place *place)
{
	uint64_t bytes = KVPOOL_MAX(pool->config.step_bytes, kvpool_pages_bytes(place->pages));

	return (struct kvpool_segment_fill){
		.fd = place->fd,
		.offset = place->made,
		.bytes = KVPOOL_MIN(bytes, pool->config.segment_bytes - place->made),
		.pages = place->pages,
		.node = place->node,
	};
}

/* ---- waiting; called with the lock ---- */

static bool any_failed(const struct kvpool_pool *pool)
{
	for (uint32_t i = 0; i < pool->n_places; i++) {
		if (pool->places[i].failed)
			return true;
	}
	return false;
}

/* Nothing can be done now: until something comes back, or until it is worth trying again. */
static void rest(struct kvpool_pool *pool)
{
	bool failed = any_failed(pool);
	struct timespec until;
	int r;

	if (pool->growing) {
		pool->growing = false;
		if (!failed && pool->full_ns == 0)
			pool->full_ns = kvpool_clock_ns() - pool->start_ns;
		tell(pool, NULL);
	}
	if (!failed) {
		(void)pthread_cond_wait(&pool->changed, &pool->lock);
		return;
	}
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += RETRY_S;
	r = pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
	if (r != ETIMEDOUT)
		return;
	pool->blocked = false;
	for (uint32_t i = 0; i < pool->n_places; i++)
		pool->places[i].failed = false;
}

void *kvpool_populate_main(void *argument)
{
	struct kvpool_pool *pool = argument;
	struct kvpool_place *place = NULL;
	struct kvpool_segment_fill f;

	(void)pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
		enum work work = pick(pool, &place);

		if (work == WORK_NONE) {
			rest(pool);
			continue;
		}
		pool->growing = true;
		if (work == WORK_FILL)
			f = fill_of(pool, place);
		(void)pthread_mutex_unlock(&pool->lock);
		if (work == WORK_WIPE)
			wipe(pool, place);
		else if (work == WORK_MAKE)
			make(pool, place);
		else
			fill(pool, place, &f);
		(void)pthread_mutex_lock(&pool->lock);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return NULL;
}
