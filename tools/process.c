/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork, exec, wait. No state of its own; main thread.
 */
#include "tools/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 5000

static int pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0 ? 0 : errno;
}

/* In the child: never returns. What fails is told through the pipe, which exec closes. */
static void become(const struct kvpool_process_spec *spec, int report, pid_t parent)
{
	char **arguments = (char **)(uintptr_t)spec->arguments;
	int error = 0;
	int log;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* What a terminal sends is for the parent, which then ends this one in good order. */
	setpgid(0, 0);
	if (getppid() != parent)
		_exit(127);
	log = open(spec->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
		error = errno;
	if (error == 0 && spec->cpu >= 0)
		error = pin(spec->cpu);
	if (error == 0) {
		execvp(arguments[0], arguments);
		error = errno;
	}
	if (write(report, &error, sizeof(error)) != (ssize_t)sizeof(error))
		_exit(126);
	_exit(127);
}

int kvpool_process_start(const struct kvpool_process_spec *spec, struct kvpool_process *out)
{
	pid_t parent = getpid();
	int error = 0;
	int pipes[2];
	ssize_t n;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) != 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		error = errno;
		close(pipes[0]);
		close(pipes[1]);
		return -error;
	}
	if (pid == 0)
		become(spec, pipes[1], parent);
	close(pipes[1]);
	do {
		n = read(pipes[0], &error, sizeof(error));
	} while (n < 0 && errno == EINTR);
	close(pipes[0]);
	if (n != 0) {
		waitpid(pid, NULL, 0);
		return n == (ssize_t)sizeof(error) && error > 0 ? -error : -EIO;
	}
	*out = (struct kvpool_process){.pid = pid};
	return 0;
}

int kvpool_process_alive(struct kvpool_process *process)
{
	if (process->pid == 0)
		return 0;
	if (waitpid(process->pid, NULL, WNOHANG) == 0)
		return 1;
	process->pid = 0;
	return 0;
}

void kvpool_process_stop(struct kvpool_process *process)
{
	struct pollfd ended = {.events = POLLIN};

	if (process->pid == 0)
		return;
	ended.fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
	kill(process->pid, SIGTERM);
	if (ended.fd < 0 || poll(&ended, 1, PATIENCE_MS) != 1)
		kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
	if (ended.fd >= 0)
		close(ended.fd);
	process->pid = 0;
}
