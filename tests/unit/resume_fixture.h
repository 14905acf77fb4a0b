/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client and a daemon that dies and comes back with the pool, for the tests of what the client
 * makes of that.
 *
 * The daemon is a thread of the test (fake_daemon.h), and remembers nothing: what it should know is
 * what the test says. One client a process.
 */
#ifndef KVPOOL_TESTS_RESUME_FIXTURE_H
#define KVPOOL_TESTS_RESUME_FIXTURE_H

#include "client/kvpool.h"
#include "tests/unit/fake_daemon.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define LONG_NS UINT64_C(10000000000)
#define SLOT    4096u
#define MANY    1000u

extern struct kvpool_fake fake;
extern struct kvpool *pool;
extern struct kvpool_channel *channel, *second; /* the second has no memory of its own */
extern struct kvpool_layout *layout;
extern const uint8_t keys[MANY * KVPOOL_KEY_SIZE];
extern const uint8_t token[KVPOOL_TOKEN_BYTES];

void setup(void);
void setup_open(void);
void teardown(void);

/* `join`: as a member; NULL: as a client of its own. */
void open_pool(const uint8_t *join);

/* Another lease, or another block, with each answer. */
void number(const struct kvpool_request *q, void *arena, struct kvpool_reply *a);

/* To the client that attached first: in the life of that, and in a later one. */
void welcome_first(struct kvpool_welcome *w);
void welcome_back(struct kvpool_welcome *w);
void welcome_new(struct kvpool_welcome *w);

/* The next life: lets the client resume, or does not know it. */
void resume(struct kvpool_fake *f);
void begin_anew(struct kvpool_fake *f);

/* What came, as far as the daemon has written it down; until the next call. */
const struct kvpool_fake_log *read_log(void);

/* Any call. */
int call(void);

/* The daemon dies; the client finds that out, and no more. */
void die(void (*change)(struct kvpool_fake *f));
void until_attached(void);
void until_retired(void);

struct kvpool_match take_lease(struct kvpool_block *block);
struct kvpool_block take_block(void);

/* How often the lease, or the block, was claimed. */
uint32_t claims_of(const struct kvpool_fake_log *log, uint64_t lease,
		   const struct kvpool_block *block);
bool was_released(const struct kvpool_fake_log *log, uint64_t lease);

/* Does this process map that address? */
bool is_mapped(const void *address);

int run(Suite *suite);

#endif
