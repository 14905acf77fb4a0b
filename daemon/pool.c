/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of the host that kvpoold may use: see pool.h. This file is the service thread's side:
 * lending, taking back, looking; populate.c is the other.
 */
#include "daemon/pool.h"

#include "daemon/clock.h"
#include "daemon/kept.h"
#include "daemon/kill_point.h"
#include "daemon/pool_state.h"
#include "shm/base.h"
#include "shm/limits.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static bool config_valid(const struct kvpool_pool_config *c)
{
	return KVPOOL_IS_POW2(c->segment_bytes) && c->segment_bytes <= KVPOOL_SEGMENT_MAX &&
	       KVPOOL_IS_POW2(c->step_bytes) && c->step_bytes >= 4096 &&
	       c->step_bytes <= c->segment_bytes && c->bytes != 0 &&
	       c->bytes % c->segment_bytes == 0 &&
	       c->bytes / c->segment_bytes <= KVPOOL_SEGMENTS_MAX &&
	       (unsigned int)c->pages < KVPOOL_PAGES_COUNT;
}

static void pool_destroy(struct kvpool_pool *pool)
{
	for (uint32_t i = 0; i < pool->n_places; i++) {
		if (pool->places[i].fd >= 0)
			(void)close(pool->places[i].fd);
	}
	(void)close(pool->event_fd);
	(void)pthread_cond_destroy(&pool->changed);
	(void)pthread_mutex_destroy(&pool->lock);
	free(pool->places);
	free(pool);
}

/* Takes the eventfd on success. NULL where memory is out. */
static struct kvpool_pool *pool_create(const struct kvpool_pool_config *config, int event_fd)
{
	struct kvpool_pool *pool = calloc(1, sizeof(*pool));
	pthread_condattr_t attr;

	if (pool == NULL)
		return NULL;
	pool->n_places = (uint32_t)(config->bytes / config->segment_bytes);
	pool->places = calloc(pool->n_places, sizeof(*pool->places));
	if (pool->places == NULL) {
		free(pool);
		return NULL;
	}
	for (uint32_t i = 0; i < pool->n_places; i++) {
		pool->places[i].fd = -1;
		pool->places[i].segment.fd = -1;
		pool->places[i].node = KVPOOL_NODE_NONE;
	}
	pool->config = *config;
	pool->event_fd = event_fd;
	pool->grown = KVPOOL_PLACE_NONE;
	pool->next_id = 1;
	pool->growing = true;
	(void)pthread_mutex_init(&pool->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&pool->changed, &attr);
	(void)pthread_condattr_destroy(&attr);
	return pool;
}

void kvpool_place_note(struct kvpool_pool *pool, struct kvpool_place *place)
{
	struct kvpool_state_segment entry = {.id = 0};

	if (!pool->config.state)
		return;
	if (place->state != KVPOOL_PLACE_EMPTY)
		entry = (struct kvpool_state_segment){
			.id = place->id,
			.uid = place->lent ? (uint32_t)place->uid : KVPOOL_STATE_NOBODY,
			.flags = place->lent || place->state == KVPOOL_PLACE_RELEASED
					 ? KVPOOL_STATE_LENT
					 : 0,
			.pages = (uint32_t)place->pages,
			.node = place->node,
			.made = place->made,
		};
	pool->config.state->control->next_segment = pool->next_id;
	kvpool_state_segment_set(pool->config.state, (uint32_t)(place - pool->places), &entry);
}

