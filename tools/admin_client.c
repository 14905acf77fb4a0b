/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talking to a daemon's admin socket: see admin_client.h.
 *
 * HTTP by libcurl over a Unix socket. Main thread.
 */
#include "tools/admin_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_MS 5000L
/* A status of ten thousand clients is some megabytes. */
#define ANSWER_MAX (64u << 20)

#define SYSTEM_SOCKET "/run/kvpool/admin.sock"

struct answer {
	char *text; /* owned */
	size_t length;
};

static size_t take(char *bytes, size_t size, size_t n, void *cookie)
{
	struct answer *answer = cookie;
	char *text;

	n *= size;
	if (n > ANSWER_MAX - answer->length)
		return 0;
	text = realloc(answer->text, answer->length + n + 1);
	if (text == NULL)
		return 0;
	memcpy(text + answer->length, bytes, n);
	answer->text = text;
	answer->length += n;
	text[answer->length] = '\0';
	return n;
}

static int copy_path(const char *from, char *why, size_t why_bytes, char *path)
{
	if (from[0] == '\0' || strlen(from) >= KVPOOL_ADMIN_SOCKET_BYTES) {
		snprintf(why, why_bytes, "the socket path \"%.40s%s\" must have 1 to %d bytes",
			 from, strlen(from) > 40 ? "..." : "", KVPOOL_ADMIN_SOCKET_BYTES - 1);
		return KVPOOL_ADMIN_E_PATH;
	}
	snprintf(path, KVPOOL_ADMIN_SOCKET_BYTES, "%s", from);
	return 0;
}

int kvpool_admin_client_beside(const char *data, char path[KVPOOL_ADMIN_SOCKET_BYTES])
{
	const char *slash = strrchr(data, '/');
	const char *base = slash != NULL ? slash + 1 : data;
	size_t length = strlen(base);
	int folder = (int)(base - data);
	int written;

	if (length > 5 && strcmp(base + length - 5, ".sock") == 0)
		length -= 5;
	if (length == 6 && strncmp(base, "kvpool", 6) == 0)
		written = snprintf(path, KVPOOL_ADMIN_SOCKET_BYTES, "%.*sadmin.sock", folder, data);
	else
		written = snprintf(path, KVPOOL_ADMIN_SOCKET_BYTES, "%.*s%.*s-admin.sock", folder,
				   data, (int)length, base);
	return written < KVPOOL_ADMIN_SOCKET_BYTES ? 0 : KVPOOL_ADMIN_E_PATH;
}

int kvpool_admin_client_find(const char *given, char *why, size_t why_bytes,
			     char path[KVPOOL_ADMIN_SOCKET_BYTES])
{
	const char *admin = getenv("KVPOOL_ADMIN_SOCKET");
	const char *data = getenv("KVPOOL_SOCKET");
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char joined[2 * KVPOOL_ADMIN_SOCKET_BYTES];

	if (given != NULL)
		return copy_path(given, why, why_bytes, path);
	if (admin != NULL && admin[0] != '\0')
		return copy_path(admin, why, why_bytes, path);
	if (data != NULL && data[0] != '\0') {
		if (kvpool_admin_client_beside(data, path) == 0)
			return 0;
		return copy_path(data, why, why_bytes, path);
	}
	if (access(SYSTEM_SOCKET, F_OK) == 0 || runtime == NULL || runtime[0] == '\0')
		return copy_path(SYSTEM_SOCKET, why, why_bytes, path);
	snprintf(joined, sizeof(joined), "%s/admin.sock", runtime);
	return copy_path(joined, why, why_bytes, path);
}

/* What a request that got no HTTP answer failed of. */
static int explain(CURL *curl, CURLcode code, const char *socket, char *why, size_t why_bytes)
{
	long error = 0;

	curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &error);
	if (code == CURLE_COULDNT_CONNECT && (error == EACCES || error == EPERM)) {
		snprintf(why, why_bytes, "%s: %s", socket, strerror((int)error));
		return KVPOOL_ADMIN_E_REFUSED;
	}
	/* The data socket is of another type. */
	if (code == CURLE_COULDNT_CONNECT && error == EPROTOTYPE) {
		char admin[KVPOOL_ADMIN_SOCKET_BYTES] = "";

		(void)kvpool_admin_client_beside(socket, admin);
		snprintf(why, why_bytes, "%s is the data socket; the admin socket should be %s",
			 socket, admin);
		return KVPOOL_ADMIN_E_PATH;
	}
	if (code == CURLE_COULDNT_CONNECT) {
		snprintf(why, why_bytes, "no daemon answers at %s: %s", socket,
			 error != 0 ? strerror((int)error) : "connection refused");
		return KVPOOL_ADMIN_E_UNREACHABLE;
	}
	/* The kernel may keep the sockets of a daemon that was killed for some milliseconds. */
	if (code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR) {
		snprintf(why, why_bytes, "no daemon answers at %s: it went away", socket);
		return KVPOOL_ADMIN_E_UNREACHABLE;
	}
	if (code == CURLE_OPERATION_TIMEDOUT) {
		snprintf(why, why_bytes, "the daemon at %s did not answer within %ld s", socket,
			 DEADLINE_MS / 1000);
		return KVPOOL_ADMIN_E_UNREACHABLE;
	}
	if (code == CURLE_OUT_OF_MEMORY)
		return -ENOMEM;
	snprintf(why, why_bytes, "%s: %s", socket, curl_easy_strerror(code));
	return KVPOOL_ADMIN_E_ANSWER;
}

