/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trust domain: see domain.h. How domains share the pool is in domain_share.c.
 */
#include "daemon/domain.h"

#include "daemon/clock.h"
#include "daemon/domain_share.h"
#include "daemon/kept.h"
#include "daemon/kill_point.h"
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
#include <sys/stat.h>

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

static int config_of(const struct kvpool_domain *domain, struct kvpool_cache_config *out)
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

	if (getrandom(config.secret, sizeof(config.secret), 0) != sizeof(config.secret))
		return -EIO;
	*out = config;
	return 0;
}

/* The next life is not to have it. */
static void forget_notes(const struct kvpool_domain *domain)
{
	char name[KVPOOL_STORE_NAME_BYTES];

	if (!domain->server->config.pool.state || !domain->notes.address)
		return;
	kvpool_kept_notes_name(domain->uid, name);
	(void)kvpool_store_remove(name);
}

static void forget_kept(const struct kvpool_domain *domain)
{
	char name[KVPOOL_STORE_NAME_BYTES];

	forget_notes(domain);
	if (!domain->server->config.pool.state || !domain->catalog.address)
		return;
	kvpool_kept_catalog_name(domain->uid, name);
	(void)kvpool_store_remove(name);
}

/* Where the catalog outlives us it is a memfd in the store. */
static int make_catalog(struct kvpool_domain *domain, uint64_t bytes)
{
	const struct kvpool_server_config *sc = &domain->server->config;
	char name[KVPOOL_STORE_NAME_BYTES];
	int r;

	/*
	 * A lookup of one key among millions is two cache misses, and on 4 KiB pages a TLB miss
	 * more. So where shared memory has no huge pages, and nobody keeps it for the next life,
	 * the catalog is private: nobody else maps it.
	 */
	if (!sc->shared_catalog && !sc->pool.state)
		return kvpool_memory_new_private(bytes, &domain->catalog);
	r = kvpool_memory_new(bytes, &domain->catalog);
	if (r != 0 || !sc->pool.state)
		return r;
	kvpool_kill_point(KVPOOL_KILL_CATALOG_MADE);
	kvpool_kept_catalog_name(domain->uid, name);
	/* A full store is no failure: the next life does not have this domain's blocks. */
	(void)kvpool_store_put(name, domain->catalog.fd);
	kvpool_kill_point(KVPOOL_KILL_CATALOG_STORED);
	return 0;
}

/* Notes of leases, for the next life; `fd`: an earlier one's, taken where it is of use. */
static int make_notes(struct kvpool_domain *domain, int fd)
{
	uint64_t bytes = kvpool_cache_notes_bytes(), is;
	char name[KVPOOL_STORE_NAME_BYTES];
	int r;

	if (!domain->server->config.pool.state)
		return 0;
	if (fd >= 0 && kvpool_memory_sealed(fd, &is) && is == bytes)
		return kvpool_memory_adopt(fd, bytes, &domain->notes);
	r = kvpool_memory_new(bytes, &domain->notes);
	if (r != 0)
		return r;
	kvpool_kept_notes_name(domain->uid, name);
	if (fd >= 0)
		(void)kvpool_store_remove(name);
	/* A full store is no failure: the next life holds all blocks instead. */
	(void)kvpool_store_put(name, domain->notes.fd);
	kvpool_kill_point(KVPOOL_KILL_NOTES_STORED);
	return 0;
}

static int make_cache(struct kvpool_domain *domain)
{
	const struct kvpool_cache_calls calls = {kvpool_waits_wake, kvpool_domain_share_more,
						 domain};
	struct kvpool_cache_config config;
	uint64_t bytes;
	int r;

	r = config_of(domain, &config);
	if (r != 0)
		return r;
	bytes = kvpool_cache_catalog_bytes(&config);
	if (bytes == 0)
		return -EINVAL;
	r = make_notes(domain, -1);
	if (r == 0)
		r = make_catalog(domain, bytes);
	if (r != 0)
		return r;
	config.notes = domain->notes.address;
	(void)madvise(domain->catalog.address, bytes, MADV_HUGEPAGE);
	r = kvpool_cache_new(&config, domain->catalog.address, &calls, &domain->cache);
	kvpool_kill_point(KVPOOL_KILL_CATALOG_BEGUN);
	explicit_bzero(&config, sizeof(config));
	return r;
}

/* Over the catalog and the segments of an earlier life. Takes descriptors on success. */
static int adopt_cache(struct kvpool_domain *domain, const struct kvpool_domain_left *was,
		       struct kvpool_cache_adopted *result)
{
	const struct kvpool_cache_calls calls = {kvpool_waits_wake, kvpool_domain_share_more,
						 domain};
	uint64_t n_max =
		domain->server->config.pool.bytes / domain->server->config.pool.segment_bytes;
	struct kvpool_cache_range *ranges = calloc(n_max, sizeof(*ranges));
	struct kvpool_cache_left left = {.ranges = ranges,
					 .clients = was->clients,
					 .n_clients = was->n_clients,
					 .others = was->others,
					 .lost = was->lost,
					 .cookie = was->cookie};
	struct kvpool_cache_config config;
	struct stat st;
	int r;

