/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of kvpoold: see options.h. This file reads the flags and puts both sources together.
 *
 * Runs once at start, in main(): getopt(3) has process-wide state.
 */
#include "daemon/options.h"

#include "daemon/options_table.h"
#include "shm/base.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 32

/* getopt's values for the options of the table; below are its own. */
#define VALUE_BASE 256

#define HELP_COLUMN 28
#define HELP_WIDTH  96

struct flags {
	struct option longs[KVPOOL_OPTIONS_COUNT + 1];
	char names[KVPOOL_OPTIONS_COUNT][NAME_BYTES];
};

static void flags_make(struct flags *f)
{
	memset(f, 0, sizeof(*f));
	for (size_t i = 0; i < KVPOOL_OPTIONS_COUNT; i++) {
		const struct kvpool_option *o = &kvpool_options_table[i];

		kvpool_option_flag_name(o, f->names[i], sizeof(f->names[i]));
		f->longs[i].name = f->names[i];
		f->longs[i].has_arg = o->argument == NULL ? no_argument : required_argument;
		f->longs[i].val = VALUE_BASE + (int)i;
	}
}

static int usage(char error[KVPOOL_OPTIONS_ERROR_BYTES], const char *fmt, ...) KVPOOL_PRINTF(2, 3);

static int usage(char error[KVPOOL_OPTIONS_ERROR_BYTES], const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(error, KVPOOL_OPTIONS_ERROR_BYTES, fmt, args);
	va_end(args);
	return KVPOOL_OPTIONS_E_USAGE;
}

/* What getopt refused: the word that it stopped at. */
static int refused(int got, char *const argv[], char error[KVPOOL_OPTIONS_ERROR_BYTES])
{
	const char *word = argv[optind - 1];
	char allowed[256];

	if (got == ':' && optopt >= VALUE_BASE) {
		kvpool_option_allowed(&kvpool_options_table[optopt - VALUE_BASE], allowed,
				      sizeof(allowed));
		return usage(error, "%.80s needs a value: %s", word, allowed);
	}
	if (optopt >= VALUE_BASE)
		return usage(error, "%.80s: this flag takes no value", word);
	if (optopt != 0)
		return usage(error, "unknown flag \"-%c\"; --help lists all, with two dashes",
			     optopt);
	return usage(error, "unknown or ambiguous flag \"%.80s\"; --help lists all", word);
}

static int flags_read(int argc, char *const argv[], bool given[KVPOOL_OPTIONS_COUNT],
		      char error[KVPOOL_OPTIONS_ERROR_BYTES], struct kvpool_options *to)
{
	char why[KVPOOL_OPTIONS_ERROR_BYTES] = "";
	struct flags flags;
	int got, r;

	flags_make(&flags);
	opterr = 0;
	optind = 0; /* glibc: start afresh */
	while ((got = getopt_long(argc, argv, "+:", flags.longs, NULL)) != -1) {
		size_t index = (size_t)got - VALUE_BASE;

		if (got < VALUE_BASE)
			return refused(got, argv, error);
		r = kvpool_option_set(&kvpool_options_table[index], optarg, to, why);
		if (r == KVPOOL_OPTIONS_E_USAGE)
			return usage(error, "--%s: %.400s", flags.names[index], why);
		if (r < 0)
			return r;
		given[index] = true;
	}
	if (optind < argc)
		return usage(error,
			     "unexpected \"%.80s\": kvpoold takes flags only; --help lists all",
			     argv[optind]);
	return 0;
}

