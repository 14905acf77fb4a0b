/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and closing a handle, and what can be asked of it.
 *
 * Any thread, except that kvpool_close() comes last.
 */
#include "client/channel.h"
#include "client/layout.h"
#include "client/pool.h"
#include "client/untold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_NS  UINT64_C(50000000)
#define SPIN_NS      UINT64_C(50000)
#define RING_ENTRIES 64u
#define ARENA_BYTES  (UINT64_C(2) << 20)

/* A caller of another version: what it does not know is 0, what this one does not know must be. */
static int read_options(const struct kvpool_options *given, struct kvpool_options *out)
{
	struct kvpool_options o = {.size = sizeof(o)};

	if (given) {
		if (given->size < sizeof(given->size))
			return -EINVAL;
		for (size_t i = sizeof(o); i < given->size; i++)
			if (((const uint8_t *)given)[i] != 0)
				return -EINVAL;
		memcpy(&o, given, KVPOOL_MIN(given->size, sizeof(o)));
	}
	o.deadline_ns = o.deadline_ns ? o.deadline_ns : DEADLINE_NS;
	o.spin_ns = o.spin_ns ? o.spin_ns : SPIN_NS;
	o.ring_entries = o.ring_entries ? o.ring_entries : RING_ENTRIES;
	o.arena_bytes = o.arena_bytes ? o.arena_bytes : ARENA_BYTES;
	if (o.flags & ~(uint32_t)(KVPOOL_OPEN_READ_ONLY | KVPOOL_OPEN_REQUIRE))
		return -EINVAL;
	if (!KVPOOL_IS_POW2(o.ring_entries) || o.ring_entries < KVPOOL_RING_ENTRIES_MIN ||
	    o.ring_entries > KVPOOL_RING_ENTRIES_MAX)
		return -EINVAL;
	if (o.arena_bytes < KVPOOL_ARENA_MIN || o.arena_bytes > KVPOOL_ARENA_MAX)
		return -EINVAL;
	*out = o;
	return 0;
}

static void copy_name(const char *name, char out[KVPOOL_NAME_BYTES])
{
	size_t n = strnlen(name, KVPOOL_NAME_BYTES - 1);

	memcpy(out, name, n);
	for (size_t i = 0; i < n; i++)
		if (out[i] < ' ' || out[i] > '~')
			out[i] = '?';
}

static int make_wish(const struct kvpool_options *o, struct kvpool_wish *wish)
{
	copy_name(o->name ? o->name : program_invocation_short_name, wish->name);
	wish->ring_entries = o->ring_entries;
	wish->arena_bytes = KVPOOL_ROUND_UP(o->arena_bytes, 4096);
	wish->read_only = (o->flags & KVPOOL_OPEN_READ_ONLY) != 0;
	wish->join = o->join != NULL;
	if (o->join)
		memcpy(wish->token, o->join, sizeof(wish->token));
	return kvpool_places_find(o->socket, &wish->places);
}

static int make_locks(struct kvpool *pool)
{
	int r = kvpool_owner_init(&pool->owner);

	if (r != 0)
		return r;
	r = kvpool_gate_init(&pool->attach_gate);
	if (r != 0) {
		kvpool_owner_fini(&pool->owner);
		return r;
	}
	r = -pthread_mutex_init(&pool->lock, NULL);
	if (r != 0) {
		kvpool_gate_fini(&pool->attach_gate);
		kvpool_owner_fini(&pool->owner);
	}
	return r;
}

static void destroy(struct kvpool *pool)
{
	pthread_mutex_destroy(&pool->lock);
	kvpool_gate_fini(&pool->attach_gate);
	kvpool_owner_fini(&pool->owner);
	explicit_bzero(&pool->wish, sizeof(pool->wish));
	explicit_bzero(&pool->attempt, sizeof(pool->attempt));
	free(pool);
}

/* A first attempt. What it fails with matters only to those who require a daemon. */
static int try_attach(struct kvpool *pool)
{
	struct kvpool_deadline deadline = kvpool_deadline_make(0, pool->deadline_ns);
	struct kvpool_failure failure;
	struct kvpool_session *session;
	int r;

	kvpool_failure_init(&failure);
	r = kvpool_pool_enter(pool, &deadline, &failure, &session);
	if (r == 0)
		kvpool_pool_leave(pool, session);
	return r == -EACCES || r == -EPROTO || r == -ENOMEM || r == 0 ? r : -ENOTCONN;
}

int kvpool_open(const struct kvpool_options *options, struct kvpool **out)
{
	struct kvpool_options o;
	struct kvpool *pool;
	int r = read_options(options, &o);

	if (r != 0)
		return r;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	r = make_wish(&o, &pool->wish);
	if (r == 0)
		r = make_locks(pool);
	if (r != 0) {
		free(pool);
		return r;
	}
	kvpool_failure_init(&pool->failure);
	pool->deadline_ns = o.deadline_ns;
	pool->spin_ns = o.spin_ns;
	atomic_init(&pool->shared, pool->wish.join);
	r = try_attach(pool);
	if (r != 0 && (o.flags & KVPOOL_OPEN_REQUIRE)) {
		kvpool_close(pool);
		return r;
	}
	*out = pool;
	return 0;
}

/* Everything that is held in the session is owed now. Returns whether that is anything. */
static bool owe_all(struct kvpool_session *session)
{
	uint32_t owed;

	kvpool_ledger_owe_all(&session->orphans);
	owed = kvpool_ledger_owed(&session->orphans);
	for (struct kvpool_link *link = session->links; link; link = link->next) {
		kvpool_ledger_owe_all(&link->ledger);
		owed += kvpool_ledger_owed(&link->ledger);
		/* A late answer may bring more. */
		owed += link->n_late;
	}
	return owed > 0;
}