	if (!ranges)
		return -ENOMEM;
	r = config_of(domain, &config);
	if (r == 0 && (fstat(was->catalog, &st) < 0 ||
		       (uint64_t)st.st_size != kvpool_cache_catalog_bytes(&config))) {
		result->fault = "it was made for a pool of other sizes";
		r = KVPOOL_CACHE_E_FOREIGN;
	}
	if (r == 0)
		r = make_notes(domain, was->notes);
	if (r == 0)
		r = kvpool_memory_adopt(was->catalog, (uint64_t)st.st_size, &domain->catalog);
	if (r == 0)
		r = kvpool_domain_share_claim(domain, ranges, &left.n_ranges);
	config.notes = domain->notes.address;
	if (r == 0)
		r = kvpool_cache_adopt(&config, domain->catalog.address, &calls, &left, result,
				       &domain->cache);
	/* On failure the descriptors are the caller's still. */
	if (r != 0 && domain->catalog.address)
		domain->catalog.fd = -1;
	if (r != 0 && domain->notes.fd == was->notes)
		domain->notes.fd = -1;
	explicit_bzero(&config, sizeof(config));
	free(ranges);
	return r;
}

/* `left`: by an earlier life; NULL: there was none. */
static int domain_new(struct kvpool_server *s, uid_t uid, const struct kvpool_domain_left *left,
		      struct kvpool_cache_adopted *result, struct kvpool_domain **out)
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
		r = left ? adopt_cache(domain, left, result) : make_cache(domain);
	if (r != 0) {
		kvpool_source_remove(domain->expiry);
		/* For want of something now an earlier life's memory is not given up. */
		if (!left)
			forget_kept(domain);
		else if (r > 0 && left->notes < 0)
			forget_notes(domain);
		if (!left || r > 0)
			kvpool_domain_share_return_all(domain);
		kvpool_memory_free(&domain->catalog);
		kvpool_memory_free(&domain->notes);
		free(domain);
		return r;
	}
	kvpool_pool_status(s->pool, &status);
	kvpool_cache_set_growing(domain->cache, status.growing);
	kvpool_cache_set_time(domain->cache, kvpool_clock_ns() / KVPOOL_NS_PER_MS);
	kvpool_list_append(&s->domains, &domain->link);
	s->n_domains++;
	*out = domain;
	return 0;
}

int kvpool_domain_adopt(struct kvpool_server *server, const struct kvpool_domain_left *left,
			struct kvpool_cache_adopted *result, struct kvpool_domain **out)
{
	int r = domain_new(server, left->uid, left, result, out);

	if (r == 0)
		kvpool_domain_stored(*out);
	return r;
}

struct kvpool_domain *kvpool_domain_find(struct kvpool_server *server, uid_t uid)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &server->domains)
	{
		struct kvpool_domain *domain = kvpool_list_entry(node, struct kvpool_domain, link);

		if (domain->uid == uid)
			return domain;
	}
	return NULL;
}

int kvpool_domain_get(struct kvpool_server *server, uid_t uid, struct kvpool_domain **out)
{
	struct kvpool_domain *domain = kvpool_domain_find(server, uid);
	int r;

	if (domain) {
		*out = domain;
		return 0;
	}
	r = domain_new(server, uid, NULL, NULL, out);
	if (r == 0)
		kvpool_log(KVPOOL_LOG_INFO, "domain %s begins", (*out)->name);
	return r;
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

void kvpool_domain_past_left(struct kvpool_domain *domain)
{
	assert(domain->n_past > 0);
	if (--domain->n_past > 0)
		return;
	kvpool_cache_end_past(domain->cache);
	kvpool_kill_point(KVPOOL_KILL_PAST_ENDED);
}

void kvpool_domain_free(struct kvpool_domain *domain)
{
	assert(domain->n_clients == 0 && domain->n_past == 0);
	kvpool_verify_domain_gone(domain);
	kvpool_cache_free(domain->cache);
	kvpool_domain_share_return_all(domain);
	assert(domain->n_segments == 0);
	forget_kept(domain);
	kvpool_kill_point(KVPOOL_KILL_DOMAIN_FREED);
	kvpool_memory_free(&domain->catalog);
	kvpool_memory_free(&domain->notes);
	kvpool_source_remove(domain->expiry);
	kvpool_list_remove(&domain->link);
	domain->server->n_domains--;
	free(domain);
}
