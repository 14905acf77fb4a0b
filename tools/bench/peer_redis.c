/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis on a Unix socket, through hiredis: pipelined EXISTS, SET, GET. Keys are binary.
 * Owned by `compare`; main thread.
 */
#include "tools/bench/peer.h"

#include "shm/limits.h"
#include "tools/bench/ticks.h"
#include "tools/process.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SOCKET_NAME  "redis.sock"
#define LOG_NAME     "redis.log"
#define START_NS     UINT64_C(5000000000)
#define KNOCK_NS     1000000
#define TIMEOUT_S    10
#define SOCKET_BYTES 108

struct redis {
	struct kvpool_process process;
	redisContext *context; /* owned */
	char *request;         /* owned: the lookup that was prepared */
	size_t request_bytes;
	uint32_t n; /* keys in it */
};

static void redis_stop(void *peer)
{
	struct redis *redis = peer;

	if (!redis)
		return;
	if (redis->context)
		redisFree(redis->context);
	kvpool_process_stop(&redis->process);
	free(redis->request);
	free(redis);
}

/* Until the server listens. */
static int redis_connect(struct redis *redis, const char *path)
{
	const struct timespec pause = {.tv_nsec = KNOCK_NS};
	const struct timeval timeout = {.tv_sec = TIMEOUT_S};
	uint64_t until = kvpool_monotonic_ns() + START_NS;

	for (;;) {
		redis->context = redisConnectUnixWithTimeout(path, timeout);
		if (!redis->context)
			return -ENOMEM;
		if (!redis->context->err)
			return redisSetTimeout(redis->context, timeout) == REDIS_OK ? 0 : -EIO;
		redisFree(redis->context);
		redis->context = NULL;
		if (!kvpool_process_alive(&redis->process))
			return -ECHILD;
		if (kvpool_monotonic_ns() > until)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
}

static int redis_start(const struct kvpool_folder *folder, int cpu, uint64_t bytes, void **out)
{
	char path[SOCKET_BYTES];
	char log[SOCKET_BYTES];
	const char *arguments[] = {"redis-server", "--port", "0",     "--save",     "",
				   "--appendonly", "no",     "--dir", folder->path, "--unixsocket",
				   path,           NULL};
	struct kvpool_process_spec spec = {.arguments = arguments, .log = log, .cpu = cpu};
	struct redis *redis = calloc(1, sizeof(*redis));
	int r;

	(void)bytes; /* it takes what it needs */
	if (!redis)
		return -ENOMEM;
	kvpool_folder_file(folder, SOCKET_NAME, path, sizeof(path));
	kvpool_folder_file(folder, LOG_NAME, log, sizeof(log));
	r = kvpool_process_start(&spec, &redis->process);
	if (r == 0)
		r = redis_connect(redis, path);
	if (r != 0) {
		if (r != -ENOENT)
			kvpool_folder_show(folder, LOG_NAME);
		redis_stop(redis);
		return r == -ENOENT ? KVPOOL_PEER_E_ABSENT : r;
	}
	*out = redis;
	return 0;
}

static int redis_version(void *peer, char *out, size_t out_bytes)
{
	struct redis *redis = peer;
	redisReply *reply = redisCommand(redis->context, "INFO server");
	const char *at;

	if (!reply)
		return -EIO;
	at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, "redis_version:") : NULL;
	if (at) {
		at += strlen("redis_version:");
		snprintf(out, out_bytes, "%.*s", (int)strcspn(at, "\r\n"), at);
	}
	freeReplyObject(reply);
	return at ? 0 : -EPROTO;
}

/* A key is of one length, and so is its command: "*2\r\n$6\r\nEXISTS\r\n$32\r\n" KEY "\r\n". */
static int redis_prepare(void *peer, const uint8_t *keys, uint32_t n)
{
	static const char head[] = "*2\r\n$6\r\nEXISTS\r\n$32\r\n";
	const size_t head_bytes = sizeof(head) - 1;
	const size_t stride = head_bytes + KVPOOL_KEY_BYTES + 2;
	struct redis *redis = peer;

	if (n > KVPOOL_PEER_KEYS_MAX)
		return -E2BIG;
	if (!redis->request)
		redis->request = malloc(KVPOOL_PEER_KEYS_MAX * stride);
	if (!redis->request)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		char *at = redis->request + i * stride;

		memcpy(at, head, head_bytes);
		memcpy(at + head_bytes, keys + (size_t)i * KVPOOL_KEY_BYTES, KVPOOL_KEY_BYTES);
		memcpy(at + stride - 2, "\r\n", 2);
	}
	redis->n = n;
	redis->request_bytes = n * stride;
	return 0;
}

static int redis_ask(void *peer, uint32_t *found)
{
	struct redis *redis = peer;
	uint32_t count = 0;

	if (redisAppendFormattedCommand(redis->context, redis->request, redis->request_bytes) !=
	    REDIS_OK)
		return -EIO;
	for (uint32_t i = 0; i < redis->n; i++) {
		redisReply *reply;

		if (redisGetReply(redis->context, (void **)&reply) != REDIS_OK)
			return -EIO;
		if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 1)
			count++;
		freeReplyObject(reply);
	}
	*found = count;
	return 0;
}

static int redis_set(void *peer, const uint8_t *key, const void *value, size_t bytes)
{
	struct redis *redis = peer;
	const char *arguments[] = {"SET", (const char *)key, value};
	const size_t lengths[] = {3, KVPOOL_KEY_BYTES, bytes};
	redisReply *reply = redisCommandArgv(redis->context, 3, arguments, lengths);
	int r = reply && reply->type == REDIS_REPLY_STATUS ? 0 : -EIO;

	if (reply)
		freeReplyObject(reply);
	return r;
}

static int redis_get(void *peer, const uint8_t *key, void *value, size_t bytes)
{
	struct redis *redis = peer;
	const char *arguments[] = {"GET", (const char *)key};
	const size_t lengths[] = {3, KVPOOL_KEY_BYTES};
	redisReply *reply = redisCommandArgv(redis->context, 2, arguments, lengths);
	int r = -EIO;

	if (!reply)
		return r;
	if (reply->type == REDIS_REPLY_NIL)
		r = -ENOENT;
	if (reply->type == REDIS_REPLY_STRING && reply->len == bytes) {
		memcpy(value, reply->str, bytes);
		r = 0;
	}
	freeReplyObject(reply);
	return r;
}

const struct kvpool_peer kvpool_peer_redis = {
	.name = "redis",
	.lookup = "pipelined EXISTS",
	.copy = "SET, GET",
	.start = redis_start,
	.stop = redis_stop,
	.version = redis_version,
	.prepare = redis_prepare,
	.ask = redis_ask,
	.set = redis_set,
	.get = redis_get,
};
