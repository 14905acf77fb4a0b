/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog's plan: how large each region is for a configuration and where it lies.
 *
 * Owned by the cache, called once while it is made.
 */
#include "src/catalog.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE_PAGE (UINT64_C(2) << 20)

/* Half of what fits at a load of one: lookups then nearly always end in their first line. */
#define LOAD_SLOTS_PER_BUCKET (KVPOOL_BUCKET_SLOTS / 2.0)

static bool config_valid(const struct kvpool_cache_config *config)
{
	if (!KVPOOL_IS_POW2(config->extent_bytes) || !KVPOOL_IS_POW2(config->segment_bytes))
		return false;
	if (config->extent_bytes < KVPOOL_UNIT_BYTES ||
	    config->extent_bytes > config->segment_bytes ||
	    config->segment_bytes > KVPOOL_SEGMENT_MAX)
		return false;
	return config->bytes_max >= config->extent_bytes &&
	       config->bytes_max <= UINT64_C(1) << 48 && config->blocks_max <= KVPOOL_BLOCKS_MAX;
}

/* Large regions start on a huge page, so that the kernel can use one. */
static uint64_t region_end(uint64_t at, uint64_t bytes, uint64_t *start)
{
	*start = KVPOOL_ROUND_UP(at, bytes >= HUGE_PAGE ? HUGE_PAGE : (uint64_t)4096);
	return *start + bytes;
}

struct places {
	uint64_t index, blocks, layouts, extents, end;
};

static struct places places_of(const struct kvpool_catalog *c)
{
	uint64_t buckets = (uint64_t)c->buckets_max + c->overflow_max;
	uint64_t extents = (uint64_t)c->segments_max * c->extents_per_segment;
	uint64_t at = KVPOOL_HEADER_BYTES;
	struct places p;

	at = region_end(at, buckets * sizeof(struct kvpool_bucket), &p.index);
	at = region_end(at, ((uint64_t)c->blocks_max + 1) * sizeof(struct kvpool_record),
			&p.blocks);
	at = region_end(at, (KVPOOL_DOMAIN_LAYOUTS_MAX + 1) * sizeof(struct kvpool_layout_record),
			&p.layouts);
	at = region_end(at, extents * sizeof(struct kvpool_extent_record), &p.extents);
	p.end = KVPOOL_ROUND_UP(at, (uint64_t)4096);
	return p;
}

int kvpool_catalog_plan(const struct kvpool_cache_config *config, struct kvpool_catalog *out)
{
	struct kvpool_catalog c = {0};
	uint64_t blocks;

	if (!config_valid(config))
		return -EINVAL;
	blocks = config->blocks_max ? config->blocks_max : config->bytes_max / KVPOOL_UNIT_BYTES;
	c.blocks_max = (uint32_t)KVPOOL_MIN(blocks, KVPOOL_BLOCKS_MAX);
	c.buckets_max = 16 + (uint32_t)(c.blocks_max / LOAD_SLOTS_PER_BUCKET) + 1;
	/*
	 * Only the last bucket of a chain may have free slots, so the chains together never have
	 * more overflow buckets than there are blocks over slots.
	 */
	c.overflow_max = c.blocks_max / KVPOOL_BUCKET_SLOTS + 1;
	c.segments_max =
		(uint32_t)KVPOOL_MIN(config->bytes_max / config->extent_bytes, KVPOOL_SEGMENTS_MAX);
	c.extents_per_segment = (uint32_t)(config->segment_bytes / config->extent_bytes);
	c.bytes = places_of(&c).end;
	*out = c;
	return 0;
}

static void header_write(struct kvpool_header *h, const struct kvpool_catalog *c,
			 const struct places *p, uint64_t epoch)
{
	uint64_t buckets = (uint64_t)c->buckets_max + c->overflow_max;
	struct timespec now = {0};

	clock_gettime(CLOCK_BOOTTIME, &now);
	memcpy(h->magic, KVPOOL_HEADER_MAGIC, sizeof(h->magic));
	h->format_major = KVPOOL_FORMAT_MAJOR;
	h->format_minor = KVPOOL_FORMAT_MINOR;
	h->header_bytes = KVPOOL_HEADER_BYTES;
	h->total_bytes = c->bytes;
	h->kind = KVPOOL_HEADER_CATALOG;
	h->n_regions = 4;
	h->epoch = epoch;
	h->created = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	h->regions[0] = (struct kvpool_region){p->index, buckets * sizeof(struct kvpool_bucket),
					       sizeof(struct kvpool_bucket), KVPOOL_REGION_INDEX};
	h->regions[1] = (struct kvpool_region){
		p->blocks, ((uint64_t)c->blocks_max + 1) * sizeof(struct kvpool_record),
		sizeof(struct kvpool_record), KVPOOL_REGION_BLOCKS};
	h->regions[2] = (struct kvpool_region){
		p->layouts, (KVPOOL_DOMAIN_LAYOUTS_MAX + 1) * sizeof(struct kvpool_layout_record),
		sizeof(struct kvpool_layout_record), KVPOOL_REGION_LAYOUTS};
	h->regions[3] =
		(struct kvpool_region){p->extents,
				       (uint64_t)c->segments_max * c->extents_per_segment *
					       sizeof(struct kvpool_extent_record),
				       sizeof(struct kvpool_extent_record), KVPOOL_REGION_EXTENTS};
	/* H1 -> H2 */
	atomic_store_explicit(&h->state, KVPOOL_HEADER_READY, memory_order_release);
}

void kvpool_catalog_place(struct kvpool_catalog *catalog, void *memory, uint64_t epoch)
{
	struct places p = places_of(catalog);
	unsigned char *base = memory;

	catalog->header = memory;
	catalog->buckets = (struct kvpool_bucket *)(base + p.index);
	catalog->records = (struct kvpool_record *)(base + p.blocks);
	catalog->layouts = (struct kvpool_layout_record *)(base + p.layouts);
	catalog->extents = (struct kvpool_extent_record *)(base + p.extents);
	/* A hint: where the kernel has no huge page to give, small ones serve. */
	(void)madvise(base + p.index, p.blocks - p.index, MADV_HUGEPAGE);
	(void)madvise(base + p.blocks, p.layouts - p.blocks, MADV_HUGEPAGE);
	header_write(catalog->header, catalog, &p, epoch);
}
