/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private kvpoold for one test: started on a socket in a temporary folder, stopped, killed,
 * restarted on the same socket, its stderr kept.
 *
 * Owned by the test that made it; one thread. The daemon dies with the test's process.
 */
#ifndef KVPOOL_TESTS_HARNESS_H
#define KVPOOL_TESTS_HARNESS_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct kvpool_harness;

/*
 * Starts $KVPOOLD with `--socket` and `args` (NULL-terminated; NULL: none), and with `--size 64M`
 * where args do not name a size. Returns once the daemon has said HELLO to a connection. -ENOENT:
 * no $KVPOOLD. -ECHILD: it ended first; -ETIMEDOUT: it did not answer in time. On failure its
 * stderr is printed.
 */
int kvpool_harness_new(const char *const *args, struct kvpool_harness **out);

/*
 * As kvpool_harness_new(), but a daemon that ends before it answers is no failure and prints
 * nothing: it does not run, and kvpool_harness_status() says how it ended.
 */
int kvpool_harness_try(const char *const *args, struct kvpool_harness **out);

/* How the life ended that did not come as far as to answer: a wait status as of waitpid(2). */
int kvpool_harness_status(const struct kvpool_harness *h);

/*
 * Stops the daemon and removes the folder. Takes NULL. Aborts, with the daemon's stderr printed,
 * where the daemon still ran and did not end with 0.
 */
void kvpool_harness_free(struct kvpool_harness *h);

const char *kvpool_harness_folder(const struct kvpool_harness *h);
const char *kvpool_harness_socket(const struct kvpool_harness *h);
const char *kvpool_harness_admin_socket(const struct kvpool_harness *h);
pid_t kvpool_harness_pid(const struct kvpool_harness *h); /* 0 where it does not run */

/* SIGTERM and wait. Returns the wait status as waitpid(2) gives it, -ETIMEDOUT after 20 s. */
int kvpool_harness_stop(struct kvpool_harness *h);

/* SIGKILL and reap. */
void kvpool_harness_kill(struct kvpool_harness *h);

/* Starts it again, on the same socket with the same arguments. As kvpool_harness_new(). */
int kvpool_harness_restart(struct kvpool_harness *h);

/* SIGSTOP, and wait until it is stopped; SIGCONT. */
void kvpool_harness_pause(struct kvpool_harness *h);
void kvpool_harness_resume(struct kvpool_harness *h);

/* Everything it has written to stderr, over all its lives. Valid until the next call; never NULL.
 */
const char *kvpool_harness_stderr(struct kvpool_harness *h);

/* How many descriptors of a process have `part` in what they are; 0 where we may not look. */
int kvpool_harness_descriptors(pid_t pid, const char *part);

/* Polls `condition` until it holds or `ms` have passed. Returns whether it held. */
bool kvpool_harness_until(bool (*condition)(void *), void *cookie, unsigned int ms);

/* Makes this process the service manager of what it starts: $NOTIFY_SOCKET is the socket returned.
 */
int kvpool_harness_manage(void);

/* The next message to it, as a string; false after `ms` without one. */
bool kvpool_harness_heard(int manager, char *text, size_t text_bytes, unsigned int ms);

/* Runs a suite of tests that need a daemon. Returns main()'s value: 77 where there is none. */
int kvpool_harness_run(Suite *suite);

#endif
