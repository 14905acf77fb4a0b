/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kvpoold says about itself when it starts: see start.h.
 */
#include "daemon/start.h"

#include "daemon/log.h"
#include "daemon/notify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HUGE_2M (UINT64_C(2) << 20)

static const char *pages_name(enum kvpool_pages pages)
{
	static const char *const names[KVPOOL_PAGES_COUNT] = {
		[KVPOOL_PAGES_AUTO] = "unknown", [KVPOOL_PAGES_1G] = "1 GiB",
		[KVPOOL_PAGES_2M] = "2 MiB",     [KVPOOL_PAGES_THP] = "transparent 2 MiB",
		[KVPOOL_PAGES_4K] = "4 KiB",
	};

	return (unsigned int)pages < KVPOOL_PAGES_COUNT ? names[pages] : "unknown";
}

void kvpool_start_describe(const struct kvpool_sizing *sizing, char *text, size_t text_bytes)
{
	char pool[32], segment[32], extent[32];

	(void)snprintf(text, text_bytes, "%s: %" PRIu64 " x %s, extents %s",
		       kvpool_size_format(sizing->bytes, pool, sizeof(pool)),
		       sizing->bytes / sizing->segment_bytes,
		       kvpool_size_format(sizing->segment_bytes, segment, sizeof(segment)),
		       kvpool_size_format(sizing->extent_bytes, extent, sizeof(extent)));
}

/* Appends one wish to the list. */
static void wish(char *text, size_t text_bytes, const char *fmt, ...) KVPOOL_PRINTF(3, 4);

static void wish(char *text, size_t text_bytes, const char *fmt, ...)
{
	size_t n = strlen(text);
	va_list args;

	if (n > 0 && n + 2 < text_bytes) {
		memcpy(text + n, ", ", 3);
		n += 2;
	}
	va_start(args, fmt);
	(void)vsnprintf(text + n, text_bytes - n, fmt, args);
	va_end(args);
}

/* The smallest pages that the pool got so far. */
static enum kvpool_pages worst_pages(const struct kvpool_pool_status *status)
{
	enum kvpool_pages pages = KVPOOL_PAGES_AUTO;
	int i;

	for (i = KVPOOL_PAGES_1G; i < KVPOOL_PAGES_COUNT; i++) {
		if (status->by_pages[i] > 0)
			pages = (enum kvpool_pages)i;
	}
	return pages;
}

static void wishes(const struct kvpool_server *s, const struct kvpool_sizing *sizing,
		   const struct kvpool_host *host, const struct kvpool_pool_status *status,
		   char *text, size_t text_bytes)
{
	enum kvpool_pages pages = worst_pages(status);
	int refused = kvpool_loop_refusal(s->loop);

	text[0] = '\0';
	if (pages == KVPOOL_PAGES_4K || pages == KVPOOL_PAGES_THP)
		wish(text, text_bytes, "vm.nr_hugepages=%" PRIu64,
		     (sizing->bytes + HUGE_2M - 1) / HUGE_2M);
	if (pages == KVPOOL_PAGES_4K && !host->thp)
		wish(text, text_bytes, "transparent_hugepage/shmem_enabled=advise");
	if (refused != 0)
		wish(text, text_bytes, "io_uring (refused: %s)", strerror(refused));
	if (status->mbind_error != 0)
		wish(text, text_bytes, "mbind (refused: %s)", strerror(status->mbind_error));
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		wish(text, text_bytes, "a second core");
}

void kvpool_start_say(const struct kvpool_server *server, const struct kvpool_sizing *sizing,
		      const struct kvpool_host *host, const char *socket)
{
	struct kvpool_pool_status status;
	char pool[128], faster[256];

	kvpool_pool_status(server->pool, &status);
	kvpool_start_describe(sizing, pool, sizeof(pool));
	wishes(server, sizing, host, &status, faster, sizeof(faster));
	kvpool_log(KVPOOL_LOG_NOTICE, "pool %s on %s pages, %u node%s; socket %s; loop %s%s%s",
		   pool, pages_name(worst_pages(&status)), status.nodes,
		   status.nodes == 1 ? "" : "s", socket,
		   kvpool_loop_kind(server->loop) == KVPOOL_LOOP_URING ? "io_uring" : "epoll",
		   faster[0] ? "; faster with: " : "", faster);
	kvpool_notify_status("pool %s on %s pages", pool, pages_name(worst_pages(&status)));
	if (status.error != 0)
		kvpool_log(KVPOOL_LOG_WARNING, "%s", status.error_text);
}
