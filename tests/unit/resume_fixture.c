/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client and a daemon that dies and comes back with the pool. See resume_fixture.h.
 *
 * One thread, beside the daemon's.
 */
#include "tests/unit/resume_fixture.h"

#include <stdio.h>

struct kvpool_fake fake;
struct kvpool *pool;
struct kvpool_channel *channel, *second;
struct kvpool_layout *layout;
const uint8_t keys[MANY * KVPOOL_KEY_SIZE] = {1};
const uint8_t token[KVPOOL_TOKEN_BYTES] = "the first token";
/* The daemon's thread counts; the test reads after an answer. */
static uint32_t granted;

void number(const struct kvpool_request *q, void *arena, struct kvpool_reply *a)
{
	if (q->op == KVPOOL_OP_MATCH)
		a->lease = ++granted;
	if (q->op != KVPOOL_OP_RESERVE)
		return;
	a->block = (struct kvpool_wire_block){.block = ++granted, .generation = 7, .segment = 1};
	for (uint32_t i = 0; !(q->flags & KVPOOL_REQUEST_INLINE_KEY) && i < q->n; i++) {
		struct kvpool_wire_block block = {
			.block = ++granted, .generation = 7, .segment = 1};

		memcpy((uint8_t *)arena + q->result + i * sizeof(block), &block, sizeof(block));
	}
}

void welcome_first(struct kvpool_welcome *w)
{
	memcpy(w->token, token, sizeof(w->token));
	w->client = 5;
	w->client_epoch = w->epoch;
}

void welcome_back(struct kvpool_welcome *w)
{
	welcome_first(w);
	w->client_epoch = 100;
	w->flags = KVPOOL_WELCOME_RESUMED;
}

void welcome_new(struct kvpool_welcome *w)
{
	welcome_first(w);
	memset(w->token, 0x33, sizeof(w->token));
	w->client = 6;
}

void resume(struct kvpool_fake *f)
{
	f->epoch++;
	f->welcome = welcome_back;
}

void begin_anew(struct kvpool_fake *f)
{
	f->epoch++;
	f->welcome = welcome_new;
}

void open_pool(const uint8_t *join)
{
	struct kvpool_options o = {.size = sizeof(o),
				   .deadline_ns = LONG_NS,
				   .flags = KVPOOL_OPEN_REQUIRE,
				   .join = join};
	struct kvpool_group_spec group = {.kind = KVPOOL_FULL, .slot_bytes = SLOT};
	struct kvpool_layout_spec spec = {.size = sizeof(spec),
					  .block_tokens = 16,
					  .n_shards = 2,
					  .n_groups = 1,
					  .groups = &group};

	fake.epoch = 100;
	fake.reply = number;
	if (!fake.welcome)
		fake.welcome = welcome_first;
	kvpool_fake_start(&fake);
	o.socket = fake.socket;
	ck_assert_int_eq(kvpool_open(&o, &pool), 0);
	ck_assert_int_eq(kvpool_channel_open(pool, &channel), 0);
	ck_assert_int_eq(kvpool_channel_open(pool, &second), 0);
	ck_assert_int_eq(kvpool_layout(pool, &spec, &layout), 0);
}

void setup(void)
{
	memset(&fake, 0, sizeof(fake));
	pool = NULL;
	granted = 0;
}

void setup_open(void)
{
	setup();
	open_pool(NULL);
}

void teardown(void)
{
	kvpool_close(pool);
	kvpool_fake_stop(&fake);
}

const struct kvpool_fake_log *read_log(void)
{
	static struct kvpool_fake_log copy;

	pthread_mutex_lock(&fake.lock);
	copy = fake.log;
	pthread_mutex_unlock(&fake.lock);
	return &copy;
}

int call(void)
{
	return kvpool_wait(channel, layout, 0, keys, LONG_NS);
}

void die(void (*change)(struct kvpool_fake *f))
{
	kvpool_fake_next_life(&fake, change);
	ck_assert_int_eq(call(), -ENOTCONN);
}

void until_attached(void)
{
	for (int i = 0; call() != 0; i++) {
		ck_assert_int_lt(i, 5000);
		usleep(1000);
	}
}

/* Messages on the socket are read when there is nothing in the ring. */
void until_retired(void)
{
	for (int i = 0; read_log()->n_retired == 0 && i < 5000; i++)
		usleep(1000);
	ck_assert_uint_eq(read_log()->n_retired, 1);
}

struct kvpool_match take_lease(struct kvpool_block *block)
{
	struct kvpool_match match;

	ck_assert_int_eq(kvpool_match(channel, layout, keys, 1, 0, 0, LONG_NS, block, 1, &match),
			 1);
	return match;
}

struct kvpool_block take_block(void)
{
	struct kvpool_block block;

	ck_assert_int_eq(kvpool_reserve(channel, layout, 0, NULL, keys, 1, LONG_NS, &block), 1);
	return block;
}

uint32_t claims_of(const struct kvpool_fake_log *log, uint64_t lease,
		   const struct kvpool_block *block)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < log->n_claims; i++)
		n += block ? log->claims[i].lease == 0 && log->claims[i].block == block->block &&
				     log->claims[i].generation == block->generation
			   : log->claims[i].lease == lease;
	return n;
}

bool was_released(const struct kvpool_fake_log *log, uint64_t lease)
{
	for (uint32_t i = 0; i < log->n_released; i++)
		if (log->released[i] == lease)
			return true;
	return false;
}

bool is_mapped(const void *address)
{
	unsigned long from, to;
	bool yes = false;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)address >= from &&
		    (uintptr_t)address < to)
			yes = true;
	fclose(f);
	return yes;
}

int run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
