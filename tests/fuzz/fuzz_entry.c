/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes what a client can write into its channel: an input is a program of steps of a hostile
 * client (requests well-formed and not, keys, handles that it got, scribbles over rings, control
 * words and arena). An honest client of the same domain holds a lease all the while.
 *
 * After every step the honest client is served and its leased bytes are as it wrote them; at the
 * end the cache checks out and, with both clients gone, every byte of the pool is free.
 * Whatever the hostile one is granted it fills with garbage, as a writer may.
 */
#include "tests/fuzz/host.h"
#include "tests/fuzz/input.h"

#define LAYOUTS      4u
#define KEYS         32u /* different keys that an input can name */
#define HANDLES      32u
#define STEPS_MAX    400u
#define HONEST_KEYS  3u
#define HONEST_SLOT  4096u
#define ARENA_RESULT (32u << 10) /* where results go; keys lie before */

/* Layouts that the hostile client may register; the first is the honest one's. */
static const struct kvpool_wire_layout layouts[LAYOUTS] = {
	{.fingerprint = "honest",
	 .block_tokens = 16,
	 .n_groups = 1,
	 .n_shards = 1,
	 .groups = {{KVPOOL_GROUP_FULL, 0, HONEST_SLOT}}},
	{.fingerprint = "small",
	 .block_tokens = 4,
	 .n_groups = 2,
	 .n_shards = 3,
	 .groups = {{KVPOOL_GROUP_FULL, 0, 100}, {KVPOOL_GROUP_WINDOW, 9, 5000}}},
	{.fingerprint = "large",
	 .block_tokens = 1,
	 .n_groups = 1,
	 .n_shards = 2,
	 .groups = {{KVPOOL_GROUP_STATE, 0, 32768}}},
	{.fingerprint = "mixed",
	 .block_tokens = 64,
	 .n_groups = 3,
	 .n_shards = 64,
	 .groups = {{KVPOOL_GROUP_WINDOW, 100, 256},
		    {KVPOOL_GROUP_FULL, 0, 512},
		    {KVPOOL_GROUP_FULL, 0, 512}}},
};

struct run {
	struct kvpool_server *server;
	struct input in;
	bool shares; /* the hostile client knows the honest one's layout and keys */
	struct fuzz_client honest, hostile;
	uint16_t honest_layout;
	uint64_t honest_lease;
	struct kvpool_wire_block honest_blocks[HONEST_KEYS];
	/* What the hostile client learnt from replies. */
	uint16_t ids[LAYOUTS];
	uint32_t n_handles;
	struct kvpool_wire_handle handles[HANDLES];
	uint64_t leases[8];
	uint32_t n_leases;
	/* The last request, so that its reply can be understood. */
	uint8_t op;
	uint32_t group, n, result, layout;
};

static void key_make(uint32_t i, uint8_t key[KVPOOL_KEY_BYTES])
{
	memset(key, 0x40 + (int)i, KVPOOL_KEY_BYTES);
}

/* Keys of the honest client come first; the hostile one names them only where it shares. */
static uint32_t pick_key(struct run *r)
{
	uint32_t i = input_u8(&r->in) % KEYS;

	return r->shares ? i : HONEST_KEYS + i;
}

static void stamp(uint8_t *bytes, uint32_t i)
{
	memset(bytes, 0xa0 + (int)i, HONEST_SLOT);
}

static void honest_check(struct run *r)
{
	uint8_t expected[HONEST_SLOT];
	struct kvpool_request nop = {.op = KVPOOL_OP_NOP};
	struct kvpool_reply reply;

	FUZZ_EXPECT(fuzz_client_call(&r->honest, &nop, &reply) == KVPOOL_STATUS_OK);
	for (uint32_t i = 0; i < HONEST_KEYS; i++) {
		stamp(expected, i);
		FUZZ_EXPECT(memcmp(fuzz_host_bytes(r->server, &r->honest_blocks[i]), expected,
				   HONEST_SLOT) == 0);
	}
}

/* The blocks of the honest client's keys, leased; what it wrote, unless its layout is shared. */
static void honest_match(struct run *r, uint32_t expected)
{
	struct kvpool_request match = {
		.op = KVPOOL_OP_MATCH,
		.layout = r->honest_layout,
		.n = HONEST_KEYS,
		.result = ARENA_RESULT,
		.match = {.result_blocks = HONEST_KEYS},
	};
	struct kvpool_reply reply;

	for (uint32_t i = 0; i < HONEST_KEYS; i++)
		key_make(i, r->honest.arena + (size_t)i * KVPOOL_KEY_BYTES);
	FUZZ_EXPECT(fuzz_client_call(&r->honest, &match, &reply) == KVPOOL_STATUS_OK);
	FUZZ_EXPECT(reply.blocks == expected && reply.reported == expected);
	FUZZ_EXPECT(reply.lease != 0);
	r->honest_lease = reply.lease;
	memcpy(r->honest_blocks, r->honest.arena + ARENA_RESULT + sizeof(struct kvpool_wire_range),
	       sizeof(r->honest_blocks));
}

