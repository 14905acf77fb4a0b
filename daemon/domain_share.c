/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments of a domain: see domain_share.h and the rule in domain.h.
 */
#include "daemon/domain_share.h"

#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/kill_point.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/verify.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct domain_segment {
	struct kvpool_list link;        /* in domain->segments */
	struct kvpool_segment *segment; /* borrowed: the pool's, lent to this domain */
	int read_only;                  /* owned descriptor, made when first asked for; -1 */
};

/* Segments that each domain may hold when all want as much as they can get. */
static uint32_t share(const struct kvpool_server *s)
{
	uint64_t segments = s->config.pool.bytes / s->config.pool.segment_bytes;

	return (uint32_t)(segments / KVPOOL_MAX(s->n_domains, 1u));
}

/* Asked within the last second, and would ask again: clients retry when told that it grows. */
static bool wanting(const struct kvpool_domain *domain)
{
	return domain->wanted_ns != 0 &&
	       domain->server->now_ns - domain->wanted_ns < KVPOOL_NS_PER_S;
}

/* Whether a domain below its share waits for a segment that this one may not snatch. */
static bool spoken_for(const struct kvpool_domain *domain)
{
	const struct kvpool_server *s = domain->server;
	struct kvpool_list *node, *spare;

	if (domain->n_segments < share(s))
		return false;
	kvpool_list_each(node, spare, &s->domains)
	{
		const struct kvpool_domain *other =
			kvpool_list_entry(node, struct kvpool_domain, link);

		if (other != domain && wanting(other) && other->n_segments < share(s))
			return true;
	}
	return false;
}

static struct domain_segment *find(const struct kvpool_domain *domain, uint32_t id)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &domain->segments)
	{
		struct domain_segment *ds = kvpool_list_entry(node, struct domain_segment, link);

		if (ds->segment->id == id)
			return ds;
	}
	return NULL;
}

static void give_back(struct kvpool_domain *domain, struct domain_segment *ds)
{
	kvpool_verify_segment_gone(domain->server, ds->segment->id);
	kvpool_pool_release(domain->server->pool, ds->segment);
	if (ds->read_only >= 0)
		(void)close(ds->read_only);
	kvpool_list_remove(&ds->link);
	domain->n_segments--;
	free(ds);
}

/* The domain with most segments among those above their share; NULL: none. */
static struct kvpool_domain *richest(const struct kvpool_server *s)
{
	struct kvpool_list *node, *spare;
	struct kvpool_domain *most = NULL;

	kvpool_list_each(node, spare, &s->domains)
	{
		struct kvpool_domain *d = kvpool_list_entry(node, struct kvpool_domain, link);

		if (d->n_segments > share(s) && (!most || d->n_segments > most->n_segments))
			most = d;
	}
	return most;
}

/*
 * Empties the coldest segment of the richest domain and gives it to the pool, which makes it anew:
 * memory changes domains through the kernel's zeroing. One at a time for each domain that wants.
 */
static void take_for(struct kvpool_domain *domain)
{
	struct kvpool_server *s = domain->server;
	struct kvpool_domain *from;
	struct domain_segment *ds;
	uint32_t id;

	if (domain->taken_for || domain->n_segments >= share(s))
		return;
	from = richest(s);
	if (!from || from == domain || kvpool_cache_memory_coldest(from->cache, &id) != 0 ||
	    kvpool_cache_memory_take(from->cache, id) != 0)
		return;
	kvpool_kill_point(KVPOOL_KILL_SEGMENT_TAKEN);
	ds = find(from, id);
	assert(ds);
	give_back(from, ds);
	domain->taken_for = true;
	s->counters.takes++;
	kvpool_cache_set_growing(domain->cache, true);
	kvpool_log(KVPOOL_LOG_INFO, "a segment leaves %s (%u left) for %s (%u so far)", from->name,
		   from->n_segments, domain->name, domain->n_segments);
}

