/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads numbers and bytes from a fuzzer's input; past its end everything is zero.
 *
 * Owned by the target; one thread.
 */
#ifndef KVPOOL_TESTS_FUZZ_INPUT_H
#define KVPOOL_TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct input {
	const uint8_t *at; /* borrowed */
	size_t left;
};

static inline bool input_more(const struct input *in)
{
	return in->left > 0;
}

static inline void input_bytes(struct input *in, void *out, size_t n)
{
	size_t some = n < in->left ? n : in->left;

	memset(out, 0, n);
	if (some > 0)
		memcpy(out, in->at, some);
	in->at += some;
	in->left -= some;
}

static inline uint8_t input_u8(struct input *in)
{
	uint8_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

static inline uint32_t input_u32(struct input *in)
{
	uint32_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

static inline uint64_t input_u64(struct input *in)
{
	uint64_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

#endif
