/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large the pool is and how it is divided: see sizing.h. Pure; usable from any thread.
 */
#include "daemon/sizing.h"

#include "shm/base.h"
#include "shm/limits.h"

#include <stdarg.h>
#include <stdio.h>

#define MIB UINT64_C(0x100000)

#define SEGMENT_MIN_CHOSEN (16 * MIB)
#define EXTENT_MIN_CHOSEN  (4 * MIB)
#define EXTENT_MAX_CHOSEN  (64 * MIB)
#define STEP_MIN           (4 * MIB)

/* Of ordinary memory this part stays free: an engine that starts later finds some. */
#define SPARE_PART 20

/* What can be used, and of what it was derived. */
struct means {
	uint64_t ordinary; /* the smaller of MemAvailable and what the control group leaves */
	uint64_t huge;     /* free huge pages that this choice of pages may take */
	uint64_t usable;
};

static uint64_t pow2_floor(uint64_t x)
{
	return x == 0 ? 0 : UINT64_C(1) << (63 - __builtin_clzll(x));
}

static struct means means_of(const struct kvpool_host *host, enum kvpool_pages pages)
{
	struct means m = {.ordinary = KVPOOL_MIN(host->available, host->cgroup_room)};

	if (pages == KVPOOL_PAGES_AUTO || pages == KVPOOL_PAGES_2M)
		m.huge += host->free_2m;
	if (pages == KVPOOL_PAGES_AUTO || pages == KVPOOL_PAGES_1G)
		m.huge += host->free_1g;
	m.usable = m.huge;
	if (pages != KVPOOL_PAGES_2M && pages != KVPOOL_PAGES_1G)
		m.usable += m.ordinary - m.ordinary / SPARE_PART;
	return m;
}

static void explain(char error[KVPOOL_SIZING_ERROR_BYTES], const char *fmt, ...)
	KVPOOL_PRINTF(2, 3);

static void explain(char error[KVPOOL_SIZING_ERROR_BYTES], const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(error, KVPOOL_SIZING_ERROR_BYTES, fmt, args);
	va_end(args);
}

/* "MemAvailable 22.1 GiB, cgroup limit none, free huge pages 0: at most 20.9 GiB" */
static void arithmetic(const struct kvpool_host *host, const struct means *m,
		       enum kvpool_pages pages, char *text, size_t text_bytes)
{
	static const char *const kinds[KVPOOL_PAGES_COUNT] = {
		[KVPOOL_PAGES_AUTO] = "",     [KVPOOL_PAGES_1G] = " of 1G",
		[KVPOOL_PAGES_2M] = " of 2M", [KVPOOL_PAGES_THP] = "",
		[KVPOOL_PAGES_4K] = "",
	};
	char available[32], limit[32], room[32], huge[32], usable[32], group[96] = "none";

	if (host->cgroup_limit != KVPOOL_HOST_UNLIMITED)
		(void)snprintf(group, sizeof(group), "%s of which %s is left",
			       kvpool_size_format(host->cgroup_limit, limit, sizeof(limit)),
			       kvpool_size_format(host->cgroup_room, room, sizeof(room)));
	(void)snprintf(text, text_bytes,
		       "MemAvailable %s, cgroup limit %s, free huge pages%s %s: at most %s",
		       kvpool_size_format(host->available, available, sizeof(available)), group,
		       kinds[pages], kvpool_size_format(m->huge, huge, sizeof(huge)),
		       kvpool_size_format(m->usable, usable, sizeof(usable)));
}

/* The bytes that are asked for, before they are cut to whole segments. */
static int bytes_choose(const struct kvpool_host *host, const struct kvpool_sizing_wish *wish,
			const struct means *m, char error[KVPOOL_SIZING_ERROR_BYTES], uint64_t *out)
{
	char sum[256], asked[32], least[32];
	uint64_t bytes = wish->size.bytes;

	arithmetic(host, m, wish->pages, sum, sizeof(sum));
	if (wish->size.percent != 0) {
		/* In this order the product cannot overflow, and nothing that matters is lost. */
		bytes = m->usable / 100 * wish->size.percent;
	} else if (bytes == 0) {
		bytes = m->huge;
		if (m->usable > m->huge)
			bytes = KVPOOL_MAX(m->huge, m->ordinary / 2);
		if (bytes < KVPOOL_SIZING_POOL_MIN) {
			explain(error,
				"too little memory for the smallest default size, %s (a smaller "
				"pool must be asked for): %s",
				kvpool_size_format(KVPOOL_SIZING_POOL_MIN, least, sizeof(least)),
				sum);
			return KVPOOL_SIZING_E_TOO_SMALL;
		}
	}
	if (wish->populate && bytes > m->usable) {
		explain(error, "size %s is more than may be used: %s",
			kvpool_size_format(bytes, asked, sizeof(asked)), sum);
		return KVPOOL_SIZING_E_TOO_BIG;
	}
	*out = bytes;
	return 0;
}

