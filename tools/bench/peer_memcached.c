/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcached on a Unix socket, in its own meta protocol: pipelined mg, ms. Keys are text: the 32
 * bytes as 43 characters, shorter than hex and without the server's own base64 step.
 * Owned by `compare`; main thread.
 */
#include "tools/bench/peer.h"

#include "shm/base.h"
#include "shm/limits.h"
#include "tools/bench/ticks.h"
#include "tools/process.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SOCKET_NAME   "memcached.sock"
#define LOG_NAME      "memcached.log"
#define START_NS      UINT64_C(5000000000)
#define KNOCK_NS      1000000
#define TIMEOUT_S     10
#define SOCKET_BYTES  108
#define KEY_CHARS     43u
#define REQUEST_CHARS (3u + KEY_CHARS + 2u) /* "mg KEY\r\n" */
#define BURST_KEYS    2048u
#define IN_BYTES      (64u << 10)

struct memcached {
	struct kvpool_process process;
	int fd;         /* owned */
	char *request;  /* owned: the lookup that was prepared */
	uint32_t n;     /* keys in it */
	char *in;       /* owned: IN_BYTES of answers */
	size_t in_from; /* what was read and not yet taken: in[in_from..in_to) */
	size_t in_to;
};

static void encode_key(const uint8_t *key, char *text)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	uint32_t bits = 0;
	unsigned int n = 0;

	for (unsigned int i = 0; i < KVPOOL_KEY_BYTES; i++) {
		bits = bits << 8 | key[i];
		for (n += 8; n >= 6; n -= 6)
			*text++ = digits[bits >> (n - 6) & 63];
	}
	*text = digits[bits << (6 - n) & 63];
}

