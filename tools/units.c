/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes, times and counts as people write and read them: see units.h.
 *
 * Pure functions, usable from any thread.
 */
#include "tools/units.h"

#include "shm/base.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The power of 1024 that a suffix stands for; -1 where it is none. */
static int suffix_power(const char *suffix)
{
	static const char units[] = "KMGT";
	const char *unit;

	while (*suffix == ' ')
		suffix++;
	if (*suffix == '\0' || strcasecmp(suffix, "B") == 0)
		return 0;
	unit = strchr(units, toupper((unsigned char)*suffix));
	if (unit == NULL)
		return -1;
	suffix++;
	if (*suffix != '\0' && strcasecmp(suffix, "B") != 0 && strcasecmp(suffix, "iB") != 0)
		return -1;
	return (int)(unit - units) + 1;
}

int kvpool_units_parse_size(const char *text, uint64_t *out)
{
	char *end;
	double value;
	int power;

	/* strtod() would take "inf", "nan", "0x10" and a sign. */
	if (!isdigit((unsigned char)text[0]) || text[strspn(text, "0123456789.")] == 'e' ||
	    text[strspn(text, "0123456789.")] == 'E' || strpbrk(text, "xX") != NULL)
		return KVPOOL_UNITS_E_NUMBER;
	value = strtod(text, &end);
	power = suffix_power(end);
	if (power < 0)
		return KVPOOL_UNITS_E_SUFFIX;
	value = ldexp(value, 10 * power);
	if (value >= 0x1p62 || value != floor(value))
		return KVPOOL_UNITS_E_NUMBER;
	*out = (uint64_t)value;
	return 0;
}

int kvpool_units_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	unsigned long long value;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return KVPOOL_UNITS_E_NUMBER;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end != '\0')
		return KVPOOL_UNITS_E_SUFFIX;
	if (errno != 0 || value < min || value > max)
		return KVPOOL_UNITS_E_NUMBER;
	*out = value;
	return 0;
}

/* Three digits, four for 1000 to 1023: 1.25, 12.5, 125; without zeros that say nothing. */
static char *three_digits(double value, const char *unit, char *text)
{
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
	char number[24];
	size_t length;

	snprintf(number, sizeof(number), "%.*f", decimals, value);
	if (strchr(number, '.') != NULL) {
		length = strlen(number);
		while (number[length - 1] == '0')
			number[--length] = '\0';
		if (number[length - 1] == '.')
			number[--length] = '\0';
	}
	snprintf(text, KVPOOL_UNITS_BYTES, "%s %s", number, unit);
	return text;
}

char *kvpool_units_bytes(uint64_t bytes, char *text)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes;
	size_t i = 0;

	while (value >= 1023.5 && i + 1 < KVPOOL_ARRAY_SIZE(units)) {
		value /= 1024;
		i++;
	}
	return three_digits(value, units[i], text);
}

char *kvpool_units_ns(uint64_t ns, char *text)
{
	static const struct {
		double below; /* in ns */
		double divisor;
		const char *unit;
	} units[] = {
		{999.5, 1, "ns"},         {999.5e3, 1e3, "us"},  {999.5e6, 1e6, "ms"},
		{120e9, 1e9, "s"},        {7200e9, 60e9, "min"}, {172800e9, 3600e9, "h"},
		{HUGE_VAL, 86400e9, "d"},
	};
	double value = (double)ns;
	size_t i = 0;

	while (value >= units[i].below)
		i++;
	return three_digits(value / units[i].divisor, units[i].unit, text);
}

char *kvpool_units_count(uint64_t count, char *text)
{
	char digits[24];
	int length = snprintf(digits, sizeof(digits), "%" PRIu64, count);
	char *to = text;
	int i;

	for (i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
	return text;
}

char *kvpool_units_share(uint64_t part, uint64_t whole, char *text)
{
	if (whole == 0)
		snprintf(text, KVPOOL_UNITS_BYTES, "-");
	else
		snprintf(text, KVPOOL_UNITS_BYTES, "%.1f %%", 100 * (double)part / (double)whole);
	return text;
}
