/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments of a domain: lent by the pool, taken back for domains that have less.
 *
 * Part of the domain; service thread only.
 */
#ifndef KVPOOL_DAEMON_DOMAIN_SHARE_H
#define KVPOOL_DAEMON_DOMAIN_SHARE_H

#include "src/cache.h"

#include <stdbool.h>
#include <stdint.h>

struct kvpool_domain;

/* The domain's cache asks for memory: kvpool_cache_more_fn, with the domain as cookie. */
bool kvpool_domain_share_more(void *cookie);

/*
 * The segments that the domain had in an earlier life of the daemon are its own again; `ranges`,
 * with room for all segments of the pool, tells what is ready of them. -ENOMEM.
 */
int kvpool_domain_share_claim(struct kvpool_domain *domain, struct kvpool_cache_range *ranges,
			      uint32_t *n);

/* Gives every segment back to the pool; the cache is gone. */
void kvpool_domain_share_return_all(struct kvpool_domain *domain);

#endif
