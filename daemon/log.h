/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines on stderr: with a journal priority ("<4>") where stderr is the journal, else with the
 * program's name and the level in words.
 *
 * One line is one write. Control characters in the text become '?', so that no peer can forge a
 * line. No key, token or byte of a block may be handed to it. The level is process-wide and set
 * before a second thread starts; kvpool_log() is for any thread.
 */
#ifndef KVPOOL_DAEMON_LOG_H
#define KVPOOL_DAEMON_LOG_H

#include "shm/base.h"

#include <stdbool.h>
#include <stdint.h>

/* The numbers are those of syslog(3). */
enum kvpool_log_level {
	KVPOOL_LOG_ERROR = 3,
	KVPOOL_LOG_WARNING = 4,
	KVPOOL_LOG_NOTICE = 5,
	KVPOOL_LOG_INFO = 6,
	KVPOOL_LOG_DEBUG = 7,
};

#define KVPOOL_LOG_TEXT_MAX 1000 /* bytes of one line; the rest is cut off and "..." says so */

/* Lines above `level` are dropped from now on. Before it is called, that is NOTICE. */
void kvpool_log_start(enum kvpool_log_level level);

bool kvpool_log_enabled(enum kvpool_log_level level);

void kvpool_log(enum kvpool_log_level level, const char *fmt, ...) KVPOOL_PRINTF(2, 3);

/*
 * Whether stderr is the journal: `journal_stream` (the variable JOURNAL_STREAM, NULL where unset)
 * names the device and inode of this descriptor.
 */
bool kvpool_log_is_journal(int fd, const char *journal_stream);

/*
 * At most `burst` lines in `interval_ns`; what is beyond is counted. Owned by whoever logs; one
 * thread.
 */
struct kvpool_log_limit {
	uint64_t interval_ns;
	uint32_t burst;
	uint32_t passed;     /* in this interval */
	uint64_t since_ns;   /* start of this interval */
	uint64_t suppressed; /* since a line passed last */
};

#define KVPOOL_LOG_LIMIT(n, ns)                   \
	{                                         \
		.interval_ns = (ns), .burst = (n) \
	}

/*
 * Whether a line may be written at now_ns. Where it may, *suppressed is how many were refused since
 * the last one that might; else it is untouched.
 */
bool kvpool_log_limit_pass(struct kvpool_log_limit *limit, uint64_t now_ns, uint64_t *suppressed);

#endif
