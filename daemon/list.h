/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive doubly linked lists with a sentinel: an object that is told of its end unlinks itself.
 *
 * Owned by whoever owns the sentinel; no list is shared between threads.
 */
#ifndef KVPOOL_DAEMON_LIST_H
#define KVPOOL_DAEMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct kvpool_list {
	struct kvpool_list *next; /* borrowed: the neighbour, or the sentinel */
	struct kvpool_list *prev; /* borrowed */
};

#define kvpool_list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* The body may unlink and free `node`, but not `spare`. */
#define kvpool_list_each(node, spare, list)                                   \
	for ((node) = (list)->next, (spare) = (node)->next; (node) != (list); \
	     (node) = (spare), (spare) = (node)->next)

static inline void kvpool_list_init(struct kvpool_list *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool kvpool_list_empty(const struct kvpool_list *list)
{
	return list->next == list;
}

static inline void kvpool_list_append(struct kvpool_list *list, struct kvpool_list *node)
{
	node->prev = list->prev;
	node->next = list;
	list->prev->next = node;
	list->prev = node;
}

/* A node that is not linked is left as it is. */
static inline void kvpool_list_remove(struct kvpool_list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	kvpool_list_init(node);
}

#endif
