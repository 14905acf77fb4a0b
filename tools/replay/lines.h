/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a text file, plain or compressed with xz: which of the two, its first bytes say.
 *
 * An object belongs to one thread. It holds one line at a time.
 */
#ifndef KVPOOL_TOOLS_REPLAY_LINES_H
#define KVPOOL_TOOLS_REPLAY_LINES_H

#include <stddef.h>
#include <stdint.h>

struct kvpool_lines;

enum {
	KVPOOL_LINES_END = 1,      /* there are no more */
	KVPOOL_LINES_DAMAGED = 2,  /* the xz data is damaged or ends too early */
	KVPOOL_LINES_TOO_LONG = 3, /* a line beyond KVPOOL_LINES_MAX */
};

/* A line of this length would be a request of tens of millions of tokens. */
#define KVPOOL_LINES_MAX (64u << 20)

/* Negative errno: of open(2), or -ENOMEM. */
int kvpool_lines_open(const char *path, struct kvpool_lines **out);
void kvpool_lines_close(struct kvpool_lines *lines); /* takes NULL */

/*
 * The next line without its newline, NUL-terminated; borrowed until the next call. 0, a
 * KVPOOL_LINES_ condition, or a negative errno of read(2).
 */
int kvpool_lines_next(struct kvpool_lines *lines, const char **line, size_t *length);

/* Number of the line that kvpool_lines_next() gave last, or failed at; the first is 1. */
uint64_t kvpool_lines_number(const struct kvpool_lines *lines);

#endif