static int parse(const struct answer *answer, const char *socket, char *why, size_t why_bytes,
		 json_t **out)
{
	const char *text = answer->text != NULL ? answer->text : "";
	json_error_t problem;
	json_t *document = json_loadb(text, answer->length, 0, &problem);
	const json_t *schema = json_object_get(document, "schema_version");
	int error = KVPOOL_ADMIN_E_ANSWER;

	if (json_is_integer(schema) && json_integer_value(schema) == KVPOOL_ADMIN_SCHEMA) {
		*out = document;
		return 0;
	}
	if (json_is_integer(schema)) {
		snprintf(why, why_bytes,
			 "the daemon at %s answers in schema_version %lld, this program reads %d",
			 socket, (long long)json_integer_value(schema), KVPOOL_ADMIN_SCHEMA);
		error = KVPOOL_ADMIN_E_VERSION;
	} else {
		snprintf(why, why_bytes, "what answers at %s is no kvpoold: %s", socket,
			 document == NULL ? problem.text : "it gives no schema_version");
	}
	json_decref(document);
	return error;
}

/* What the daemon says about a request that it does not serve; "" where it says nothing. */
static void read_error(const struct answer *answer, char *text, size_t text_bytes)
{
	json_t *document =
		json_loadb(answer->text != NULL ? answer->text : "", answer->length, 0, NULL);
	const char *error = json_string_value(json_object_get(document, "error"));

	snprintf(text, text_bytes, "%s%s", error != NULL ? ": " : "", error != NULL ? error : "");
	json_decref(document);
}

static int refuse(long status, bool post, const char *socket, const char *resource,
		  const struct answer *answer, char *why, size_t why_bytes)
{
	char text[200];

	read_error(answer, text, sizeof(text));
	snprintf(why, why_bytes, "the daemon at %s answers %ld to %s%s", socket, status, resource,
		 text);
	if (status == 401 || status == 403)
		return KVPOOL_ADMIN_E_REFUSED;
	return post && status >= 400 && status < 500 ? KVPOOL_ADMIN_E_REFUSED
						     : KVPOOL_ADMIN_E_ANSWER;
}

static int perform(CURL *curl, bool post, const char *socket, const char *resource,
		   struct answer *answer, char *why, size_t why_bytes)
{
	char url[256];
	long status = 0;
	CURLcode code;

	snprintf(url, sizeof(url), "http://localhost%s", resource);
	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, DEADLINE_MS);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
	if (post)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
	code = curl_easy_perform(curl);
	if (code != CURLE_OK)
		return explain(curl, code, socket, why, why_bytes);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200)
		return 0;
	return refuse(status, post, socket, resource, answer, why, why_bytes);
}

static int ask(bool post, const char *socket, const char *resource, char *why, size_t why_bytes,
	       json_t **out)
{
	struct answer answer = {NULL, 0};
	CURL *curl;
	int error;

	if (curl_global_init(CURL_GLOBAL_NOTHING) != CURLE_OK)
		return -ENOMEM;
	curl = curl_easy_init();
	if (curl == NULL)
		return -ENOMEM;
	error = perform(curl, post, socket, resource, &answer, why, why_bytes);
	if (error == 0)
		error = parse(&answer, socket, why, why_bytes, out);
	curl_easy_cleanup(curl);
	free(answer.text);
	return error;
}

int kvpool_admin_client_get(const char *socket, const char *resource, char *why, size_t why_bytes,
			    json_t **out)
{
	return ask(false, socket, resource, why, why_bytes, out);
}

int kvpool_admin_client_post(const char *socket, const char *resource, char *why, size_t why_bytes,
			     json_t **out)
{
	return ask(true, socket, resource, why, why_bytes, out);
}
