/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's service layer from start to end: see server.h. The turn itself is in turn.c.
 */
#include "daemon/server.h"

#include "daemon/adopt.h"
#include "daemon/client.h"
#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/verify.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LEAVE_NS       KVPOOL_NS_PER_S
#define LEAVE_CHECK_NS (10 * KVPOOL_NS_PER_MS)

static void pool_progress(void *cookie, uint32_t events)
{
	(void)events;
	kvpool_domain_pool_progress(cookie);
}

/* Blocks that are being written, in all domains. */
static uint64_t reserved_blocks(const struct kvpool_server *s)
{
	struct kvpool_list *node, *spare;
	struct kvpool_cache_usage usage;
	uint64_t reserved = 0;

	kvpool_list_each(node, spare, &s->domains)
	{
		kvpool_cache_usage(kvpool_list_entry(node, struct kvpool_domain, link)->cache,
				   &usage);
		reserved += usage.reserved_blocks;
	}
	return reserved;
}

/*
 * Writers may finish what they began, unless they can in the next life; readers keep their mappings
 * whatever we do.
 */
static void leave_check(void *cookie, uint32_t events)
{
	struct kvpool_server *s = cookie;
	uint64_t now = kvpool_clock_ns();

	(void)events;
	if (s->config.pool.state || reserved_blocks(s) == 0 || now >= s->leave_ns)
		s->leave = true;
	else
		kvpool_source_set_timer(s->leave_timer, now + LEAVE_CHECK_NS);
}

void kvpool_server_leave(struct kvpool_server *s)
{
	if (s->leaving) {
		s->leave = true;
		return;
	}
	s->draining = true;
	s->leaving = true;
	s->leave_ns = kvpool_clock_ns() + LEAVE_NS;
	kvpool_listener_close(&s->listener);
	leave_check(s, 0);
}

void kvpool_server_drain(struct kvpool_server *s)
{
	if (!s->draining)
		kvpool_log(KVPOOL_LOG_NOTICE, "drained by the operator: no new clients and blocks");
	s->draining = true;
}

void kvpool_server_resume(struct kvpool_server *s)
{
	if (s->leaving)
		return;
	if (s->draining)
		kvpool_log(KVPOOL_LOG_NOTICE, "resumed by the operator");
	s->draining = false;
}

static void accepted(void *cookie, int fd, bool starved)
{
	kvpool_peer_accept(cookie, fd, starved);
}

int kvpool_server_listen(struct kvpool_server *s, struct kvpool_listener *listener)
{
	int r;

	assert(s->listener.fd < 0);
	s->listener = *listener;
	r = kvpool_listener_start(&s->listener, s->loop, accepted, s);
	if (r != 0)
		s->listener.fd = -1;
	else
		listener->fd = -1;
	return r;
}

uint32_t kvpool_server_features(const struct kvpool_server *s)
{
	return s->config.pool.state ? KVPOOL_FEATURES
				    : KVPOOL_FEATURES & ~(uint32_t)(KVPOOL_FEATURE_RETIRE |
								    KVPOOL_FEATURE_RESUME);
}

int kvpool_server_channel_added(struct kvpool_server *s)
{
	uint32_t capacity = s->hot_capacity ? 2 * s->hot_capacity : 64;
	struct kvpool_channel **hot;

	if (s->n_channels >= s->hot_capacity) {
		hot = reallocarray(s->hot, capacity, sizeof(*hot));
		if (!hot)
			return -ENOMEM;
		s->hot = hot;
		s->hot_capacity = capacity;
	}
	s->n_channels++;
	return 0;
}

void kvpool_server_channel_removed(struct kvpool_server *s)
{
	assert(s->n_channels > 0);
	s->n_channels--;
}

static int make_epoch(uint64_t *epoch)
{
	do {
		if (getrandom(epoch, sizeof(*epoch), 0) != sizeof(*epoch))
			return -EIO;
	} while (*epoch == 0);
	return 0;
}

/* `what` is the part that could not be had. */
static int make_parts(struct kvpool_server *s, const char **what)
{
	int r;

	*what = "random numbers";
	r = make_epoch(&s->epoch);
	if (r != 0)
		return r;
	*what = s->config.loop == KVPOOL_LOOP_URING ? "io_uring (--loop auto goes on with epoll)"
						    : "the loop";
	r = kvpool_loop_new(s->config.loop, &s->loop);
	if (r == 0)
		r = kvpool_waits_init(&s->waits, s->loop);
	if (r == 0)
		r = kvpool_loop_add_timer(s->loop, leave_check, s, &s->leave_timer);
	if (r != 0)
		return r;
	*what = "the pool";
	r = kvpool_pool_new(&s->config.pool, &s->pool);
	if (r == 0)
		r = kvpool_loop_add_fd(s->loop, kvpool_pool_fd(s->pool), POLLIN, pool_progress, s,
				       &s->pool_source);
	if (r == 0 && s->config.pool.state)
		r = kvpool_adopt(s, s->config.pool.kept);
	s->config.pool.kept = NULL;
	return r;
}

int kvpool_server_new(const struct kvpool_server_config *config, struct kvpool_server **out)
{
	struct kvpool_server *s = calloc(1, sizeof(*s));
	const char *what;
	int r;

	if (!s)
		return -ENOMEM;
	s->config = *config;
	s->start_ns = kvpool_clock_ns();
	s->now_ns = s->start_ns;
	s->listener.fd = -1;
	s->listener.spare = -1;
	kvpool_list_init(&s->bells);
	kvpool_list_init(&s->domains);
	kvpool_list_init(&s->clients);
	kvpool_list_init(&s->peers);
	kvpool_spin_init(&s->spin, config->spin_max_ns);
	kvpool_violations_init(&s->violations);
	r = make_parts(s, &what);
	if (r != 0) {
		kvpool_log(KVPOOL_LOG_ERROR, "cannot have %s: %s", what, strerror(-r));
		/*
		 * Where an earlier life's pool was taken over, in part perhaps, freeing would give
		 * it up: it stays as after a crash, for the next life to try again.
		 */
		if (!s->config.pool.state)
			kvpool_server_free(s);
		return r;
	}
	*out = s;
	return 0;
}

void kvpool_server_free(struct kvpool_server *s)
{
	struct kvpool_list *node, *spare;

	if (!s)
		return;
	kvpool_listener_close(&s->listener);
	kvpool_verify_free(s->verify);
	s->verify = NULL;
	while (!kvpool_list_empty(&s->peers))
		kvpool_peer_end(kvpool_list_entry(s->peers.next, struct kvpool_peer, link));
	while (!kvpool_list_empty(&s->clients))
		kvpool_client_free(kvpool_list_entry(s->clients.next, struct kvpool_client, link));
	kvpool_list_each(node, spare, &s->domains)
		kvpool_domain_free(kvpool_list_entry(node, struct kvpool_domain, link));
	assert(s->n_hot == 0 && s->n_channels == 0 && s->n_pending == 0);
	assert(s->n_clients == 0 && s->n_domains == 0);
	if (s->waits.timer)
		kvpool_waits_fini(&s->waits);
	kvpool_source_remove(s->leave_timer);
	kvpool_source_remove(s->lasted);
	kvpool_source_remove(s->pool_source);
	kvpool_pool_free(s->pool);
	kvpool_loop_free(s->loop);
	free(s->hot);
	free(s);
}