static uint16_t layout_register(struct fuzz_client *client, const struct kvpool_wire_layout *layout)
{
	struct kvpool_request request = {.op = KVPOOL_OP_LAYOUT, .result = ARENA_RESULT};
	struct kvpool_reply reply;

	memcpy(client->arena, layout, sizeof(*layout));
	FUZZ_EXPECT(fuzz_client_call(client, &request, &reply) == KVPOOL_STATUS_OK);
	return (uint16_t)reply.layout;
}

static void honest_store(struct run *r)
{
	struct kvpool_request reserve = {
		.op = KVPOOL_OP_RESERVE, .n = HONEST_KEYS, .result = ARENA_RESULT};
	struct kvpool_request commit = {
		.op = KVPOOL_OP_COMMIT, .flags = KVPOOL_REQUEST_ALL_SHARDS, .n = HONEST_KEYS};
	struct kvpool_wire_block blocks[HONEST_KEYS];
	struct kvpool_wire_handle handles[HONEST_KEYS] = {{0}};
	struct kvpool_reply reply;

	r->honest_layout = layout_register(&r->honest, &layouts[0]);
	reserve.layout = r->honest_layout;
	for (uint32_t i = 0; i < HONEST_KEYS; i++)
		key_make(i, r->honest.arena + (size_t)i * KVPOOL_KEY_BYTES);
	FUZZ_EXPECT(fuzz_client_call(&r->honest, &reserve, &reply) == KVPOOL_STATUS_OK);
	FUZZ_EXPECT(reply.granted == HONEST_KEYS);
	memcpy(blocks, r->honest.arena + ARENA_RESULT, sizeof(blocks));
	for (uint32_t i = 0; i < HONEST_KEYS; i++) {
		stamp(fuzz_host_bytes(r->server, &blocks[i]), i);
		handles[i].block = blocks[i].block;
		handles[i].generation = blocks[i].generation;
	}
	memcpy(r->honest.arena, handles, sizeof(handles));
	FUZZ_EXPECT(fuzz_client_call(&r->honest, &commit, &reply) == KVPOOL_STATUS_OK);
	FUZZ_EXPECT(reply.granted == HONEST_KEYS);
	honest_match(r, HONEST_KEYS);
}

/* A place that was granted: its writer may write whatever it likes there. */
static void use_block(struct run *r, const struct kvpool_wire_block *block)
{
	const struct kvpool_wire_layout *l = &layouts[r->layout];
	uint64_t stride =
		KVPOOL_ROUND_UP(l->groups[r->group].slot_bytes, (uint64_t)KVPOOL_UNIT_BYTES);

	if (block->block == 0)
		return;
	memset(fuzz_host_bytes(r->server, block), 0x55, stride * l->n_shards);
	r->handles[r->n_handles++ % HANDLES] =
		(struct kvpool_wire_handle){.block = block->block, .generation = block->generation};
}

static void learn(struct run *r, const struct kvpool_reply *reply)
{
	struct kvpool_wire_block block;

	FUZZ_EXPECT(reply->status < KVPOOL_STATUS_COUNT);
	FUZZ_EXPECT(reply->epoch == r->server->epoch);
	if (reply->id != r->hostile.next_id || reply->status != KVPOOL_STATUS_OK)
		return;
	switch (r->op) {
	case KVPOOL_OP_LAYOUT:
		r->ids[r->layout] = (uint16_t)reply->layout;
		break;
	case KVPOOL_OP_MATCH:
		r->leases[r->n_leases++ % KVPOOL_ARRAY_SIZE(r->leases)] = reply->lease;
		break;
	case KVPOOL_OP_RESERVE:
		if (r->n == 0)
			use_block(r, &reply->block);
		for (uint32_t i = 0; i < r->n; i++) {
			memcpy(&block, r->hostile.arena + r->result + i * sizeof(block),
			       sizeof(block));
			use_block(r, &block);
		}
		break;
	default:
		break;
	}
}

/* Publishes and is served; understands the replies where the request was one of ours. */
static void hostile_send(struct run *r, struct kvpool_request *request)
{
	struct kvpool_reply reply;

	request->id = ++r->hostile.next_id;
	fuzz_client_push(&r->hostile, request);
	fuzz_client_serve(&r->hostile);
	while (fuzz_client_pop(&r->hostile, &reply))
		learn(r, &reply);
}

static void put_keys(struct run *r, uint32_t at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		key_make(pick_key(r), r->hostile.arena + at + (size_t)i * KVPOOL_KEY_BYTES);
}

