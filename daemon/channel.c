/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client thread's way to the cache: see channel.h.
 */
#include "daemon/channel.h"

#include "daemon/client.h"
#include "daemon/peer.h"
#include "daemon/serve.h"
#include "daemon/server.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* What one channel may take of a turn before the next one is looked at. */
#define REQUESTS_A_TURN 16
#define KEYS_A_TURN     2048

static void heat(struct kvpool_channel *ch)
{
	struct kvpool_server *s = ch->server;

	if (ch->hot != KVPOOL_CHANNEL_COLD)
		return;
	assert(s->n_hot < s->hot_capacity);
	ch->hot = s->n_hot;
	s->hot[s->n_hot++] = ch;
	ch->last_ns = s->now_ns;
	kvpool_consumer_disarm(&ch->requests);
}

static void unheat(struct kvpool_channel *ch)
{
	struct kvpool_server *s = ch->server;
	struct kvpool_channel *last;

	if (ch->hot == KVPOOL_CHANNEL_COLD)
		return;
	last = s->hot[--s->n_hot];
	s->hot[ch->hot] = last;
	last->hot = ch->hot;
	ch->hot = KVPOOL_CHANNEL_COLD;
}

/* The doorbell: level-triggered, so it is read empty before the ring is looked at. */
static void rung(void *cookie, uint32_t events)
{
	struct kvpool_channel *ch = cookie;
	uint64_t count;

	(void)events;
	(void)!read(ch->bell_in, &count, sizeof(count));
	ch->server->counters.bells_in++;
	heat(ch);
}

bool kvpool_channel_cool(struct kvpool_channel *ch)
{
	if (!kvpool_consumer_arm(&ch->requests))
		return false;
	if (ch->closing)
		kvpool_channel_free(ch);
	else
		unheat(ch);
	return true;
}

/* Header, control words and rings are touched on every request: have their pages now. */
static void populate(const struct kvpool_channel *ch)
{
#ifdef MADV_POPULATE_WRITE
	(void)madvise(ch->memory.address, ch->geometry.arena, MADV_POPULATE_WRITE);
#else
	(void)ch;
#endif
}

static uint64_t boottime_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int make_memory(struct kvpool_channel *ch)
{
	struct kvpool_channel_control *control;
	uint8_t *base;
	int r;

	r = kvpool_memory_new(ch->geometry.total, &ch->memory);
	if (r != 0)
		return r;
	r = kvpool_sigbus_guard(ch->memory.address, ch->memory.bytes, &ch->guard);
	if (r != 0)
		return r;
	base = ch->memory.address;
	populate(ch);
	kvpool_channel_header_write(ch->memory.address, &ch->geometry, ch->server->epoch,
				    boottime_ns());
	control = (struct kvpool_channel_control *)(void *)(base + ch->geometry.control);
	kvpool_consumer_init(&ch->requests,
			     (struct kvpool_entry *)(void *)(base + ch->geometry.requests),
			     &control->requests, ch->geometry.entries, 0);
	kvpool_producer_init(&ch->replies,
			     (struct kvpool_entry *)(void *)(base + ch->geometry.replies),
			     &control->replies, ch->geometry.entries, 0);
	ch->arena = base + ch->geometry.arena;
	return 0;
}

static int make_bells(struct kvpool_channel *ch)
{
	ch->bell_in = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ch->bell_in < 0)
		return -errno;
	ch->bell_out = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ch->bell_out < 0)
		return -errno;
	return kvpool_loop_add_fd(ch->server->loop, ch->bell_in, POLLIN, rung, ch, &ch->source);
}

/* Undoes what was made, whole or in part. */
static void destroy(struct kvpool_channel *ch)
{
	kvpool_source_remove(ch->source);
	if (ch->bell_in >= 0)
		(void)close(ch->bell_in);
	if (ch->bell_out >= 0)
		(void)close(ch->bell_out);
	kvpool_sigbus_release(ch->guard);
	kvpool_memory_free(&ch->memory);
	free(ch);
}

