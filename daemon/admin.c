/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin socket: see admin.h. What it answers is in admin_json.c, what it changes in
 * admin_change.c.
 */
#include "daemon/admin.h"

#include "daemon/admin_change.h"
#include "daemon/admin_json.h"
#include "daemon/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 32u
#define IDLE_SECONDS    10u

struct kvpool_admin {
	struct kvpool_server *server; /* borrowed */
	struct MHD_Daemon *http;      /* owned */
	struct kvpool_source *source; /* owned: MHD's epoll descriptor */
	struct kvpool_source *timer;  /* owned: MHD's timeouts; off while there is no connection */
	struct kvpool_listener listener;
};

static void run(struct kvpool_admin *admin)
{
	MHD_UNSIGNED_LONG_LONG ms;

	(void)MHD_run(admin->http);
	if (MHD_get_timeout(admin->http, &ms) == MHD_YES)
		kvpool_source_set_timer(admin->timer, kvpool_clock_ns() + ms * KVPOOL_NS_PER_MS);
	else
		kvpool_source_set_timer(admin->timer, 0);
}

static void due(void *cookie, uint32_t events)
{
	(void)events;
	run(cookie);
}

static void accepted(void *cookie, int fd, bool starved)
{
	static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
				   "Connection: close\r\n\r\n";
	static const struct sockaddr peer = {.sa_family = AF_UNIX};
	struct kvpool_admin *admin = cookie;
	char request[1024];

	if (starved) {
		/* What lies unread when we close would take our answer with it. */
		(void)!recv(fd, request, sizeof(request), MSG_DONTWAIT);
		(void)send(fd, busy, sizeof(busy) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		(void)close(fd);
		return;
	}
	/* Takes the descriptor, also where it refuses. */
	(void)MHD_add_connection(admin->http, fd, &peer, sizeof(peer));
	run(admin);
}

/* A page to read, or a change to make. */
static const struct page {
	const char *url;
	kvpool_admin_json_fn *read;     /* by GET; NULL: not to be read */
	kvpool_admin_change_fn *change; /* by POST; NULL: nothing to change */
} pages[] = {
	{"/v1/status", kvpool_admin_json_status, NULL},
	{"/v1/clients", kvpool_admin_json_clients, NULL},
	{"/v1/domains", kvpool_admin_json_domains, NULL},
	{"/v1/layouts", kvpool_admin_json_layouts, NULL},
	{"/v1/verify", kvpool_admin_json_verify, kvpool_admin_change_verify},
	{"/healthz", kvpool_admin_json_health, NULL},
	{"/v1/evict", NULL, kvpool_admin_change_evict},
	{"/v1/drain", NULL, kvpool_admin_change_drain},
	{"/v1/resume", NULL, kvpool_admin_change_resume},
};

/* Sends the text, which it takes. `allow`: the method that is allowed where this one is not. */
static enum MHD_Result respond(struct MHD_Connection *connection, unsigned int code, char *text,
			       const char *allow)
{
	struct MHD_Response *response;
	enum MHD_Result r;

	if (!text)
		return MHD_NO;
	response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(text);
		return MHD_NO;
	}
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	if (allow)
		(void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
	r = MHD_queue_response(connection, code, response);
	MHD_destroy_response(response);
	return r;
}

static enum MHD_Result make_change(struct kvpool_admin *admin, struct MHD_Connection *connection,
				   const struct page *page)
{
	unsigned int code;
	char *text = page->change(admin->server, connection, &code);

	return respond(connection, code, text, NULL);
}

static enum MHD_Result answer_page(struct kvpool_admin *admin, struct MHD_Connection *connection,
				   const struct page *page, const char *method)
{
	if (page->read && strcmp(method, MHD_HTTP_METHOD_GET) == 0)
		return respond(connection, MHD_HTTP_OK,
			       page->read(admin->server, admin->listener.path), NULL);
	if (page->change && strcmp(method, MHD_HTTP_METHOD_POST) == 0)
		return make_change(admin, connection, page);
	if (page->change && !page->read)
		return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
			       kvpool_admin_json_error("only POST is allowed here"),
			       MHD_HTTP_METHOD_POST);
	return respond(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
		       kvpool_admin_json_error(page->change ? "only GET and POST are allowed here"
							    : "only GET is allowed here"),
		       page->change ? "GET, POST" : MHD_HTTP_METHOD_GET);
}

static enum MHD_Result answer(void *cookie, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_bytes, void **request)
{
	static const char begun;
	size_t i;

	(void)version;
	(void)upload;
	/* A body, which nothing here needs, is read to its end: an answer before it may be lost. */
	if (strcmp(method, MHD_HTTP_METHOD_POST) == 0 && (!*request || *upload_bytes > 0)) {
		*request = (void *)(uintptr_t)&begun;
		*upload_bytes = 0;
		return MHD_YES;
	}
	*upload_bytes = 0;
	for (i = 0; i < KVPOOL_ARRAY_SIZE(pages); i++) {
		if (strcmp(url, pages[i].url) == 0)
			return answer_page(cookie, connection, &pages[i], method);
	}
	return respond(
		connection, MHD_HTTP_NOT_FOUND,
		kvpool_admin_json_error("no such page; there are /v1/status, /v1/clients, "
					"/v1/domains, /v1/layouts, /v1/verify, /healthz, and "
					"by POST /v1/verify, /v1/evict, /v1/drain, "
					"/v1/resume"),
		NULL);
}

static int start_http(struct kvpool_admin *admin)
{
	const union MHD_DaemonInfo *info;
	int r;

	/* It does not say why it fails; the C library may have. */
	errno = 0;
	/* Connections are accepted by listener_accept.c, which survives a lack of descriptors. */
	admin->http = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
				       answer, admin, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
				       MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS,
				       MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
	if (!admin->http)
		return errno > 0 ? -errno : -EIO;
	info = MHD_get_daemon_info(admin->http, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info || info->epoll_fd < 0)
		return -EIO;
	r = kvpool_loop_add_timer(admin->server->loop, due, admin, &admin->timer);
	if (r == 0)
		r = kvpool_loop_add_fd(admin->server->loop, info->epoll_fd, POLLIN, due, admin,
				       &admin->source);
	return r;
}

int kvpool_admin_new(struct kvpool_server *server, struct kvpool_listener *listener,
		     struct kvpool_admin **out)
{
	struct kvpool_admin *admin = calloc(1, sizeof(*admin));
	int r;

	if (!admin)
		return -ENOMEM;
	admin->server = server;
	admin->listener.fd = -1;
	r = start_http(admin);
	if (r == 0) {
		admin->listener = *listener;
		r = kvpool_listener_start(&admin->listener, server->loop, accepted, admin);
		if (r != 0)
			admin->listener.fd = -1;
	}
	if (r != 0) {
		kvpool_admin_free(admin);
		return r;
	}
	listener->fd = -1;
	*out = admin;
	return 0;
}

void kvpool_admin_free(struct kvpool_admin *admin)
{
	if (!admin)
		return;
	kvpool_listener_close(&admin->listener);
	kvpool_source_remove(admin->source);
	kvpool_source_remove(admin->timer);
	if (admin->http)
		MHD_stop_daemon(admin->http);
	free(admin);
}