static int sources_read(int argc, char *const argv[], const char *default_file,
			char error[KVPOOL_OPTIONS_ERROR_BYTES], struct kvpool_options *to)
{
	bool given[KVPOOL_OPTIONS_COUNT] = {false};
	int r;

	r = flags_read(argc, argv, given, error, to);
	if (r != 0 || to->help || to->version)
		return r;
	/* A file that is there and cannot be read is told, not passed over. */
	if (to->config == NULL && default_file != NULL &&
	    (access(default_file, F_OK) == 0 || errno != ENOENT)) {
		r = kvpool_option_set(&kvpool_options_table[KVPOOL_OPTIONS_CONFIG], default_file,
				      to, error);
		if (r != 0)
			return r;
	}
	if (to->config == NULL)
		return 0;
	return kvpool_options_read_file(to->config, given, error, to);
}

int kvpool_options_read(int argc, char *const argv[], const char *default_file,
			char error[KVPOOL_OPTIONS_ERROR_BYTES], struct kvpool_options *out)
{
	struct kvpool_options options = {
		.log_level = KVPOOL_LOG_NOTICE,
		.loop = KVPOOL_LOOP_AUTO,
		.spin_max_us = 1000,
		.crash_window = 10,
		.pages = KVPOOL_PAGES_AUTO,
		.populate = true,
		.numa = true,
		.max_clients = 1024,
		.idle_limit = 3600,
	};
	int r;

	r = sources_read(argc, argv, default_file, error, &options);
	if (r != 0) {
		kvpool_options_free(&options);
		return r;
	}
	*out = options;
	return 0;
}

void kvpool_options_free(struct kvpool_options *options)
{
	if (options == NULL)
		return;
	free(options->config);
	free(options->socket);
	free(options->admin_socket);
	options->config = options->socket = options->admin_socket = NULL;
}

/* ---- help ---- */

/* Prints text with line breaks at spaces, each further line indented. */
static void wrapped(FILE *to, const char *text)
{
	size_t width = HELP_WIDTH - HELP_COLUMN;

	while (strlen(text) > width) {
		size_t n = width;

		while (n > 0 && text[n] != ' ')
			n--;
		(void)fprintf(to, "%.*s\n%*s", (int)n, text, HELP_COLUMN, "");
		text += n + 1;
	}
	(void)fprintf(to, "%s\n", text);
}

static void option_help(FILE *to, const struct kvpool_option *o)
{
	char name[NAME_BYTES], left[2 * NAME_BYTES];
	char words[128];
	int n;

	kvpool_option_flag_name(o, name, sizeof(name));
	n = snprintf(left, sizeof(left), "  --%s%s%s", name, o->argument == NULL ? "" : "=",
		     o->argument == NULL ? "" : o->argument);
	(void)fprintf(to, "%-*s", HELP_COLUMN, left);
	if (n >= HELP_COLUMN)
		(void)fprintf(to, "\n%*s", HELP_COLUMN, "");
	wrapped(to, o->help);
	if (o->type == KVPOOL_OPTION_CHOICE) {
		kvpool_option_allowed(o, words, sizeof(words));
		(void)fprintf(to, "%*s%s: %s\n", HELP_COLUMN, "", o->argument, words);
	}
}

void kvpool_options_help(FILE *to)
{
	const char *section = NULL;

	(void)fprintf(
		to,
		"Usage: kvpoold [FLAG]...\n"
		"\n"
		"Owns the KV cache memory of this host and lends it to the inference processes\n"
		"on it. Needs no flag and no file: it sizes itself from free memory.\n"
		"\n");
	for (size_t i = 0; i < KVPOOL_OPTIONS_COUNT; i++) {
		const struct kvpool_option *o = &kvpool_options_table[i];

		if (o->section != NULL && (section == NULL || strcmp(section, o->section) != 0)) {
			section = o->section;
			(void)fprintf(to, "\n[%s]\n", section);
		}
		option_help(to, o);
	}
	(void)fprintf(to,
		      "\n"
		      "The settings file has the same names, with _ for -, in the sections above:\n"
		      "\n"
		      "  [pool]\n"
		      "  size = 50%%\n"
		      "  segment_size = 256M   ; flags win over the file\n"
		      "\n"
		      "Exit status: 0 stopped as asked, 1 failure, 2 wrong flags or settings.\n");
}
