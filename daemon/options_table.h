/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of kvpoold's settings, and how one value is read; used by options*.c only.
 *
 * Constant; usable from any thread.
 */
#ifndef KVPOOL_DAEMON_OPTIONS_TABLE_H
#define KVPOOL_DAEMON_OPTIONS_TABLE_H

#include "daemon/options.h"

#include <stddef.h>
#include <stdint.h>

enum kvpool_option_type {
	KVPOOL_OPTION_FLAG,    /* bool; takes no value; not in the file */
	KVPOOL_OPTION_PATH,    /* char *, owned */
	KVPOOL_OPTION_SIZE,    /* struct kvpool_size */
	KVPOOL_OPTION_BYTES,   /* uint64_t: a power of two */
	KVPOOL_OPTION_NUMBER,  /* uint32_t */
	KVPOOL_OPTION_SECONDS, /* uint32_t */
	KVPOOL_OPTION_BOOL,    /* bool */
	KVPOOL_OPTION_CHOICE,  /* an enum */
};

struct kvpool_option_word {
	const char *word; /* NULL ends the list */
	int value;
};

struct kvpool_option {
	const char *section; /* of the file; NULL: a flag only */
	const char *name;    /* as in the file; the flag has '-' for '_' */
	enum kvpool_option_type type;
	size_t offset;                          /* in struct kvpool_options */
	uint64_t min, max;                      /* of BYTES, NUMBER and SECONDS */
	const struct kvpool_option_word *words; /* of CHOICE */
	const char *argument; /* what the help calls the value; NULL: takes none */
	const char *help;
};

#define KVPOOL_OPTIONS_COUNT  22
#define KVPOOL_OPTIONS_CONFIG 0 /* where --config is in the table */

extern const struct kvpool_option kvpool_options_table[KVPOOL_OPTIONS_COUNT];

/* The option's name as a flag: max-blocks. */
void kvpool_option_flag_name(const struct kvpool_option *option, char *out, size_t out_bytes);

/*
 * Reads a value into its place. 0; KVPOOL_OPTIONS_E_USAGE with "VALUE is not ...; allowed: ..." in
 * `error`; -ENOMEM.
 */
int kvpool_option_set(const struct kvpool_option *option, const char *value,
		      struct kvpool_options *to, char error[KVPOOL_OPTIONS_ERROR_BYTES]);

/* What is allowed, for messages: "yes or no", "a number from 1 to 16384". */
void kvpool_option_allowed(const struct kvpool_option *option, char *out, size_t out_bytes);

/* The file's side of kvpool_options_read(): sets all that `given` does not mark. */
int kvpool_options_read_file(const char *path, const bool given[KVPOOL_OPTIONS_COUNT],
			     char error[KVPOOL_OPTIONS_ERROR_BYTES], struct kvpool_options *to);

#endif
