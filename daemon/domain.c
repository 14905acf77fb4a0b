/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trust domain: see domain.h. How domains share the pool is in domain_share.c.
 */
#include "daemon/domain.h"

#include "daemon/clock.h"
#include "daemon/domain_share.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/verify.h"
#include "daemon/waits.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

/* Blocks that one step of an expiry evicts, and how long the others may be served in between. */
#define EXPIRE_STEP    4096
#define EXPIRE_STEP_NS (5 * KVPOOL_NS_PER_MS)

/* A block goes at most an eighth of the limit too late, and the daemon wakes that rarely. */
static uint64_t expiry_interval_ns(const struct kvpool_domain *domain)
{
	uint64_t limit = domain->server->config.idle_limit * KVPOOL_NS_PER_S;

	return KVPOOL_MAX(limit / 8, KVPOOL_NS_PER_S / 4);
}

static void expiry_due(void *cookie, uint32_t events)
{
	struct kvpool_domain *domain = cookie;
	struct kvpool_cache_usage usage;
	uint64_t now = kvpool_clock_ns();
	uint32_t went;

	(void)events;
	kvpool_cache_set_time(domain->cache, now / KVPOOL_NS_PER_MS);
	went = kvpool_cache_expire(domain->cache, EXPIRE_STEP);
	kvpool_cache_usage(domain->cache, &usage);
	domain->expiry_runs = usage.ready_blocks > 0;
	if (went >= EXPIRE_STEP)
		kvpool_source_set_timer(domain->expiry, now + EXPIRE_STEP_NS);
	else if (domain->expiry_runs)
		kvpool_source_set_timer(domain->expiry, now + expiry_interval_ns(domain));
	else
		kvpool_domain_client_left(domain);
}

void kvpool_domain_stored(struct kvpool_domain *domain)
{
	if (domain->expiry_runs || domain->server->config.idle_limit == 0)
		return;
	domain->expiry_runs = true;
	kvpool_source_set_timer(domain->expiry,
				domain->server->now_ns + expiry_interval_ns(domain));
}

static int make_cache(struct kvpool_domain *domain)
{
	const struct kvpool_server_config *sc = &domain->server->config;
	struct kvpool_cache_config config = {
		.bytes_max = sc->pool.bytes,
		.extent_bytes = sc->extent_bytes,
		.segment_bytes = sc->pool.segment_bytes,
		.blocks_max = sc->blocks_max,
		.epoch = domain->server->epoch,
		.idle_limit = sc->idle_limit,
		.leases_max = sc->leases_max,
		.reservations_max = sc->reservations_max,
	};
	uint64_t bytes;
	int r;

	if (getrandom(config.secret, sizeof(config.secret), 0) != sizeof(config.secret))
		return -EIO;
	bytes = kvpool_cache_catalog_bytes(&config);
	if (bytes == 0)
		return -EINVAL;
	/*
	 * A lookup of one key among millions is two cache misses, and on 4 KiB pages two TLB misses
	 * more, which cost as much again. So where shared memory has no huge pages the catalog is
	 * private: nobody else maps it.
	 */
	if (sc->shared_catalog)
		r = kvpool_memory_new(bytes, &domain->catalog);
	else
		r = kvpool_memory_new_private(bytes, &domain->catalog);
	if (r != 0)
		return r;
	(void)madvise(domain->catalog.address, bytes, MADV_HUGEPAGE);
	r = kvpool_cache_new(&config, domain->catalog.address, kvpool_waits_wake,
			     kvpool_domain_share_more, domain, &domain->cache);
	explicit_bzero(&config, sizeof(config));
	return r;
}

static int domain_new(struct kvpool_server *s, uid_t uid, struct kvpool_domain **out)
{
	struct kvpool_domain *domain = calloc(1, sizeof(*domain));
	struct kvpool_pool_status status;
	int r;

	if (!domain)
		return -ENOMEM;
	domain->server = s;
	domain->uid = uid;
	kvpool_list_init(&domain->segments);
	(void)snprintf(domain->name, sizeof(domain->name), "uid-%u", (unsigned int)uid);
	r = kvpool_loop_add_timer(s->loop, expiry_due, domain, &domain->expiry);
	if (r == 0)
		r = make_cache(domain);
	if (r != 0) {
		kvpool_source_remove(domain->expiry);
		kvpool_memory_free(&domain->catalog);
		free(domain);
		return r;
	}
	kvpool_pool_status(s->pool, &status);
	kvpool_cache_set_growing(domain->cache, status.growing);
	kvpool_cache_set_time(domain->cache, kvpool_clock_ns() / KVPOOL_NS_PER_MS);
	kvpool_list_append(&s->domains, &domain->link);
	s->n_domains++;
	kvpool_log(KVPOOL_LOG_INFO, "domain %s begins", domain->name);
	*out = domain;
	return 0;
}

int kvpool_domain_get(struct kvpool_server *server, uid_t uid, struct kvpool_domain **out)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &server->domains)
	{
		struct kvpool_domain *domain = kvpool_list_entry(node, struct kvpool_domain, link);

		if (domain->uid == uid) {
			*out = domain;
			return 0;
		}
	}
	return domain_new(server, uid, out);
}

void kvpool_domain_client_left(struct kvpool_domain *domain)
{
	struct kvpool_cache_usage usage;

	if (domain->n_clients > 0)
		return;
	kvpool_cache_usage(domain->cache, &usage);
	if (usage.ready_blocks + usage.quarantined_blocks + usage.leased_only_blocks > 0)
		return;
	kvpool_log(KVPOOL_LOG_INFO, "domain %s ends: no clients, no blocks", domain->name);
	kvpool_domain_free(domain);
}

void kvpool_domain_free(struct kvpool_domain *domain)
{
	assert(domain->n_clients == 0);
	kvpool_verify_domain_gone(domain);
	kvpool_cache_free(domain->cache);
	kvpool_domain_share_return_all(domain);
	assert(domain->n_segments == 0);
	kvpool_memory_free(&domain->catalog);
	kvpool_source_remove(domain->expiry);
	kvpool_list_remove(&domain->link);
	domain->server->n_domains--;
	free(domain);
}
