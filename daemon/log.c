/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines on stderr: see log.h. The level is set before a second thread starts and read by all.
 */
#include "daemon/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX_MAX 32

static enum kvpool_log_level level_now = KVPOOL_LOG_NOTICE;
static bool journal_now;

bool kvpool_log_is_journal(int fd, const char *journal_stream)
{
	uintmax_t device, inode;
	struct stat st;
	int end = 0;

	if (journal_stream == NULL ||
	    sscanf(journal_stream, "%ju:%ju%n", &device, &inode, &end) != 2 ||
	    journal_stream[end] != '\0')
		return false;
	return fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void kvpool_log_start(enum kvpool_log_level level)
{
	level_now = level;
	journal_now = kvpool_log_is_journal(STDERR_FILENO, getenv("JOURNAL_STREAM"));
}

bool kvpool_log_enabled(enum kvpool_log_level level)
{
	return level <= level_now;
}

static const char *level_word(enum kvpool_log_level level)
{
	switch (level) {
	case KVPOOL_LOG_ERROR:
		return "error: ";
	case KVPOOL_LOG_WARNING:
		return "warning: ";
	case KVPOOL_LOG_DEBUG:
		return "debug: ";
	default:
		return "";
	}
}

static int prefix_write(enum kvpool_log_level level, char *line)
{
	if (journal_now)
		return snprintf(line, PREFIX_MAX, "<%d>", (int)level);
	return snprintf(line, PREFIX_MAX, "kvpoold: %s", level_word(level));
}

/* A peer's bytes may be in the text: no control character passes. */
static void text_clean(char *text)
{
	for (; *text != '\0'; text++) {
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
	}
}

static void line_write(const char *line, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = write(STDERR_FILENO, line, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* stderr is gone or full: there is nobody to tell */
		line += n;
		bytes -= (size_t)n;
	}
}

void kvpool_log(enum kvpool_log_level level, const char *fmt, ...)
{
	char line[PREFIX_MAX + KVPOOL_LOG_TEXT_MAX + sizeof("...\n")];
	int saved = errno;
	va_list args;
	size_t used;
	int n;

	if (!kvpool_log_enabled(level))
		return;
	used = (size_t)prefix_write(level, line);
	va_start(args, fmt);
	n = vsnprintf(line + used, KVPOOL_LOG_TEXT_MAX + 1, fmt, args);
	va_end(args);
	if (n < 0)
		return;
	text_clean(line + used);
	used += strlen(line + used);
	if (n > KVPOOL_LOG_TEXT_MAX) {
		memcpy(line + used, "...", sizeof("..."));
		used += 3;
	}
	line[used++] = '\n';
	line_write(line, used);
	errno = saved;
}

bool kvpool_log_limit_pass(struct kvpool_log_limit *limit, uint64_t now_ns, uint64_t *suppressed)
{
	if (now_ns - limit->since_ns >= limit->interval_ns) {
		limit->since_ns = now_ns;
		limit->passed = 0;
	}
	if (limit->passed >= limit->burst) {
		limit->suppressed++;
		return false;
	}
	limit->passed++;
	*suppressed = limit->suppressed;
	limit->suppressed = 0;
	return true;
}
