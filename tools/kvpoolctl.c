/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl: shows what a kvpoold does, and tells it to end a client, to drain or to verify what
 * it holds. Talks to its admin socket, prints a table or the JSON as it came.
 *
 * One thread. The tables and the commands that change something are in tools/ctl.
 */
#include "client/kvpool.h"
#include "shm/base.h"
#include "tools/ctl/command.h"
#include "tools/ctl/show.h"
#include "tools/exit_codes.h"
#include "tools/units.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define TIMEOUT_MAX 86400u

static const char help[] =
	"Usage: kvpoolctl [OPTIONS] COMMAND\n"
	"\n"
	"Commands:\n"
	"  status         memory, blocks, hits and clients of the daemon\n"
	"  clients        who is attached, what each holds and how long it has been silent\n"
	"  evict          end a client: its handles die, what it has mapped stays mapped\n"
	"  drain          no new clients and blocks; wait for writers, say what is left\n"
	"  resume         take new clients and blocks again\n"
	"  verify         read every block that has a checksum, drop what differs\n"
	"  version        versions of this program and of the daemon\n"
	"\n"
	"Options:\n"
	"  --socket PATH  admin socket; else $KVPOOL_ADMIN_SOCKET, the one beside\n"
	"                 $KVPOOL_SOCKET, /run/kvpool/admin.sock, $XDG_RUNTIME_DIR/admin.sock\n"
	"  --json         the daemon's JSON, with schema_version, instead of a table\n"
	"  --client N     evict: which, by the ID that `clients` shows\n"
	"  --timeout S    drain: wait so many seconds at most (10)\n"
	"  --domain NAME  verify: this domain only\n"
	"  --structure    verify: check the tables of large caches too, which holds up\n"
	"                 everybody for about a second per million blocks\n"
	"  --help, --version\n"
	"\n"
	"Examples:\n"
	"  kvpoolctl status\n"
	"  kvpoolctl --json clients | jq '.clients[] | .name'\n"
	"  kvpoolctl evict --client 3\n"
	"  curl --unix-socket /run/kvpool/admin.sock http://localhost/v1/status\n"
	"\n"
	"Exit codes: 0 fine, 1 failure (drain: blocks are still being written), 2 usage, 3 daemon\n"
	"unreachable, 4 refused (no such client or domain), 5 degraded (status), or not all was "
	"what\n"
	"had been stored (verify), 6 version mismatch.\n";

static int usage(const char *what, const char *which)
{
	fprintf(stderr, "kvpoolctl: %s%s; see kvpoolctl --help\n", which, what);
	return KVPOOL_EXIT_USAGE;
}

/* GETs the resource and prints it. */
static int show(const struct kvpool_ctl_request *request, const char *resource,
		void (*table)(const json_t *), json_t **out)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	json_t *document = NULL;
	int error = kvpool_admin_client_get(request->path, resource, why, sizeof(why), &document);

	if (error != 0)
		return kvpool_ctl_complain(error, why);
	if (request->json)
		kvpool_ctl_print_json(document);
	else
		table(document);
	*out = document;
	return KVPOOL_EXIT_FINE;
}

static int status(const struct kvpool_ctl_request *request)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	json_t *document = NULL;
	int code = show(request, "/v1/status", kvpool_show_status, &document);

	if (code == KVPOOL_EXIT_FINE && kvpool_show_degraded(document, why, sizeof(why))) {
		fprintf(stderr, "kvpoolctl: degraded: %s\n", why);
		code = KVPOOL_EXIT_DEGRADED;
	}
	json_decref(document);
	return code;
}

static int clients(const struct kvpool_ctl_request *request)
{
	json_t *document = NULL;
	int code = show(request, "/v1/clients", kvpool_show_clients, &document);

	json_decref(document);
	return code;
}

