/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool-llama: a prompt in, text out, and how many prompt tokens were not computed.
 *
 * One thread. The work is in generate.c.
 */
#include "client/kvpool.h"
#include "client/llama/generate.h"
#include "shm/base.h"
#include "tools/exit_codes.h"
#include "tools/units.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request {
	struct kvpool_generate_job job;
	const char *file; /* borrowed; NULL: not given */
	char *read;       /* owned: the prompt where it was read */
	bool json;
};

static const char help[] =
	"Usage: kvpool-llama --model FILE.gguf [OPTIONS]\n"
	"\n"
	"Continues a prompt with llama.cpp. What of the prompt another process of this host has\n"
	"computed comes from the pool; the answer is the same, bit by bit.\n"
	"\n"
	"Options:\n"
	"  --prompt TEXT    the prompt; else it is read from --file, else from standard input\n"
	"  --file FILE      the prompt is in it\n"
	"  --predict N      tokens of the answer at most; 32\n"
	"  --threads N      of computing; as many as there are processors for it\n"
	"  --context N      tokens that the context takes; as many as needed, at least 4096\n"
	"  --block N        tokens a block; 128\n"
	"  --kv-type TYPE   of the KV cache: f32, f16, bf16, q8_0, q4_0; f16\n"
	"  --salt TEXT      share only with prompts of the same salt\n"
	"  --no-kvpool      share nothing\n"
	"  --json           one JSON object instead of text\n"
	"  --logits-digest  SHA-256 of all logits that were computed, to compare runs\n"
	"  --help, --version\n"
	"\n"
	"The daemon's socket is $KVPOOL_SOCKET, /run/kvpool/kvpool.sock or\n"
	"$XDG_RUNTIME_DIR/kvpool.sock. Without a daemon everything is computed.\n"
	"\n"
	"Exit codes: 0 fine, 1 failure, 2 usage (also: no such model).\n";

static int usage(const char *what, const char *which)
{
	fprintf(stderr, "kvpool-llama: %s%s; see kvpool-llama --help\n", which, what);
	return KVPOOL_EXIT_USAGE;
}

static uint32_t processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	return (uint32_t)KVPOOL_MAX(CPU_COUNT(&set), 1);
}

/* ---- the prompt ---- */

static int read_all(FILE *f, char **out, size_t *n)
{
	FILE *to = open_memstream(out, n);
	char bytes[65536];
	size_t got;
	int bad;

	if (!to)
		return -ENOMEM;
	while ((got = fread(bytes, 1, sizeof(bytes), f)) > 0)
		fwrite(bytes, 1, got, to);
	bad = ferror(f) ? -EIO : 0;
	if (ferror(to))
		bad = -ENOMEM;
	if (fclose(to) != 0)
		bad = -ENOMEM;
	return bad;
}

static int read_prompt(struct request *r)
{
	FILE *f = r->file ? fopen(r->file, "rb") : stdin;
	int e;

	if (r->job.prompt)
		return 0;
	if (!f) {
		fprintf(stderr, "kvpool-llama: cannot open the prompt %s: %s\n", r->file,
			strerror(errno));
		return KVPOOL_EXIT_USAGE;
	}
	e = read_all(f, &r->read, &r->job.prompt_bytes);
	if (r->file)
		fclose(f);
	if (e != 0) {
		fprintf(stderr, "kvpool-llama: cannot read the prompt: %s\n", strerror(-e));
		return KVPOOL_EXIT_FAILURE;
	}
	r->job.prompt = r->read;
	return 0;
}

/* ---- the outcome ---- */

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static json_t *text_or_null(const char *text)
{
	return text[0] ? json_string(text) : json_null();
}

/* The answer may end within a character: what is not whole is left out. */
static json_t *answer(const struct kvpool_generate_outcome *o)
{
	for (size_t cut = 0; cut < 4 && cut <= o->text_bytes; cut++) {
		json_t *text = json_stringn(o->text, o->text_bytes - cut);

		if (text)
			return text;
	}
	return json_null();
}

static int print_json(const struct kvpool_generate_outcome *o)
{
	const struct kvpool_llama_report *r = &o->report;
	json_t *all =
		json_pack("{s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o}", "schema_version", 1,
			  "text", answer(o), "prompt_tokens", (int)r->tokens, "restored_tokens",
			  (int)r->restored, "computed_tokens", (int)(r->tokens - r->restored),
			  "published_blocks", (int)r->published, "predicted_tokens",
			  (int)o->predicted, "logits_sha256", text_or_null(o->digest), "private",
			  text_or_null(o->why_private), "pool_error", text_or_null(o->pool_error));
	json_t *times = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "load", ms(o->load_ns),
				  "open", ms(o->open_ns), "wait", ms(r->wait_ns), "restore",
				  ms(r->restore_ns), "compute", ms(r->compute_ns), "prefill",
				  ms(o->prefill_ns), "predict", ms(o->predict_ns));
	int bad = !all || json_object_set_new(all, "milliseconds", times) != 0 ||
		  json_dumpf(all, stdout, JSON_COMPACT) != 0;

	putchar('\n');
	json_decref(all);
	return bad ? KVPOOL_EXIT_FAILURE : KVPOOL_EXIT_FINE;
}

