/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoold: reads its settings, makes pool, server and admin socket, serves until it is told to
 * leave; or watches over another kvpoold that does (--supervise).
 *
 * Exit codes: 0 fine, 1 failure, 2 usage.
 */
#include "daemon/admin.h"
#include "daemon/clock.h"
#include "daemon/host.h"
#include "daemon/kept.h"
#include "daemon/kill_point.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/options.h"
#include "daemon/server.h"
#include "daemon/sigbus.h"
#include "daemon/sizing.h"
#include "daemon/socket_path.h"
#include "daemon/start.h"
#include "daemon/store.h"
#include "daemon/supervise.h"
#include "daemon/version.h"
#include "daemon/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	EXIT_USAGE = 2,
};

/* Of the daemon itself and of a first client, beside those of the segments. */
#define DESCRIPTORS_MIN 32u

/* How long the start line waits for the pool's first step, so that it can name the pages. */
#define FIRST_STEP_MS 2000

struct daemon {
	struct kvpool_options options;
	struct kvpool_kept kept;
	struct kvpool_host host;
	struct kvpool_sizing sizing;
	struct kvpool_server *server;
	struct kvpool_admin *admin;
	struct kvpool_source *signals;
	struct kvpool_watchdog watchdog;
	int signal_fd;
	char socket[KVPOOL_SOCKET_PATH_BYTES];
	char admin_socket[KVPOOL_SOCKET_PATH_BYTES];
};

static void complain(const char *text)
{
	(void)fprintf(stderr, "kvpoold: %s\n", text);
}

/* `error`: positive. Returns the exit code. */
static int fail(const char *what, int error)
{
	(void)fprintf(stderr, "kvpoold: %s: %s\n", what, strerror(error));
	return EXIT_FAILURE;
}