/* Segments of an earlier life, each in the place that it had. */
static void take_kept(struct kvpool_pool *pool)
{
	struct kvpool_kept *kept = pool->config.kept;

	pool->config.kept = NULL;
	if (pool->config.state)
		pool->next_id = KVPOOL_MAX(pool->config.state->control->next_segment, 1u);
	for (uint32_t i = 0; kept && i < kept->n_segments; i++) {
		struct kvpool_kept_segment *from = &kept->segments[i];
		struct kvpool_place *place = &pool->places[from->place];

		if (place->state != KVPOOL_PLACE_EMPTY || from->entry.pages >= KVPOOL_PAGES_COUNT)
			continue;
		place->state = KVPOOL_PLACE_LIVE;
		place->fd = from->fd;
		place->id = from->entry.id;
		place->made = from->entry.made / pool->config.step_bytes * pool->config.step_bytes;
		place->pages = (enum kvpool_pages)from->entry.pages;
		place->node = from->entry.node;
		place->lent = (from->entry.flags & KVPOOL_STATE_LENT) != 0;
		place->uid = (uid_t)from->entry.uid;
		pool->next_id = KVPOOL_MAX(pool->next_id, place->id + 1);
		from->fd = -1;
	}
	for (uint32_t i = 0; i < pool->n_places; i++)
		kvpool_place_note(pool, &pool->places[i]);
	kvpool_kill_point(KVPOOL_KILL_SEGMENTS_ADOPTED);
}

/* Signals are the service thread's business: the other starts with all of them blocked. */
static int thread_start(struct kvpool_pool *pool)
{
	sigset_t all, before;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&pool->thread, NULL, kvpool_populate_main, pool);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r == 0)
		(void)pthread_setname_np(pool->thread, "kvpool-populate");
	return -r;
}

int kvpool_pool_start(const struct kvpool_pool_config *config, const struct kvpool_nodes *nodes,
		      const char *root, struct kvpool_pool **out)
{
	struct kvpool_pool *pool;
	int event_fd, r;

	if (!config_valid(config))
		return -EINVAL;
	event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event_fd < 0)
		return -errno;
	pool = pool_create(config, event_fd);
	if (pool == NULL) {
		(void)close(event_fd);
		return -ENOMEM;
	}
	pool->root = root;
	pool->nodes = *nodes;
	pool->start_ns = kvpool_clock_ns();
	take_kept(pool);
	r = thread_start(pool);
	if (r < 0) {
		pool_destroy(pool);
		return r;
	}
	*out = pool;
	return 0;
}

int kvpool_pool_new(const struct kvpool_pool_config *config, struct kvpool_pool **out)
{
	struct kvpool_nodes nodes;

	kvpool_nodes_find(&nodes);
	return kvpool_pool_start(config, &nodes, "", out);
}

void kvpool_pool_free(struct kvpool_pool *pool)
{
	if (pool == NULL)
		return;
	(void)pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	(void)pthread_cond_signal(&pool->changed);
	(void)pthread_mutex_unlock(&pool->lock);
	(void)pthread_join(pool->thread, NULL);
	pool_destroy(pool);
}

int kvpool_pool_fd(const struct kvpool_pool *pool)
{
	return pool->event_fd;
}

/* The next place of the list of those that grew; NULL where there is none. */
static struct kvpool_place *grown_take(struct kvpool_pool *pool, uint64_t *made)
{
	struct kvpool_place *place = NULL;

	(void)pthread_mutex_lock(&pool->lock);
	while (place == NULL && pool->grown != KVPOOL_PLACE_NONE) {
		place = &pool->places[pool->grown];
		pool->grown = place->next_grown;
		place->grown = false;
		*made = place->made;
		/* What nobody has acquired is looked at when somebody does. */
		if (!place->lent)
			place = NULL;
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return place;
}

void kvpool_pool_progress(struct kvpool_pool *pool, kvpool_pool_grown_fn fn, void *cookie)
{
	struct kvpool_place *place;
	uint64_t unread, made;

	/* Emptied before looking: what is told from now on makes it readable again. */
	(void)!read(pool->event_fd, &unread, sizeof(unread));
	while ((place = grown_take(pool, &made)) != NULL) {
		struct kvpool_segment *segment = &place->segment;
		uint64_t before = segment->ready;

		/* Acquired after it grew: its user was given all of it. */
		if (made == before)
			continue;
		segment->ready = made;
		fn(cookie, segment, before, made - before);
	}
}

/* The place's segment is this owner's, with what is ready of it. Takes the lock as held. */
static void lend(struct kvpool_pool *pool, struct kvpool_place *place, void *owner, uid_t uid)
{
	place->lent = true;
	place->uid = uid;
	kvpool_place_note(pool, place);
	place->segment = (struct kvpool_segment){
		.id = place->id,
		.fd = place->fd,
		.bytes = pool->config.segment_bytes,
		.ready = place->made,
		.pages = place->pages,
		.node = place->node,
		.owner = owner,
	};
}

struct kvpool_segment *kvpool_pool_acquire(struct kvpool_pool *pool, void *owner, uid_t uid)
{
	struct kvpool_place *best = NULL;