/* Says its own version also where no daemon runs; that is then a message, not a failure. */
static int version(const struct kvpool_ctl_request *request)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	char own[32];
	char theirs[KVPOOL_SHOW_TEXT_BYTES];
	json_t *document = NULL;
	json_t *answer;
	int error =
		kvpool_admin_client_get(request->path, "/v1/status", why, sizeof(why), &document);

	if (error < 0 || (error > 0 && error != KVPOOL_ADMIN_E_UNREACHABLE))
		return kvpool_ctl_complain(error, why);
	snprintf(own, sizeof(own), "%d.%d", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR);
	if (document != NULL)
		kvpool_show_text(document, "version", theirs);
	if (request->json) {
		answer = json_pack("{s:i, s:s, s:s?}", "schema_version", KVPOOL_ADMIN_SCHEMA,
				   "kvpoolctl", own, "kvpoold", document != NULL ? theirs : NULL);
		kvpool_ctl_print_json(answer);
		json_decref(answer);
	} else {
		printf("kvpoolctl %s\n", own);
		if (document != NULL)
			printf("kvpoold %s\n", theirs);
	}
	if (error != 0)
		fprintf(stderr, "kvpoolctl: %s\n", why);
	json_decref(document);
	return KVPOOL_EXIT_FINE;
}

static const struct {
	const char *name;
	int (*run)(const struct kvpool_ctl_request *request);
	bool client, timeout, verify; /* which options of its own it takes */
} commands[] = {
	{"status", status, false, false, false},
	{"clients", clients, false, false, false},
	{"evict", kvpool_ctl_evict, true, false, false},
	{"drain", kvpool_ctl_drain, false, true, false},
	{"resume", kvpool_ctl_resume, false, false, false},
	{"verify", kvpool_ctl_verify, false, false, true},
	{"version", version, false, false, false},
};

static int run(struct kvpool_ctl_request *request, const char *name)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	int error;
	int code;
	size_t i;

	for (i = 0; i < KVPOOL_ARRAY_SIZE(commands); i++) {
		if (strcmp(commands[i].name, name) == 0)
			break;
	}
	if (i == KVPOOL_ARRAY_SIZE(commands))
		return usage(" is no command", name);
	if ((request->client != 0 && !commands[i].client) ||
	    (request->timeout != 0 && !commands[i].timeout) ||
	    ((request->domain != NULL || request->structure) && !commands[i].verify))
		return usage(" takes no such option", name);
	error = kvpool_admin_client_find(request->socket, why, sizeof(why), request->path);
	if (error != 0)
		return kvpool_ctl_complain(error, why);
	code = commands[i].run(request);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "kvpoolctl: cannot write: %s\n", strerror(errno));
		return KVPOOL_EXIT_FAILURE;
	}
	return code;
}

/* A whole number of 1..max. */
static int number(const char *text, uint32_t max, uint32_t *out)
{
	uint64_t value;

	if (kvpool_units_parse_number(text, 1, max, &value) != 0)
		return usage(": not a number of 1 or more", text);
	*out = (uint32_t)value;
	return 0;
}

/* 0, or the exit code. */
static int take(int option, const char *word, struct kvpool_ctl_request *request)
{
	switch (option) {
	case 's':
		request->socket = optarg;
		return 0;
	case 'j':
		request->json = true;
		return 0;
	case 'c':
		return number(optarg, UINT32_MAX, &request->client);
	case 'd':
		request->domain = optarg;
		return 0;
	case 'r':
		request->structure = true;
		return 0;
	case 't':
		return number(optarg, TIMEOUT_MAX, &request->timeout);
	case ':':
		return usage(" needs a value", word);
	default:
		return usage(" is no option", word);
	}
}

int main(int argc, char **argv)
{
	static const struct option names[] = {
		{"socket", required_argument, NULL, 's'},
		{"json", no_argument, NULL, 'j'},
		{"client", required_argument, NULL, 'c'},
		{"timeout", required_argument, NULL, 't'},
		{"domain", required_argument, NULL, 'd'},
		{"structure", no_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	struct kvpool_ctl_request request = {0};
	int option, code;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", names, NULL)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			return KVPOOL_EXIT_FINE;
		}
		if (option == 'v') {
			printf("kvpoolctl %d.%d\n", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR);
			return KVPOOL_EXIT_FINE;
		}
		code = take(option, argv[optind - 1], &request);
		if (code != 0)
			return code;
	}
	if (optind == argc)
		return usage("which command?", "");
	if (optind + 1 < argc)
		return usage(": one command at a time", argv[optind + 1]);
	return run(&request, argv[optind]);
}
