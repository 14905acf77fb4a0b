/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts, finds and stops the daemon under measurement. Owned by a command; main thread.
 */
#include "tools/bench/daemon_run.h"

#include "shm/handshake.h"
#include "tools/admin_client.h"
#include "tools/bench/ticks.h"
#include "tools/daemon_path.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_NS UINT64_C(10000000000)
#define KNOCK_NS 200000
#define LOG_NAME "kvpoold.log"

static int take_foreign(const struct kvpool_bench_options *options, struct kvpool_daemon_run *run)
{
	run->foreign = true;
	if (strlen(options->socket) >= sizeof(run->socket) ||
	    (options->admin_socket && strlen(options->admin_socket) >= sizeof(run->admin)))
		return kvpool_bench_fail(-ENAMETOOLONG, "a socket's path has at most %zu bytes",
					 sizeof(run->socket) - 1);
	snprintf(run->socket, sizeof(run->socket), "%s", options->socket);
	if (options->admin_socket)
		snprintf(run->admin, sizeof(run->admin), "%s", options->admin_socket);
	else if (kvpool_admin_client_beside(run->socket, run->admin) != 0)
		return kvpool_bench_fail(-ENAMETOOLONG, "give the path with --admin-socket");
	return 0;
}

static int spawn(const struct kvpool_daemon_spec *spec, struct kvpool_daemon_run *run)
{
	char program[KVPOOL_DAEMON_PROGRAM_BYTES];
	char log[KVPOOL_DAEMON_PATH_BYTES];
	char size[32];
	const char *arguments[10] = {program, "--socket", run->socket, "--admin-socket",
				     run->admin};
	size_t n = 5;
	struct kvpool_process_spec process = {.arguments = arguments, .log = log, .cpu = spec->cpu};
	int r;

	kvpool_folder_file(&run->folder, LOG_NAME, log, sizeof(log));
	kvpool_folder_file(&run->folder, "kvpool.sock", run->socket, sizeof(run->socket));
	kvpool_folder_file(&run->folder, "admin.sock", run->admin, sizeof(run->admin));
	kvpool_daemon_path_find(spec->options->daemon, program);
	if (!spec->populate)
		arguments[n++] = "--populate=no";
	if (spec->supervise) {
		arguments[n++] = "--supervise";
		arguments[n++] = "--crash-window=0";
	}
	snprintf(size, sizeof(size), "--size=%" PRIu64, spec->pool_bytes);
	if (spec->pool_bytes != 0)
		arguments[n++] = size;
	run->spawned_ns = kvpool_monotonic_ns();
	r = kvpool_process_start(&process, &run->process);
	if (r < 0)
		kvpool_bench_fail(r, "cannot start %s", program);
	return r;
}

int kvpool_daemon_run_start(const struct kvpool_daemon_spec *spec, struct kvpool_daemon_run *out)
{
	struct kvpool_daemon_run run = {0};
	int r;

	if (spec->options->socket) {
		r = take_foreign(spec->options, &run);
	} else {
		r = kvpool_folder_make(&run.folder);
		if (r < 0)
			return kvpool_bench_fail(r, "cannot make a temporary folder");
		r = spawn(spec, &run);
	}
	if (r < 0) {
		kvpool_daemon_run_stop(&run);
		return r;
	}
	*out = run;
	return 0;
}

/* A connected socket, or a negative errno. */
static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

/* Connects and waits for HELLO: 0, or a negative errno. */
static int knock(const char *path)
{
	struct timeval patience = {.tv_sec = 10};
	struct kvpool_hello hello;
	int fd = connect_to(path);
	ssize_t n;

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	n = recv(fd, &hello, sizeof(hello), 0);
	close(fd);
	if (n != (ssize_t)sizeof(hello) || hello.head.type != KVPOOL_MESSAGE_HELLO ||
	    hello.magic != KVPOOL_PROTOCOL_MAGIC)
		return -EPROTO;
	return 0;
}

int kvpool_daemon_run_await(struct kvpool_daemon_run *run)
{
	const struct timespec pause = {.tv_nsec = KNOCK_NS};
	uint64_t until = kvpool_monotonic_ns() + AWAIT_NS;
	int r;

	for (;;) {
		r = knock(run->socket);
		if (r == 0)
			return 0;
		if (run->foreign)
			return kvpool_bench_fail(r, "no daemon answers at %s", run->socket);
		if (!kvpool_process_alive(&run->process)) {
			kvpool_bench_fail(0, "kvpoold did not start");
			return -ECHILD;
		}
		if (kvpool_monotonic_ns() > until)
			return kvpool_bench_fail(r, "kvpoold does not answer at %s", run->socket);
		nanosleep(&pause, NULL);
	}
}

void kvpool_daemon_run_stop(struct kvpool_daemon_run *run)
{
	bool ended = run->process.pid != 0 && !kvpool_process_alive(&run->process);

	kvpool_process_stop(&run->process);
	if (kvpool_bench_failed() && run->folder.path[0] != '\0') {
		fprintf(stderr, "kvpool-bench: kvpoold%s said:\n", ended ? ", which is gone," : "");
		kvpool_folder_show(&run->folder, LOG_NAME);
	}
	kvpool_folder_remove(&run->folder);
}

int kvpool_daemon_run_status(const struct kvpool_daemon_run *run, json_t **out)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	int r = kvpool_admin_client_get(run->admin, "/v1/status", why, sizeof(why), out);

	if (r > 0)
		return kvpool_bench_fail(-EIO, "%s", why);
	return r;
}

pid_t kvpool_daemon_run_pid(const struct kvpool_daemon_run *run)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	pid_t pid = -ESRCH;
	int fd;

	if (!run->foreign)
		return run->process.pid != 0 ? run->process.pid : -ESRCH;
	fd = connect_to(run->socket);
	if (fd < 0)
		return -ESRCH;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0)
		pid = peer.pid;
	close(fd);
	return pid;
}