static void hold(struct kvpool_domain *domain, struct domain_segment *ds,
		 struct kvpool_segment *segment)
{
	ds->segment = segment;
	ds->read_only = -1;
	kvpool_list_append(&domain->segments, &ds->link);
	domain->n_segments++;
}

int kvpool_domain_share_claim(struct kvpool_domain *domain, struct kvpool_cache_range *ranges,
			      uint32_t *n)
{
	struct kvpool_server *s = domain->server;
	uint32_t found = 0;

	for (;;) {
		struct domain_segment *ds = calloc(1, sizeof(*ds));
		struct kvpool_segment *segment;

		if (!ds)
			return -ENOMEM;
		segment = kvpool_pool_claim(s->pool, domain, domain->uid);
		if (!segment) {
			free(ds);
			*n = found;
			return 0;
		}
		hold(domain, ds, segment);
		if (segment->ready > 0)
			ranges[found++] =
				(struct kvpool_cache_range){segment->id, 0, segment->ready};
	}
}

bool kvpool_domain_share_more(void *cookie)
{
	struct kvpool_domain *domain = cookie;
	struct kvpool_server *s = domain->server;
	struct kvpool_segment *segment;
	struct domain_segment *ds;

	if (spoken_for(domain))
		return false;
	ds = calloc(1, sizeof(*ds));
	if (!ds)
		return false;
	segment = kvpool_pool_acquire(s->pool, domain, domain->uid);
	if (!segment) {
		free(ds);
		domain->wanted_ns = s->now_ns;
		take_for(domain);
		return false;
	}
	kvpool_kill_point(KVPOOL_KILL_SEGMENT_LENT);
	/* The mode, so that whoever gets a descriptor for reading cannot open it for writing. */
	if (fchmod(segment->fd, 0400) < 0 ||
	    kvpool_cache_memory_add(domain->cache, segment->id, 0, segment->ready) != 0) {
		kvpool_log(KVPOOL_LOG_ERROR, "segment %u cannot be lent to %s", segment->id,
			   domain->name);
		kvpool_pool_release(s->pool, segment);
		free(ds);
		return false;
	}
	kvpool_kill_point(KVPOOL_KILL_SEGMENT_ADDED);
	hold(domain, ds, segment);
	domain->wanted_ns = 0;
	domain->taken_for = false;
	return true;
}

void kvpool_domain_share_return_all(struct kvpool_domain *domain)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &domain->segments)
		give_back(domain, kvpool_list_entry(node, struct domain_segment, link));
}

int kvpool_domain_segment(struct kvpool_domain *domain, uint32_t id, bool read_only,
			  const struct kvpool_segment **segment, int *fd)
{
	struct domain_segment *ds = find(domain, id);
	char path[32];

	if (!ds)
		return KVPOOL_DOMAIN_E_UNKNOWN;
	if (read_only && ds->read_only < 0) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", ds->segment->fd);
		ds->read_only = open(path, O_RDONLY | O_CLOEXEC);
		if (ds->read_only < 0)
			return -errno;
	}
	*segment = ds->segment;
	*fd = read_only ? ds->read_only : ds->segment->fd;
	return 0;
}

static void grown(void *cookie, struct kvpool_segment *segment, uint64_t offset, uint64_t bytes)
{
	struct kvpool_domain *domain = segment->owner;

	(void)cookie;
	if (kvpool_cache_memory_add(domain->cache, segment->id, offset, bytes) != 0)
		kvpool_log(KVPOOL_LOG_ERROR, "segment %u: what became ready cannot be lent to %s",
			   segment->id, domain->name);
}

void kvpool_domain_pool_progress(struct kvpool_server *s)
{
	struct kvpool_pool_status status;
	struct kvpool_list *node, *spare;

	kvpool_pool_progress(s->pool, grown, NULL);
	kvpool_pool_status(s->pool, &status);
	kvpool_list_each(node, spare, &s->domains)
	{
		struct kvpool_domain *d = kvpool_list_entry(node, struct kvpool_domain, link);

		if (!status.growing)
			d->taken_for = false;
		kvpool_cache_set_growing(d->cache, status.growing);
	}
}
