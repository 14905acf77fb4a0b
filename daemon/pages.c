/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of pages: see pages.h.
 */
#include "daemon/pages.h"

static const struct {
	const char *name;
	uint64_t bytes;
	bool reserved;
} kinds[KVPOOL_PAGES_COUNT] = {
	[KVPOOL_PAGES_AUTO] = {"auto", 4096, false},
	[KVPOOL_PAGES_1G] = {"1G", UINT64_C(1) << 30, true},
	[KVPOOL_PAGES_2M] = {"2M", UINT64_C(1) << 21, true},
	[KVPOOL_PAGES_THP] = {"thp", UINT64_C(1) << 21, false},
	[KVPOOL_PAGES_4K] = {"4k", 4096, false},
};

const char *kvpool_pages_name(enum kvpool_pages pages)
{
	return kinds[pages].name;
}

uint64_t kvpool_pages_bytes(enum kvpool_pages pages)
{
	return kinds[pages].bytes;
}

bool kvpool_pages_reserved(enum kvpool_pages pages)
{
	return kinds[pages].reserved;
}

static bool there(const struct kvpool_host *host, enum kvpool_pages pages, uint64_t segment_bytes)
{
	if (segment_bytes % kinds[pages].bytes != 0)
		return false;
	switch (pages) {
	case KVPOOL_PAGES_1G:
		return host->free_1g >= segment_bytes;
	case KVPOOL_PAGES_2M:
		return host->free_2m >= segment_bytes;
	case KVPOOL_PAGES_THP:
		return host->thp;
	default:
		return true;
	}
}

size_t kvpool_pages_candidates(const struct kvpool_host *host, enum kvpool_pages want,
			       enum kvpool_pages from, uint64_t segment_bytes,
			       enum kvpool_pages out[KVPOOL_PAGES_COUNT])
{
	/* From the best to the one that is always there. */
	static const enum kvpool_pages order[] = {
		KVPOOL_PAGES_1G,
		KVPOOL_PAGES_2M,
		KVPOOL_PAGES_THP,
		KVPOOL_PAGES_4K,
	};
	size_t n = 0;

	if (want != KVPOOL_PAGES_AUTO) {
		out[0] = want;
		return 1;
	}
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		if (order[i] >= from && there(host, order[i], segment_bytes))
			out[n++] = order[i];
	}
	return n;
}
