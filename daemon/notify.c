/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between daemon and service manager: see notify.h.
 */
#include "daemon/notify.h"

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/manager.h"

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

static bool name_known(const char *name)
{
	return name_is(name, "data", "kvpool.socket") ||
	       name_is(name, "admin", "kvpool-admin.socket");
}

/* Takes `fd` on success. */
static int fd_sort(int fd, const char *name, struct kvpool_notify_sockets *sockets,
		   struct kvpool_store_list *kept, char *error, size_t error_bytes)
{
	if (kvpool_store_name_valid(name))
		return kvpool_store_list_add(kept, name, fd);
	if (!name_known(name) && sd_is_socket(fd, AF_UNSPEC, 0, -1) == 0) {
		/* Another version's, perhaps: not worth staying down for. */
		kvpool_log(KVPOOL_LOG_WARNING,
			   "the service manager passed a descriptor named \"%.64s\"; it is closed",
			   name);
		(void)close(fd);
		return 0;
	}
	return socket_sort(fd, name, sockets, error, error_bytes) ? 0 : KVPOOL_NOTIFY_E_SOCKET;
}

int kvpool_notify_take_sockets(char *error, size_t error_bytes, struct kvpool_notify_sockets *out,
			       struct kvpool_store_list *kept)
{
	struct kvpool_notify_sockets sockets = {.data = -1, .admin = -1};
	struct kvpool_store_list list = {.fds = NULL};
	char **names = NULL;
	int n, r = 0;

	n = sd_listen_fds_with_names(1, &names);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		bool took = false;

		if (r == 0) {
			r = fd_sort(SD_LISTEN_FDS_START + i, names[i], &sockets, &list, error,
				    error_bytes);
			took = r == 0;
		}
		if (!took)
			(void)close(SD_LISTEN_FDS_START + i);
		free(names[i]);
	}
	free(names);
	if (r != 0) {
		if (sockets.data >= 0)
			(void)close(sockets.data);
		if (sockets.admin >= 0)
			(void)close(sockets.admin);
		kvpool_store_list_free(&list);
		return r;
	}
	*out = sockets;
	*kept = list;
	return 0;
}

void kvpool_notify_ready(void)
{
	(void)kvpool_manager_send("READY=1", -1);
}

void kvpool_notify_stopping(void)
{
	(void)kvpool_manager_send("STOPPING=1", -1);
}

void kvpool_notify_status(const char *fmt, ...)
{
	char text[256] = "STATUS=";
	size_t used = strlen(text);
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text + used, sizeof(text) - used, fmt, args);
	va_end(args);
	/* A newline would begin another assignment. */
	text[strcspn(text, "\n")] = '\0';
	(void)kvpool_manager_send(text, -1);
}

void kvpool_notify_alive(void)
{
	(void)kvpool_manager_send("WATCHDOG=1", -1);
}

void kvpool_notify_extend(uint64_t ns)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%" PRIu64, ns / KVPOOL_NS_PER_US);
	(void)kvpool_manager_send(text, -1);
}
