/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that lies. See fake_daemon.h.
 *
 * Runs in a thread of its own.
 */
#include "tests/unit/fake_daemon.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ENTRIES       64u
#define ARENA         65536u
#define SEGMENT_BYTES (UINT64_C(1) << 20)
#define EPOCH         UINT64_C(0x1234)

struct channel {
	struct kvpool_consumer requests;
	struct kvpool_producer replies;
	uint8_t *memory; /* owned mapping; NULL: none yet */
	uint64_t bytes;
	uint8_t *arena;
	int bell_in, bell_out; /* owned */
};

static uint64_t epoch_of(const struct kvpool_fake *fake)
{
	return fake->epoch ? fake->epoch : EPOCH;
}

static void send_message(int fd, const void *message, uint32_t bytes, const int *fds, uint32_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(3 * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	if (n > 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	/* A client that has had enough may be gone. */
	(void)sendmsg(fd, &msg, MSG_NOSIGNAL);
}

/* Memory of `bytes`, or what the knob makes of it. */
static int make_memory(enum kvpool_fake_memory how, uint64_t bytes)
{
	int fd;

	if (how == KVPOOL_FAKE_NO_MEMFD)
		return eventfd(0, EFD_CLOEXEC);
	fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 && ftruncate(fd, (off_t)(how == KVPOOL_FAKE_SHORT ? bytes / 2 : bytes)) == 0 &&
	    how != KVPOOL_FAKE_UNSEALED)
		(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	return fd;
}

static void lay_out(const struct kvpool_fake *fake, int fd, const struct kvpool_channel_geometry *g,
		    struct channel *ch)
{
	struct kvpool_channel_control *control;

	if (fake->channel == KVPOOL_FAKE_SHORT || fake->channel == KVPOOL_FAKE_NO_MEMFD)
		return;
	ch->bytes = g->total;
	ch->memory = mmap(NULL, g->total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ch->memory == MAP_FAILED)
		abort();
	ch->arena = ch->memory + g->arena;
	control = (struct kvpool_channel_control *)(void *)(ch->memory + g->control);
	kvpool_consumer_init(&ch->requests,
			     (struct kvpool_entry *)(void *)(ch->memory + g->requests),
			     &control->requests, g->entries, 0);
	kvpool_producer_init(&ch->replies, (struct kvpool_entry *)(void *)(ch->memory + g->replies),
			     &control->replies, g->entries, 0);
	if (fake->channel == KVPOOL_FAKE_GARBAGE)
		memset(ch->memory, 0xee, KVPOOL_HEADER_BYTES);
	else
		kvpool_channel_header_write((struct kvpool_header *)(void *)ch->memory, g,
					    epoch_of(fake), 0);
}

static void give_channel(const struct kvpool_fake *fake, int fd, struct channel *ch)
{
	struct kvpool_channel_grant grant = {.head = {KVPOOL_MESSAGE_CHANNEL, sizeof(grant)},
					     .ring_entries = ENTRIES,
					     .arena_bytes = ARENA};
	struct kvpool_channel_geometry g;
	int fds[3];

	if (kvpool_channel_geometry_make(ENTRIES, ARENA, &g) != 0)
		abort();
	grant.total_bytes = g.total;
	ch->bell_in = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ch->bell_out = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fds[0] = make_memory(fake->channel, g.total);
	fds[1] = ch->bell_in;
	fds[2] = ch->bell_out;
	lay_out(fake, fds[0], &g, ch);
	send_message(fd, &grant, sizeof(grant), fds,
		     fake->channel == KVPOOL_FAKE_ONE_FD_LESS ? 2 : 3);
	close(fds[0]);
}

static void give_segment(const struct kvpool_fake *fake, int fd,
			 const struct kvpool_segment_get *get)
{
	struct kvpool_segment_grant grant = {.head = {KVPOOL_MESSAGE_SEGMENT, sizeof(grant)},
					     .segment = get->segment,
					     .node = UINT32_MAX,
					     .bytes = SEGMENT_BYTES,
					     .page_shift = 12};
	struct kvpool_refused refused = {.head = {KVPOOL_MESSAGE_REFUSED, sizeof(refused)},
					 .reason = KVPOOL_REFUSAL_UNKNOWN};
	struct kvpool_welcome turn = {.head = {KVPOOL_MESSAGE_WELCOME, sizeof(turn)}};
	int memory = make_memory(fake->segment, SEGMENT_BYTES);

	if (fake->segment == KVPOOL_FAKE_WRONG_NUMBER)
		grant.segment++;
	if (fake->segment == KVPOOL_FAKE_WRONG_PAGES)
		grant.page_shift = 63;
	if (fake->segment == KVPOOL_FAKE_REFUSED_UNKNOWN)
		send_message(fd, &refused, sizeof(refused), NULL, 0);
	else if (fake->segment == KVPOOL_FAKE_OUT_OF_TURN)
		send_message(fd, &turn, sizeof(turn), NULL, 0);
	else
		send_message(fd, &grant, sizeof(grant), &memory,
			     fake->segment == KVPOOL_FAKE_ONE_FD_LESS ? 0 : 1);
	close(memory);
}

/* What a good daemon with one block would say. */
static void answer_well(const struct kvpool_request *q, uint8_t *arena, struct kvpool_reply *a)
{
	const struct kvpool_wire_block block = {.block = 1, .generation = 1, .segment = 1};
	const struct kvpool_wire_range range = {.count = 1};
	bool single = (q->flags & KVPOOL_REQUEST_INLINE_KEY) != 0;
	struct kvpool_wire_layout layout;

	switch (q->op) {
	case KVPOOL_OP_LAYOUT:
		memcpy(&layout, arena + q->keys, sizeof(layout));
		for (uint32_t g = 0; g < layout.n_groups && g < KVPOOL_GROUPS_MAX; g++)
			memcpy(arena + q->result + 8 * (size_t)g,
			       &(uint64_t){KVPOOL_ROUND_UP(layout.groups[g].slot_bytes, 256)}, 8);
		break;
	case KVPOOL_OP_MATCH:
		a->blocks = a->reported = 1;
		a->lease = 77;
		a->block = block;
		if (!single) {
			memcpy(arena + q->result, &range, sizeof(range));
			memcpy(arena + q->result + sizeof(range), &block, sizeof(block));
		}
		break;
	case KVPOOL_OP_RESERVE:
		a->granted = 1;
		a->block = block;
		if (!single) {
			memset(arena + q->result, 0, q->n * sizeof(block));
			memcpy(arena + q->result, &block, sizeof(block));
		}
		break;
	default:
		a->granted = q->n;
	}
}

static void note_claims(struct kvpool_fake_log *log, const struct kvpool_request *q,
			const uint8_t *arena)
{
	log->claim_calls++;
	log->last_calls += (q->flags & KVPOOL_REQUEST_LAST) != 0;
	if (log->n_claims + q->n > KVPOOL_ARRAY_SIZE(log->claims))
		abort();
	memcpy(&log->claims[log->n_claims], arena + q->keys, q->n * sizeof(log->claims[0]));
	log->n_claims += q->n;
}

static void note_aborts(struct kvpool_fake_log *log, const struct kvpool_request *q,
			const uint8_t *arena)
{
	for (uint32_t i = 0; i < q->n && log->n_aborted < KVPOOL_ARRAY_SIZE(log->aborted); i++) {
		struct kvpool_wire_handle *to = &log->aborted[log->n_aborted++];

		if (q->flags & KVPOOL_REQUEST_INLINE_KEY)
			*to = q->handle;
		else
			memcpy(to, arena + q->keys + i * sizeof(*to), sizeof(*to));
	}
}

static void note(struct kvpool_fake *fake, const struct kvpool_request *q, const uint8_t *arena)
{
	struct kvpool_fake_log *log = &fake->log;

	pthread_mutex_lock(&fake->lock);
	if (q->op == KVPOOL_OP_CLAIM)
		note_claims(log, q, arena);
	if (q->op == KVPOOL_OP_ABORT)
		note_aborts(log, q, arena);
	if (q->op == KVPOOL_OP_RELEASE && log->n_released < KVPOOL_ARRAY_SIZE(log->released))
		log->released[log->n_released++] = q->lease;
	pthread_mutex_unlock(&fake->lock);
}

static void note_retired(struct kvpool_fake *fake, const struct kvpool_retire *retire)
{
	struct kvpool_fake_log *log = &fake->log;

	pthread_mutex_lock(&fake->lock);
	if (log->n_retired < KVPOOL_ARRAY_SIZE(log->retired))
		memcpy(log->retired[log->n_retired++], retire->token, sizeof(retire->token));
	pthread_mutex_unlock(&fake->lock);
}

/* False: hangs up. */
static bool serve(struct kvpool_fake *fake, struct channel *ch)
{
	struct kvpool_request request;

	while (ch->memory && kvpool_consumer_pop(&ch->requests, &request)) {
		struct kvpool_reply reply = {.id = request.id, .epoch = epoch_of(fake)};

		kvpool_consumer_publish_head(&ch->requests);
		note(fake, &request, ch->arena);
		if (request.op == KVPOOL_OP_RELEASE)
			continue;
		if (request.op == KVPOOL_OP_CLAIM && fake->hang_up_at_claim)
			return false;
		answer_well(&request, ch->arena, &reply);
		if (fake->reply)
			fake->reply(&request, ch->arena, &reply);
		kvpool_producer_push(&ch->replies, &reply);
		if (kvpool_producer_must_ring(&ch->replies))
			(void)!write(ch->bell_out, &(uint64_t){1}, 8);
	}
	return true;
}

/* HELLO to CHANNEL. False: the client has gone. */
static bool shake_hands(struct kvpool_fake *fake, int fd, struct channel *ch)
{
	struct kvpool_hello hello = {.head = {KVPOOL_MESSAGE_HELLO, sizeof(hello)},
				     .magic = KVPOOL_PROTOCOL_MAGIC,
				     .version_min = KVPOOL_PROTOCOL_MIN,
				     .version_max = KVPOOL_PROTOCOL_MAX,
				     .features = KVPOOL_FEATURES,
				     .ring_entries_max = ENTRIES,
				     .arena_bytes_max = ARENA,
				     .epoch = epoch_of(fake)};
	struct kvpool_welcome welcome = {.head = {KVPOOL_MESSAGE_WELCOME, sizeof(welcome)},
					 .version = 1,
					 .features = KVPOOL_FEATURES,
					 .epoch = epoch_of(fake),
					 .client = 1};

	if (fake->hello)
		fake->hello(&hello);
	send_message(fd, &hello, fake->hello_bytes ? fake->hello_bytes : sizeof(hello), &fd,
		     fake->hello_with_fd);
	if (recv(fd, &fake->attach, sizeof(fake->attach), 0) != (ssize_t)sizeof(fake->attach))
		return false;
	/* F1 -> F2: the message that was received. */
	atomic_fetch_add_explicit(&fake->attaches, 1, memory_order_release);
	if (fake->refuse) {
		send_message(fd, fake->refuse, sizeof(*fake->refuse), NULL, 0);
		if (fake->refuse_once)
			fake->refuse = NULL;
		return false;
	}
	if (fake->welcome)
		fake->welcome(&welcome);
	if (!fake->no_welcome)
		send_message(fd, &welcome, sizeof(welcome), NULL, 0);
	give_channel(fake, fd, ch);
	return true;
}

/* What a client says later on. There is one channel, and no more. False: it has gone. */
static bool listen_to(struct kvpool_fake *fake, int fd)
{
	static const struct kvpool_refused limit = {.head = {KVPOOL_MESSAGE_REFUSED, sizeof(limit)},
						    .reason = KVPOOL_REFUSAL_LIMIT};
	union {
		struct kvpool_message head;
		struct kvpool_segment_get get;
		struct kvpool_retire retire;
		uint8_t bytes[KVPOOL_MESSAGE_BYTES_MAX];
	} said;

	if (recv(fd, &said, sizeof(said), 0) <= 0)
		return false;
	if (said.head.type == KVPOOL_MESSAGE_SEGMENT_GET)
		give_segment(fake, fd, &said.get);
	if (said.head.type == KVPOOL_MESSAGE_CHANNEL_GET)
		send_message(fd, &limit, sizeof(limit), NULL, 0);
	/* Both begin alike. */
	if (said.head.type == KVPOOL_MESSAGE_RETIRE ||
	    said.head.type == KVPOOL_MESSAGE_RETIRE_MEMBER)
		note_retired(fake, &said.retire);
	return true;
}

static void converse(struct kvpool_fake *fake, int fd)
{
	struct channel ch = {.bell_in = -1, .bell_out = -1};
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (shake_hands(fake, fd, &ch)) {
		while (!atomic_load(&fake->stop) && !atomic_load(&fake->over)) {
			if (!serve(fake, &ch))
				break;
			if (poll(&p, 1, 1) != 0 && !listen_to(fake, fd))
				break;
		}
	}
	if (ch.memory)
		munmap(ch.memory, ch.bytes);
	if (ch.bell_in >= 0)
		close(ch.bell_in);
	if (ch.bell_out >= 0)
		close(ch.bell_out);
}

static void *run(void *cookie)
{
	struct kvpool_fake *fake = cookie;
	struct pollfd p = {.fd = fake->listener, .events = POLLIN};

	while (!atomic_load(&fake->stop)) {
		int fd;

		/* F3 <- F3: the knobs; and back: nothing of the old life is read any more. */
		if (atomic_load_explicit(&fake->over, memory_order_acquire))
			atomic_store_explicit(&fake->over, false, memory_order_release);
		if (atomic_load(&fake->held) || poll(&p, 1, 1) <= 0)
			continue;
		fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		converse(fake, fd);
		close(fd);
	}
	return NULL;
}

void kvpool_fake_start(struct kvpool_fake *fake)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	ck_assert_int_eq(pthread_mutex_init(&fake->lock, NULL), 0);
	strcpy(fake->folder, "/tmp/kvpool-fake-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(fake->folder));
	snprintf(fake->socket, sizeof(fake->socket), "%s/kvpool.sock", fake->folder);
	memcpy(at.sun_path, fake->socket, sizeof(fake->socket));
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fake->listener, 0);
	ck_assert_int_eq(bind(fake->listener, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(fake->listener, 8), 0);
	ck_assert_int_eq(pthread_create(&fake->thread, NULL, run, fake), 0);
}

static void hang_up(struct kvpool_fake *fake)
{
	/* F3: and back. */
	atomic_store_explicit(&fake->over, true, memory_order_release);
	while (atomic_load_explicit(&fake->over, memory_order_acquire))
		usleep(100);
}

void kvpool_fake_next_life(struct kvpool_fake *fake, void (*change)(struct kvpool_fake *fake))
{
	atomic_store(&fake->held, true);
	hang_up(fake);
	if (change)
		change(fake);
	atomic_store(&fake->held, false);
}

void kvpool_fake_stop(struct kvpool_fake *fake)
{
	if (fake->listener < 0)
		return;
	atomic_store(&fake->stop, true);
	pthread_join(fake->thread, NULL);
	pthread_mutex_destroy(&fake->lock);
	close(fake->listener);
	fake->listener = -1;
	unlink(fake->socket);
	rmdir(fake->folder);
}