/* A request of this operation, well-formed but for what the input changes at the end. */
static void prepare(struct run *r, uint8_t op, struct kvpool_request *request)
{
	uint8_t flags = input_u8(&r->in);

	*request = (struct kvpool_request){.op = op};
	r->op = op;
	r->layout = input_u8(&r->in) % LAYOUTS;
	r->group = input_u8(&r->in) % layouts[r->layout].n_groups;
	request->layout = r->ids[r->layout];
	request->flags = flags & KVPOOL_REQUEST_FLAGS;
	r->n = 1 + flags % 24;
	request->n = r->n;
	r->result = ARENA_RESULT;
}

static void step_layout(struct run *r)
{
	struct kvpool_request request;
	struct kvpool_wire_layout wire;
	uint8_t change;

	prepare(r, KVPOOL_OP_LAYOUT, &request);
	if (r->layout == 0 && !r->shares)
		r->layout = 1;
	wire = layouts[r->layout];
	change = input_u8(&r->in);
	/* Beyond the fingerprint, so that it stays what it is. */
	if (change != 0) {
		size_t at = KVPOOL_FINGERPRINT_BYTES +
			    input_u32(&r->in) % (sizeof(wire) - KVPOOL_FINGERPRINT_BYTES);

		((uint8_t *)&wire)[at] ^= change;
		r->op = KVPOOL_OP_NOP;
	}
	memcpy(r->hostile.arena, &wire, sizeof(wire));
	request.flags = 0;
	request.n = 0;
	request.result = ARENA_RESULT;
	hostile_send(r, &request);
}

static void step_match(struct run *r)
{
	struct kvpool_request request;

	prepare(r, KVPOOL_OP_MATCH, &request);
	request.flags &=
		KVPOOL_REQUEST_NO_LEASE | KVPOOL_REQUEST_PENDING | KVPOOL_REQUEST_INLINE_KEY;
	request.skip = input_u8(&r->in) % 4;
	if (request.flags & KVPOOL_REQUEST_INLINE_KEY) {
		request.n = 1;
		key_make(pick_key(r), request.key);
	} else {
		put_keys(r, 0, request.n);
		request.result = ARENA_RESULT;
		request.match.result_blocks = 64;
	}
	hostile_send(r, &request);
}

static void step_reserve(struct run *r)
{
	struct kvpool_request request;
	uint32_t parents;

	prepare(r, KVPOOL_OP_RESERVE, &request);
	request.flags &= KVPOOL_REQUEST_HAS_PARENT | KVPOOL_REQUEST_INLINE_KEY;
	parents = request.flags & KVPOOL_REQUEST_HAS_PARENT ? 1 : 0;
	request.group = r->group;
	if (request.flags & KVPOOL_REQUEST_INLINE_KEY) {
		put_keys(r, 0, parents);
		request.n = 1;
		r->n = 0;
		key_make(pick_key(r), request.key);
	} else {
		put_keys(r, 0, parents + request.n);
		request.result = ARENA_RESULT;
		memset(r->hostile.arena + ARENA_RESULT, 0, r->n * sizeof(struct kvpool_wire_block));
	}
	hostile_send(r, &request);
}

/* COMMIT or ABORT of handles that were granted, now and then of one that was not. */
static void step_finish(struct run *r, uint8_t op)
{
	struct kvpool_request request;

	prepare(r, op, &request);
	request.flags &= op == KVPOOL_OP_COMMIT
				 ? KVPOOL_REQUEST_ALL_SHARDS | KVPOOL_REQUEST_HAS_CRC |
					   KVPOOL_REQUEST_INLINE_KEY
				 : KVPOOL_REQUEST_INLINE_KEY;
	request.n = 1 + request.n % 4;
	request.shard = input_u8(&r->in) % 4;
	for (uint32_t i = 0; i < request.n; i++) {
		struct kvpool_wire_handle handle = r->handles[input_u8(&r->in) % HANDLES];

		handle.generation += input_u8(&r->in) == 0xff;
		memcpy(r->hostile.arena + i * sizeof(handle), &handle, sizeof(handle));
		request.handle = handle;
	}
	if (request.flags & KVPOOL_REQUEST_INLINE_KEY)
		request.n = 1;
	else
		memset(request.key, 0, sizeof(request.key));
	hostile_send(r, &request);
}

static void step_release(struct run *r)
{
	struct kvpool_request request;

	prepare(r, KVPOOL_OP_RELEASE, &request);
	request.flags = 0;
	request.n = 0;
	request.keep = input_u8(&r->in) % 4;
	request.lease = r->leases[input_u8(&r->in) % KVPOOL_ARRAY_SIZE(r->leases)];
	/* The honest one's lease is nobody else's to give back. */
	if (input_u8(&r->in) == 1)
		request.lease = r->honest_lease;
	hostile_send(r, &request);
}

