/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong last, and what a status means. See error.h.
 *
 * A failure text belongs to a channel (its thread) or to a handle (under its lock).
 */
#include "client/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const struct {
	int error;
	const char *text;
} statuses[KVPOOL_STATUS_COUNT] = {
	[KVPOOL_STATUS_OK] = {0, "no error"},
	[KVPOOL_STATUS_INVALID] = {-EINVAL, "the daemon calls an argument invalid"},
	[KVPOOL_STATUS_NO_LAYOUT] = {-ESTALE, "the daemon does not know the layout any more"},
	[KVPOOL_STATUS_GEOMETRY] = {-EINVAL,
				    "the layout's fingerprint is known with another geometry"},
	[KVPOOL_STATUS_LIMIT] = {-EDQUOT, "this client holds as much of this kind as it may"},
	[KVPOOL_STATUS_STALE] = {-ESTALE, "the lease or the blocks are over"},
	[KVPOOL_STATUS_NOT_FOUND] = {-ENOENT, "nobody has the block and nobody is writing it"},
	[KVPOOL_STATUS_TIMEOUT] = {-ETIMEDOUT, "the block is still being written"},
	[KVPOOL_STATUS_ABANDONED] = {-ECANCELED, "the block's writer gave it up"},
	[KVPOOL_STATUS_EXISTS] = {-EEXIST, "the block exists already"},
	[KVPOOL_STATUS_BUSY] = {-EBUSY, "somebody is writing the block"},
	[KVPOOL_STATUS_NO_SPACE] = {-ENOSPC, "the pool has no place for a block"},
	[KVPOOL_STATUS_NO_PARENT] = {-ENOENT, "the block's parent is not in the pool"},
	[KVPOOL_STATUS_READ_ONLY] = {-EACCES, "this handle may only read"},
	[KVPOOL_STATUS_DRAINING] = {-ENOTCONN, "the daemon is about to leave"},
	[KVPOOL_STATUS_TOO_LARGE] = {-E2BIG, "a block of this layout does not fit in an extent"},
};

static const char *const no_space[] = {
	[KVPOOL_NO_SPACE_NONE] = "there was space",
	[KVPOOL_NO_SPACE_LEASED] = "readers hold what could be evicted",
	[KVPOOL_NO_SPACE_RESERVED] = "writers hold what could be evicted",
	[KVPOOL_NO_SPACE_GROWING] = "the pool is still being made: ask again",
	[KVPOOL_NO_SPACE_QUOTA] = "the client's or the domain's own limit is reached",
	[KVPOOL_NO_SPACE_TABLE] = "the block table is full",
};

void kvpool_failure_init(struct kvpool_failure *f)
{
	f->next = 0;
	atomic_store_explicit(&f->text, "no error", memory_order_release); /* E1 -> E2 */
}

const char *kvpool_failure_text(const struct kvpool_failure *f)
{
	return atomic_load_explicit(&f->text, memory_order_acquire); /* E2 <- E1 */
}

int kvpool_failure_literal(struct kvpool_failure *f, int error, const char *text)
{
	atomic_store_explicit(&f->text, text, memory_order_release); /* E1 -> E2 */
	return error;
}

int kvpool_failure_set(struct kvpool_failure *f, int error, const char *format, ...)
{
	char *buffer = f->buffers[f->next];
	va_list args;

	f->next = (f->next + 1) % KVPOOL_FAILURE_BUFFERS;
	va_start(args, format);
	vsnprintf(buffer, KVPOOL_FAILURE_BYTES, format, args);
	va_end(args);
	return kvpool_failure_literal(f, error, buffer);
}

int kvpool_failure_status(struct kvpool_failure *f, uint16_t status, const char *operation)
{
	if (status == KVPOOL_STATUS_OK)
		return 0;
	if (status >= KVPOOL_STATUS_COUNT)
		return kvpool_failure_set(f, -EPROTO, "%s: the daemon answers with status %u",
					  operation, status);
	return kvpool_failure_set(f, statuses[status].error, "%s: %s", operation,
				  statuses[status].text);
}

void kvpool_failure_no_space(struct kvpool_failure *f, uint16_t detail, uint32_t holder,
			     uint32_t self)
{
	const char *why = detail < KVPOOL_ARRAY_SIZE(no_space) ? no_space[detail]
							       : "the daemon gives no known reason";

	if (holder == 0)
		kvpool_failure_literal(f, 0, why);
	else
		kvpool_failure_set(f, 0, "%s; client %u%s holds most", why, holder,
				   holder == self ? " (this one)" : "");
}