static int send_all(struct memcached *peer, struct iovec *parts, int n)
{
	while (n > 0) {
		ssize_t sent = writev(peer->fd, parts, n);

		if (sent < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		while (n > 0 && (size_t)sent >= parts->iov_len) {
			sent -= (ssize_t)parts->iov_len;
			parts++;
			n--;
		}
		if (n > 0) {
			parts->iov_base = (char *)parts->iov_base + sent;
			parts->iov_len -= (size_t)sent;
		}
	}
	return 0;
}

static int receive(struct memcached *peer, void *to, size_t bytes, size_t *got)
{
	ssize_t n;

	do {
		n = recv(peer->fd, to, bytes, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	*got = (size_t)n;
	return 0;
}

/* The next answer line without its end; valid until the next call. */
static int take_line(struct memcached *peer, char **line)
{
	for (;;) {
		char *from = peer->in + peer->in_from;
		char *end = memchr(from, '\n', peer->in_to - peer->in_from);
		size_t got = 0;
		int r;

		if (end && end > from && end[-1] == '\r') {
			end[-1] = '\0';
			peer->in_from = (size_t)(end + 1 - peer->in);
			*line = from;
			return 0;
		}
		memmove(peer->in, from, peer->in_to - peer->in_from);
		peer->in_to -= peer->in_from;
		peer->in_from = 0;
		if (peer->in_to == IN_BYTES)
			return -EPROTO;
		r = receive(peer, peer->in + peer->in_to, IN_BYTES - peer->in_to, &got);
		if (r < 0)
			return r;
		peer->in_to += got;
	}
}

/* The next `bytes` bytes of the answer, first what was read already. */
static int take_bytes(struct memcached *peer, void *to, size_t bytes)
{
	size_t at = peer->in_to - peer->in_from;

	if (at > bytes)
		at = bytes;
	memcpy(to, peer->in + peer->in_from, at);
	peer->in_from += at;
	while (at < bytes) {
		size_t got = 0;
		int r = receive(peer, (char *)to + at, bytes - at, &got);

		if (r < 0)
			return r;
		at += got;
	}
	return 0;
}

static void memcached_stop(void *state)
{
	struct memcached *peer = state;

	if (!peer)
		return;
	if (peer->fd >= 0)
		close(peer->fd);
	kvpool_process_stop(&peer->process);
	free(peer->request);
	free(peer->in);
	free(peer);
}

/* Until the server listens. */
static int memcached_connect(struct memcached *peer, const char *path)
{
	const struct timespec pause = {.tv_nsec = KNOCK_NS};
	const struct timeval timeout = {.tv_sec = TIMEOUT_S};
	uint64_t until = kvpool_monotonic_ns() + START_NS;
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	peer->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (peer->fd < 0)
		return -errno;
	setsockopt(peer->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	while (connect(peer->fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		if (!kvpool_process_alive(&peer->process))
			return -ECHILD;
		if (kvpool_monotonic_ns() > until)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	return 0;
}

static int memcached_start(const struct kvpool_folder *folder, int cpu, uint64_t bytes, void **out)
{
	char path[SOCKET_BYTES];
	char log[SOCKET_BYTES];
	char room[32];
	/* As root it wants to be told so. */
	const char *arguments[] = {"memcached", "-s", path, "-m", room,
				   "-I",        "8m", "-U", "0",  geteuid() == 0 ? "-u" : NULL,
				   "root",      NULL};
	struct kvpool_process_spec spec = {.arguments = arguments, .log = log, .cpu = cpu};
	struct memcached *peer = calloc(1, sizeof(*peer));
	int r = 0;

	if (!peer)
		return -ENOMEM;
	peer->fd = -1;
	peer->request = malloc((size_t)KVPOOL_PEER_KEYS_MAX * REQUEST_CHARS);
	peer->in = malloc(IN_BYTES);
	if (!peer->request || !peer->in)
		r = -ENOMEM;
	kvpool_folder_file(folder, SOCKET_NAME, path, sizeof(path));
	kvpool_folder_file(folder, LOG_NAME, log, sizeof(log));
	snprintf(room, sizeof(room), "%" PRIu64, (bytes >> 20) + 256);
	if (r == 0)
		r = kvpool_process_start(&spec, &peer->process);
	if (r == 0)
		r = memcached_connect(peer, path);
	if (r != 0) {
		if (r != -ENOENT)
			kvpool_folder_show(folder, LOG_NAME);
		memcached_stop(peer);
		return r == -ENOENT ? KVPOOL_PEER_E_ABSENT : r;
	}
	*out = peer;
	return 0;
}

static int memcached_version(void *state, char *out, size_t out_bytes)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t) "version\r\n", .iov_len = 9};
	struct memcached *peer = state;
	char *line = NULL;
	int r = send_all(peer, &part, 1);

	if (r == 0)
		r = take_line(peer, &line);
	if (r == 0)
		snprintf(out, out_bytes, "%s", strncmp(line, "VERSION ", 8) == 0 ? line + 8 : line);
	return r;
}

static int memcached_prepare(void *state, const uint8_t *keys, uint32_t n)
{
	struct memcached *peer = state;

	if (n > KVPOOL_PEER_KEYS_MAX)
		return -E2BIG;
	for (uint32_t i = 0; i < n; i++) {
		char *at = peer->request + (size_t)i * REQUEST_CHARS;

		memcpy(at, "mg ", 3);
		encode_key(keys + (size_t)i * KVPOOL_KEY_BYTES, at + 3);
		memcpy(at + 3 + KEY_CHARS, "\r\n", 2);
	}
	peer->n = n;
	return 0;
}

/* The server answers as it reads: a batch beyond both socket buffers would stop both sides. */
static int memcached_ask(void *state, uint32_t *found)
{
	struct memcached *peer = state;
	uint32_t count = 0;
	int r = 0;

	for (uint32_t at = 0; r == 0 && at < peer->n; at += BURST_KEYS) {
		uint32_t n = KVPOOL_MIN(peer->n - at, BURST_KEYS);
		struct iovec part = {.iov_base = peer->request + (size_t)at * REQUEST_CHARS,
				     .iov_len = (size_t)n * REQUEST_CHARS};

		r = send_all(peer, &part, 1);
		for (uint32_t i = 0; r == 0 && i < n; i++) {
			char *line = NULL;

			r = take_line(peer, &line);
			if (r == 0 && strncmp(line, "HD", 2) == 0)
				count++;
		}
	}
	if (r == 0)
		*found = count;
	return r;
}

static int memcached_set(void *state, const uint8_t *key, const void *value, size_t bytes)
{
	struct memcached *peer = state;
	char head[KEY_CHARS + 32] = "ms ";
	char tail[] = "\r\n";
	struct iovec parts[3] = {{.iov_base = head},
				 {.iov_base = (void *)(uintptr_t)value, .iov_len = bytes},
				 {.iov_base = tail, .iov_len = 2}};
	char *line = NULL;
	int r;

	encode_key(key, head + 3);
	parts[0].iov_len = 3 + KEY_CHARS +
			   (size_t)snprintf(head + 3 + KEY_CHARS, sizeof(head) - 3 - KEY_CHARS,
					    " %zu\r\n", bytes);
	r = send_all(peer, parts, 3);
	if (r == 0)
		r = take_line(peer, &line);
	if (r == 0 && strncmp(line, "HD", 2) != 0)
		r = strncmp(line, "SERVER_ERROR out of memory", 26) == 0 ? -ENOSPC : -EPROTO;
	return r;
}

static int memcached_get(void *state, const uint8_t *key, void *value, size_t bytes)
{
	struct memcached *peer = state;
	char request[KEY_CHARS + 8] = "mg ";
	struct iovec part = {.iov_base = request, .iov_len = 3 + KEY_CHARS + 4};
	size_t length;
	char end[2];
	char *line = NULL;
	int r;

	encode_key(key, request + 3);
	memcpy(request + 3 + KEY_CHARS, " v\r\n", 4);
	r = send_all(peer, &part, 1);
	if (r == 0)
		r = take_line(peer, &line);
	if (r < 0 || !line)
		return r;
	if (strncmp(line, "EN", 2) == 0)
		return -ENOENT;
	if (sscanf(line, "VA %zu", &length) != 1 || length != bytes)
		return -EPROTO;
	r = take_bytes(peer, value, bytes);
	return r == 0 ? take_bytes(peer, end, sizeof(end)) : r;
}

const struct kvpool_peer kvpool_peer_memcached = {
	.name = "memcached",
	.lookup = "pipelined mg",
	.copy = "ms, mg v",
	.start = memcached_start,
	.stop = memcached_stop,
	.version = memcached_version,
	.prepare = memcached_prepare,
	.ask = memcached_ask,
	.set = memcached_set,
	.get = memcached_get,
};
