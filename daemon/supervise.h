/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kvpoold --supervise`: a small parent that starts the daemon, holds its descriptors when it dies
 * and starts it again. What systemd does with FDSTORE=1, for hosts and containers without systemd.
 *
 * It never maps or reads what it holds. Signals: SIGTERM and SIGINT end the daemon and then itself,
 * and with them the memory; SIGUSR2 has the daemon leave and starts it again with all that it kept,
 * from the file that is there by then (an upgrade); SIGHUP is passed on. A daemon that dies, or
 * ends with a failure, is started again; one that ends with 0 or 2 (usage) ends the supervisor with
 * the same code. Where the supervisor is killed the kernel ends the daemon.
 *
 * One thread; one supervisor a process.
 */
#ifndef KVPOOL_DAEMON_SUPERVISE_H
#define KVPOOL_DAEMON_SUPERVISE_H

#include <stdint.h>

struct kvpool_supervise_config {
	char *const *argv;     /* borrowed: the child's; argv[0] is the file that is executed */
	uint32_t kept_max;     /* descriptors; 0: KVPOOL_STORE_MAX */
	uint64_t pause_max_ns; /* between two starts; 0: 5 s */
	uint64_t long_life_ns; /* 0: 10 s */
};

/*
 * The child's arguments: this process's own without --supervise, its own executable first. Owned by
 * the caller; kvpool_supervise_argv_free() takes NULL. Negative errno.
 */
int kvpool_supervise_argv(int argc, char *const argv[], char *const **out);
void kvpool_supervise_argv_free(char *const *argv);

/* Until the child has ended for good. 0 with the exit code; negative errno where it cannot begin.
 */
int kvpool_supervise_run(const struct kvpool_supervise_config *config, int *code);

/*
 * Between two starts: none the first time, then 100 ms, doubling to `max_ns`; none again after a
 * child that lived for `long_ns`. Owned by whoever starts; `next_ns` is 0 at first.
 */
struct kvpool_supervise_pause {
	uint64_t next_ns;
	uint64_t max_ns;
	uint64_t long_ns;
};

/* How long to wait after a child that lived this long. */
uint64_t kvpool_supervise_pause_after(struct kvpool_supervise_pause *pause, uint64_t lived_ns);

#endif
