/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of any release that does what it reads from stdin, a line each, and answers with a line:
 *
 *	put CHAIN N       reserves, writes and commits the chain: granted
 *	get CHAIN N       finds it, looks at every byte: blocks; "wrong" where one is
 *	fill CHAIN N      puts N chains from there on: those that were granted something
 *	look CHAIN N      gets N chains from there on: wrong ones
 *	lease CHAIN N     finds it and goes on holding it: blocks
 *	reserve CHAIN N   goes on holding that: granted
 *	mapped            of what is leased, as it lies in the memory: blocks with the right bytes
 *	load              the same through kvpool_load(): "right R stale S wrong W"
 *	scribble          writes to what is reserved, as it lies in the memory: blocks
 *	commit            what was reserved: blocks, or a negative errno
 *	release           gives back all that is held, and calls once more: 0
 *
 * A call that finds no daemon is made again, for 30 s. Compiled against the <kvpool.h> of each
 * release. One thread.
 */
#include "stamps.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define LONG_NS  UINT64_C(10000000000)
#define PATIENCE 3000 /* times 10 ms */

static struct kvpool *pool;
static struct kvpool_channel *channel;
static struct kvpool_layout *layout;

/* What is held. */
static struct kvpool_match match;
static struct kvpool_block leased[STAMPS_KEYS], reserved[STAMPS_KEYS];
static void *leased_at[STAMPS_KEYS], *reserved_at[STAMPS_KEYS];
static uint64_t leased_chain, reserved_chain;
static uint32_t n_leased, n_reserved;

static void fail(const char *what, int64_t r)
{
	(void)printf("%s: %" PRId64 " (%s)\n", what, r, kvpool_channel_error(channel));
	exit(1);
}

/* Whether to call again: there was no daemon. */
static int again(int64_t r, int *times)
{
	if ((r != -ENOTCONN && r != -ESTALE && r != -ETIMEDOUT) || ++*times > PATIENCE)
		return 0;
	(void)poll(NULL, 0, 10);
	return 1;
}

static int64_t find(uint64_t chain, uint32_t n, struct kvpool_block *blocks, struct kvpool_match *m)
{
	uint8_t keys[STAMPS_KEYS * KVPOOL_KEY_SIZE];
	int times = 0;
	int64_t r;

	stamps_keys(chain, 0, n, keys);
	do
		r = kvpool_match(channel, layout, keys, n, 0, 0, LONG_NS, blocks, n, m);
	while (again(r, &times));
	if (r < 0)
		fail("match", r);
	return r;
}

static uint32_t reserve(uint64_t chain, uint32_t n, struct kvpool_block *blocks)
{
	uint8_t keys[STAMPS_KEYS * KVPOOL_KEY_SIZE];
	int times = 0;
	int64_t r;

	stamps_keys(chain, 0, n, keys);
	do
		r = kvpool_reserve(channel, layout, 0, NULL, keys, n, LONG_NS, blocks);
	while (again(r, &times));
	if (r < 0)
		fail("reserve", r);
	return (uint32_t)r;
}

static int store(uint64_t chain, uint32_t i, const struct kvpool_block *block)
{
	uint64_t words[STAMPS_WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};

	stamps_write(chain, i, words);
	return kvpool_store(channel, layout, 0, block, 0, &piece, 1);
}

