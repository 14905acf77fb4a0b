/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service turn: look at the hot channels, publish what they asked for, now and then look at
 * sockets and timers, and sleep when nobody has asked for a while.
 *
 * While awake nothing on the way of a request enters the kernel. Asleep nothing runs at all: every
 * channel is armed, so that its client rings, and timers run only where something needs one.
 */
#include "daemon/channel.h"
#include "daemon/clock.h"
#include "daemon/domain.h"
#include "daemon/peer.h"
#include "daemon/server.h"
#include "daemon/sigbus.h"

/* The caches' time is this coarse. */
#define TICK_NS (4 * KVPOOL_NS_PER_MS)
/* Turns without a request between two looks at the clock. */
#define IDLE_TURNS 16u
/* Turns with requests between two looks for channels that cooled down. */
#define SWEEP_TURNS 64u
/* A channel without a request for this long is not polled any more; or for a whole spin. */
#define COOL_NS (2 * KVPOOL_NS_PER_MS)
/* Between two looks at sockets and timers: with io_uring that is a load, with epoll a system call.
 */
#define LOOK_URING_NS KVPOOL_NS_PER_US
#define LOOK_EPOLL_NS (20 * KVPOOL_NS_PER_US)

static bool serve_hot(struct kvpool_server *s)
{
	bool any = false;
	uint32_t i = 0;

	while (i < s->n_hot) {
		struct kvpool_channel *ch = s->hot[i];

		if (kvpool_channel_serve(ch)) {
			any = true;
		} else if (KVPOOL_UNLIKELY(ch->closing)) {
			/* Another one takes its place in the list. */
			kvpool_channel_free(ch);
			continue;
		}
		i++;
	}
	return any;
}

/* Reads the clock; the caches are told when their coarser one moves. */
static void tick(struct kvpool_server *s)
{
	struct kvpool_list *node, *spare;

	s->now_ns = kvpool_clock_ns();
	if (s->now_ns < s->tick_ns)
		return;
	s->tick_ns = s->now_ns + TICK_NS;
	kvpool_list_each(node, spare, &s->domains)
		kvpool_cache_set_time(kvpool_list_entry(node, struct kvpool_domain, link)->cache,
				      s->now_ns / KVPOOL_NS_PER_MS);
}

/* Looks at one hot channel, in turn: without requests for long, it costs less when it rings. */
static void sweep(struct kvpool_server *s)
{
	uint64_t limit = KVPOOL_MAX(COOL_NS, s->config.spin_max_ns);
	struct kvpool_channel *ch;

	if (s->n_hot < 2)
		return;
	ch = s->hot[s->sweep++ % s->n_hot];
	if (s->now_ns - ch->last_ns > limit)
		(void)kvpool_channel_cool(ch);
}

/* Channels whose memory faulted under the daemon: their member made that, and it goes. */
static void drop_poisoned(struct kvpool_server *s)
{
	struct kvpool_list *pnode, *pspare, *cnode, *cspare;

	kvpool_list_each(pnode, pspare, &s->peers)
	{
		struct kvpool_peer *peer = kvpool_list_entry(pnode, struct kvpool_peer, link);
		bool poisoned = false;

		kvpool_list_each(cnode, cspare, &peer->channels)
		{
			poisoned |= kvpool_sigbus_poisoned(
				kvpool_list_entry(cnode, struct kvpool_channel, link)->guard);
		}
		if (poisoned)
			kvpool_peer_violate(peer, KVPOOL_VIOLATION_MEMORY, KVPOOL_REFUSAL_MESSAGE,
					    "the memory of a channel is gone");
	}
}

static void look(struct kvpool_server *s)
{
	if (kvpool_sigbus_count() != s->poisonings) {
		s->poisonings = kvpool_sigbus_count();
		drop_poisoned(s);
	}
	if (s->now_ns < s->look_ns)
		return;
	s->look_ns = s->now_ns + (kvpool_loop_kind(s->loop) == KVPOOL_LOOP_EPOLL ? LOOK_EPOLL_NS
										 : LOOK_URING_NS);
	(void)kvpool_loop_poll(s->loop, s->now_ns);
	kvpool_channel_ring_bells(s);
}

/* Arms every channel; sleeps unless a request came meanwhile. */
static void sleep_or_not(struct kvpool_server *s)
{
	uint32_t i;

	for (i = s->n_hot; i-- > 0;)
		(void)kvpool_channel_cool(s->hot[i]);
	if (s->n_hot > 0)
		return;
	s->counters.sleeps++;
	(void)kvpool_loop_wait(s->loop);
	tick(s);
	kvpool_channel_ring_bells(s);
}

void kvpool_server_run(struct kvpool_server *s)
{
	uint32_t idle = 0, busy = 0;

	while (!s->leave) {
		s->counters.turns++;
		if (serve_hot(s)) {
			/* The replies are out: from here on nobody waits for us. */
			tick(s);
			kvpool_spin_note(&s->spin, s->now_ns);
			idle = 0;
			if (++busy % SWEEP_TURNS == 0)
				sweep(s);
			look(s);
			continue;
		}
		if (s->n_hot > 0 && ++idle % IDLE_TURNS != 0)
			continue;
		tick(s);
		look(s);
		sweep(s);
		if (!s->leave && (s->n_hot == 0 || !kvpool_spin_awake(&s->spin, s->now_ns)))
			sleep_or_not(s);
	}
}