static int pay_link(struct kvpool *pool, struct kvpool_link *through, struct kvpool_ledger *ledger,
		    struct kvpool_deadline *deadline)
{
	struct kvpool_request request;
	struct kvpool_reply reply;
	int r;

	do {
		r = kvpool_link_pay(through, ledger, pool->spin_ns, deadline, &pool->failure);
		if (r == 0)
			r = kvpool_link_settle(through, true, pool->spin_ns, deadline,
					       &pool->failure);
		request = (struct kvpool_request){.op = KVPOOL_OP_NOP};
		/* Its answer says that the RELEASEs before it were taken. */
		if (r == 0)
			r = kvpool_link_call(through, &request, pool->spin_ns, deadline,
					     &pool->failure, &reply);
	} while (r == 0 && kvpool_ledger_owed(ledger) > 0);
	return r;
}

/*
 * Other members may live on, so the daemon would keep what this process took: gives it back. Best
 * effort, within one deadline; with the last member the daemon ends it all anyway.
 */
static void give_back(struct kvpool *pool, struct kvpool_session *session)
{
	struct kvpool_deadline deadline = kvpool_deadline_make(0, pool->deadline_ns);
	struct kvpool_link *link;
	int r = 0;

	if (!owe_all(session))
		return;
	if (!session->links)
		r = kvpool_pool_lend(pool, session, NULL, &deadline, &pool->failure, &link);
	for (link = session->links; link && r == 0; link = link->next) {
		r = kvpool_link_settle(link, true, pool->spin_ns, &deadline, &pool->failure);
		if (r == 0)
			r = pay_link(pool, link, &link->ledger, &deadline);
	}
	if (r == 0 && session->links)
		(void)pay_link(pool, session->links, &session->orphans, &deadline);
}

static void free_session(struct kvpool_session *session, bool forked)
{
	while (session->links) {
		struct kvpool_link *link = session->links;

		session->links = link->next;
		kvpool_link_free(link, forked);
	}
	kvpool_session_free(session, forked);
}

/*
 * What was granted in lives that are over is let go of. The daemon is told once the last session of
 * a life is unmapped.
 */
static void let_go(struct kvpool *pool)
{
	struct kvpool_session **at = &pool->sessions;

	if (pool->session && kvpool_session_lost(pool->session))
		pool->session = NULL;
	for (struct kvpool_session *s = pool->sessions; s; s = s->next)
		if (kvpool_session_lost(s))
			kvpool_session_unmap(s);
	while (*at) {
		struct kvpool_session *s = *at;

		if (!kvpool_session_lost(s)) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		if (!kvpool_pool_told(pool, s))
			kvpool_untold_add(s);
		free_session(s, false);
	}
}

static void free_all(struct kvpool *pool, bool forked)
{
	while (pool->channels) {
		struct kvpool_channel *channel = pool->channels;

		pool->channels = channel->next;
		free(channel);
	}
	while (pool->layouts) {
		struct kvpool_layout *layout = pool->layouts;

		pool->layouts = layout->next;
		free(layout);
	}
	while (pool->sessions) {
		struct kvpool_session *session = pool->sessions;

		pool->sessions = session->next;
		free_session(session, forked);
	}
	kvpool_attach_cancel(&pool->attempt);
}

void kvpool_close(struct kvpool *pool)
{
	bool forked;

	if (!pool)
		return;
	forked = kvpool_pool_check(pool) != 0;
	/* A thread that was left behind in the parent may have been changing the lists. */
	if (forked && pthread_mutex_trylock(&pool->lock) != 0)
		return;
	if (!forked && pool->session && !kvpool_session_lost(pool->session))
		give_back(pool, pool->session);
	if (!forked)
		let_go(pool);
	/* The daemon may die before it sees that, with this handle in the memory that it leaves. */
	if (!forked && pool->session && pool->session->features & KVPOOL_FEATURE_RESUME)
		kvpool_untold_add(pool->session);
	free_all(pool, forked);
	if (forked)
		pthread_mutex_unlock(&pool->lock);
	destroy(pool);
}

int kvpool_attached(struct kvpool *pool)
{
	bool attached;

	if (kvpool_pool_check(pool) != 0)
		return 0;
	pthread_mutex_lock(&pool->lock);
	attached = pool->session && !kvpool_session_lost(pool->session) &&
		   !kvpool_session_hung_up(pool->session);
	pthread_mutex_unlock(&pool->lock);
	return attached;
}

int kvpool_token(struct kvpool *pool, uint8_t token[16])
{
	struct kvpool_deadline deadline;
	struct kvpool_session *session;
	struct kvpool_failure failure;

	if (kvpool_pool_check(pool) != 0)
		return -EOWNERDEAD;
	deadline = kvpool_deadline_make(0, pool->deadline_ns);
	kvpool_failure_init(&failure);
	if (kvpool_pool_enter(pool, &deadline, &failure, &session) != 0)
		return -ENOTCONN;
	/* No edge: set once, before the token is out. */
	atomic_store_explicit(&pool->shared, true, memory_order_relaxed);
	memcpy(token, session->token, sizeof(session->token));
	kvpool_pool_leave(pool, session);
	return 0;
}

const char *kvpool_error(const struct kvpool *pool)
{
	if (kvpool_pool_check(pool) != 0)
		return "the handle was inherited through fork(): open an own one";
	return kvpool_failure_text(&pool->failure);
}