	assert(owner != NULL);
	(void)pthread_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->n_places; i++) {
		struct kvpool_place *place = &pool->places[i];

		if (place->state == KVPOOL_PLACE_LIVE && !place->lent && place->made > 0 &&
		    (best == NULL || place->made > best->made))
			best = place;
	}
	if (best != NULL) {
		lend(pool, best, owner, uid);
		/* The next one to come is to find a free segment as well. */
		(void)pthread_cond_signal(&pool->changed);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return best == NULL ? NULL : &best->segment;
}

struct kvpool_segment *kvpool_pool_claim(struct kvpool_pool *pool, void *owner, uid_t uid)
{
	struct kvpool_segment *segment = NULL;

	assert(owner != NULL);
	(void)pthread_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->n_places && segment == NULL; i++) {
		struct kvpool_place *place = &pool->places[i];

		if (place->state != KVPOOL_PLACE_LIVE || !place->lent || place->uid != uid ||
		    place->segment.owner != NULL)
			continue;
		lend(pool, place, owner, uid);
		segment = &place->segment;
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return segment;
}

/* Takes the lock as held. */
static void released(struct kvpool_pool *pool, struct kvpool_place *place)
{
	place->lent = false;
	place->state = KVPOOL_PLACE_RELEASED;
	kvpool_place_note(pool, place);
	kvpool_kill_point(KVPOOL_KILL_SEGMENT_RELEASED);
	/* Memory and a descriptor come free: whatever failed for want of them is tried again. */
	pool->growing = true;
	pool->blocked = false;
	for (uint32_t i = 0; i < pool->n_places; i++)
		pool->places[i].failed = false;
	(void)pthread_cond_signal(&pool->changed);
}

void kvpool_pool_claimed(struct kvpool_pool *pool)
{
	(void)pthread_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->n_places; i++) {
		struct kvpool_place *place = &pool->places[i];

		if (place->state == KVPOOL_PLACE_LIVE && place->lent &&
		    place->segment.owner == NULL)
			released(pool, place);
	}
	(void)pthread_mutex_unlock(&pool->lock);
}

void kvpool_pool_release(struct kvpool_pool *pool, struct kvpool_segment *segment)
{
	struct kvpool_place *place =
		(struct kvpool_place *)((char *)segment - offsetof(struct kvpool_place, segment));

	assert(segment->owner != NULL);
	*segment = (struct kvpool_segment){.fd = -1};
	(void)pthread_mutex_lock(&pool->lock);
	released(pool, place);
	(void)pthread_mutex_unlock(&pool->lock);
}

struct kvpool_segment *kvpool_pool_find(struct kvpool_pool *pool, uint32_t id)
{
	for (uint32_t i = 0; id != 0 && i < pool->n_places; i++) {
		if (pool->places[i].segment.id == id)
			return &pool->places[i].segment;
	}
	return NULL;
}

void kvpool_pool_status(struct kvpool_pool *pool, struct kvpool_pool_status *out)
{
	*out = (struct kvpool_pool_status){
		.bytes = pool->config.bytes,
		.nodes = pool->config.numa ? pool->nodes.n : 1,
	};
	(void)pthread_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->n_places; i++) {
		const struct kvpool_place *place = &pool->places[i];

		if (place->state != KVPOOL_PLACE_LIVE)
			continue;
		out->ready += place->made;
		out->by_pages[place->pages] += pool->config.segment_bytes;
		if (place->lent)
			out->lent += pool->config.segment_bytes;
	}
	out->growing = pool->growing;
	out->error = pool->error;
	memcpy(out->error_text, pool->error_text, sizeof(out->error_text));
	out->full_ns = pool->full_ns;
	out->first_ns = pool->first_ns;
	out->mbind_error = pool->bind_error;
	(void)pthread_mutex_unlock(&pool->lock);
}
