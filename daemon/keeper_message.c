/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One message to the supervisor's descriptor store: see keeper.h. Lines of NAME=value, as
 * sd_notify(3) has them; a line that is not known is passed over.
 */
#include "daemon/clock.h"
#include "daemon/keeper.h"
#include "shm/base.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* As many as the kernel lets a message have (SCM_MAX_FD): none is lost without a trace. */
#define FDS_MAX 253u

struct packet {
	char text[KVPOOL_KEEPER_TEXT_MAX + 2]; /* one more than allowed, and the NUL */
	size_t bytes;
	int fds[FDS_MAX]; /* owned; -1: taken */
	size_t n_fds;
	bool cut;
};

struct wish {
	bool store;
	bool remove;
	bool barrier;
	const char *name; /* in the packet; NULL: none */
};

static void complain(struct kvpool_keeper *k, const char *fmt, ...) KVPOOL_PRINTF(2, 3);

static void complain(struct kvpool_keeper *k, const char *fmt, ...)
{
	uint64_t suppressed;
	char text[256];
	va_list args;

	if (!kvpool_log_limit_pass(&k->quiet, kvpool_clock_ns(), &suppressed))
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (suppressed == 0)
		kvpool_log(KVPOOL_LOG_WARNING, "message dropped: %s", text);
	else
		kvpool_log(KVPOOL_LOG_WARNING, "message dropped: %s (and %" PRIu64 " more before)",
			   text, suppressed);
}

/*
 * Who sent the next message; it stays where it is. There is room for the sender alone, so that its
 * descriptors do not become ours: closing one that a stranger chose may take for ever.
 */
static int sender_peek(const struct kvpool_keeper *k, struct ucred *out)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	char byte;
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	const struct cmsghdr *c;

	if (recvmsg(k->fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
		return errno == EAGAIN || errno == EINTR ? KVPOOL_KEEPER_E_EMPTY : -errno;
	c = CMSG_FIRSTHDR(&message);
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS ||
	    c->cmsg_len != CMSG_LEN(sizeof(*out)))
		*out = (struct ucred){.pid = 0};
	else
		memcpy(out, CMSG_DATA(c), sizeof(*out));
	return 0;
}

static int packet_read(const struct kvpool_keeper *k, struct packet *p)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec text = {.iov_base = p->text, .iov_len = sizeof(p->text) - 1};
	struct msghdr message = {
		.msg_iov = &text,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *c;
	ssize_t n;

	p->n_fds = 0;
	n = recvmsg(k->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? KVPOOL_KEEPER_E_EMPTY : -errno;
	p->bytes = (size_t)n;
	p->text[n] = '\0';
	p->cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
	for (c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		p->n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(p->fds, CMSG_DATA(c), p->n_fds * sizeof(int));
	}
	return 0;
}

static bool begins(const char *line, const char *with)
{
	return strncmp(line, with, strlen(with)) == 0;
}

/* What the supervisor's own manager wants to know of its service, whoever of the two says it. */
static bool is_said(const char *line)
{
	return strcmp(line, "READY=1") == 0 || strcmp(line, "WATCHDOG=1") == 0 ||
	       begins(line, "STATUS=") || begins(line, "EXTEND_TIMEOUT_USEC=");
}

static void understand(struct packet *p, struct wish *wish, struct kvpool_keeper_note *note)
{
	char *rest = p->text, *line;
	size_t used = 0;

	while ((line = strsep(&rest, "\n"))) {
		if (strcmp(line, "FDSTORE=1") == 0)
			wish->store = true;
		else if (strcmp(line, "FDSTOREREMOVE=1") == 0)
			wish->remove = true;
		else if (strcmp(line, "BARRIER=1") == 0)
			wish->barrier = true;
		else if (strcmp(line, "STOPPING=1") == 0)
			note->stopping = true;
		else if (begins(line, "FDNAME="))
			wish->name = line + strlen("FDNAME=");
		else if (is_said(line))
			/* No longer than the packet was: it fits. */
			used += (size_t)snprintf(note->said + used, sizeof(note->said) - used,
						 "%s%s", used == 0 ? "" : "\n", line);
	}
}

/* Does what the message wants with the store. NULL, or what is wrong with it. */
static const char *act(struct kvpool_keeper *k, const struct wish *wish, struct packet *p)
{
	if (wish->store && wish->remove)
		return "it stores and removes at once";
	if ((wish->store || wish->remove) && (!wish->name || !kvpool_store_name_valid(wish->name)))
		return "FDNAME= is missing or no name for a kept descriptor";
	if (wish->store) {
		if (p->n_fds != 1)
			return "it stores none or several descriptors under one name";
		if (kvpool_keeper_put(k, wish->name, p->fds[0]) != 0)
			return "the store is full";
		p->fds[0] = -1;
		return NULL;
	}
	/* The descriptor of a barrier is closed, and that is the answer. */
	if (p->n_fds > 0 && !wish->barrier)
		return "it has descriptors and does not say what for";
	if (wish->remove)
		kvpool_keeper_remove(k, wish->name);
	return NULL;
}

static int message_handle(struct kvpool_keeper *k, struct packet *p,
			  struct kvpool_keeper_note *note)
{
	struct wish wish = {.name = NULL};
	const char *wrong = NULL;

	if (p->cut || p->bytes > KVPOOL_KEEPER_TEXT_MAX)
		wrong = "it is too long or has more descriptors than can be held";
	else if (strlen(p->text) != p->bytes)
		wrong = "it is no text";
	if (!wrong) {
		understand(p, &wish, note);
		wrong = act(k, &wish, p);
	}
	for (size_t i = 0; i < p->n_fds; i++) {
		if (p->fds[i] >= 0)
			(void)close(p->fds[i]);
	}
	if (!wrong)
		return 0;
	complain(k, "%s", wrong);
	return KVPOOL_KEEPER_E_MESSAGE;
}

int kvpool_keeper_receive(struct kvpool_keeper *k, pid_t child, struct kvpool_keeper_note *out)
{
	struct packet packet;
	struct ucred sender = {.pid = 0};
	char byte;
	int r;

	r = sender_peek(k, &sender);
	if (r != 0)
		return r;
	if (child <= 0 || sender.pid != child) {
		(void)recv(k->fd, &byte, sizeof(byte), MSG_DONTWAIT);
		complain(k, "process %d of user %u sent it, which is not the daemon",
			 (int)sender.pid, (unsigned int)sender.uid);
		return KVPOOL_KEEPER_E_MESSAGE;
	}
	r = packet_read(k, &packet);
	if (r != 0)
		return r;
	out->stopping = false;
	out->said[0] = '\0';
	return message_handle(k, &packet, out);
}