/* 1: right; 0: wrong; a negative errno. */
static int load(uint64_t chain, uint32_t i, const struct kvpool_block *block)
{
	uint64_t words[STAMPS_WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	int r = kvpool_load(channel, layout, 0, block, 0, &piece, 1);

	return r < 0 ? r : stamps_right(chain, i, words);
}

static uint32_t put(uint64_t chain, uint32_t n)
{
	struct kvpool_block blocks[STAMPS_KEYS];
	uint32_t granted = reserve(chain, n, blocks);
	int64_t r;

	for (uint32_t i = 0; i < n; i++) {
		if (blocks[i].block == 0)
			continue;
		r = store(chain, i, &blocks[i]);
		if (r != 0)
			fail("store", r);
	}
	if (granted == 0)
		return 0;
	r = kvpool_commit(channel, blocks, n, KVPOOL_ALL_SHARDS, LONG_NS);
	if (r < 0)
		fail("commit", r);
	return granted;
}

/* -1: wrong. */
static int64_t get(uint64_t chain, uint32_t n)
{
	struct kvpool_block blocks[STAMPS_KEYS];
	struct kvpool_match m;
	int64_t hit = find(chain, n, blocks, &m);

	for (uint32_t i = 0; i < m.reported; i++) {
		int r = load(chain, i, &blocks[i]);

		if (r < 0)
			fail("load", r);
		if (r == 0)
			hit = -1;
	}
	kvpool_release(channel, &m, 0);
	return hit;
}

static int64_t fill(uint64_t chain, uint32_t n)
{
	int64_t granted = 0;

	for (uint32_t i = 0; i < n; i++)
		granted += put(chain + i, STAMPS_KEYS) > 0;
	return granted;
}

static int64_t look(uint64_t chain, uint32_t n)
{
	int64_t wrong = 0;

	for (uint32_t i = 0; i < n; i++)
		wrong += get(chain + i, STAMPS_KEYS) < 0;
	return wrong;
}

static void point(const struct kvpool_block *blocks, uint32_t n, void **at)
{
	for (uint32_t i = 0; i < n; i++) {
		int r = kvpool_pointer(channel, layout, 0, &blocks[i], 0, &at[i]);

		if (r != 0)
			fail("pointer", r);
	}
}

static int64_t lease(uint64_t chain, uint32_t n)
{
	n_leased = (uint32_t)find(chain, n, leased, &match);
	leased_chain = chain;
	point(leased, n_leased, leased_at);
	return n_leased;
}

static int64_t hold(uint64_t chain, uint32_t n)
{
	n_reserved = reserve(chain, n, reserved);
	if (n_reserved != n)
		fail("not all were granted", n_reserved);
	reserved_chain = chain;
	point(reserved, n_reserved, reserved_at);
	return n_reserved;
}

static int64_t mapped(void)
{
	int64_t right = 0;

	for (uint32_t i = 0; i < n_leased; i++)
		right += stamps_right(leased_chain, i, leased_at[i]);
	return right;
}

static void say_loads(void)
{
	uint32_t right = 0, stale = 0, wrong = 0;

	for (uint32_t i = 0; i < n_leased; i++) {
		int r = load(leased_chain, i, &leased[i]);

		right += r > 0;
		stale += r < 0;
		wrong += r == 0;
	}
	(void)printf("right %u stale %u wrong %u\n", right, stale, wrong);
}

static int64_t scribble(void)
{
	for (uint32_t i = 0; i < n_reserved; i++)
		stamps_write(reserved_chain, i, reserved_at[i]);
	return n_reserved;
}

static int64_t commit(void)
{
	int times = 0;
	int64_t r;

	do
		r = kvpool_commit(channel, reserved, n_reserved, KVPOOL_ALL_SHARDS, LONG_NS);
	while (r != -ESTALE && again(r, &times));
	if (r >= 0)
		n_reserved = 0;
	return r;
}

/* With the calls behind it a daemon hears of what is over. */
static int64_t let_go(void)
{
	if (n_leased)
		kvpool_release(channel, &match, 0);
	if (n_reserved)
		(void)kvpool_abort(channel, reserved, n_reserved, LONG_NS);
	n_leased = n_reserved = 0;
	(void)get(UINT64_MAX, 1);
	(void)get(UINT64_MAX, 1);
	return 0;
}

static int64_t count(const char *word, uint64_t chain, uint32_t n)
{
	if (strcmp(word, "put") == 0)
		return put(chain, n);
	if (strcmp(word, "get") == 0)
		return get(chain, n);
	if (strcmp(word, "fill") == 0)
		return fill(chain, n);
	if (strcmp(word, "look") == 0)
		return look(chain, n);
	if (strcmp(word, "lease") == 0)
		return lease(chain, n);
	if (strcmp(word, "reserve") == 0)
		return hold(chain, n);
	if (strcmp(word, "mapped") == 0)
		return mapped();
	if (strcmp(word, "scribble") == 0)
		return scribble();
	if (strcmp(word, "commit") == 0)
		return commit();
	if (strcmp(word, "release") == 0)
		return let_go();
	fail(word, -EINVAL);
	return -1;
}

int main(int argc, char *argv[])
{
	struct kvpool_options options = {.size = sizeof(options), .deadline_ns = LONG_NS};
	char line[128];

	if (argc != 2)
		return 2;
	options.socket = argv[1];
	if (kvpool_open(&options, &pool) != 0 || kvpool_channel_open(pool, &channel) != 0 ||
	    stamps_layout(pool, &layout) != 0)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long long chain = 0;
		unsigned int n = 0;
		char word[16] = "";

		(void)sscanf(line, "%15s %llu %u", word, &chain, &n);
		if (n > STAMPS_KEYS && strcmp(word, "look") != 0 && strcmp(word, "fill") != 0)
			return 2;
		if (strcmp(word, "load") == 0)
			say_loads();
		else
			(void)printf("%" PRId64 "\n", count(word, chain, n));
		(void)fflush(stdout);
	}
	kvpool_channel_close(channel);
	kvpool_close(pool);
	return 0;
}
