/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle: its sessions over the lives of the daemon. See pool.h; made and closed in open.c.
 *
 * Any thread.
 */
#include "client/pool.h"

#include "client/resume.h"
#include "client/untold.h"

#include <errno.h>

int kvpool_pool_check(const struct kvpool *pool)
{
	return KVPOOL_LIKELY(kvpool_owner_is_me(&pool->owner)) ? 0 : -EOWNERDEAD;
}

/* Does this process hold anything in the session? Lock. */
static bool holds(const struct kvpool_session *s)
{
	uint64_t held = kvpool_ledger_held(&s->orphans);

	for (const struct kvpool_link *link = s->links; link; link = link->next)
		held += kvpool_ledger_held(&link->ledger);
	return held > 0;
}

/* Is somebody in the middle of a copy? Lock; the session is lost. */
static bool in_use(const struct kvpool_session *s)
{
	for (const struct kvpool_link *link = s->links; link; link = link->next)
		if (atomic_load_explicit(&link->busy, memory_order_seq_cst)) /* B2 <- B1 */
			return true;
	return s->guests > 0;
}

/* What was taken through the link outlives it. Lock. False: out of memory, the link stays. */
static bool free_link(struct kvpool_link **at)
{
	struct kvpool_link *link = *at;

	if (kvpool_ledger_move(&link->ledger, &link->session->orphans) != 0)
		return false;
	*at = link->next;
	kvpool_link_free(link, false);
	return true;
}

static void free_idle_links(struct kvpool_session *s)
{
	struct kvpool_link **at = &s->links;

	while (*at)
		if ((*at)->channel || !free_link(at))
			at = &(*at)->next;
}

/* Does somebody else see to it that what is pinned stays mapped? */
static bool may_unmap(const struct kvpool_segments *segments)
{
	/* No edge: set once, by a guest or a busy link of the session, and there is none. */
	return !atomic_load_explicit(&segments->pinned, memory_order_relaxed) ||
	       segments->shares > 1;
}

/* Unmaps a lost session that nobody needs. Returns whether it can be freed, too. Lock. */
static bool settle(const struct kvpool *pool, struct kvpool_session *s)
{
	/* First: a guest may be using a link that no channel has. */
	if (in_use(s))
		return false;
	free_idle_links(s);
	if (holds(s))
		return false;
	if (s->segments && may_unmap(s->segments))
		kvpool_session_unmap(s);
	return s != pool->session && !s->links && !s->segments;
}

/* Is there another session of the same life? Lock. */
static bool has_relative(const struct kvpool *pool, const struct kvpool_session *s)
{
	for (const struct kvpool_session *other = pool->sessions; other; other = other->next)
		if (other != s && other->life == s->life)
			return true;
	return false;
}

bool kvpool_pool_told(const struct kvpool *pool, const struct kvpool_session *s)
{
	struct kvpool_session *now = pool->session;

	if (!(s->features & KVPOOL_FEATURE_RETIRE) || has_relative(pool, s))
		return true;
	if (!now || kvpool_session_lost(now))
		return false;
	return !(now->features & KVPOOL_FEATURE_RETIRE) ||
	       kvpool_session_retire(now, s->token, s->member) != -EAGAIN;
}

static void settle_all(struct kvpool *pool)
{
	struct kvpool_session **at = &pool->sessions;

	while (*at) {
		struct kvpool_session *s = *at;

		if (kvpool_session_lost(s) && settle(pool, s) && kvpool_pool_told(pool, s)) {
			*at = s->next;
			kvpool_session_free(s, false);
		} else {
			at = &s->next;
		}
	}
}

void kvpool_pool_settle(struct kvpool *pool)
{
	pthread_mutex_lock(&pool->lock);
	settle_all(pool);
	pthread_mutex_unlock(&pool->lock);
}

/* The current session, if it is alive; the caller becomes its guest. */
static struct kvpool_session *current(struct kvpool *pool)
{
	struct kvpool_session *s;

	pthread_mutex_lock(&pool->lock);
	s = pool->session && !kvpool_session_lost(pool->session) ? pool->session : NULL;
	if (s)
		s->guests++;
	pthread_mutex_unlock(&pool->lock);
	return s;
}

/* Takes leave of a session that is lost. The gate is held. */
static void retire(struct kvpool *pool)
{
	pthread_mutex_lock(&pool->lock);
	if (pool->session) {
		kvpool_attach_ended(&pool->attempt, atomic_load_explicit(&pool->session->useful,
									 memory_order_relaxed));
		pool->session = NULL;
	}
	settle_all(pool);
	pthread_mutex_unlock(&pool->lock);
}

/* Nobody gets to use the session, which goes as lost ones do. Lock; the gate is held. */
static void give_up(struct kvpool *pool, struct kvpool_session *s)
{
	kvpool_session_lose(s);
	s->guests--;
	kvpool_attach_ended(&pool->attempt, false);
	settle_all(pool);
}

/*
 * Makes a new session the current one, and the caller its guest. It is in the list before what is
 * held is claimed, so that whoever gives something back meanwhile finds it. The gate is held.
 */
static int begin(struct kvpool *pool, struct kvpool_session *s, struct kvpool_deadline *deadline,
		 struct kvpool_failure *failure)
{
	struct kvpool_link *link = s->links;
	int r;