static void step_forget(struct run *r)
{
	struct kvpool_request request;

	prepare(r, KVPOOL_OP_FORGET, &request);
	request.flags &= KVPOOL_REQUEST_WHOLE_LAYOUT | KVPOOL_REQUEST_INLINE_KEY;
	request.group = r->group;
	if (request.flags & KVPOOL_REQUEST_INLINE_KEY) {
		request.n = 1;
		key_make(pick_key(r), request.key);
	} else {
		put_keys(r, 0, request.n);
	}
	hostile_send(r, &request);
}

static void step_wait(struct run *r)
{
	struct kvpool_request request;

	prepare(r, KVPOOL_OP_WAIT, &request);
	request.flags = KVPOOL_REQUEST_INLINE_KEY;
	request.n = 1;
	request.group = r->group;
	kvpool_request_set_timeout_ns(&request, input_u32(&r->in));
	key_make(pick_key(r), request.key);
	hostile_send(r, &request);
}

/* An entry as the input has it. Without a share in it, no fingerprint can be the honest one's. */
static void step_raw(struct run *r)
{
	struct kvpool_request request;

	input_bytes(&r->in, &request, sizeof(request));
	r->op = KVPOOL_OP_NOP;
	if (!r->shares && memcmp(r->hostile.arena, layouts[0].fingerprint, 6) == 0)
		memset(r->hostile.arena, 0, KVPOOL_FINGERPRINT_BYTES);
	hostile_send(r, &request);
}

/* Rings, control words, header: everything before the arena, with no regard to its meaning. */
static void step_scribble(struct run *r)
{
	uint64_t at = input_u32(&r->in) % r->hostile.geometry.arena;
	uint8_t n = input_u8(&r->in);

	n = (uint8_t)KVPOOL_MIN((uint64_t)n, r->hostile.geometry.arena - at);
	input_bytes(&r->in, r->hostile.memory + at, n);
	fuzz_client_serve(&r->hostile);
}

/* The words that mean most: an entry's position, the heads, the flags that say "asleep". */
static void step_words(struct run *r)
{
	struct fuzz_client *c = &r->hostile;
	uint64_t value = c->requests.tail + (uint64_t)(int8_t)input_u8(&r->in);
	uint32_t which = input_u8(&r->in);

	if (which & 0x80)
		value = input_u64(&r->in);
	switch (which % 4) {
	case 0:
		kvpool_store_relaxed(&c->requests.entries[which / 4 % 16].word, value);
		break;
	case 1:
		kvpool_store_relaxed(&c->replies.shared->head, value);
		break;
	case 2:
		kvpool_store_relaxed(&c->replies.shared->asleep, (uint32_t)value);
		break;
	default:
		kvpool_store_relaxed(&c->requests.consumer->asleep, (uint32_t)value);
		break;
	}
	fuzz_client_serve(c);
}

static void step_arena(struct run *r)
{
	uint64_t at = input_u32(&r->in) % (ARENA_RESULT / 2);

	input_bytes(&r->in, r->hostile.arena + at, input_u8(&r->in));
}

static void step(struct run *r)
{
	switch (input_u8(&r->in) % 13) {
	case 0:
		step_raw(r);
		break;
	case 1:
		step_layout(r);
		break;
	case 2:
	case 3:
		step_reserve(r);
		break;
	case 4:
		step_finish(r, KVPOOL_OP_COMMIT);
		break;
	case 5:
		step_finish(r, KVPOOL_OP_ABORT);
		break;
	case 6:
		step_match(r);
		break;
	case 7:
		step_release(r);
		break;
	case 8:
		step_forget(r);
		break;
	case 9:
		step_wait(r);
		break;
	case 10:
		step_scribble(r);
		break;
	case 11:
		step_words(r);
		break;
	default:
		step_arena(r);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run r = {.in = {data, size}};
	uint32_t steps = 0;

	r.server = fuzz_host_begin();
	fuzz_client_attach(r.server, &r.honest);
	fuzz_client_attach(r.server, &r.hostile);
	honest_store(&r);
	r.shares = input_u8(&r.in) & 1;
	while (input_more(&r.in) && steps++ < STEPS_MAX) {
		step(&r);
		honest_check(&r);
	}
	fuzz_host_look(r.server);
	fuzz_host_check(r.server);
	if (!r.shares)
		honest_match(&r, HONEST_KEYS);
	fuzz_client_detach(r.server, &r.hostile);
	honest_check(&r);
	fuzz_host_check(r.server);
	fuzz_client_detach(r.server, &r.honest);
	fuzz_host_end();
	return 0;
}
