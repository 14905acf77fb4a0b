/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes as people write and read them: "1.5G", "50%", "20.9 GiB". Pure; usable from any thread.
 */
#include "daemon/sizing.h"

#include "shm/base.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FRACTION_DIGITS_MAX 6

static const char letters[] = "KMGT";

/* "", "B", "K", "KB", "KiB" in any case: the power of two, or -1. */
static int suffix_shift(const char *text)
{
	const char *letter;

	if (text[0] == '\0' || strcasecmp(text, "B") == 0)
		return 0;
	letter = strchr(letters, toupper((unsigned char)text[0]));
	if (letter == NULL)
		return -1;
	if (text[1] != '\0' && strcasecmp(text + 1, "B") != 0 && strcasecmp(text + 1, "iB") != 0)
		return -1;
	return 10 * (int)(letter - letters + 1);
}

/* Digits of `*text`, which moves behind them; false where there is none or it is too large. */
static bool digits_read(const char **text, uint64_t *out)
{
	const char *at = *text;
	uint64_t value = 0;

	for (; isdigit((unsigned char)*at); at++) {
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return false;
	}
	if (at == *text)
		return false;
	*text = at;
	*out = value;
	return true;
}

int kvpool_size_parse(const char *text, struct kvpool_size *out)
{
	uint64_t whole, fraction = 0, scale = 1, bytes;
	const char *digits;
	int shift;

	if (!digits_read(&text, &whole))
		return -EINVAL;
	if (strcmp(text, "%") == 0) {
		if (whole == 0 || whole > 100)
			return -EINVAL;
		*out = (struct kvpool_size){.percent = (uint32_t)whole};
		return 0;
	}
	if (*text == '.') {
		digits = ++text;
		if (!digits_read(&text, &fraction) || text - digits > FRACTION_DIGITS_MAX)
			return -EINVAL;
		for (; digits < text; digits++)
			scale *= 10;
	}
	shift = suffix_shift(text);
	if (shift < 0 || (shift == 0 && scale > 1) || whole > UINT64_MAX >> shift)
		return -EINVAL;
	/* The fraction is below 2^20 and a unit at most 2^40: the product fits. */
	bytes = (whole << shift) + (fraction << shift) / scale;
	if (bytes == 0 || bytes < whole << shift)
		return -EINVAL;
	*out = (struct kvpool_size){.bytes = bytes};
	return 0;
}

const char *kvpool_size_format(uint64_t bytes, char *text, size_t text_bytes)
{
	uint64_t tenths;
	int unit = -1;
	int shift;

	while (unit + 1 < (int)strlen(letters) && bytes >> (10 * (unit + 2)) != 0)
		unit++;
	if (unit < 0) {
		(void)snprintf(text, text_bytes, bytes == 0 ? "0" : "%" PRIu64 " B", bytes);
		return text;
	}
	shift = 10 * (unit + 1);
	/* Rounded down, so that "at most" is never more than there is. */
	tenths = ((bytes & ((UINT64_C(1) << shift) - 1)) * 10) >> shift;
	if (tenths == 0)
		(void)snprintf(text, text_bytes, "%" PRIu64 " %ciB", bytes >> shift, letters[unit]);
	else
		(void)snprintf(text, text_bytes, "%" PRIu64 ".%" PRIu64 " %ciB", bytes >> shift,
			       tenths, letters[unit]);
	return text;
}
