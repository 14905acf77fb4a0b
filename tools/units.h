/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes, times and counts as people write and read them.
 *
 * Pure functions over their arguments, usable from any thread. A text is written to the caller's
 * buffer of KVPOOL_UNITS_BYTES, which is also returned, so that it can stand in a printf().
 */
#ifndef KVPOOL_TOOLS_UNITS_H
#define KVPOOL_TOOLS_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define KVPOOL_UNITS_BYTES 32

enum {
	KVPOOL_UNITS_E_NUMBER = 1, /* no number, or one out of its bounds */
	KVPOOL_UNITS_E_SUFFIX = 2, /* a number with something after it that is no unit */
};

/* "4096", "64K", "1.5G", "2GiB": powers of 1024; whole bytes. 0 or KVPOOL_UNITS_E_*. */
int kvpool_units_parse_size(const char *text, uint64_t *out);

/* A whole decimal number of min..max. 0 or KVPOOL_UNITS_E_*. */
int kvpool_units_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* "0 B", "640 KiB", "1020 MiB", "1.5 GiB". */
char *kvpool_units_bytes(uint64_t bytes, char *text);

/* "208 ns", "12.4 us", "1.2 s", "3 min", "2.5 h". */
char *kvpool_units_ns(uint64_t ns, char *text);

/* "12,031": a comma at each thousand. */
char *kvpool_units_count(uint64_t count, char *text);

/* "34.6 %", and "-" where there is nothing to divide by. */
char *kvpool_units_share(uint64_t part, uint64_t whole, char *text);

#endif
