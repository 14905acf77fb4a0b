/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor store, the daemon's side: see store.h.
 */
#include "daemon/store.h"

#include "daemon/log.h"
#include "daemon/manager.h"
#include "shm/base.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int kvpool_store_put(const char *name, int fd)
{
	char text[64 + KVPOOL_STORE_NAME_BYTES];
	unsigned int room = said_room();
	int r;

	assert(kvpool_store_name_valid(name));
	if (!kvpool_manager_exists())
		return KVPOOL_STORE_E_NONE;
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

int kvpool_store_remove(const char *name)
{
	char text[64 + KVPOOL_STORE_NAME_BYTES];
	int r;

	assert(kvpool_store_name_valid(name));
	if (!kvpool_manager_exists())
		return KVPOOL_STORE_E_NONE;
	(void)snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	r = kvpool_manager_send(text, -1);
	/* No edge: see `held`. */
	if (r == 0 && atomic_load_explicit(&held, memory_order_relaxed) > 0)
		count(-1);
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
