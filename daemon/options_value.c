/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How one value of a setting is read and what the message says where it cannot be: see
 * options_table.h. Stateless; usable from any thread.
 */
#include "daemon/options_table.h"
#include "shm/base.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void kvpool_option_flag_name(const struct kvpool_option *option, char *out, size_t out_bytes)
{
	(void)snprintf(out, out_bytes, "%s", option->name);
	for (; *out != '\0'; out++) {
		if (*out == '_')
			*out = '-';
	}
}

static void allowed_words(const struct kvpool_option *option, char *out, size_t out_bytes)
{
	size_t used = 0;

	for (const struct kvpool_option_word *w = option->words; w->word != NULL; w++) {
		const char *join = w == option->words ? "" : w[1].word == NULL ? " or " : ", ";
		int n = snprintf(out + used, out_bytes - used, "%s%s", join, w->word);

		if (n < 0 || (size_t)n >= out_bytes - used)
			return;
		used += (size_t)n;
	}
}

void kvpool_option_allowed(const struct kvpool_option *option, char *out, size_t out_bytes)
{
	char min[32], max[32];

	switch (option->type) {
	case KVPOOL_OPTION_FLAG:
		(void)snprintf(out, out_bytes, "no value");
		break;
	case KVPOOL_OPTION_PATH:
		(void)snprintf(out, out_bytes, "a path");
		break;
	case KVPOOL_OPTION_SIZE:
		(void)snprintf(
			out, out_bytes,
			"bytes, with K, M, G or T behind, or a percentage: 512M, 1.5G, 50%%");
		break;
	case KVPOOL_OPTION_BYTES:
		(void)snprintf(out, out_bytes, "a power of two from %s to %s",
			       kvpool_size_format(option->min, min, sizeof(min)),
			       kvpool_size_format(option->max, max, sizeof(max)));
		break;
	case KVPOOL_OPTION_NUMBER:
		(void)snprintf(out, out_bytes, "a number from %" PRIu64 " to %" PRIu64, option->min,
			       option->max);
		break;
	case KVPOOL_OPTION_SECONDS:
		(void)snprintf(out, out_bytes, "seconds, or with s, m or h behind: 90s, 60m, 2h");
		break;
	case KVPOOL_OPTION_BOOL:
		(void)snprintf(out, out_bytes, "yes or no");
		break;
	case KVPOOL_OPTION_CHOICE:
		allowed_words(option, out, out_bytes);
		break;
	}
}

static bool number_read(const char *text, const char **end, uint64_t *out)
{
	uint64_t value;
	char *rest;

	/* strtoull takes a sign and leading space, which are mistakes here. */
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	value = strtoull(text, &rest, 10);
	if (errno != 0)
		return false;
	*end = rest;
	*out = value;
	return true;
}

static bool set_number(const struct kvpool_option *option, const char *value, uint32_t *out)
{
	uint64_t number;
	const char *end;

	if (!number_read(value, &end, &number) || *end != '\0' || number < option->min ||
	    number > option->max)
		return false;
	*out = (uint32_t)number;
	return true;
}

static bool set_seconds(const struct kvpool_option *option, const char *value, uint32_t *out)
{
	static const struct {
		const char *suffix;
		uint32_t seconds;
	} units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
	uint64_t number;
	const char *end;

	if (!number_read(value, &end, &number))
		return false;
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].suffix) != 0)
			continue;
		if (number > option->max / units[i].seconds)
			return false;
		*out = (uint32_t)number * units[i].seconds;
		return true;
	}
	return false;
}

static bool set_bytes(const struct kvpool_option *option, const char *value, uint64_t *out)
{
	struct kvpool_size size;

	if (kvpool_size_parse(value, &size) < 0 || !KVPOOL_IS_POW2(size.bytes) ||
	    size.bytes < option->min || size.bytes > option->max)
		return false;
	*out = size.bytes;
	return true;
}

static bool set_bool(const char *value, bool *out)
{
	static const char *const words[2][4] = {
		{"no", "false", "off", "0"},
		{"yes", "true", "on", "1"},
	};

	for (size_t truth = 0; truth < 2; truth++) {
		for (size_t i = 0; i < 4; i++) {
			if (strcasecmp(value, words[truth][i]) == 0) {
				*out = truth == 1;
				return true;
			}
		}
	}
	return false;
}

static bool set_choice(const struct kvpool_option *option, const char *value, void *out)
{
	for (const struct kvpool_option_word *w = option->words; w->word != NULL; w++) {
		if (strcasecmp(value, w->word) == 0) {
			memcpy(out, &w->value, sizeof(w->value));
			return true;
		}
	}
	return false;
}

static int set_path(const char *value, char **out)
{
	char *copy;

	if (value[0] == '\0')
		return KVPOOL_OPTIONS_E_USAGE;
	copy = strdup(value);
	if (copy == NULL)
		return -ENOMEM;
	free(*out);
	*out = copy;
	return 0;
}

_Static_assert(sizeof(enum kvpool_pages) == sizeof(int) &&
		       sizeof(enum kvpool_loop_kind) == sizeof(int) &&
		       sizeof(enum kvpool_log_level) == sizeof(int),
	       "a choice is stored as an int");

int kvpool_option_set(const struct kvpool_option *option, const char *value,
		      struct kvpool_options *to, char error[KVPOOL_OPTIONS_ERROR_BYTES])
{
	void *place = (char *)to + option->offset;
	char allowed[256] = "";
	bool good = false;
	int r = 0;

	switch (option->type) {
	case KVPOOL_OPTION_FLAG:
		*(bool *)place = good = true;
		break;
	case KVPOOL_OPTION_PATH:
		r = set_path(value, place);
		good = r == 0;
		break;
	case KVPOOL_OPTION_SIZE:
		good = kvpool_size_parse(value, place) == 0;
		break;
	case KVPOOL_OPTION_BYTES:
		good = set_bytes(option, value, place);
		break;
	case KVPOOL_OPTION_NUMBER:
		good = set_number(option, value, place);
		break;
	case KVPOOL_OPTION_SECONDS:
		good = set_seconds(option, value, place);
		break;
	case KVPOOL_OPTION_BOOL:
		good = set_bool(value, place);
		break;
	case KVPOOL_OPTION_CHOICE:
		good = set_choice(option, value, place);
		break;
	}
	if (good || r < 0)
		return r;
	kvpool_option_allowed(option, allowed, sizeof(allowed));
	(void)snprintf(error, KVPOOL_OPTIONS_ERROR_BYTES, "\"%.80s\" is not allowed; allowed: %s",
		       value, allowed);
	return KVPOOL_OPTIONS_E_USAGE;
}
