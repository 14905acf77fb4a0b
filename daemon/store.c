/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor store, the daemon's side: see store.h.
 */
#include "daemon/store.h"

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "shm/base.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWED_MAX 256u

/*
 * Names whose removal could not be sent: told again before the next message, since what has them is
 * memory that nobody uses. What is beyond the bound stays until the next life, which drops it.
 */
static pthread_mutex_t owed_lock = PTHREAD_MUTEX_INITIALIZER;
static char owed[OWED_MAX][KVPOOL_STORE_NAME_BYTES]; /* under `owed_lock` */
static size_t n_owed;                                /* likewise */

/* Descriptors in the store, as far as this process knows. Relaxed, no edge: a count by itself. */
static _Atomic unsigned int held;

static void count(int change)
{
	/* No edge: see `held`. */
	(void)atomic_fetch_add_explicit(&held, (unsigned int)change, memory_order_relaxed);
}

bool kvpool_store_name_valid(const char *name)
{
	size_t n = strlen(name);

	return n < KVPOOL_STORE_NAME_BYTES && n > strlen(KVPOOL_STORE_PREFIX) &&
	       strncmp(name, KVPOOL_STORE_PREFIX, strlen(KVPOOL_STORE_PREFIX)) == 0 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

/* How many the store may hold; 0 where nobody says. */
static unsigned int said_room(void)
{
	const char *text = getenv("FDSTORE");
	unsigned long n;
	char *end;

	if (!text || text[0] < '0' || text[0] > '9')
		return 0;
	n = strtoul(text, &end, 10);
	return *end == '\0' ? (unsigned int)KVPOOL_MIN(n, KVPOOL_STORE_MAX) : 0;
}

bool kvpool_store_kept(void)
{
	return kvpool_manager_exists() && said_room() > 0;
}

static int send_removal(const char *name)
{
	char text[64 + KVPOOL_STORE_NAME_BYTES];
	int r;

	(void)snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	r = kvpool_manager_send(text, -1);
	/* No edge: see `held`. */
	if (r == 0 && atomic_load_explicit(&held, memory_order_relaxed) > 0)
		count(-1);
	return r;
}

/* Under `owed_lock`. */
static void owe(const char *name)
{
	if (n_owed < OWED_MAX)
		(void)snprintf(owed[n_owed++], KVPOOL_STORE_NAME_BYTES, "%s", name);
}

/* 0, or what keeps the rest from being told. Under `owed_lock`. */
static int pay(void)
{
	int r;

	while (n_owed > 0) {
		r = send_removal(owed[n_owed - 1]);
		if (r != 0)
			return r;
		n_owed--;
	}
	return 0;
}

/* Under `owed_lock`. */
static int send_put(const char *name, int fd)
{
	char text[64 + KVPOOL_STORE_NAME_BYTES];
	unsigned int room = said_room();
	/* The name may be one of those that are owed. */
	int r = pay();

	if (r != 0)
		return r;
	/* No edge: see `held`. */
	if (atomic_load_explicit(&held, memory_order_relaxed) >=
	    (room > 0 ? room : KVPOOL_STORE_MAX))
		return KVPOOL_STORE_E_FULL;
	/* Not polled: some of them become readable when a process ends, which says nothing. */
	(void)snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	r = kvpool_manager_send(text, fd);
	if (r == 0)
		count(1);
	return r;
}

/* Under `owed_lock`. */
static void say_not_kept(const char *name, int r)
{
	static struct kvpool_log_limit limit = KVPOOL_LOG_LIMIT(5, 10 * KVPOOL_NS_PER_S);
	uint64_t suppressed;

	if (kvpool_log_limit_pass(&limit, kvpool_clock_ns(), &suppressed))
		kvpool_log(KVPOOL_LOG_WARNING,
			   "the next life will not have %s: %s (and %" PRIu64 " more before)", name,
			   r < 0 ? strerror(-r) : "the store is full", suppressed);
}

int kvpool_store_put(const char *name, int fd)
{
	int r;

	assert(kvpool_store_name_valid(name));
	if (!kvpool_manager_exists())
		return KVPOOL_STORE_E_NONE;
	(void)pthread_mutex_lock(&owed_lock);
	r = send_put(name, fd);
	if (r != 0)
		say_not_kept(name, r);
	(void)pthread_mutex_unlock(&owed_lock);
	return r;
}

int kvpool_store_remove(const char *name)
{
	int r;

	assert(kvpool_store_name_valid(name));
	if (!kvpool_manager_exists())
		return KVPOOL_STORE_E_NONE;
	(void)pthread_mutex_lock(&owed_lock);
	r = pay();
	if (r == 0)
		r = send_removal(name);
	if (r != 0)
		owe(name);
	(void)pthread_mutex_unlock(&owed_lock);
	return r;
}

static struct kvpool_store_kept_fd *list_find(const struct kvpool_store_list *list,
					      const struct kvpool_store_kept_fd *like)
{
	for (size_t i = 0; i < list->n; i++) {
		/* Padded with zeros, so that one comparison does it. */
		if (memcmp(list->fds[i].name, like->name, sizeof(like->name)) == 0)
			return &list->fds[i];
	}
	return NULL;
}

/* systemd keeps two under one name and removes both under it. */
static void keep_first(const struct kvpool_store_kept_fd *first)
{
	int r;

	kvpool_log(KVPOOL_LOG_WARNING, "two descriptors were kept as %s; only the first is used",
		   first->name);
	r = kvpool_store_remove(first->name);
	if (r == 0)
		r = kvpool_store_put(first->name, first->fd);
	if (r < 0)
		kvpool_log(KVPOOL_LOG_WARNING, "cannot keep %s alone: %s", first->name,
			   strerror(-r));
}

int kvpool_store_list_add(struct kvpool_store_list *list, const char *name, int fd)
{
	struct kvpool_store_kept_fd new = {.fd = fd}, *first, *fds;
	size_t room = list->room ? 2 * list->room : 16;

	assert(kvpool_store_name_valid(name));
	memcpy(new.name, name, strlen(name));
	first = list_find(list, &new);
	if (first) {
		(void)close(fd);
		keep_first(first);
		return 0;
	}
	if (list->n == list->room) {
		fds = reallocarray(list->fds, room, sizeof(*fds));
		if (!fds)
			return -ENOMEM;
		list->fds = fds;
		list->room = room;
	}
	list->fds[list->n++] = new;
	count(1);
	return 0;
}

void kvpool_store_list_free(struct kvpool_store_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		if (list->fds[i].fd >= 0)
			(void)close(list->fds[i].fd);
	}
	free(list->fds);
	*list = (struct kvpool_store_list){.fds = NULL};
}

void kvpool_store_list_drop(struct kvpool_store_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		if (list->fds[i].fd >= 0)
			(void)kvpool_store_remove(list->fds[i].name);
	}
	kvpool_store_list_free(list);
}
