/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings file: an ini file, read by inih, every mistake told with file and line.
 *
 * Runs once at start, in main(). The whole file is in memory while it is parsed.
 */
#include "daemon/options_table.h"
#include "shm/base.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX 65536

/* inih's own line buffer, with room for the line's end; what is longer would be cut in silence. */
#define LINE_MAX_BYTES 197

struct file_parser {
	const char *path; /* borrowed */
	char *text;       /* owned; NUL-terminated */
	const char *next; /* what inih has not read */
	unsigned int line;
	const bool *given;                       /* borrowed: set by a flag, which wins */
	struct kvpool_options *to;               /* borrowed */
	char *error;                             /* borrowed; KVPOOL_OPTIONS_ERROR_BYTES */
	unsigned int seen[KVPOOL_OPTIONS_COUNT]; /* line where it was set; 0: not yet */
	int result;
	unsigned int error_line;
};

static int complain(struct file_parser *p, unsigned int line, const char *fmt, ...)
	KVPOOL_PRINTF(3, 4);

static int complain(struct file_parser *p, unsigned int line, const char *fmt, ...)
{
	va_list args;
	int n;

	p->result = KVPOOL_OPTIONS_E_USAGE;
	p->error_line = line;
	n = snprintf(p->error, KVPOOL_OPTIONS_ERROR_BYTES, "%.160s:%u: ", p->path, line);
	va_start(args, fmt);
	(void)vsnprintf(p->error + n, KVPOOL_OPTIONS_ERROR_BYTES - (size_t)n, fmt, args);
	va_end(args);
	return 0;
}

/* The length of the line that begins here, without its end. */
static size_t line_length(const char *text)
{
	return strcspn(text, "\r\n");
}

/* inih's fgets(): counts lines, and ends the file after the first mistake. */
static char *line_read(char *to, int bytes, void *cookie)
{
	struct file_parser *p = cookie;
	size_t n = strcspn(p->next, "\n");

	if (*p->next == '\0' || p->result != 0)
		return NULL;
	p->line++;
	if (n > LINE_MAX_BYTES || n + 2 > (size_t)bytes) {
		(void)complain(p, p->line, "the line is longer than %d bytes", LINE_MAX_BYTES);
		return NULL;
	}
	n += p->next[n] == '\n';
	memcpy(to, p->next, n);
	to[n] = '\0';
	p->next += n;
	return to;
}

/* "[daemon], [pool] or [limits]", or the names in one section. */
static void names_list(const char *section, char *out, size_t out_bytes)
{
	const char *last = "";
	size_t used = 0;

	for (size_t i = 0; i < KVPOOL_OPTIONS_COUNT; i++) {
		const struct kvpool_option *o = &kvpool_options_table[i];
		int n;

		if (o->section == NULL)
			continue;
		if (section == NULL && strcmp(o->section, last) != 0)
			n = snprintf(out + used, out_bytes - used, "%s[%s]", used == 0 ? "" : ", ",
				     o->section);
		else if (section != NULL && strcmp(o->section, section) == 0)
			n = snprintf(out + used, out_bytes - used, "%s%s", used == 0 ? "" : ", ",
				     o->name);
		else
			continue;
		last = o->section;
		if (n < 0 || (size_t)n >= out_bytes - used)
			return;
		used += (size_t)n;
	}
}

/* The option of this name and section; NULL with a complaint where there is none. */
static const struct kvpool_option *option_find(struct file_parser *p, const char *section,
					       const char *name)
{
	const struct kvpool_option *elsewhere = NULL;
	char names[256] = "";

	for (size_t i = 0; i < KVPOOL_OPTIONS_COUNT; i++) {
		const struct kvpool_option *o = &kvpool_options_table[i];

		if (o->section == NULL || strcmp(o->name, name) != 0)
			continue;
		if (strcmp(o->section, section) == 0)
			return o;
		elsewhere = o;
	}
	if (elsewhere != NULL) {
		if (section[0] == '\0')
			(void)complain(p, p->line,
				       "%s belongs into section [%s], which must come before it",
				       name, elsewhere->section);
		else
			(void)complain(p, p->line, "%s belongs into section [%s], not [%.40s]",
				       name, elsewhere->section, section);
		return NULL;
	}
	names_list(section, names, sizeof(names));
	if (names[0] != '\0') {
		(void)complain(p, p->line, "unknown name \"%.40s\" in [%s]; allowed: %s", name,
			       section, names);
		return NULL;
	}
	names_list(NULL, names, sizeof(names));
	(void)complain(p, p->line, "unknown section [%.40s]; allowed: %s", section, names);
	return NULL;
}