static int segment_choose(const struct kvpool_host *host, const struct kvpool_sizing_wish *wish,
			  uint64_t bytes, char error[KVPOOL_SIZING_ERROR_BYTES], uint64_t *out)
{
	bool on_1g = wish->pages == KVPOOL_PAGES_1G;
	uint64_t least = wish->pages == KVPOOL_PAGES_2M ? 2 * MIB : KVPOOL_SIZING_SEGMENT_MIN;
	uint64_t segment = wish->segment_bytes;
	char text[32];

	if (segment == 0) {
		segment = KVPOOL_MAX(pow2_floor(bytes / 16), SEGMENT_MIN_CHOSEN);
		segment = KVPOOL_MIN(segment, KVPOOL_SEGMENT_MAX);
		segment = KVPOOL_MIN(segment, pow2_floor(bytes));
		segment = KVPOOL_MAX(segment, least);
		/* A page of 1 GiB holds one segment of that size or none. */
		if (on_1g || (wish->pages == KVPOOL_PAGES_AUTO && bytes >= KVPOOL_SEGMENT_MAX &&
			      host->free_1g >= bytes - bytes % KVPOOL_SEGMENT_MAX))
			segment = KVPOOL_SEGMENT_MAX;
	}
	if (!KVPOOL_IS_POW2(segment) || segment < least || segment > KVPOOL_SEGMENT_MAX) {
		explain(error, "segment_size %s is not a power of two from %s to 1 GiB",
			kvpool_size_format(segment, text, sizeof(text)),
			least == 2 * MIB ? "2 MiB" : "1 MiB");
		return KVPOOL_SIZING_E_SHAPE;
	}
	if (on_1g && segment != KVPOOL_SEGMENT_MAX) {
		explain(error, "segment_size %s does not go with pages of 1G: it must be 1 GiB",
			kvpool_size_format(segment, text, sizeof(text)));
		return KVPOOL_SIZING_E_SHAPE;
	}
	*out = segment;
	return 0;
}

static int extent_choose(const struct kvpool_sizing_wish *wish, uint64_t bytes, uint64_t segment,
			 char error[KVPOOL_SIZING_ERROR_BYTES], uint64_t *out)
{
	uint64_t extent = wish->extent_bytes;
	char text[32], most[32];

	if (extent == 0) {
		extent = KVPOOL_MAX(pow2_floor(bytes / 64), EXTENT_MIN_CHOSEN);
		extent = KVPOOL_MIN(extent, EXTENT_MAX_CHOSEN);
		extent = KVPOOL_MIN(extent, segment);
	}
	if (!KVPOOL_IS_POW2(extent) || extent < KVPOOL_SIZING_EXTENT_MIN || extent > segment) {
		explain(error,
			"extent_size %s is not a power of two from 64 KiB to the segment's "
			"size, %s",
			kvpool_size_format(extent, text, sizeof(text)),
			kvpool_size_format(segment, most, sizeof(most)));
		return KVPOOL_SIZING_E_SHAPE;
	}
	*out = extent;
	return 0;
}

int kvpool_sizing_choose(const struct kvpool_host *host, const struct kvpool_sizing_wish *wish,
			 char error[KVPOOL_SIZING_ERROR_BYTES], struct kvpool_sizing *out)
{
	struct means m = means_of(host, wish->pages);
	struct kvpool_sizing s = {.usable = m.usable};
	char text[32], part[32];
	uint64_t bytes = 0;
	int r;

	r = bytes_choose(host, wish, &m, error, &bytes);
	if (r == 0)
		r = segment_choose(host, wish, bytes, error, &s.segment_bytes);
	if (r == 0)
		r = extent_choose(wish, bytes, s.segment_bytes, error, &s.extent_bytes);
	if (r != 0)
		return r;
	s.bytes = bytes - bytes % s.segment_bytes;
	if (s.bytes == 0) {
		explain(error, "size %s is less than one segment of %s",
			kvpool_size_format(bytes, text, sizeof(text)),
			kvpool_size_format(s.segment_bytes, part, sizeof(part)));
		return KVPOOL_SIZING_E_TOO_SMALL;
	}
	if (s.bytes / s.segment_bytes > KVPOOL_SEGMENTS_MAX) {
		explain(error,
			"size %s in segments of %s makes more than %u of them: choose a larger "
			"segment_size",
			kvpool_size_format(bytes, text, sizeof(text)),
			kvpool_size_format(s.segment_bytes, part, sizeof(part)),
			KVPOOL_SEGMENTS_MAX);
		return KVPOOL_SIZING_E_SHAPE;
	}
	s.step_bytes = KVPOOL_MIN(KVPOOL_MAX(s.extent_bytes, STEP_MIN), s.segment_bytes);
	*out = s;
	return 0;
}
