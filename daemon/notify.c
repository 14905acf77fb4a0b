/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sd_notify and socket activation: see notify.h.
 */
#include "daemon/notify.h"

#include "daemon/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

static bool name_is(const char *name, const char *descriptor, const char *unit)
{
	return strcmp(name, descriptor) == 0 || strcmp(name, unit) == 0;
}

/* Puts descriptor `fd` where its name says; false with a line in `error` where it belongs nowhere.
 */
static bool socket_sort(int fd, const char *name, struct kvpool_notify_sockets *to, char *error,
			size_t error_bytes)
{
	int type = SOCK_SEQPACKET;
	int *place = &to->data;

	if (name_is(name, "admin", "kvpool-admin.socket")) {
		type = SOCK_STREAM;
		place = &to->admin;
	} else if (!name_is(name, "data", "kvpool.socket")) {
		(void)snprintf(error, error_bytes,
			       "the service manager passed a socket named \"%.64s\"; known are "
			       "\"data\" and \"admin\" (FileDescriptorName=)",
			       name);
		return false;
	}
	if (*place != -1) {
		(void)snprintf(error, error_bytes,
			       "the service manager passed more than one socket named \"%.64s\"",
			       name);
		return false;
	}
	if (sd_is_socket(fd, AF_UNIX, type, 1) <= 0) {
		(void)snprintf(error, error_bytes,
			       "the socket \"%.64s\" that the service manager passed is not a "
			       "listening Unix socket of type %s",
			       name,
			       type == SOCK_STREAM ? "stream (ListenStream=)"
						   : "sequential packet (ListenSequentialPacket=)");
		return false;
	}
	*place = fd;
	return true;
}

int kvpool_notify_take_sockets(char *error, size_t error_bytes, struct kvpool_notify_sockets *out)
{
	struct kvpool_notify_sockets found = {.data = -1, .admin = -1};
	char **names = NULL;
	bool good = true;
	int n;

	n = sd_listen_fds_with_names(1, &names);
	if (n < 0)
		return n;
	for (int i = 0; i < n && good; i++)
		good = socket_sort(SD_LISTEN_FDS_START + i, names[i], &found, error, error_bytes);
	for (int i = 0; i < n; i++) {
		if (!good)
			(void)close(SD_LISTEN_FDS_START + i);
		free(names[i]);
	}
	free(names);
	if (!good)
		return KVPOOL_NOTIFY_E_SOCKET;
	*out = found;
	return 0;
}

void kvpool_notify_ready(void)
{
	(void)sd_notify(0, "READY=1");
}

void kvpool_notify_stopping(void)
{
	(void)sd_notify(0, "STOPPING=1");
}

void kvpool_notify_status(const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	/* A newline would begin another assignment. */
	text[strcspn(text, "\n")] = '\0';
	(void)sd_notifyf(0, "STATUS=%s", text);
}

void kvpool_notify_extend(uint64_t ns)
{
	(void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, ns / KVPOOL_NS_PER_US);
}
