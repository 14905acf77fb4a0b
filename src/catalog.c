/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog's plan: how large each region is for a configuration and where it lies; its header.
 *
 * Owned by the cache, called once while it is made.
 */
#include "src/catalog.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE_PAGE (UINT64_C(2) << 20)
#define N_REGIONS 4u

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

/* The catalog's regions, in the order in which they lie. */
static uint64_t regions_of(const struct kvpool_catalog *c, struct kvpool_region out[N_REGIONS])
{
	const struct {
		uint64_t n;
		uint32_t stride, kind;
	} parts[N_REGIONS] = {
		{1, sizeof(struct kvpool_catalog_control), KVPOOL_REGION_CONTROL},
		{(uint64_t)c->blocks_max + 1, sizeof(struct kvpool_record), KVPOOL_REGION_BLOCKS},
		{KVPOOL_DOMAIN_LAYOUTS_MAX + 1, sizeof(struct kvpool_layout_record),
		 KVPOOL_REGION_LAYOUTS},
		{(uint64_t)c->segments_max * c->extents_per_segment,
		 sizeof(struct kvpool_extent_record), KVPOOL_REGION_EXTENTS},
	};
	uint64_t at = KVPOOL_HEADER_BYTES;

	for (uint32_t i = 0; i < N_REGIONS; i++) {
		uint64_t bytes = parts[i].n * parts[i].stride;

		/* Large regions start on a huge page, so that the kernel can use one. */
		at = KVPOOL_ROUND_UP(at, bytes >= HUGE_PAGE ? HUGE_PAGE : (uint64_t)4096);
		out[i] = (struct kvpool_region){at, bytes, parts[i].stride, parts[i].kind};
		at += bytes;
	}
	return KVPOOL_ROUND_UP(at, (uint64_t)4096);
}

int kvpool_catalog_plan(const struct kvpool_cache_config *config, struct kvpool_catalog *out)
{
	struct kvpool_region regions[N_REGIONS];
	struct kvpool_catalog c = {0};
	uint64_t blocks;

	if (!config_valid(config))
		return -EINVAL;
	blocks = config->blocks_max ? config->blocks_max : config->bytes_max / KVPOOL_UNIT_BYTES;
	c.blocks_max = (uint32_t)KVPOOL_MIN(blocks, KVPOOL_BLOCKS_MAX);
	c.segments_max =
		(uint32_t)KVPOOL_MIN(config->bytes_max / config->extent_bytes, KVPOOL_SEGMENTS_MAX);
	c.extents_per_segment = (uint32_t)(config->segment_bytes / config->extent_bytes);
	c.bytes = regions_of(&c, regions);
	*out = c;
	return 0;
}

void kvpool_catalog_place(struct kvpool_catalog *catalog, void *memory)
{
	struct kvpool_region regions[N_REGIONS];
	unsigned char *base = memory;

	(void)regions_of(catalog, regions);
	catalog->header = memory;
	catalog->control = (struct kvpool_catalog_control *)(base + regions[0].offset);
	catalog->records = (struct kvpool_record *)(base + regions[1].offset);
	catalog->layouts = (struct kvpool_layout_record *)(base + regions[2].offset);
	catalog->extents = (struct kvpool_extent_record *)(base + regions[3].offset);
	/* A hint: where the kernel has no huge page to give, small ones serve. */
	(void)madvise(base + regions[1].offset, regions[1].bytes, MADV_HUGEPAGE);
}

void kvpool_catalog_begin(struct kvpool_catalog *catalog, uint64_t epoch)
{
	struct kvpool_header *h = catalog->header;
	struct timespec now = {0};

	clock_gettime(CLOCK_BOOTTIME, &now);
	memcpy(h->magic, KVPOOL_HEADER_MAGIC, sizeof(h->magic));
	h->format_major = KVPOOL_CATALOG_MAJOR;
	h->format_minor = KVPOOL_CATALOG_MINOR;
	h->header_bytes = KVPOOL_HEADER_BYTES;
	h->total_bytes = catalog->bytes;
	h->kind = KVPOOL_HEADER_CATALOG;
	h->n_regions = N_REGIONS;
	h->epoch = epoch;
	h->created = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	(void)regions_of(catalog, h->regions);
	/* H1 -> H2 */
	atomic_store_explicit(&h->state, KVPOOL_HEADER_READY, memory_order_release);
}

const char *kvpool_catalog_fault(const struct kvpool_catalog *catalog)
{
	const struct kvpool_header *h = catalog->header;
	struct kvpool_region regions[N_REGIONS];

	(void)regions_of(catalog, regions);
	/* H2 <- H1 */
	if (atomic_load_explicit(&h->state, memory_order_acquire) != KVPOOL_HEADER_READY)
		return "its header was never finished";
	if (memcmp(h->magic, KVPOOL_HEADER_MAGIC, sizeof(h->magic)) != 0 ||
	    h->kind != KVPOOL_HEADER_CATALOG || h->header_bytes != KVPOOL_HEADER_BYTES)
		return "it is no catalog";
	if (h->format_major != KVPOOL_CATALOG_MAJOR)
		return "it has the format of another major version";
	if (h->must_features != 0)
		return "it asks for features that this version does not have";
	if (h->total_bytes != catalog->bytes || h->n_regions < N_REGIONS ||
	    h->n_regions > KVPOOL_HEADER_REGIONS ||
	    memcmp(h->regions, regions, sizeof(regions)) != 0)
		return "it was made for a pool of other sizes";
	return NULL;
}
