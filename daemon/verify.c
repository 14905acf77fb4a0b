/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of the verification: see verify.h.
 */
#include "daemon/verify.h"

#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/verify_read.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Records that one step looks at: well below a millisecond. */
#define STEP_RECORDS 4096u
/* How long the others are served before the next step where nothing was there to be read. */
#define STEP_NS KVPOOL_NS_PER_MS
/* Records that kvpool_cache_check() goes through within about a millisecond. */
#define STRUCTURE_RECORDS 4096u

struct kvpool_verify {
	struct kvpool_server *server; /* borrowed */
	struct kvpool_domain *domain; /* borrowed: under way; NULL: between two of them */
	struct kvpool_reader *reader; /* owned; NULL: no run */
	struct kvpool_source *source; /* owned: the reader's descriptor */
	struct kvpool_source *timer;  /* owned: the next step */
	uint32_t cursor;
	bool structure;
	uint64_t start_ns;
	struct kvpool_log_limit limit;
	struct kvpool_verify_progress progress;
};

static void end(struct kvpool_verify *v)
{
	v->progress.elapsed_ns = kvpool_clock_ns() - v->start_ns;
	v->progress.running = false;
	kvpool_source_remove(v->source);
	kvpool_source_remove(v->timer);
	kvpool_reader_free(v->reader);
	v->source = NULL;
	v->timer = NULL;
	v->reader = NULL;
}

static void finish(struct kvpool_verify *v)
{
	const struct kvpool_verify_progress *p = &v->progress;

	end(v);
	kvpool_log(p->corrupt > 0 || p->fault[0] ? KVPOOL_LOG_WARNING : KVPOOL_LOG_INFO,
		   "verified %" PRIu64 " blocks (%" PRIu64 " MiB) in %" PRIu64 " ms: %" PRIu64
		   " were not what was stored, %" PRIu64 " dropped with what hung on them; %" PRIu64
		   " have no checksum",
		   p->checked, p->bytes >> 20, p->elapsed_ns / KVPOOL_NS_PER_MS, p->corrupt,
		   p->dropped, p->without_checksum);
}

static void check_structure(struct kvpool_verify *v)
{
	struct kvpool_cache *cache = v->domain->cache;
	char text[sizeof(v->progress.fault)] = "";
	int r;

	if (!v->structure && kvpool_cache_records(cache) > STRUCTURE_RECORDS) {
		v->progress.too_large++;
		return;
	}
	kvpool_cache_settle(cache);
	r = kvpool_cache_check(cache, text, sizeof(text));
	if (r == -ENOMEM) {
		v->progress.too_large++;
		return;
	}
	v->progress.structures++;
	if (r == 0)
		return;
	kvpool_log(KVPOOL_LOG_ERROR, "the tables of %s contradict each other: %s", v->domain->name,
		   text);
	if (!v->progress.fault[0])
		memcpy(v->progress.fault, text, sizeof(text));
}

/* The next domain that is to be looked at. False: there is none left. */
static bool next_domain(struct kvpool_verify *v)
{
	struct kvpool_list *node, *spare;

	kvpool_list_each(node, spare, &v->server->domains)
	{
		struct kvpool_domain *domain = kvpool_list_entry(node, struct kvpool_domain, link);

		if (!domain->to_verify)
			continue;
		v->domain = domain;
		v->cursor = 0;
		check_structure(v);
		return true;
	}
	return false;
}

static void domain_done(struct kvpool_verify *v)
{
	struct kvpool_domain *domain = v->domain;

	domain->to_verify = false;
	v->domain = NULL;
	/* Its last block may have been dropped. */
	kvpool_domain_client_left(domain);
}

/* The segment's descriptor within the batch. False: no more fit, or it cannot be had. */
static bool find_file(struct kvpool_verify *v, struct kvpool_reader_batch *batch, uint32_t segment,
		      uint32_t *out)
{
	const struct kvpool_segment *s;
	int fd;

	for (*out = 0; *out < batch->n_files; (*out)++)
		if (batch->files[*out].segment == segment)
			return true;
	if (batch->n_files == KVPOOL_READER_FILES ||
	    kvpool_domain_segment(v->domain, segment, false, &s, &fd) != 0)
		return false;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return false;
	batch->files[batch->n_files].segment = segment;
	batch->files[batch->n_files].fd = fd;
	atomic_init(&batch->files[batch->n_files].over, false);
	batch->n_files++;
	return true;
}

/* What can be read of the domain in one go. False: nothing is left of it. */
static bool fill(struct kvpool_verify *v, struct kvpool_reader_batch *batch)
{
	uint32_t budget = STEP_RECORDS;

	while (batch->n < KVPOOL_READER_ITEMS) {
		struct kvpool_reader_item *item = &batch->items[batch->n];
		int r = kvpool_cache_stored_next(v->domain->cache, &v->cursor, &budget,
						 &item->stored);

		if (r != 0)
			return r == KVPOOL_STATUS_BUSY || batch->n > 0;
		if (!item->stored.has_crc) {
			v->progress.without_checksum++;
		} else if (find_file(v, batch, item->stored.place.segment, &item->file)) {
			batch->n++;
		} else if (batch->n > 0) {
			v->cursor--; /* with the next batch, which has room for it */
			return true;
		} else {
			v->progress.skipped++;
		}
	}
	return true;
}

