/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What peers did that the protocol forbids: see violation.h.
 */
#include "daemon/violation.h"

#include "daemon/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define QUIET_NS (10 * KVPOOL_NS_PER_S)

static const char *const names[KVPOOL_VIOLATION_COUNT] = {
	[KVPOOL_VIOLATION_SIZE] = "message_size",
	[KVPOOL_VIOLATION_TYPE] = "message_type",
	[KVPOOL_VIOLATION_STATE] = "message_state",
	[KVPOOL_VIOLATION_FIELD] = "message_field",
	[KVPOOL_VIOLATION_VERSION] = "version",
	[KVPOOL_VIOLATION_TOKEN] = "token",
	[KVPOOL_VIOLATION_DESCRIPTORS] = "descriptors",
	[KVPOOL_VIOLATION_SOCKET_FULL] = "socket_full",
	[KVPOOL_VIOLATION_DEADLINE] = "handshake_deadline",
	[KVPOOL_VIOLATION_LIMIT] = "limit",
	[KVPOOL_VIOLATION_MEMORY] = "channel_memory",
	[KVPOOL_VIOLATION_REQUEST] = "request",
};

const char *kvpool_violation_name(enum kvpool_violation kind)
{
	return (unsigned int)kind < KVPOOL_VIOLATION_COUNT ? names[kind] : "unknown";
}

void kvpool_violations_init(struct kvpool_violations *v)
{
	unsigned int i;

	*v = (struct kvpool_violations){0};
	for (i = 0; i < KVPOOL_VIOLATION_COUNT; i++)
		v->limits[i] = (struct kvpool_log_limit)KVPOOL_LOG_LIMIT(1, QUIET_NS);
}

void kvpool_violation_note(struct kvpool_violations *v, enum kvpool_violation kind, uint64_t now_ns,
			   const char *fmt, ...)
{
	uint64_t suppressed;
	char text[256];
	va_list args;

	v->counts[kind]++;
	if (!kvpool_log_limit_pass(&v->limits[kind], now_ns, &suppressed))
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (suppressed == 0)
		kvpool_log(KVPOOL_LOG_WARNING, "violation (%s): %s", names[kind], text);
	else
		kvpool_log(KVPOOL_LOG_WARNING, "violation (%s): %s (and %" PRIu64 " more before)",
			   names[kind], text, suppressed);
}