/* 1: go on, 0: stop, as inih wants it. */
static int on_value(void *cookie, const char *section, const char *name, const char *value)
{
	struct file_parser *p = cookie;
	char why[KVPOOL_OPTIONS_ERROR_BYTES] = "";
	const struct kvpool_option *o;
	size_t index;
	int r;

	if (p->result != 0)
		return 0;
	o = option_find(p, section, name);
	if (o == NULL)
		return 0;
	index = (size_t)(o - kvpool_options_table);
	if (p->seen[index] != 0)
		return complain(p, p->line, "%s was set on line %u already", name, p->seen[index]);
	p->seen[index] = p->line;
	if (p->given[index]) {
		/* Checked all the same, against a copy that is thrown away. */
		struct kvpool_options scratch = {.help = false};

		r = kvpool_option_set(o, value, &scratch, why);
		kvpool_options_free(&scratch);
	} else {
		r = kvpool_option_set(o, value, p->to, why);
	}
	if (r == KVPOOL_OPTIONS_E_USAGE)
		return complain(p, p->line, "%s: %.300s", name, why);
	p->result = r;
	return r == 0;
}

/* Reads all of a file into p->text. */
static int file_load(struct file_parser *p)
{
	struct stat st;
	ssize_t n = -1;
	int fd, r = 0;

	fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (S_ISDIR(st.st_mode))
		r = -EISDIR;
	else if (!S_ISREG(st.st_mode))
		r = -EINVAL;
	else if (st.st_size > FILE_MAX)
		r = -EFBIG;
	p->text = malloc(FILE_MAX + 1);
	if (r == 0 && p->text == NULL)
		r = -ENOMEM;
	if (r == 0) {
		n = read(fd, p->text, FILE_MAX);
		if (n < 0)
			r = -errno;
		else
			p->text[n] = '\0';
	}
	(void)close(fd);
	if (r == 0 && strlen(p->text) != (size_t)n)
		r = -EILSEQ;
	return r;
}

/* A line that is no comment, section or setting: inih tells its number only. */
static void complain_syntax(struct file_parser *p, unsigned int line)
{
	const char *text = p->text;

	for (unsigned int i = 1; i < line; i++)
		text += strcspn(text, "\n") + 1;
	(void)complain(p, line,
		       "\"%.*s\" is neither a [section] nor name = value nor a comment (; or #)",
		       (int)KVPOOL_MIN(line_length(text), 80), text);
}

int kvpool_options_read_file(const char *path, const bool given[KVPOOL_OPTIONS_COUNT],
			     char error[KVPOOL_OPTIONS_ERROR_BYTES], struct kvpool_options *to)
{
	struct file_parser p = {.path = path, .given = given, .to = to, .error = error};
	int r;

	r = file_load(&p);
	if (r < 0) {
		(void)snprintf(error, KVPOOL_OPTIONS_ERROR_BYTES,
			       "cannot read the settings file %.200s: %s", path,
			       strerrordesc_np(-r));
		free(p.text);
		return r == -ENOMEM ? r : KVPOOL_OPTIONS_E_USAGE;
	}
	p.next = p.text;
	r = ini_parse_stream(line_read, &p, on_value, &p);
	/* The first mistake counts, whichever of the two it is. */
	if (r > 0 && (p.result == 0 || (unsigned int)r < p.error_line))
		complain_syntax(&p, (unsigned int)r);
	else if (r < 0 && p.result == 0)
		p.result = -ENOMEM;
	free(p.text);
	return p.result;
}