static void print_text(const struct kvpool_generate_outcome *o)
{
	const struct kvpool_llama_report *r = &o->report;
	char a[KVPOOL_UNITS_BYTES], b[KVPOOL_UNITS_BYTES], c[KVPOOL_UNITS_BYTES];

	fwrite(o->text, 1, o->text_bytes, stdout);
	putchar('\n');
	fprintf(stderr,
		"kvpool-llama: %u of %u prompt tokens not computed; read from the pool in %s, "
		"the rest computed in %s; %u tokens of answer in %s\n",
		r->restored, r->tokens, kvpool_units_ns(r->restore_ns, a),
		kvpool_units_ns(r->compute_ns, b), o->predicted, kvpool_units_ns(o->predict_ns, c));
	if (o->digest[0])
		fprintf(stderr, "kvpool-llama: logits %s\n", o->digest);
	if (o->why_private[0])
		fprintf(stderr, "kvpool-llama: nothing is shared: %s\n", o->why_private);
	else if (o->pool_error[0])
		fprintf(stderr, "kvpool-llama: not all is shared: %s\n", o->pool_error);
}

static int work(struct request *request)
{
	struct kvpool_generate_outcome outcome;
	char error[KVPOOL_GENERATE_TEXT_BYTES];
	int code = read_prompt(request);
	int e;

	if (code != 0)
		return code;
	e = kvpool_generate(&request->job, &outcome, error);
	if (e != 0) {
		fprintf(stderr, "kvpool-llama: %s\n", error);
		return e == -EINVAL ? KVPOOL_EXIT_USAGE : KVPOOL_EXIT_FAILURE;
	}
	if (request->json)
		code = print_json(&outcome);
	else
		print_text(&outcome);
	free(outcome.text);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "kvpool-llama: cannot write: %s\n", strerror(errno));
		return KVPOOL_EXIT_FAILURE;
	}
	return code;
}

/* ---- the command line ---- */

enum {
	MODEL = 1,
	PROMPT,
	PROMPT_FILE,
	PREDICT,
	THREADS,
	CONTEXT,
	BLOCK,
	KV_TYPE,
	SALT,
	NO_KVPOOL
};

static const struct option names[] = {
	{"model", required_argument, NULL, MODEL},
	{"prompt", required_argument, NULL, PROMPT},
	{"file", required_argument, NULL, PROMPT_FILE},
	{"predict", required_argument, NULL, PREDICT},
	{"threads", required_argument, NULL, THREADS},
	{"context", required_argument, NULL, CONTEXT},
	{"block", required_argument, NULL, BLOCK},
	{"kv-type", required_argument, NULL, KV_TYPE},
	{"salt", required_argument, NULL, SALT},
	{"no-kvpool", no_argument, NULL, NO_KVPOOL},
	{"json", no_argument, NULL, 'j'},
	{"logits-digest", no_argument, NULL, 'd'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'v'},
	{NULL, 0, NULL, 0},
};

/* Options that take a number, with its bounds. */
static int set_number(struct kvpool_generate_job *job, int option, const char *text)
{
	static const uint64_t min[] = {[THREADS] = 1, [CONTEXT] = 1, [BLOCK] = 1, [PREDICT] = 0};
	static const uint64_t max[] = {
		[THREADS] = 512, [CONTEXT] = 1 << 26, [BLOCK] = 65536, [PREDICT] = 1 << 26};
	uint32_t *to[] = {[THREADS] = &job->threads,
			  [CONTEXT] = &job->context,
			  [BLOCK] = &job->block,
			  [PREDICT] = &job->predict};
	uint64_t value;

	if (kvpool_units_parse_number(text, min[option], max[option], &value) != 0) {
		fprintf(stderr, "kvpool-llama: %s is no number of %llu to %llu\n", text,
			(unsigned long long)min[option], (unsigned long long)max[option]);
		return KVPOOL_EXIT_USAGE;
	}
	*to[option] = (uint32_t)value;
	return 0;
}

static int set(struct request *r, int option, char **argv)
{
	switch (option) {
	case MODEL:
		r->job.model = optarg;
		return 0;
	case PROMPT:
		r->job.prompt = optarg;
		r->job.prompt_bytes = strlen(optarg);
		return 0;
	case PROMPT_FILE:
		r->file = optarg;
		return 0;
	case KV_TYPE:
		r->job.kv_type = optarg;
		return 0;
	case SALT:
		r->job.salt = optarg;
		return 0;
	case NO_KVPOOL:
		r->job.share = false;
		return 0;
	case 'j':
		r->json = true;
		return 0;
	case 'd':
		r->job.digest = true;
		return 0;
	case ':':
		return usage(" needs a value", argv[optind - 1]);
	case '?':
		return usage(" is no option", argv[optind - 1]);
	default:
		return set_number(&r->job, option, optarg);
	}
}

int main(int argc, char **argv)
{
	struct request request = {
		.job = {.kv_type = "f16", .predict = 32, .threads = processors(), .share = true}};
	int option, code;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", names, NULL)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			return KVPOOL_EXIT_FINE;
		}
		if (option == 'v') {
			printf("kvpool-llama %d.%d\n", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR);
			return KVPOOL_EXIT_FINE;
		}
		code = set(&request, option, argv);
		if (code != 0)
			return code;
	}
	if (optind < argc)
		return usage(" is one argument too many", argv[optind]);
	if (!request.job.model)
		return usage("which --model?", "");
	if (request.job.prompt && request.file)
		return usage("either --prompt or --file", "");
	code = work(&request);
	free(request.read);
	return code;
}
