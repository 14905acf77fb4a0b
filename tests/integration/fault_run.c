/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One life of a daemon in which one call fails: see fault_run.h.
 */
#include "tests/integration/fault_run.h"

#include "tests/integration/client_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT       5u   /* blocks of the chain of the client that is to notice nothing */
#define CHAIN      100u /* the first of those that need a second segment */
#define CHAINS     5u
#define LONG_CHAIN 60u
#define MS         60000u /* the pool tries again after 10 s what failed */
#define SEGMENTS   3
#define RETRY_MS   50
#define TRIES      3
#define PATH_BYTES 128

#define NAME(name, text) text,

static const char *const names[KVPOOL_FAULT_COUNT] = {KVPOOL_FAULT_CALLS(NAME)};

struct run {
	const struct kvpool_fault_plan *plan;
	struct kvpool_fault *fault;
	struct kvpool_harness *daemon;
	struct kvpool_rig quiet; /* the client that is to notice nothing */
	struct kvpool_rig busy;
};

const char *kvpool_fault_name(enum kvpool_fault_call call)
{
	return names[call];
}

/* A sanitizer's library must come before the shim; a build that has it inside needs nothing. */
static void preload_value(char *out, size_t out_bytes)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512] = "";
	const char *path = NULL;

	ck_assert_ptr_nonnull(maps);
	while (!path && fgets(line, sizeof(line), maps)) {
		if (strstr(line, "/libasan.so") || strstr(line, "/libtsan.so"))
			path = strchr(line, '/');
		line[strcspn(line, "\n")] = '\0';
	}
	(void)fclose(maps);
	(void)snprintf(out, out_bytes, "%s%s%s", path ? path : "", path ? ":" : "",
		       getenv("KVPOOL_FAULT_SHIM"));
}

struct kvpool_fault *kvpool_fault_load(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	char value[1024];
	void *at;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(struct kvpool_fault)), 0);
	at = mmap(NULL, sizeof(struct kvpool_fault), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	(void)close(fd);
	preload_value(value, sizeof(value));
	ck_assert_int_eq(setenv("KVPOOL_FAULT", path, 1), 0);
	ck_assert_int_eq(setenv("LD_PRELOAD", value, 1), 0);
	return at;
}

void kvpool_fault_unload(void)
{
	(void)unsetenv("LD_PRELOAD");
}

static void open_client(const struct run *run, struct kvpool_rig *rig)
{
	kvpool_rig_open(kvpool_harness_socket(run->daemon),
			(struct kvpool_options){.deadline_ns = KVPOOL_RIG_LONG}, rig);
}

static bool hit(const struct run *run)
{
	return atomic_load(&run->fault->hits) > 0;
}

static int count(const char *text, const char *part)
{
	int n = 0;

	for (text = strstr(text, part); text; text = strstr(text + 1, part))
		n++;
	return n;
}

/* Nobody crashed, and whoever ended said why. */
static void judge_words(const struct run *run, int kills)
{
	static const char *const never[] = {"Sanitizer", "runtime error", "Assertion", "PANIC"};
	const char *text = kvpool_harness_stderr(run->daemon);

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(never); i++)
		ck_assert_msg(!strstr(text, never[i]), "%s", text);
	ck_assert_msg(count(text, "killed by signal") == kills, "%s", text);
	ck_assert_msg(count(text, "killed by signal 9") == kills, "%s", text);
	ck_assert_msg(count(text, "ended with code") == count(text, "ended with code 1"), "%s",
		      text);
	if (strstr(text, "ended with code"))
		ck_assert_msg(hit(run) && strstr(text, strerror(run->plan->error)), "%s", text);
}

static void judge_ended(const struct run *run)
{
	int status = kvpool_harness_status(run->daemon);
	const char *text = kvpool_harness_stderr(run->daemon);

	ck_assert_msg(hit(run), "it ended without reason: %s", text);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE,
		      "wait status %d: %s", status, text);
	ck_assert_msg(strstr(text, strerror(run->plan->error)), "%s", text);
	judge_words(run, 0);
	ck_assert_int_eq(access(kvpool_harness_socket(run->daemon), F_OK), -1);
	ck_assert_int_eq(access(kvpool_harness_admin_socket(run->daemon), F_OK), -1);
}

