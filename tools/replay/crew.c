/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker processes of a replay: see crew.h.
 *
 * Main thread of the parent.
 */
#include "tools/replay/crew.h"

#include "shm/base.h"
#include "tools/exit_codes.h"
#include "tools/interrupt.h"
#include "tools/replay/engine.h"
#include "tools/replay/worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS  20
#define QUIET_NS UINT64_C(2000000000) /* no bar for what is over sooner */
#define CELLS    32

#define SPIN_CROWDED_NS 1000u

struct crew {
	const struct kvpool_crew_spec *spec;  /* borrowed */
	pid_t pids[KVPOOL_BOARD_WORKERS_MAX]; /* 0: not there, or reaped */
	uint32_t alive;
	int code; /* of the first that failed */
	bool started;
	bool interrupted;
	bool drawn;
	uint64_t started_ns;
};

/*
 * Where processes and daemons outnumber the cores, a client that spins keeps the core that the
 * daemon needs to answer it; it had better sleep at once.
 */
static uint64_t spin_ns(const struct kvpool_crew_spec *spec)
{
	uint32_t busy = spec->workers + kvpool_pools_count(spec->pools);
	cpu_set_t cores;

	if (sched_getaffinity(0, sizeof(cores), &cores) != 0)
		return 0;
	return busy > (uint32_t)CPU_COUNT(&cores) ? SPIN_CROWDED_NS : 0;
}

static int start_worker(struct crew *crew, uint32_t number)
{
	const struct kvpool_crew_spec *spec = crew->spec;
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		struct kvpool_worker_spec worker = {
			.trace = spec->trace,
			.board = spec->board,
			.socket = kvpool_pools_socket(spec->pools, number),
			.number = number,
			.block_bytes = spec->block_bytes,
			.spin_ns = spin_ns(spec),
		};

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		kvpool_interrupt_forget();
		_exit(getppid() == parent ? kvpool_worker_run(&worker) : KVPOOL_EXIT_FAILURE);
	}
	crew->pids[number] = pid;
	crew->alive++;
	return 0;
}

static void give_up(struct crew *crew, int code)
{
	if (crew->code == 0)
		crew->code = code;
	kvpool_board_stop(crew->spec->board);
}

/* Takes note of workers that have ended. */
static void reap(struct crew *crew)
{
	uint32_t i;
	int status;

	for (i = 0; i < crew->spec->workers; i++) {
		if (crew->pids[i] == 0 || waitpid(crew->pids[i], &status, WNOHANG) == 0)
			continue;
		crew->pids[i] = 0;
		crew->alive--;
		if (WIFSIGNALED(status) && !kvpool_interrupt_asked())
			fprintf(stderr, "kvpool-replay: process %u was killed by signal %d (%s)\n",
				i, WTERMSIG(status), strsignal(WTERMSIG(status)));
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			give_up(crew,
				WIFEXITED(status) ? WEXITSTATUS(status) : KVPOOL_EXIT_FAILURE);
	}
}

static void draw(struct crew *crew)
{
	uint64_t total = KVPOOL_MAX(crew->spec->trace->n, 1u);
	uint64_t done = kvpool_board_finished(crew->spec->board);
	int filled = (int)(done * CELLS / total);
	char bar[CELLS + 1];
	int i;

	for (i = 0; i < CELLS; i++)
		bar[i] = i < filled ? '#' : '.';
	bar[CELLS] = '\0';
	fprintf(stderr, "\rreplaying [%s] %3u %%", bar, (unsigned int)(done * 100 / total));
	crew->drawn = true;
}

static void open_gate(struct crew *crew)
{
	if (crew->started || kvpool_board_at_gate(crew->spec->board) < crew->spec->workers)
		return;
	crew->started = true;
	crew->started_ns = kvpool_engine_now();
	kvpool_board_start(crew->spec->board);
}

/* A worker holds nothing that its death would leave behind: the daemon takes it all back. */
static void heed_interrupt(struct crew *crew)
{
	uint32_t i;

	if (!kvpool_interrupt_asked() || crew->interrupted)
		return;
	crew->interrupted = true;
	give_up(crew, KVPOOL_EXIT_FAILURE);
	for (i = 0; i < crew->spec->workers; i++) {
		if (crew->pids[i] != 0)
			kill(crew->pids[i], SIGTERM);
	}
}

static void watch(struct crew *crew)
{
	bool terminal = isatty(STDERR_FILENO) == 1;

	while (crew->alive > 0) {
		reap(crew);
		heed_interrupt(crew);
		open_gate(crew);
		if (terminal && crew->started && kvpool_engine_now() - crew->started_ns > QUIET_NS)
			draw(crew);
		if (crew->alive > 0)
			kvpool_interrupt_pause(POLL_MS);
	}
	if (crew->drawn)
		fprintf(stderr, "\r%*s\r", CELLS + 20, "");
}

static uint64_t ended_ns(const struct crew *crew)
{
	uint64_t last = crew->started_ns;
	uint32_t i;

	for (i = 0; i < crew->spec->workers; i++)
		last = KVPOOL_MAX(last, kvpool_board_figures(crew->spec->board, i)->ended_ns);
	return last;
}

int kvpool_crew_run(const struct kvpool_crew_spec *spec, uint64_t *took_ns)
{
	struct crew crew = {.spec = spec};
	uint32_t i;

	/* What is buffered must not come out once for every process. */
	fflush(NULL);
	for (i = 0; i < spec->workers; i++) {
		int error = start_worker(&crew, i);

		if (error != 0) {
			fprintf(stderr, "kvpool-replay: cannot fork process %u: %s\n", i,
				strerror(-error));
			give_up(&crew, KVPOOL_EXIT_FAILURE);
			break;
		}
	}
	watch(&crew);
	if (crew.code != 0)
		return crew.code;
	*took_ns = ended_ns(&crew) - crew.started_ns;
	return 0;
}
