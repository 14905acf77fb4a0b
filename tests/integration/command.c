/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program to its end: see command.h.
 */
#include "tests/integration/command.h"

#include <check.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child; never returns. */
static void become(const char *const *arguments, int out, int err)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
		execvp(arguments[0], (char **)(uintptr_t)arguments);
	perror(arguments[0]);
	_exit(127);
}

static int open_file(void)
{
	int fd = memfd_create("output", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static char *read_back(int fd)
{
	struct stat stat;
	char *text;

	ck_assert_int_eq(fstat(fd, &stat), 0);
	text = malloc((size_t)stat.st_size + 1);
	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(pread(fd, text, (size_t)stat.st_size, 0), stat.st_size);
	text[stat.st_size] = '\0';
	close(fd);
	return text;
}

void kvpool_command_run(const char *const *arguments, struct kvpool_command *command)
{
	int out = open_file();
	int err = open_file();
	int status = 0;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		become(arguments, out, err);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	command->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	command->out = read_back(out);
	command->err = read_back(err);
	ck_assert_msg(command->code != 127, "%s", command->err);
}

void kvpool_command_clear(struct kvpool_command *command)
{
	free(command->out);
	free(command->err);
	command->out = NULL;
	command->err = NULL;
}
