/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process has not told a daemon yet: see untold.h.
 *
 * Any thread.
 */
#include "client/untold.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define UNTOLD_MAX 64u

struct untold {
	struct sockaddr_un daemon; /* where the client was attached */
	uint8_t token[KVPOOL_TOKEN_BYTES];
	uint32_t member;
	uint64_t epoch; /* of the daemon's life: it sees the end of the socket itself */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct untold list[UNTOLD_MAX]; /* the oldest first; lock, as all below */
static uint32_t n_untold;
static pid_t owner; /* 0: nobody yet */

/* What was inherited is the parent's to tell. A thread of it may have had the lock: hence try. */
static bool enter(void)
{
	if (owner != 0 && owner != getpid()) {
		if (pthread_mutex_trylock(&lock) != 0)
			return false;
		explicit_bzero(list, sizeof(list));
		n_untold = 0;
	} else {
		(void)pthread_mutex_lock(&lock);
	}
	owner = getpid();
	return true;
}

static bool place_of(const struct kvpool_session *session, struct sockaddr_un *out)
{
	socklen_t bytes = sizeof(*out);

	memset(out, 0, sizeof(*out));
	return getpeername(session->socket, (struct sockaddr *)out, &bytes) == 0 &&
	       bytes > offsetof(struct sockaddr_un, sun_path);
}

static void drop(uint32_t at)
{
	n_untold--;
	memmove(&list[at], &list[at + 1], (n_untold - at) * sizeof(list[0]));
	explicit_bzero(&list[n_untold], sizeof(list[0]));
}

void kvpool_untold_add(const struct kvpool_session *lost)
{
	struct untold one;

	if (!(lost->features & KVPOOL_FEATURE_RETIRE) || !place_of(lost, &one.daemon) || !enter())
		return;
	memcpy(one.token, lost->token, sizeof(one.token));
	one.member = lost->member;
	one.epoch = lost->epoch;
	if (n_untold == UNTOLD_MAX)
		drop(0);
	list[n_untold++] = one;
	(void)pthread_mutex_unlock(&lock);
	explicit_bzero(&one, sizeof(one));
}

void kvpool_untold_tell(struct kvpool_session *session)
{
	struct sockaddr_un place;
	uint32_t at = 0;

	if (!(session->features & KVPOOL_FEATURE_RETIRE) || !place_of(session, &place) || !enter())
		return;
	while (at < n_untold) {
		const struct untold *one = &list[at];

		if (one->epoch == session->epoch ||
		    memcmp(&one->daemon, &place, sizeof(place)) != 0)
			at++;
		else if (kvpool_session_retire(session, one->token, one->member) == -EAGAIN)
			break;
		else
			drop(at);
	}
	(void)pthread_mutex_unlock(&lock);
}
