/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl: shows what a kvpoold does, and has it verify what it holds. Asks at its admin socket,
 * prints a table or the JSON as it came.
 *
 * One thread. The tables are in tools/ctl.
 */
#include "client/kvpool.h"
#include "shm/base.h"
#include "tools/admin_client.h"
#include "tools/ctl/show.h"
#include "tools/exit_codes.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct request {
	const char *socket; /* borrowed; NULL: not given */
	bool json;
	const char *domain; /* borrowed; NULL: all */
	bool structure;
	char path[KVPOOL_ADMIN_SOCKET_BYTES]; /* of the admin socket */
};

static const char help[] =
	"Usage: kvpoolctl [OPTIONS] COMMAND\n"
	"\n"
	"Commands:\n"
	"  status         memory, blocks, hits and clients of the daemon\n"
	"  clients        who is attached and what each holds\n"
	"  verify         read every block that has a checksum, drop what differs\n"
	"  version        versions of this program and of the daemon\n"
	"\n"
	"Options:\n"
	"  --socket PATH  admin socket; else $KVPOOL_ADMIN_SOCKET, the one beside\n"
	"                 $KVPOOL_SOCKET, /run/kvpool/admin.sock, $XDG_RUNTIME_DIR/admin.sock\n"
	"  --json         the daemon's JSON, with schema_version, instead of a table\n"
	"  --domain NAME  verify: this domain only\n"
	"  --structure    verify: check the tables of large caches too, which holds up\n"
	"                 everybody for about a second per million blocks\n"
	"  --help, --version\n"
	"\n"
	"Examples:\n"
	"  kvpoolctl status\n"
	"  kvpoolctl --json clients | jq '.clients[] | .name'\n"
	"  curl --unix-socket /run/kvpool/admin.sock http://localhost/v1/status\n"
	"\n"
	"Exit codes: 0 fine, 1 failure, 2 usage, 3 daemon unreachable, 4 refused, 5 degraded\n"
	"(status), or not all was what had been stored (verify), 6 version mismatch.\n";

static int usage(const char *what, const char *which)
{
	fprintf(stderr, "kvpoolctl: %s%s; see kvpoolctl --help\n", which, what);
	return KVPOOL_EXIT_USAGE;
}

static int complain(int error, const char *why)
{
	static const int codes[] = {
		[KVPOOL_ADMIN_E_UNREACHABLE] = KVPOOL_EXIT_UNREACHABLE,
		[KVPOOL_ADMIN_E_REFUSED] = KVPOOL_EXIT_REFUSED,
		[KVPOOL_ADMIN_E_ANSWER] = KVPOOL_EXIT_FAILURE,
		[KVPOOL_ADMIN_E_VERSION] = KVPOOL_EXIT_VERSION,
		[KVPOOL_ADMIN_E_PATH] = KVPOOL_EXIT_USAGE,
	};

	fprintf(stderr, "kvpoolctl: %s\n", error < 0 ? strerror(-error) : why);
	return error > 0 ? codes[error] : KVPOOL_EXIT_FAILURE;
}

static void print_json(const json_t *document)
{
	json_dumpf(document, stdout, JSON_INDENT(2));
	printf("\n");
}

/* GETs the resource and prints it. */
static int show(const struct request *request, const char *resource, void (*table)(const json_t *),
		json_t **out)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	json_t *document = NULL;
	int error = kvpool_admin_client_get(request->path, resource, why, sizeof(why), &document);

	if (error != 0)
		return complain(error, why);
	if (request->json)
		print_json(document);
	else
		table(document);
	*out = document;
	return KVPOOL_EXIT_FINE;
}

static int status(const struct request *request)
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

static int clients(const struct request *request)
{
	json_t *document = NULL;
	int code = show(request, "/v1/clients", kvpool_show_clients, &document);

	json_decref(document);
	return code;
}

static int verify(const struct request *request)
{
	static const char names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789._-";
	char why[KVPOOL_ADMIN_WHY_BYTES];
	json_t *document = NULL;
	int code = KVPOOL_EXIT_FINE;
	int error;

	if (request->domain != NULL && request->domain[strspn(request->domain, names)] != '\0')
		return usage(" is no domain's name", request->domain);
	error = kvpool_verify_run(request->path, request->domain, request->structure, why,
				  sizeof(why), &document);
	if (error != 0)
		return complain(error, why);
	if (request->json)
		print_json(document);
	else
		kvpool_show_verify(document);
	if (kvpool_show_unsound(document)) {
		fprintf(stderr, "kvpoolctl: not everything was what had been stored\n");
		code = KVPOOL_EXIT_DEGRADED;
	}
	json_decref(document);
	return code;
}

/* Says its own version also where no daemon runs; that is then a message, not a failure. */
static int version(const struct request *request)
{
	char why[KVPOOL_ADMIN_WHY_BYTES];
	char own[32];
	char theirs[KVPOOL_SHOW_TEXT_BYTES];
	json_t *document = NULL;
	json_t *answer;
	int error =
		kvpool_admin_client_get(request->path, "/v1/status", why, sizeof(why), &document);

	if (error < 0 || (error > 0 && error != KVPOOL_ADMIN_E_UNREACHABLE))
		return complain(error, why);
	snprintf(own, sizeof(own), "%d.%d", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR);
	if (document != NULL)
		kvpool_show_text(document, "version", theirs);
	if (request->json) {
		answer = json_pack("{s:i, s:s, s:s?}", "schema_version", KVPOOL_ADMIN_SCHEMA,
				   "kvpoolctl", own, "kvpoold", document != NULL ? theirs : NULL);
		print_json(answer);
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
	int (*run)(const struct request *request);
} commands[] = {
	{"status", status},
	{"clients", clients},
	{"verify", verify},
	{"version", version},
};

static int run(struct request *request, const char *name)
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
	if (commands[i].run != verify && (request->domain != NULL || request->structure))
		return usage(" takes neither --domain nor --structure", name);
	error = kvpool_admin_client_find(request->socket, why, sizeof(why), request->path);
	if (error != 0)
		return complain(error, why);
	code = commands[i].run(request);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "kvpoolctl: cannot write: %s\n", strerror(errno));
		return KVPOOL_EXIT_FAILURE;
	}
	return code;
}

int main(int argc, char **argv)
{
	static const struct option names[] = {
		{"socket", required_argument, NULL, 's'},
		{"json", no_argument, NULL, 'j'},
		{"domain", required_argument, NULL, 'd'},
		{"structure", no_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	struct request request = {0};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", names, NULL)) != -1) {
		switch (option) {
		case 's':
			request.socket = optarg;
			break;
		case 'j':
			request.json = true;
			break;
		case 'd':
			request.domain = optarg;
			break;
		case 't':
			request.structure = true;
			break;
		case 'h':
			fputs(help, stdout);
			return KVPOOL_EXIT_FINE;
		case 'v':
			printf("kvpoolctl %d.%d\n", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR);
			return KVPOOL_EXIT_FINE;
		case ':':
			return usage(" needs a value", argv[optind - 1]);
		default:
			return usage(" is no option", argv[optind - 1]);
		}
	}
	if (optind == argc)
		return usage("which command?", "");
	if (optind + 1 < argc)
		return usage(": one command at a time", argv[optind + 1]);
	return run(&request, argv[optind]);
}
