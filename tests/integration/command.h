/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program to its end and keeps what it printed.
 *
 * Owned by the test that ran it; one thread.
 */
#ifndef KVPOOL_TESTS_COMMAND_H
#define KVPOOL_TESTS_COMMAND_H

struct kvpool_command {
	int code;  /* exit code; 128 + signal where one ended it */
	char *out; /* owned; NUL-terminated */
	char *err; /* owned; NUL-terminated */
};

/* `arguments` is NULL-terminated; [0] is looked up as exec does. Fails the test without it. */
void kvpool_command_run(const char *const *arguments, struct kvpool_command *command);

/* Frees what it printed. */
void kvpool_command_clear(struct kvpool_command *command);

#endif