/* No core file, no look from other processes of this user, no file that others can read. */
static void protect(void)
{
	struct rlimit none = {0, 0}, files;

	(void)umask(077);
	(void)setrlimit(RLIMIT_CORE, &none);
	(void)prctl(PR_SET_DUMPABLE, 0);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

static void signalled(void *cookie, uint32_t events)
{
	struct daemon *d = cookie;
	struct signalfd_siginfo info;

	(void)events;
	if (read(d->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	kvpool_log(KVPOOL_LOG_NOTICE, "%s: leaving",
		   info.ssi_signo == SIGINT ? "interrupted" : "told to leave");
	kvpool_notify_stopping();
	kvpool_server_leave(d->server);
}

/* Before any thread starts, so that all of them block the signals that are read here. */
static int catch_signals(struct daemon *d)
{
	sigset_t set;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return d->signal_fd < 0 ? -errno : kvpool_sigbus_install();
}

/* The kept pool has sizes of its own; where other ones are asked for it cannot be kept. */
static bool wants_other_sizes(const struct kvpool_options *o, const struct kvpool_state_sizes *s)
{
	return (o->size.bytes != 0 && o->size.bytes != s->pool_bytes) ||
	       (o->segment_size != 0 && o->segment_size != s->segment_bytes) ||
	       (o->extent_size != 0 && o->extent_size != s->extent_bytes) ||
	       o->max_blocks != s->blocks_max;
}

/* Where the pool of an earlier life came back, its sizes. False: it did not, or is given up. */
static bool choose_kept(struct daemon *d)
{
	const struct kvpool_state_sizes *s;

	if (!d->kept.state)
		return false;
	s = &d->kept.state->control->sizes;
	if (wants_other_sizes(&d->options, s)) {
		kvpool_kept_drop(&d->kept, "other sizes are asked for than it has");
		return false;
	}
	d->sizing = (struct kvpool_sizing){
		.bytes = s->pool_bytes,
		.segment_bytes = s->segment_bytes,
		.extent_bytes = s->extent_bytes,
		.step_bytes = s->step_bytes,
		.usable = s->pool_bytes,
	};
	return true;
}

/* A new state, where somebody keeps descriptors. That nobody does is no failure. */
static void keep(struct daemon *d)
{
	const struct kvpool_state_sizes sizes = {
		.pool_bytes = d->sizing.bytes,
		.segment_bytes = d->sizing.segment_bytes,
		.extent_bytes = d->sizing.extent_bytes,
		.step_bytes = d->sizing.step_bytes,
		.blocks_max = (uint64_t)d->options.max_blocks,
	};
	int r;

	if (d->kept.text[0])
		kvpool_log(KVPOOL_LOG_WARNING,
			   "the pool of the earlier life is not kept, this one starts empty: %s",
			   d->kept.text);
	if (d->kept.state || !kvpool_store_kept())
		return;
	r = kvpool_state_new(&sizes, &d->kept.state);
	if (r != 0)
		kvpool_log(KVPOOL_LOG_WARNING, "the pool will not outlive this process: %s",
			   strerror(-r));
}

/* 0, or the exit code, with the reason said. */
static int choose(struct daemon *d)
{
	const struct kvpool_options *o = &d->options;
	const struct kvpool_sizing_wish wish = {
		.size = o->size,
		.segment_bytes = o->segment_size,
		.extent_bytes = o->extent_size,
		.pages = o->pages,
		.populate = o->populate,
	};
	char error[KVPOOL_SIZING_ERROR_BYTES];

	if (kvpool_host_read("", &d->host) != 0) {
		complain("cannot read /proc/meminfo: how much memory is there is not known");
		return EXIT_FAILURE;
	}
	if (choose_kept(d))
		return 0;
	if (kvpool_sizing_choose(&d->host, &wish, error, &d->sizing) != 0) {
		complain(error);
		return EXIT_USAGE;
	}
	return 0;
}

/* With fewer it would start, and then refuse everybody. */
static int enough_descriptors(const struct daemon *d)
{
	uint64_t segments = d->sizing.bytes / d->sizing.segment_bytes;
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= segments + DESCRIPTORS_MIN)
		return 0;
	(void)fprintf(stderr,
		      "kvpoold: %llu descriptors may be open (RLIMIT_NOFILE); a pool of %llu "
		      "segments and one client need %llu\n",
		      (unsigned long long)files.rlim_cur, (unsigned long long)segments,
		      (unsigned long long)segments + DESCRIPTORS_MIN);
	return EXIT_FAILURE;
}

static int check_only(const struct daemon *d)
{
	char text[128];

	kvpool_start_describe(&d->sizing, text, sizeof(text));
	(void)printf("settings are valid; pool %s; socket %s; admin socket %s\n", text, d->socket,
		     d->admin_socket);
	return EXIT_SUCCESS;
}

static int make_server(struct daemon *d)
{
	const struct kvpool_options *o = &d->options;
	const struct kvpool_server_config config = {
		.loop = o->loop,
		.spin_max_ns = o->spin_max_us * KVPOOL_NS_PER_US,
		.pool =
			{
				.bytes = d->sizing.bytes,
				.segment_bytes = d->sizing.segment_bytes,
				.step_bytes = d->sizing.step_bytes,
				.pages = o->pages,
				.populate = o->populate,
				.numa = o->numa,
				.state = d->kept.state,
				.kept = d->kept.state ? &d->kept : NULL,
			},
		.extent_bytes = d->sizing.extent_bytes,
		.blocks_max = (uint32_t)o->max_blocks,
		.shared_catalog = d->host.thp,
		.crash_window = o->crash_window,
		.idle_limit = (uint32_t)o->idle_limit,
		.clients_max = (uint32_t)o->max_clients,
		.leases_max = (uint32_t)o->max_leases,
		.reservations_max = (uint32_t)o->max_reserved_blocks,
	};
	int r;

	if (kvpool_server_new(&config, &d->server) != 0)
		return EXIT_FAILURE;
	(void)snprintf(d->server->adoption.fault, sizeof(d->server->adoption.fault), "%s",
		       d->kept.text);
	r = kvpool_loop_add_fd(d->server->loop, d->signal_fd, POLLIN, signalled, d, &d->signals);
	if (r != 0) {
		kvpool_log(KVPOOL_LOG_ERROR, "cannot start: %s", strerror(-r));
		return EXIT_FAILURE;
	}
	return 0;
}

static int open_socket(int given, const char *path, int type, struct kvpool_listener *out)
{
	char text[KVPOOL_SOCKET_PATH_BYTES + 256];
	int r;

	if (given >= 0)
		r = kvpool_listener_adopt(given, type, out, text, sizeof(text));
	else
		r = kvpool_listener_open(path, type, kvpool_socket_path_mode(path), out, text,
					 sizeof(text));
	if (r == 0)
		return 0;
	kvpool_log(KVPOOL_LOG_ERROR, "%s", text);
	return EXIT_FAILURE;
}

/* Both sockets are bound before a page is touched: a second daemon finds out at once. */
static int open_sockets(struct daemon *d, const struct kvpool_notify_sockets *given,
			struct kvpool_listener *data, struct kvpool_listener *admin)
{
	int r;

	r = open_socket(given->data, d->socket, SOCK_SEQPACKET, data);
	if (r != 0)
		return r;
	if (given->data >= 0)
		(void)snprintf(d->socket, sizeof(d->socket), "%s", data->path);
	if (given->admin < 0 && given->data >= 0 && !d->options.admin_socket)
		kvpool_socket_path_admin(NULL, d->socket, d->admin_socket);
	r = open_socket(given->admin, d->admin_socket, SOCK_STREAM, admin);
	if (r != 0)
		kvpool_listener_close(data);
	return r;
}

static int serve(struct daemon *d, struct kvpool_listener *data, struct kvpool_listener *admin)
{
	struct pollfd first;
	int r;

	r = make_server(d);
	if (r != 0)
		return r;
	r = kvpool_admin_new(d->server, admin, &d->admin);
	if (r == 0)
		r = kvpool_server_listen(d->server, data);
	if (r == 0)
		r = kvpool_watchdog_start(&d->watchdog, d->server->loop);
	if (r != 0) {
		kvpool_log(KVPOOL_LOG_ERROR, "cannot serve the sockets: %s", strerror(-r));
		return EXIT_FAILURE;
	}
	first = (struct pollfd){.fd = kvpool_pool_fd(d->server->pool), .events = POLLIN};
	(void)poll(&first, 1, FIRST_STEP_MS);
	kvpool_start_say(d->server, &d->sizing, &d->host, d->socket);
	kvpool_notify_ready();
	kvpool_server_run(d->server);
	return EXIT_SUCCESS;
}

/* What was passed to this process. 0, or the exit code, with the reason said. */
static int take_passed(struct daemon *d, struct kvpool_notify_sockets *given)
{
	struct kvpool_store_list list;
	char error[512];
	int r;

	r = kvpool_notify_take_sockets(error, sizeof(error), given, &list);
	if (r < 0)
		return fail("cannot take what the service manager passed", -r);
	if (r != 0) {
		complain(error);
		return EXIT_FAILURE;
	}
	if (d->options.check) {
		kvpool_store_list_free(&list);
		return 0;
	}
	r = kvpool_kept_sort(&list, &d->kept);
	kvpool_kill_point(KVPOOL_KILL_KEPT_SORTED);
	return r == 0 ? 0 : fail("cannot take over the pool of the earlier life", -r);
}

static void end(struct daemon *d)
{
	kvpool_admin_free(d->admin);
	kvpool_watchdog_stop(&d->watchdog);
	if (d->server)
		kvpool_source_remove(d->signals);
	/*
	 * Whoever keeps the pool may start the next life. It finds all as this one leaves it, as
	 * after a crash: what clients still hold is not to be freed here, and the populating thread
	 * may be at work still, also that of a server that was never whole.
	 */
	if (d->kept.state) {
		if (d->server)
			kvpool_listener_close(&d->server->listener);
		return;
	}
	kvpool_server_free(d->server);
	kvpool_state_free(d->kept.state);
}

static int run(struct daemon *d)
{
	struct kvpool_listener data = {.fd = -1}, admin = {.fd = -1};
	struct kvpool_notify_sockets given = {-1, -1};
	int r;

	r = take_passed(d, &given);
	if (r == 0)
		r = choose(d);
	if (r == 0)
		r = enough_descriptors(d);
	if (r != 0)
		return r;
	if (given.data < 0 && kvpool_socket_path_data(d->options.socket, d->socket) != 0) {
		complain(d->socket);
		return EXIT_FAILURE;
	}
	kvpool_socket_path_admin(d->options.admin_socket, d->socket, d->admin_socket);
	if (d->options.check)
		return check_only(d);
	r = catch_signals(d);
	if (r != 0)
		return fail("cannot catch signals", -r);
	r = open_sockets(d, &given, &data, &admin);
	if (r == 0) {
		keep(d);
		r = serve(d, &data, &admin);
	}
	end(d);
	kvpool_listener_close(&data);
	kvpool_listener_close(&admin);
	(void)close(d->signal_fd);
	return r;
}

static int supervise(const struct kvpool_options *options, int argc, char *argv[])
{
	struct kvpool_supervise_config config = {
		.long_life_ns = KVPOOL_MAX(options->crash_window, 1u) * (uint64_t)KVPOOL_NS_PER_S};
	int code, r;

	r = kvpool_supervise_argv(argc, argv, &config.argv);
	if (r == 0)
		r = kvpool_supervise_run(&config, &code);
	kvpool_supervise_argv_free(config.argv);
	if (r == 0)
		return code;
	kvpool_log(KVPOOL_LOG_ERROR, "cannot supervise: %s", strerror(-r));
	return EXIT_FAILURE;
}

static int begin(struct daemon *d, int argc, char *argv[])
{
	kvpool_log_start(d->options.log_level);
	if (d->options.supervise && !d->options.check)
		return supervise(&d->options, argc, argv);
	return run(d);
}

int main(int argc, char *argv[])
{
	static struct daemon d;
	char error[KVPOOL_OPTIONS_ERROR_BYTES];
	int r;

	/* At once: it may have been given the pool's memory. */
	protect();
	r = kvpool_options_read(argc, argv, KVPOOL_OPTIONS_FILE, error, &d.options);
	if (r != 0) {
		if (r < 0)
			return fail("cannot read the settings", -r);
		complain(error);
		return EXIT_USAGE;
	}
	if (d.options.help)
		kvpool_options_help(stdout);
	else if (d.options.version)
		(void)printf("kvpoold %s (%s)\n", KVPOOL_VERSION, KVPOOL_COMMIT);
	else
		r = begin(&d, argc, argv);
	kvpool_options_free(&d.options);
	return r;
}