struct chain {
	struct kvpool_rig *rig;
	uint64_t chain;
	uint32_t n;
};

static uint32_t found(struct kvpool_rig *rig, uint64_t chain, uint32_t n)
{
	uint32_t read;

	return kvpool_rig_try_get(rig, chain, n, &read) == n ? read : 0;
}

static bool stored(void *cookie)
{
	const struct chain *c = cookie;

	if (found(c->rig, c->chain, c->n) == c->n)
		return true;
	kvpool_rig_try_put(c->rig, c->chain, c->n);
	if (found(c->rig, c->chain, c->n) == c->n)
		return true;
	/* The pool may rest for seconds. */
	(void)poll(NULL, 0, RETRY_MS);
	return false;
}

/* However often it takes. */
static void store(struct kvpool_rig *rig, uint64_t chain, uint32_t n)
{
	struct chain c = {rig, chain, n};

	ck_assert_msg(kvpool_harness_until(stored, &c, MS), "chain %u cannot be stored: %s",
		      (unsigned int)chain, kvpool_channel_error(rig->channel));
}

/* A client that is not supposed to notice what befalls another: it reads what it has leased. */
struct reader {
	struct kvpool_block blocks[KEPT];
	struct kvpool_match match;
};

static void reader_begin(struct run *run, struct reader *reader)
{
	uint8_t keys[KEPT * KVPOOL_KEY_SIZE];

	kvpool_rig_keys(1, 0, KEPT, keys);
	ck_assert_int_eq(kvpool_match(run->quiet.channel, run->quiet.layout, keys, KEPT, 0, 0,
				      KVPOOL_RIG_LONG, reader->blocks, KEPT, &reader->match),
			 KEPT);
}

static void reader_check(struct run *run, const struct reader *reader)
{
	uint64_t words[KVPOOL_RIG_BYTES / 8];
	struct kvpool_piece piece = {words, sizeof(words)};

	for (uint32_t i = 0; i < KEPT; i++) {
		ck_assert_msg(kvpool_load(run->quiet.channel, run->quiet.layout, 0,
					  &reader->blocks[i], 0, &piece, 1) == 0,
			      "%s", kvpool_channel_error(run->quiet.channel));
		ck_assert_uint_eq(kvpool_rig_wrong(1, i, words, KVPOOL_RIG_BYTES / 8), 0);
	}
	ck_assert_int_eq(kvpool_rig_get(&run->quiet, 1, KEPT), KEPT);
}

/* The call fails for the other one, perhaps; without that all of it is there. */
static void grow(struct run *run)
{
	struct reader reader;

	reader_begin(run, &reader);
	open_client(run, &run->busy);
	for (uint32_t i = 0; i < CHAINS; i++) {
		kvpool_rig_try_put(&run->busy, CHAIN + i, LONG_CHAIN);
		(void)found(&run->busy, CHAIN + i, LONG_CHAIN);
		reader_check(run, &reader);
	}
	for (uint32_t i = 0; i < CHAINS; i++)
		store(&run->busy, CHAIN + i, LONG_CHAIN);
	reader_check(run, &reader);
	kvpool_rig_close(&run->busy);
	kvpool_release(run->quiet.channel, &reader.match, 0);
}

static bool gone(void *cookie)
{
	return kill(*(pid_t *)cookie, 0) < 0;
}

/* The process that listens. */
static pid_t serving(const struct run *run)
{
	int fd = kvpool_raw_connect(kvpool_harness_socket(run->daemon));
	struct ucred cred = {.pid = 0};
	socklen_t bytes = sizeof(cred);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes), 0);
	(void)close(fd);
	ck_assert_int_gt(cred.pid, 0);
	return cred.pid;
}

