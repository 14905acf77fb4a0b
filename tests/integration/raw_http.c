/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin socket by hand: see raw_client.h.
 */
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_BYTES (1u << 20)

/* -1 where nobody listens. */
static int connect_stream(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	(void)strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

/* The whole answer, owned by the caller; NULL where nobody listens or who did went away. */
static char *exchange(const char *admin_socket, const char *method, const char *url)
{
	struct pollfd p = {.fd = connect_stream(admin_socket), .events = POLLIN};
	char *answer;
	size_t have = 0;
	ssize_t n;

	if (p.fd < 0)
		return NULL;
	answer = calloc(1, ANSWER_BYTES + 1);
	ck_assert_ptr_nonnull(answer);
	n = snprintf(answer, ANSWER_BYTES, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		     method, url);
	/* A daemon without descriptors answers before it is asked, and closes. */
	if (send(p.fd, answer, (size_t)n, MSG_NOSIGNAL) < 0)
		ck_assert_int_eq(errno, EPIPE);
	do {
		ck_assert_msg(poll(&p, 1, KVPOOL_RAW_MS) == 1, "%s %s: no answer", method, url);
		n = read(p.fd, answer + have, ANSWER_BYTES - have);
		if (n < 0 && errno == ECONNRESET)
			n = 0;
		ck_assert_int_ge(n, 0);
		have += (size_t)n;
	} while (n > 0);
	(void)close(p.fd);
	answer[have] = '\0';
	if (strncmp(answer, "HTTP/1.1 ", 9) == 0)
		return answer;
	free(answer);
	return NULL;
}

json_t *kvpool_raw_http(const char *admin_socket, const char *method, const char *url, int *code)
{
	char *answer = exchange(admin_socket, method, url);
	json_t *body;
	char *split;

	ck_assert_msg(answer != NULL, "%s %s at %s: no answer", method, url, admin_socket);
	ck_assert_int_eq(sscanf(answer, "HTTP/1.1 %d", code), 1);
	split = strstr(answer, "\r\n\r\n");
	ck_assert_ptr_nonnull(split);
	body = json_loads(split + 4, 0, NULL);
	free(answer);
	return body;
}

bool kvpool_raw_is(const char *admin_socket, const char *path, int64_t value)
{
	char *answer = exchange(admin_socket, "GET", "/v1/status");
	char *split = answer ? strstr(answer, "\r\n\r\n") : NULL;
	json_t *page = split ? json_loads(split + 4, 0, NULL) : NULL;
	bool is = page && kvpool_raw_number(page, path) == value;

	json_decref(page);
	free(answer);
	return is;
}

json_t *kvpool_raw_get(const char *admin_socket, const char *url)
{
	json_t *page;
	int code;

	page = kvpool_raw_http(admin_socket, "GET", url, &code);
	ck_assert_int_eq(code, 200);
	ck_assert_ptr_nonnull(page);
	ck_assert_int_eq(kvpool_raw_number(page, "schema_version"), 1);
	return page;
}

int64_t kvpool_raw_number(const json_t *page, const char *path)
{
	char copy[128], *save = NULL, *name;

	(void)snprintf(copy, sizeof(copy), "%s", path);
	for (name = strtok_r(copy, ".", &save); name; name = strtok_r(NULL, ".", &save)) {
		page = json_object_get(page, name);
		ck_assert_msg(page != NULL, "no %s in %s", name, path);
	}
	ck_assert_msg(json_is_integer(page), "%s is not a whole number", path);
	return json_integer_value(page);
}

int64_t kvpool_raw_status(const char *admin_socket, const char *path)
{
	json_t *page = kvpool_raw_get(admin_socket, "/v1/status");
	int64_t n = kvpool_raw_number(page, path);

	json_decref(page);
	return n;
}

struct expectation {
	const char *admin_socket;
	const char *path;
	int64_t value;
};

static bool reached(void *cookie)
{
	const struct expectation *e = cookie;

	return kvpool_raw_status(e->admin_socket, e->path) == e->value;
}

void kvpool_raw_await(const char *admin_socket, const char *path, int64_t value)
{
	struct expectation e = {admin_socket, path, value};

	ck_assert_msg(kvpool_harness_until(reached, &e, KVPOOL_RAW_MS), "%s is %lld, never %lld",
		      path, (long long)kvpool_raw_status(admin_socket, path), (long long)value);
}

static void expect_exact(const json_t *owner)
{
	static const char *const parts[] = {"free",        "ready",       "reserved",
					    "leased_only", "quarantined", "slack"};
	int64_t sum = 0;
	char path[64];
	size_t i;

	for (i = 0; i < KVPOOL_ARRAY_SIZE(parts); i++) {
		(void)snprintf(path, sizeof(path), "accounting.bytes.%s", parts[i]);
		sum += kvpool_raw_number(owner, path);
	}
	ck_assert_int_eq(sum, kvpool_raw_number(owner, "accounting.bytes.total"));
}

void kvpool_raw_expect_exact(const char *admin_socket)
{
	json_t *page = kvpool_raw_get(admin_socket, "/v1/status");
	const json_t *domains;
	size_t i;

	expect_exact(page);
	domains = json_object_get(page, "domains");
	for (i = 0; i < json_array_size(domains); i++)
		expect_exact(json_array_get(domains, i));
	/* Of a segment that is still being populated, a domain has what is ready. */
	ck_assert_int_le(kvpool_raw_number(page, "accounting.bytes.total"),
			 kvpool_raw_number(page, "pool.lent_bytes"));
	json_decref(page);
}