static void step(struct kvpool_verify *v)
{
	struct kvpool_reader_batch *batch = kvpool_reader_begin(v->reader);

	if (!v->domain && !next_domain(v)) {
		finish(v);
		return;
	}
	if (!fill(v, batch))
		domain_done(v);
	if (batch->n > 0)
		kvpool_reader_send(v->reader);
	else
		kvpool_source_set_timer(v->timer, kvpool_clock_ns() + STEP_NS);
}

static void due(void *cookie, uint32_t events)
{
	(void)events;
	step(cookie);
}

/* Its bytes are not what was stored, and it is the same block still. */
static void drop(struct kvpool_verify *v, const struct kvpool_wire_block *place)
{
	struct kvpool_wire_handle handle = {place->block, place->generation, 0, 0};
	uint64_t suppressed;
	uint32_t went;

	if (kvpool_cache_drop(v->domain->cache, NULL, 1, &handle, &went) != 0) {
		v->progress.skipped++;
		return;
	}
	v->progress.checked++;
	v->progress.corrupt++;
	v->progress.dropped += went;
	if (kvpool_log_limit_pass(&v->limit, kvpool_clock_ns(), &suppressed))
		kvpool_log(KVPOOL_LOG_WARNING,
			   "%s: the bytes of block %u (segment %u, offset %" PRIu64
			   ") are not what was stored: dropped, %u blocks with it",
			   v->domain->name, place->block, place->segment,
			   (uint64_t)place->offset << KVPOOL_UNIT_SHIFT, went);
}

/* EIO and EHWPOISON: the memory itself is lost. Anything else may be better next time. */
static bool lost(int error)
{
	return error == -EIO || error == -EHWPOISON;
}

static void judge(struct kvpool_verify *v, const struct kvpool_reader_batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++) {
		const struct kvpool_reader_item *item = &batch->items[i];
		const struct kvpool_cache_stored *stored = &item->stored;

		if (!v->domain || (item->error != 0 && !lost(item->error))) {
			v->progress.skipped++;
			continue;
		}
		v->progress.bytes += stored->slot_bytes * stored->n_shards;
		if (item->error != 0 || item->crc32c != stored->crc32c)
			drop(v, &stored->place);
		else
			v->progress.checked++;
	}
}

static void came_back(void *cookie, uint32_t events)
{
	struct kvpool_verify *v = cookie;
	const struct kvpool_reader_batch *batch = kvpool_reader_take(v->reader);

	(void)events;
	if (!batch)
		return;
	judge(v, batch);
	step(v);
}

/* Marks what is to be looked at. Returns how many domains that is. */
static uint32_t mark(struct kvpool_server *s, const char *name)
{
	struct kvpool_list *node, *spare;
	uint32_t n = 0;

	kvpool_list_each(node, spare, &s->domains)
	{
		struct kvpool_domain *domain = kvpool_list_entry(node, struct kvpool_domain, link);

		domain->to_verify = !name || strcmp(domain->name, name) == 0;
		n += domain->to_verify;
	}
	return n;
}

static int make_parts(struct kvpool_verify *v)
{
	struct kvpool_loop *loop = v->server->loop;
	int r = kvpool_reader_new(&v->reader);

	if (r == 0)
		r = kvpool_loop_add_fd(loop, kvpool_reader_fd(v->reader), POLLIN, came_back, v,
				       &v->source);
	if (r == 0)
		r = kvpool_loop_add_timer(loop, due, v, &v->timer);
	return r;
}

int kvpool_verify_start(struct kvpool_server *s, const char *domain, bool structure)
{
	struct kvpool_verify *v = s->verify;
	uint64_t runs = v ? v->progress.runs : 0;
	int r;

	if (v && v->progress.running)
		return KVPOOL_VERIFY_E_RUNNING;
	if (!v)
		v = s->verify = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	if (mark(s, domain) == 0 && domain)
		return KVPOOL_VERIFY_E_DOMAIN;
	*v = (struct kvpool_verify){
		.server = s,
		.structure = structure,
		.start_ns = kvpool_clock_ns(),
		.limit = KVPOOL_LOG_LIMIT(16, KVPOOL_NS_PER_S),
		.progress = {.runs = runs + 1, .running = true},
	};
	if (domain)
		(void)snprintf(v->progress.domain, sizeof(v->progress.domain), "%s", domain);
	r = make_parts(v);
	if (r != 0) {
		end(v);
		return r;
	}
	kvpool_source_set_timer(v->timer, v->start_ns);
	return 0;
}

void kvpool_verify_progress(const struct kvpool_server *s, struct kvpool_verify_progress *out)
{
	const struct kvpool_verify *v = s->verify;

	*out = v ? v->progress : (struct kvpool_verify_progress){0};
	if (v && out->running)
		out->elapsed_ns = kvpool_clock_ns() - v->start_ns;
}

void kvpool_verify_domain_gone(struct kvpool_domain *domain)
{
	struct kvpool_verify *v = domain->server->verify;

	if (v && v->domain == domain)
		v->domain = NULL;
}

void kvpool_verify_segment_gone(struct kvpool_server *s, uint32_t segment)
{
	if (s->verify && s->verify->reader)
		kvpool_reader_segment_over(s->verify->reader, segment);
}

void kvpool_verify_free(struct kvpool_verify *v)
{
	if (v && v->progress.running)
		end(v);
	free(v);
}
