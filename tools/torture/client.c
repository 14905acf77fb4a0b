/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client process under torture: see client.h.
 */
#include "tools/torture/client.h"

#include "tools/torture/actor.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_NS      UINT64_C(200000000)
#define FILL_DEADLINE_NS UINT64_C(5000000000)
#define HOLD_MS          30u
#define WRITE_MAX        12u /* keys at a time */
#define ORPHAN_MS        100u

#define EXIT_SETUP 1

static struct kvpool_actor *actor_new(const struct kvpool_torture_client *spec,
				      uint64_t deadline_ns)
{
	struct kvpool_actor *actor = calloc(1, sizeof(*actor));

	if (!actor)
		return NULL;
	actor->books = spec->books;
	actor->slot = &spec->books->clients[spec->number];
	actor->socket = spec->socket;
	actor->deadline_ns = deadline_ns;
	actor->random = spec->seed;
	if (kvpool_actor_open(actor))
		return actor;
	free(actor);
	return NULL;
}

/* A child that inherited the handle: it is told so, and may free it. */
static void look_as_child(struct kvpool_actor *actor, uint32_t linger_ms)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint8_t key[KVPOOL_KEY_SIZE];
	int r;

	kvpool_shape_keys(0, 0, 0, 1, key);
	r = kvpool_wait(actor->channel, actor->layouts[0], 0, key, 0);
	if (r != -EOWNERDEAD)
		kvpool_books_fault(actor->books, "a forked child's call returned %d", r);
	for (uint32_t ms = 0; ms < linger_ms; ms++)
		nanosleep(&pause, NULL);
	kvpool_actor_close(actor);
	_exit(0);
}

/* While something is held: what the parent wants now. */
static void obey(struct kvpool_actor *actor)
{
	bool stay = kvpool_actor_ordered(actor, KVPOOL_ORDER_FORK_AND_STAY);
	pid_t child;

	if (kvpool_actor_ordered(actor, KVPOOL_ORDER_EXIT_HOLDING))
		_exit(0);
	if (!stay && !kvpool_actor_ordered(actor, KVPOOL_ORDER_FORK_AND_EXIT))
		return;
	child = fork();
	if (child == 0)
		look_as_child(actor, stay ? 1 : ORPHAN_MS);
	if (!stay)
		_exit(0);
	if (child > 0)
		(void)waitpid(child, NULL, 0);
}

/*
 * A call that goes through: what was given back unheard is told, and what an earlier life of the
 * daemon granted is claimed or ended.
 */
static void settle(struct kvpool_actor *actor)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	uint8_t keys[2 * KVPOOL_KEY_SIZE];
	struct kvpool_match match;

	kvpool_shape_keys(0, 0, 0, 2, keys);
	while (kvpool_match(actor->channel, actor->layouts[0], keys, 2, 0, KVPOOL_MATCH_NO_LEASE, 0,
			    NULL, 0, &match) < 0 &&
	       !atomic_load(&actor->books->stop))
		nanosleep(&pause, NULL);
}

static void rest(struct kvpool_actor *actor)
{
	const struct timespec pause = {.tv_nsec = 200000};

	settle(actor);
	atomic_store(&actor->slot->held, 0);
	atomic_store(&actor->slot->resting, 1);
	while (atomic_load(&actor->books->rest) && !atomic_load(&actor->books->stop))
		nanosleep(&pause, NULL);
	atomic_store(&actor->slot->resting, 0);
}

/* What is done rarely. */
static void something_else(struct kvpool_actor *actor, uint32_t shape, uint32_t chain)
{
	uint8_t key[KVPOOL_KEY_SIZE];
	int64_t r;

	kvpool_shape_keys(shape, chain, kvpool_actor_below(actor, KVPOOL_SHAPE_DEPTH), 1, key);
	switch (kvpool_actor_below(actor, 60)) {
	case 0:
		r = kvpool_forget(actor->channel, actor->layouts[shape], 0, key, 1, 0);
		if (r < 0)
			kvpool_actor_failed(actor, "forget", r);
		break;
	case 1:
	case 2:
		r = kvpool_wait(actor->channel, actor->layouts[shape], 0, key, 20000000);
		if (r < 0 && r != -ENOENT && r != -ECANCELED)
			kvpool_actor_failed(actor, "wait", r);
		break;
	case 3:
		kvpool_actor_close(actor);
		/* Its parent sees it end and starts another. */
		if (!kvpool_actor_open(actor))
			_exit(EXIT_SETUP);
		break;
	default:
		break;
	}
}

static void play_round(struct kvpool_actor *actor)
{
	uint32_t shape = kvpool_actor_below(actor, KVPOOL_SHAPES);
	uint32_t chain = kvpool_actor_below(actor, KVPOOL_SHAPE_CHAINS);
	uint32_t n = 1 + kvpool_actor_below(actor, KVPOOL_SHAPE_DEPTH);
	bool linger = kvpool_actor_below(actor, 8) == 0;
	struct kvpool_actor_hit hit;
	uint32_t found = kvpool_actor_find(actor, shape, chain, n, &hit);

	kvpool_actor_check(actor, &hit);
	obey(actor);
	if (found < n)
		kvpool_actor_write(actor, shape, chain, found, KVPOOL_MIN(n, found + WRITE_MAX),
				   linger);
	if (linger)
		kvpool_actor_linger(actor, HOLD_MS);
	obey(actor);
	kvpool_actor_check(actor, &hit);
	if (kvpool_actor_below(actor, 8) == 0)
		kvpool_actor_release(actor, &hit, found / 2);
	kvpool_actor_release(actor, &hit, 0);
	something_else(actor, shape, chain);
}

int kvpool_torture_client_run(const struct kvpool_torture_client *spec)
{
	struct kvpool_actor *actor = actor_new(spec, DEADLINE_NS);

	if (!actor)
		return EXIT_SETUP;
	while (!atomic_load(&spec->books->stop)) {
		if (atomic_load(&spec->books->rest))
			rest(actor);
		else
			play_round(actor);
	}
	kvpool_actor_close(actor);
	free(actor);
	return 0;
}

int kvpool_torture_client_fill(const struct kvpool_torture_client *spec)
{
	struct kvpool_actor *actor = actor_new(spec, FILL_DEADLINE_NS);
	struct kvpool_actor_hit hit;

	if (!actor)
		return EXIT_SETUP;
	for (uint32_t i = 0; i < KVPOOL_SHAPES * KVPOOL_SHAPE_CHAINS; i++) {
		uint32_t shape = i % KVPOOL_SHAPES, chain = i / KVPOOL_SHAPES;
		uint32_t found = kvpool_actor_find(actor, shape, chain, KVPOOL_SHAPE_DEPTH, &hit);

		kvpool_actor_check(actor, &hit);
		if (found < KVPOOL_SHAPE_DEPTH)
			kvpool_actor_write(actor, shape, chain, found, KVPOOL_SHAPE_DEPTH, false);
		kvpool_actor_release(actor, &hit, 0);
	}
	kvpool_actor_close(actor);
	free(actor);
	return 0;
}