/* The daemon said why blocks were lost. */
static bool loss_said(const struct run *run)
{
	static const char *const reasons[] = {"the next life will not have", "starts empty",
					      "will not outlive this process"};
	const char *text = kvpool_harness_stderr(run->daemon);

	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(reasons); i++) {
		if (strstr(text, reasons[i]))
			return true;
	}
	return false;
}

static void next_life(struct run *run)
{
	pid_t pid = serving(run);
	uint32_t kept = 0;

	ck_assert_int_ne(pid, kvpool_harness_pid(run->daemon));
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert(kvpool_harness_until(gone, &pid, MS));
	/* Where it is the reading that fails, it does once. */
	for (int i = 0; i < TRIES && kept != KEPT; i++)
		kept = found(&run->quiet, 1, KEPT);
	ck_assert_msg(kept == KEPT || (hit(run) && loss_said(run)), "%u of %u blocks were kept: %s",
		      kept, KEPT, kvpool_harness_stderr(run->daemon));
	store(&run->quiet, 1, KEPT);
	for (uint32_t i = 0; i < CHAINS; i++)
		store(&run->quiet, CHAIN + i, LONG_CHAIN);
}

struct wanted {
	const struct kvpool_harness *daemon;
	const char *path;
	int64_t value;
};

static bool is_there(void *cookie)
{
	const struct wanted *w = cookie;

	return kvpool_raw_is(kvpool_harness_admin_socket(w->daemon), w->path, w->value);
}

static void await(const struct run *run, const char *path, int64_t value)
{
	struct wanted w = {run->daemon, path, value};

	ck_assert_msg(kvpool_harness_until(is_there, &w, MS), "%s never is %d: %s", path,
		      (int)value, kvpool_harness_stderr(run->daemon));
}

static bool verified(void *cookie)
{
	json_t *page = kvpool_raw_get(cookie, "/v1/verify");
	bool over = json_is_false(json_object_get(page, "running"));

	if (over)
		ck_assert_str_eq(json_string_value(json_object_get(page, "structure")), "sound");
	json_decref(page);
	return over;
}

/* Nothing is held, every byte is accounted for, every structure fits every other. */
static void judge_books(const struct run *run)
{
	static const char *const nothing[] = {
		"accounting.leases", "accounting.blocks.reserved", "accounting.blocks.quarantined",
		"accounting.blocks.leased_only", "restart.past_clients"};
	char admin[256];
	int code;

	/* The judge's own calls are none of those that fail. */
	atomic_store(&run->fault->armed, 0);
	for (size_t i = 0; i < KVPOOL_ARRAY_SIZE(nothing); i++)
		await(run, nothing[i], 0);
	(void)snprintf(admin, sizeof(admin), "%s", kvpool_harness_admin_socket(run->daemon));
	kvpool_raw_expect_exact(admin);
	json_decref(kvpool_raw_http(admin, "POST", "/v1/verify?structure=1", &code));
	ck_assert_int_eq(code, 200);
	ck_assert(kvpool_harness_until(verified, admin, MS));
	atomic_store(&run->fault->armed, 1);
}

static bool nothing_left(void *cookie)
{
	struct run *run = cookie;
	pid_t pid = serving(run), keeper = kvpool_harness_pid(run->daemon);

	/* Segments, and the state. */
	if (kvpool_harness_descriptors(pid, "memfd:kvpool") <= SEGMENTS + 1 &&
	    kvpool_harness_descriptors(pid, "pidfd") == 0 &&
	    kvpool_harness_descriptors(keeper, "memfd:kvpool") <= SEGMENTS + 1 &&
	    kvpool_harness_descriptors(keeper, "pidfd") == 0)
		return true;
	/* What the keeper could not be told goes with what it is told next. */
	open_client(run, &run->busy);
	kvpool_rig_until_attached(&run->busy);
	kvpool_rig_close(&run->busy);
	await(run, "clients.domains", 0);
	return false;
}

