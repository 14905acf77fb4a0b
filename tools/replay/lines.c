/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a text file, plain or compressed with xz: see lines.h.
 *
 * Bytes flow from `raw` (as read) through liblzma, where the file is xz, into `text`, from where
 * lines are cut. Belongs to one thread.
 */
#include "tools/replay/lines.h"

#include "shm/base.h"

#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (64u << 10)
/* What `xz -9` needs to decompress is 65 MiB; a header that asks for more than this is refused. */
#define XZ_MEMORY_MAX (UINT64_C(256) << 20)

static const uint8_t XZ_MAGIC[6] = {0xfd, '7', 'z', 'X', 'Z', 0x00};

struct kvpool_lines {
	int fd; /* owned */
	bool is_xz;
	bool raw_ended;
	bool text_ended;
	bool started; /* whether the first bytes were looked at */
	uint64_t number;
	lzma_stream xz; /* owned, where is_xz */
	size_t raw_used, raw_filled;
	size_t text_used, text_filled;
	char *line; /* owned */
	size_t line_length, line_capacity;
	uint8_t raw[BUFFER_BYTES];
	uint8_t text[BUFFER_BYTES];
};

int kvpool_lines_open(const char *path, struct kvpool_lines **out)
{
	struct kvpool_lines *lines = calloc(1, sizeof(*lines));
	int error;

	if (lines == NULL)
		return -ENOMEM;
	lines->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (lines->fd < 0) {
		error = -errno;
		free(lines);
		return error;
	}
	*out = lines;
	return 0;
}

void kvpool_lines_close(struct kvpool_lines *lines)
{
	if (lines == NULL)
		return;
	if (lines->is_xz)
		lzma_end(&lines->xz);
	close(lines->fd);
	free(lines->line);
	free(lines);
}

/* Reads until `raw` is full or the file ends, so that the magic is never cut in two. */
static int fill_raw(struct kvpool_lines *lines)
{
	lines->raw_used = 0;
	lines->raw_filled = 0;
	while (!lines->raw_ended && lines->raw_filled < BUFFER_BYTES) {
		ssize_t n = read(lines->fd, lines->raw + lines->raw_filled,
				 BUFFER_BYTES - lines->raw_filled);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		lines->raw_filled += (size_t)n;
		lines->raw_ended = n == 0;
	}
	return 0;
}

static int start(struct kvpool_lines *lines)
{
	int error = fill_raw(lines);

	if (error != 0)
		return error;
	lines->started = true;
	if (lines->raw_filled < sizeof(XZ_MAGIC) ||
	    memcmp(lines->raw, XZ_MAGIC, sizeof(XZ_MAGIC)) != 0)
		return 0;
	lines->xz = (lzma_stream)LZMA_STREAM_INIT;
	if (lzma_stream_decoder(&lines->xz, XZ_MEMORY_MAX, LZMA_CONCATENATED) != LZMA_OK)
		return -ENOMEM;
	lines->is_xz = true;
	return 0;
}

static int fill_text_from_xz(struct kvpool_lines *lines)
{
	lzma_ret result = LZMA_OK;

	lines->xz.next_out = lines->text;
	lines->xz.avail_out = BUFFER_BYTES;
	while (result == LZMA_OK && lines->xz.avail_out == BUFFER_BYTES) {
		if (lines->raw_used == lines->raw_filled && !lines->raw_ended) {
			int error = fill_raw(lines);

			if (error != 0)
				return error;
		}
		lines->xz.next_in = lines->raw + lines->raw_used;
		lines->xz.avail_in = lines->raw_filled - lines->raw_used;
		result = lzma_code(&lines->xz, lines->raw_ended ? LZMA_FINISH : LZMA_RUN);
		lines->raw_used = lines->raw_filled - lines->xz.avail_in;
	}
	lines->text_used = 0;
	lines->text_filled = BUFFER_BYTES - lines->xz.avail_out;
	lines->text_ended = result == LZMA_STREAM_END;
	if (result == LZMA_MEM_ERROR)
		return -ENOMEM;
	if (result != LZMA_OK && result != LZMA_STREAM_END)
		return KVPOOL_LINES_DAMAGED;
	return 0;
}

static int fill_text_plain(struct kvpool_lines *lines)
{
	int error = 0;

	if (lines->raw_used == lines->raw_filled)
		error = fill_raw(lines);
	if (error != 0)
		return error;
	lines->text_filled = lines->raw_filled - lines->raw_used;
	memcpy(lines->text, lines->raw + lines->raw_used, lines->text_filled);
	lines->raw_used = lines->raw_filled;
	lines->text_used = 0;
	lines->text_ended = lines->text_filled == 0;
	return 0;
}

static int append(struct kvpool_lines *lines, const uint8_t *bytes, size_t n)
{
	size_t wanted = lines->line_length + n + 1;

	if (wanted > KVPOOL_LINES_MAX)
		return KVPOOL_LINES_TOO_LONG;
	if (wanted > lines->line_capacity) {
		size_t capacity = KVPOOL_MAX(wanted, 2 * lines->line_capacity);
		char *line = realloc(lines->line, capacity);

		if (line == NULL)
			return -ENOMEM;
		lines->line = line;
		lines->line_capacity = capacity;
	}
	memcpy(lines->line + lines->line_length, bytes, n);
	lines->line_length += n;
	lines->line[lines->line_length] = '\0';
	return 0;
}

/* Moves what there is of the current line out of `text`; `ended` where its newline was there. */
static int cut(struct kvpool_lines *lines, bool *ended)
{
	const uint8_t *from = lines->text + lines->text_used;
	size_t there = lines->text_filled - lines->text_used;
	const uint8_t *newline = memchr(from, '\n', there);
	size_t n = newline != NULL ? (size_t)(newline - from) : there;

	lines->text_used += n + (newline != NULL);
	*ended = newline != NULL;
	return append(lines, from, n);
}

int kvpool_lines_next(struct kvpool_lines *lines, const char **line, size_t *length)
{
	bool ended = false;
	bool any = false;
	int error = lines->started ? 0 : start(lines);

	lines->number++;
	lines->line_length = 0;
	while (error == 0 && !ended) {
		if (lines->text_used < lines->text_filled) {
			any = true;
			error = cut(lines, &ended);
		} else if (!lines->text_ended) {
			error = lines->is_xz ? fill_text_from_xz(lines) : fill_text_plain(lines);
		} else {
			if (!any)
				return KVPOOL_LINES_END;
			ended = true;
		}
	}
	if (error != 0)
		return error;
	*line = lines->line;
	*length = lines->line_length;
	return 0;
}

uint64_t kvpool_lines_number(const struct kvpool_lines *lines)
{
	return lines->number;
}
