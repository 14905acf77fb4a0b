/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon under torture: `kvpoold --supervise` on a socket of its own, its lives one after
 * another, and what its status page says.
 *
 * Owned by the parent; main thread.
 */
#ifndef KVPOOL_TOOLS_TORTURE_SUBJECT_H
#define KVPOOL_TOOLS_TORTURE_SUBJECT_H

#include "tools/admin_client.h"
#include "tools/folder.h"
#include "tools/process.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kvpool_subject {
	struct kvpool_folder folder;
	struct kvpool_process supervisor;
	pid_t pid;      /* of this life of the daemon */
	char epoch[24]; /* of this life */
	char socket[KVPOOL_ADMIN_SOCKET_BYTES];
	char admin[KVPOOL_ADMIN_SOCKET_BYTES];
};

/* Starts it and waits until its pool is populated. Says on stderr what fails. Negative errno. */
int kvpool_subject_start(const char *daemon, struct kvpool_subject *out);

/* Ends it; with `show` its log's last lines go to stderr. A zeroed one is fine. */
void kvpool_subject_stop(struct kvpool_subject *subject, bool show);

/* A page of the admin socket, owned by the caller; NULL where nobody answers now. */
json_t *kvpool_subject_page(const struct kvpool_subject *subject, const char *resource);

/* A number in a page, "a.b.c"; 0 where there is none. */
int64_t kvpool_subject_number(const json_t *page, const char *path);

/* The status page of the next life, owned by the caller; NULL: none came in time. */
json_t *kvpool_subject_next_life(struct kvpool_subject *subject);

/* The process that the supervisor has started by now, whether it serves or not; 0: none. */
pid_t kvpool_subject_child(const struct kvpool_subject *subject);

/* Open descriptors of a process; negative errno where that cannot be seen. */
int kvpool_subject_descriptors(pid_t pid);

#endif