/* All that clients brought goes: blocks, the domain, and what was held for them. */
static void leave(struct run *run)
{
	open_client(run, &run->quiet);
	for (uint64_t chain = 1; chain < CHAIN + CHAINS; chain = chain == 1 ? CHAIN : chain + 1) {
		while (kvpool_rig_try_get(&run->quiet, chain, 1, NULL) != 0)
			(void)kvpool_forget(run->quiet.channel, run->quiet.layout, 0,
					    kvpool_rig_key(chain, 0), 1, KVPOOL_RIG_LONG);
	}
	kvpool_rig_close(&run->quiet);
	await(run, "clients.domains", 0);
	ck_assert_msg(kvpool_harness_until(nothing_left, run, KVPOOL_RIG_MS),
		      "descriptors are left: %d memfds, %d pidfds, kept %d and %d",
		      kvpool_harness_descriptors(serving(run), "memfd:kvpool"),
		      kvpool_harness_descriptors(serving(run), "pidfd"),
		      kvpool_harness_descriptors(kvpool_harness_pid(run->daemon), "memfd:kvpool"),
		      kvpool_harness_descriptors(kvpool_harness_pid(run->daemon), "pidfd"));
}

/* The file that test and daemon share; every life of the daemon opens it. */
static void path_of(const char *folder, char out[PATH_BYTES])
{
	(void)snprintf(out, PATH_BYTES, "%s/fault", folder);
}

static void start(struct run *run, const char *folder)
{
	/* No spinning: many daemons run at a time. */
	const char *args[] = {"--size",         "3M",
			      "--segment-size", "1M",
			      "--extent-size",  "64K",
			      "--spin-max-us",  "0",
			      "--loop",         run->plan->loop,
			      "--supervise",    NULL};
	char path[PATH_BYTES];

	if (!run->plan->supervised)
		args[KVPOOL_ARRAY_SIZE(args) - 2] = NULL;
	path_of(folder, path);
	run->fault = kvpool_fault_load(path);
	run->fault->call = (uint32_t)run->plan->call;
	run->fault->error = run->plan->error;
	run->fault->old = run->plan->old;
	run->fault->at = run->plan->at;
	atomic_store(&run->fault->armed, 1);
	ck_assert_int_eq(kvpool_harness_try(args, &run->daemon), 0);
	kvpool_fault_unload();
}

/*
 * The clients are a process of their own: one that is dropped while it writes leaves blocks in
 * quarantine until it ends.
 */
static void use(struct run *run)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		open_client(run, &run->quiet);
		store(&run->quiet, 1, KEPT);
		grow(run);
		if (run->plan->supervised)
			next_life(run);
		kvpool_rig_close(&run->quiet);
		_exit(0);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	/* What is wrong was said, but not what the daemon thinks of it. */
	if (status != 0) {
		printf("%s\n", kvpool_harness_stderr(run->daemon));
		(void)fflush(stdout);
		_exit(EXIT_FAILURE);
	}
}

static enum kvpool_fault_outcome serve(struct run *run)
{
	use(run);
	judge_books(run);
	leave(run);
	ck_assert_msg(kvpool_harness_stop(run->daemon) == 0, "it did not leave: %s",
		      kvpool_harness_stderr(run->daemon));
	judge_words(run, run->plan->supervised);
	if (!hit(run))
		return KVPOOL_FAULT_NOT_HIT;
	return strstr(kvpool_harness_stderr(run->daemon), "ended with code")
		       ? KVPOOL_FAULT_RESTARTED
		       : KVPOOL_FAULT_SERVED;
}

enum kvpool_fault_outcome kvpool_fault_run(const struct kvpool_fault_plan *plan, uint64_t *seen)
{
	struct run run = {.plan = plan};
	enum kvpool_fault_outcome outcome = KVPOOL_FAULT_ENDED;
	char folder[] = "/tmp/kvpool-fault-XXXXXX";
	char path[PATH_BYTES];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	start(&run, folder);
	if (kvpool_harness_pid(run.daemon) == 0)
		judge_ended(&run);
	else
		outcome = serve(&run);
	kvpool_harness_free(run.daemon);
	*seen = atomic_load(&run.fault->seen);
	(void)munmap(run.fault, sizeof(*run.fault));
	path_of(folder, path);
	(void)unlink(path);
	(void)rmdir(folder);
	return outcome;
}