int kvpool_channel_new(struct kvpool_peer *peer, uint32_t entries, uint64_t arena_bytes,
		       struct kvpool_channel **out)
{
	struct kvpool_channel_geometry geometry;
	struct kvpool_channel *ch;
	int r;

	r = kvpool_channel_geometry_make(entries, arena_bytes, &geometry);
	if (r != 0)
		return r;
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	ch->server = peer->server;
	ch->client = peer->client;
	ch->cache = peer->client->domain->cache;
	ch->peer = peer;
	ch->read_only = peer->read_only;
	ch->geometry = geometry;
	ch->hot = KVPOOL_CHANNEL_COLD;
	ch->bell_in = -1;
	ch->bell_out = -1;
	ch->memory.fd = -1;
	kvpool_list_init(&ch->waits);
	kvpool_list_init(&ch->bell_link);
	r = make_memory(ch);
	if (r == 0)
		r = make_bells(ch);
	if (r == 0)
		r = kvpool_server_channel_added(ch->server);
	if (r != 0) {
		destroy(ch);
		return r;
	}
	ch->number = peer->client->next_channel++;
	peer->client->n_channels++;
	peer->client->channel_bytes += geometry.total;
	kvpool_list_append(&peer->channels, &ch->link);
	/* Fresh and cold: nothing can be in the ring yet. */
	(void)kvpool_consumer_arm(&ch->requests);
	*out = ch;
	return 0;
}

void kvpool_channel_close(struct kvpool_channel *ch)
{
	ch->closing = true;
	heat(ch);
}

void kvpool_channel_free(struct kvpool_channel *ch)
{
	if (!ch)
		return;
	kvpool_waits_drop(&ch->server->waits, ch);
	assert(ch->n_waits == 0);
	unheat(ch);
	kvpool_list_remove(&ch->bell_link);
	kvpool_list_remove(&ch->link);
	ch->client->n_channels--;
	ch->client->channel_bytes -= ch->geometry.total;
	kvpool_server_channel_removed(ch->server);
	destroy(ch);
}

/*
 * The client reads `head` only when its own copy says "full", so telling it once in a quarter of
 * the ring is enough. It cannot stall: full by an old head means that more than three quarters of
 * the ring are still to be taken, and the head is told on the way.
 */
static void publish_head(struct kvpool_channel *ch)
{
	if (ch->requests.head - ch->head_published < ch->geometry.entries / 4)
		return;
	ch->head_published = ch->requests.head;
	kvpool_consumer_publish_head(&ch->requests);
}

bool kvpool_channel_serve(struct kvpool_channel *ch)
{
	uint32_t budget = REQUESTS_A_TURN;
	uint64_t keys = 0, n = 0;
	struct kvpool_request request;

	while (budget-- > 0 && keys < KEYS_A_TURN && kvpool_consumer_pop(&ch->requests, &request)) {
		kvpool_serve(ch, &request);
		publish_head(ch);
		keys += request.n;
		n++;
	}
	if (n == 0)
		return false;
	ch->n_requests += n;
	ch->last_ns = ch->server->now_ns;
	ch->client->last_ns = ch->server->now_ns;
	return true;
}

void kvpool_channel_reply(struct kvpool_channel *ch, const struct kvpool_reply *reply)
{
	/* There is room: the client has no more unanswered requests than the ring has entries. */
	kvpool_producer_push(&ch->replies, reply);
	ch->server->counters.replies++;
	if (!ch->rings) {
		ch->rings = true;
		kvpool_list_append(&ch->server->bells, &ch->bell_link);
	}
}

void kvpool_channel_ring_bells(struct kvpool_server *server)
{
	static const uint64_t one = 1;
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &server->bells)
	{
		struct kvpool_channel *ch =
			kvpool_list_entry(node, struct kvpool_channel, bell_link);

		kvpool_list_remove(node);
		ch->rings = false;
		if (!kvpool_producer_must_ring(&ch->replies))
			continue;
		/* A full counter is a doorbell that rings already. */
		(void)!write(ch->bell_out, &one, sizeof(one));
		server->counters.bells_out++;
	}
}