	pthread_mutex_lock(&pool->lock);
	r = kvpool_resume_take_over(pool->sessions, s);
	s->guests++;
	s->next = pool->sessions;
	pool->sessions = s;
	pthread_mutex_unlock(&pool->lock);
	if (r != 0)
		kvpool_failure_literal(failure, r, "out of memory");
	else if (s->resumed)
		r = kvpool_resume_claim(s, link, pool->spin_ns, deadline, failure);
	pthread_mutex_lock(&pool->lock);
	if (r == 0) {
		pool->session = s;
		kvpool_attach_began(&pool->attempt, s);
		kvpool_untold_tell(s);
		settle_all(pool);
	} else {
		give_up(pool, s);
	}
	pthread_mutex_unlock(&pool->lock);
	return r;
}

/* An attempt, or what there is by now. The gate is held. */
static int attach(struct kvpool *pool, struct kvpool_deadline *deadline,
		  struct kvpool_failure *failure, struct kvpool_session **out)
{
	struct kvpool_session *s = current(pool);
	int r;

	if (s) {
		*out = s;
		return 0;
	}
	retire(pool);
	if (kvpool_attach_too_early(&pool->attempt))
		return kvpool_failure_literal(failure, -ENOTCONN,
					      "no daemon; it is too early to ask again");
	r = kvpool_attach_step(&pool->attempt, &pool->wish, deadline, failure, &s);
	if (r == 0)
		r = begin(pool, s, deadline, failure);
	pthread_mutex_lock(&pool->lock);
	if (r == 0)
		*out = s;
	else
		kvpool_failure_set(&pool->failure, r, "%s", kvpool_failure_text(failure));
	pthread_mutex_unlock(&pool->lock);
	return r;
}

int kvpool_pool_enter(struct kvpool *pool, struct kvpool_deadline *deadline,
		      struct kvpool_failure *failure, struct kvpool_session **out)
{
	struct kvpool_session *s = current(pool);
	int r;

	if (s) {
		*out = s;
		return 0;
	}
	if (kvpool_attach_too_early(&pool->attempt))
		return kvpool_failure_literal(failure, -ENOTCONN,
					      "no daemon; it is too early to ask again");
	if (kvpool_gate_enter(&pool->attach_gate, deadline) != 0)
		return kvpool_failure_literal(failure, -ENOTCONN, "another thread is attaching");
	r = attach(pool, deadline, failure, out);
	kvpool_gate_leave(&pool->attach_gate);
	return r;
}

struct kvpool_session *kvpool_pool_enter_life(struct kvpool *pool, uint64_t life)
{
	struct kvpool_session *found = NULL;

	pthread_mutex_lock(&pool->lock);
	for (struct kvpool_session *s = pool->sessions; s; s = s->next)
		if (s->life == life && (!found || kvpool_session_lost(found)))
			found = s;
	if (found)
		found->guests++;
	pthread_mutex_unlock(&pool->lock);
	return found;
}

bool kvpool_pool_may_resume(struct kvpool *pool, const struct kvpool_session *session)
{
	bool may;

	if (!(session->features & KVPOOL_FEATURE_RESUME) || !kvpool_session_lost(session))
		return false;
	pthread_mutex_lock(&pool->lock);
	may = !pool->session || kvpool_session_lost(pool->session);
	pthread_mutex_unlock(&pool->lock);
	return may;
}

void kvpool_pool_leave(struct kvpool *pool, struct kvpool_session *session)
{
	pthread_mutex_lock(&pool->lock);
	session->guests--;
	if (kvpool_session_lost(session))
		settle_all(pool);
	pthread_mutex_unlock(&pool->lock);
}

static struct kvpool_link *idle_link(struct kvpool *pool, struct kvpool_session *session,
				     struct kvpool_channel *channel)
{
	struct kvpool_link *link;

	pthread_mutex_lock(&pool->lock);
	for (link = session->links; link && link->channel; link = link->next)
		;
	if (link)
		link->channel = channel;
	pthread_mutex_unlock(&pool->lock);
	return link;
}

int kvpool_pool_lend(struct kvpool *pool, struct kvpool_session *session,
		     struct kvpool_channel *channel, struct kvpool_deadline *deadline,
		     struct kvpool_failure *failure, struct kvpool_link **out)
{
	struct kvpool_link *link = idle_link(pool, session, channel);
	struct kvpool_packet grant;
	int r;

	if (!link) {
		r = kvpool_session_get_channel(session, pool->wish.ring_entries,
					       pool->wish.arena_bytes, deadline, failure, &grant);
		if (r != 0)
			return r;
		r = kvpool_link_new(session, &grant, failure, &link);
		kvpool_packet_drop(&grant);
		if (r == -EPROTO)
			kvpool_session_lose(session);
		if (r != 0) {
			(void)kvpool_session_put_channel(session, grant.channel.channel);
			return r;
		}
		pthread_mutex_lock(&pool->lock);
		link->channel = channel;
		link->next = session->links;
		session->links = link;
		pthread_mutex_unlock(&pool->lock);
	}
	*out = link;
	return 0;
}

/* A link without late answers can go: what else lies in its ring, the daemon serves first. */
static bool may_go(struct kvpool_link *link)
{
	return kvpool_session_lost(link->session) ||
	       (link->n_late == 0 && kvpool_session_put_channel(link->session, link->number) == 0);
}

void kvpool_pool_take_back(struct kvpool *pool, struct kvpool_link *link)
{
	struct kvpool_session *session = link->session;
	struct kvpool_link **at = &session->links;

	pthread_mutex_lock(&pool->lock);
	link->channel = NULL;
	while (*at != link)
		at = &(*at)->next;
	if (kvpool_ledger_make_room(&session->orphans, link->ledger.leases.n,
				    link->ledger.blocks.n) == 0 &&
	    may_go(link))
		free_link(at);
	if (kvpool_session_lost(session))
		settle_all(pool);
	pthread_mutex_unlock(&pool->lock);
}
