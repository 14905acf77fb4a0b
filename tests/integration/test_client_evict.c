/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that are stopped, evicted or drained: a stopped one keeps what it holds, an evicted one
 * keeps its mappings and nothing else, and what it reads from then on is not taken for a block.
 */
#include "tests/integration/actor.h"
#include "tests/integration/client_rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHARED 1u /* the chain that is READY and leased */
#define OWN    2u /* the chain that the actor reserves */
#define WORDS  (KVPOOL_RIG_BYTES / 8)

static struct kvpool_harness *daemon_;
static struct kvpool_raw other;

static const char *admin(void)
{
	return kvpool_harness_admin_socket(daemon_);
}

static const char *path(void)
{
	return kvpool_harness_socket(daemon_);
}

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	kvpool_raw_await(admin(), "pool.ready_bytes", 64 << 20);
	kvpool_raw_attach(path(), "other", 0, NULL, &other);
	kvpool_raw_layout(&other, 4096);
	(void)kvpool_raw_store(&other, SHARED);
}

static void teardown(void)
{
	kvpool_raw_close(&other);
	kvpool_raw_await(admin(), "accounting.leases", 0);
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 0);
	kvpool_raw_expect_exact(admin());
	kvpool_harness_free(daemon_);
}

/* Leases one block, reserves one, and says its number; then commits that, or is refused. */
static void hold(int in, int out, void *cookie)
{
	enum kvpool_refusal *reason = cookie;
	struct kvpool_reply reply;
	struct kvpool_raw raw;

	(void)close(other.fd);
	kvpool_raw_attach(path(), "actor", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	if (kvpool_raw_match(&raw, SHARED, 0, &reply) != KVPOOL_STATUS_OK || reply.lease == 0 ||
	    kvpool_raw_reserve(&raw, OWN, &reply) != KVPOOL_STATUS_OK || reply.granted != 1)
		_exit(3);
	kvpool_actor_say(out, &raw.welcome.client, sizeof(raw.welcome.client));
	if (!kvpool_actor_wait(in))
		return;
	if (reason)
		kvpool_raw_expect_refusal(raw.fd, *reason);
	else if (kvpool_raw_commit(&raw, &reply.block) != KVPOOL_STATUS_OK)
		_exit(4);
	kvpool_actor_say(out, "d", 1);
}

static uint32_t begin(enum kvpool_refusal *reason, struct kvpool_actor *actor)
{
	uint32_t client;

	kvpool_actor_begin(hold, reason, actor);
	kvpool_actor_hear(actor, &client, sizeof(client));
	kvpool_raw_await(admin(), "accounting.leases", 1);
	kvpool_raw_await(admin(), "accounting.blocks.reserved", 1);
	return client;
}

/* The page of one client; the caller owns *page. */
static const json_t *client_page(uint32_t id, json_t **page)
{
	const json_t *clients;
	size_t i;

	*page = kvpool_raw_get(admin(), "/v1/clients");
	clients = json_object_get(*page, "clients");
	for (i = 0; i < json_array_size(clients); i++) {
		const json_t *client = json_array_get(clients, i);

		if (kvpool_raw_number(client, "id") == id)
			return client;
	}
	ck_abort_msg("client %u is not on the page", id);
	return NULL;
}

static const char *process_of(const json_t *client)
{
	const json_t *member = json_array_get(json_object_get(client, "members"), 0);

	return json_string_value(json_object_get(member, "process"));
}

/* The answer's code; the caller owns *page. */
static int evict(const char *argument, json_t **page)
{
	char url[64];
	int code;

	(void)snprintf(url, sizeof(url), "/v1/evict%s", argument);
	*page = kvpool_raw_http(admin(), "POST", url, &code);
	ck_assert_ptr_nonnull(*page);
	return code;
}

static int evict_client(uint32_t id, json_t **page)
{
	char argument[32];

	(void)snprintf(argument, sizeof(argument), "?client=%u", id);
	return evict(argument, page);
}

START_TEST(should_leave_a_stopped_client_what_it_holds)
{
	struct kvpool_actor actor;
	uint32_t id = begin(NULL, &actor);
	struct kvpool_reply reply;
	json_t *page;
	char byte;

	kvpool_actor_stop(&actor);
	ck_assert_str_eq(process_of(client_page(id, &page)), "stopped");
	json_decref(page);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.leases"), 1);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.blocks.reserved"), 1);
	ck_assert_int_eq(kvpool_raw_reserve(&other, OWN, &reply), KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.block.generation, KVPOOL_STATUS_BUSY);
	kvpool_actor_resume(&actor);
	kvpool_actor_tell(&actor);
	kvpool_actor_hear(&actor, &byte, 1);
	ck_assert_int_eq(kvpool_raw_match(&other, OWN, KVPOOL_REQUEST_NO_LEASE, &reply),
			 KVPOOL_STATUS_OK);
	ck_assert_uint_eq(reply.blocks, 1);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.leases"), 1);
	ck_assert_str_eq(process_of(client_page(id, &page)), "running");
	json_decref(page);
	kvpool_actor_kill(&actor);
	kvpool_actor_dismiss(&actor);
}
END_TEST

START_TEST(should_evict_a_stopped_client_and_keep_its_reservations_in_quarantine)
{
	enum kvpool_refusal reason = KVPOOL_REFUSAL_EVICTED;
	struct kvpool_actor actor;
	uint32_t id = begin(&reason, &actor);
	const json_t *client;
	json_t *page;
	char byte;

	kvpool_actor_stop(&actor);
	ck_assert_int_eq(evict_client(id, &page), 200);
	ck_assert_int_eq(kvpool_raw_number(page, "client"), id);
	ck_assert_int_eq(kvpool_raw_number(page, "members"), 1);
	ck_assert_int_eq(kvpool_raw_number(page, "leases"), 1);
	ck_assert_int_eq(kvpool_raw_number(page, "quarantined_blocks"), 1);
	json_decref(page);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.leases"), 0);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.blocks.reserved"), 0);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.blocks.quarantined"), 1);
	client = client_page(id, &page);
	ck_assert_str_eq(process_of(client), "stopped");
	ck_assert(json_is_true(json_object_get(client, "evicted")));
	json_decref(page);
	/* The next writer of that key gets another place. */
	(void)kvpool_raw_store(&other, OWN);
	kvpool_actor_resume(&actor);
	kvpool_actor_tell(&actor);
	kvpool_actor_hear(&actor, &byte, 1);
	ck_assert_int_eq(kvpool_raw_status(admin(), "accounting.blocks.quarantined"), 1);
	kvpool_actor_kill(&actor);
	kvpool_raw_await(admin(), "accounting.blocks.quarantined", 0);
	kvpool_actor_dismiss(&actor);
}
END_TEST

START_TEST(should_say_so_where_there_is_no_such_client_to_evict)
{
	static const struct {
		const char *argument;
		int code;
	} cases[] = {
		{"?client=4711", 404}, {"", 400},           {"?client=", 400},
		{"?client=1x", 400},   {"?client=-1", 400}, {"?client=99999999999", 400},
	};
	json_t *page;

	ck_assert_int_eq(evict(cases[_i].argument, &page), cases[_i].code);
	ck_assert_ptr_nonnull(json_string_value(json_object_get(page, "error")));
	json_decref(page);
	page = kvpool_raw_http(admin(), "GET", "/v1/evict?client=1", &(int){0});
	ck_assert_str_eq(json_string_value(json_object_get(page, "error")),
			 "only POST is allowed here");
	json_decref(page);
}
END_TEST

START_TEST(should_not_evict_a_client_twice)
{
	enum kvpool_refusal reason = KVPOOL_REFUSAL_EVICTED;
	struct kvpool_actor actor;
	uint32_t id = begin(&reason, &actor);
	json_t *page;

	ck_assert_int_eq(evict_client(id, &page), 200);
	json_decref(page);
	ck_assert_int_eq(evict_client(id, &page), 404);
	json_decref(page);
	kvpool_actor_kill(&actor);
	kvpool_actor_dismiss(&actor);
}
END_TEST

/* One of libkvpool's handles with a lease. Returns the client's number. */
static uint32_t begin_rig(struct kvpool_rig *rig, struct kvpool_match *match,
			  struct kvpool_block *block)
{
	json_t *page, *clients;
	int64_t id = 0;
	size_t i;

	kvpool_rig_open(path(), (struct kvpool_options){.name = "rig"}, rig);
	ck_assert_uint_eq(kvpool_rig_put(rig, 5, 0, 1), 1);
	ck_assert_int_eq(kvpool_match(rig->channel, rig->layout, kvpool_rig_key(5, 0), 1, 0, 0,
				      KVPOOL_RIG_LONG, block, 1, match),
			 1);
	ck_assert_int_eq(kvpool_check(rig->channel, match->epoch), 0);
	page = kvpool_raw_get(admin(), "/v1/clients");
	clients = json_object_get(page, "clients");
	for (i = 0; i < json_array_size(clients); i++) {
		const json_t *client = json_array_get(clients, i);

		if (strcmp(json_string_value(json_object_get(client, "name")), "rig") == 0)
			id = kvpool_raw_number(client, "id");
	}
	json_decref(page);
	return (uint32_t)id;
}

static void evict_rig(struct kvpool_rig *rig, struct kvpool_match *match,
		      struct kvpool_block *block)
{
	json_t *page;

	ck_assert_int_eq(evict_client(begin_rig(rig, match, block), &page), 200);
	json_decref(page);
}

/* For the handler of the fault in the middle of a copy. */
static struct kvpool_actor evictor;
static uint8_t *trap;
static size_t trap_bytes;

static void evict_when_told(int in, int out, void *cookie)
{
	json_t *page;

	if (!kvpool_actor_wait(in) || evict_client(*(uint32_t *)cookie, &page) != 200)
		_exit(5);
	kvpool_actor_say(out, "e", 1);
}

/* The copy has come to the trap: its client is evicted, then it goes on. */
static void fault(int signal)
{
	char byte;

	(void)signal;
	if (write(evictor.to, "g", 1) != 1 || read(evictor.from, &byte, 1) != 1 ||
	    mprotect(trap, trap_bytes, PROT_READ | PROT_WRITE) != 0)
		_exit(6);
}

START_TEST(should_not_vouch_for_a_copy_in_whose_middle_the_lease_ended)
{
	struct sigaction action = {.sa_handler = fault}, before;
	struct kvpool_match match;
	struct kvpool_block block;
	struct kvpool_rig rig;
	uint64_t words[WORDS / 2];
	uint32_t id;
	int r;

	id = begin_rig(&rig, &match, &block);
	kvpool_actor_begin(evict_when_told, &id, &evictor);
	trap_bytes = (size_t)sysconf(_SC_PAGESIZE);
	trap = mmap(NULL, trap_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(trap, MAP_FAILED);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, &before), 0);
	if (_i == 0) {
		struct kvpool_piece pieces[] = {{words, sizeof(words)}, {trap, sizeof(words)}};

		r = kvpool_load(rig.channel, rig.layout, 0, &block, 0, pieces, 2);
	} else {
		struct kvpool_plane planes[] = {
			{words, sizeof(words), sizeof(words), 1, 0},
			{trap, sizeof(words), sizeof(words), 1, 0},
		};

		r = kvpool_load_pages(rig.channel, rig.layout, 0, &block, 1, 0, planes, 2,
				      &(const uint32_t){0}, 1);
	}
	ck_assert_int_eq(sigaction(SIGSEGV, &before, NULL), 0);
	ck_assert_int_eq(r, -ESTALE);
	/* It was the middle: the copy went on to its end. */
	ck_assert_uint_eq(kvpool_rig_wrong(5, 0, words, WORDS / 2), 0);
	ck_assert_uint_ne(((uint64_t *)(void *)trap)[WORDS / 2 - 1], 0);
	(void)munmap(trap, trap_bytes);
	kvpool_release(rig.channel, &match, 0);
	kvpool_rig_close(&rig);
	kvpool_actor_kill(&evictor);
	kvpool_actor_dismiss(&evictor);
}
END_TEST

START_TEST(should_not_vouch_for_bytes_that_were_read_after_the_lease_ended)
{
	uint64_t words[WORDS];
	struct kvpool_piece piece = {words, sizeof(words)};
	struct kvpool_plane plane = {words, sizeof(words), sizeof(words), 1, 0};
	struct kvpool_match match;
	struct kvpool_block block;
	const uint32_t page = 0;
	struct kvpool_rig rig;

	evict_rig(&rig, &match, &block);
	/* Twice: before the library attached again, and after it did, to the same daemon. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(kvpool_load(rig.channel, rig.layout, 0, &block, 0, &piece, 1),
				 -ESTALE);
		ck_assert_int_eq(kvpool_load_pages(rig.channel, rig.layout, 0, &block, 1, 0, &plane,
						   1, &page, 1),
				 -ESTALE);
		ck_assert_int_eq(kvpool_check(rig.channel, match.epoch), -ESTALE);
		kvpool_rig_until_attached(&rig);
	}
	ck_assert_int_eq(kvpool_commit(rig.channel, &block, 1, KVPOOL_ALL_SHARDS, 0), -ESTALE);
	ck_assert_int_eq(kvpool_rig_get(&rig, 5, 1), 1);
	kvpool_release(rig.channel, &match, 0);
	kvpool_rig_close(&rig);
}
END_TEST

START_TEST(should_keep_the_mapping_of_a_client_that_was_evicted)
{
	struct kvpool_match match;
	struct kvpool_block block;
	struct kvpool_rig rig;
	void *address = NULL;

	evict_rig(&rig, &match, &block);
	ck_assert_int_eq(kvpool_pointer(rig.channel, rig.layout, 0, &block, 0, &address), 0);
	ck_assert_uint_eq(kvpool_rig_wrong(5, 0, address, WORDS), 0);
	kvpool_rig_until_attached(&rig);
	ck_assert_uint_eq(kvpool_rig_wrong(5, 0, address, WORDS), 0);
	kvpool_release(rig.channel, &match, 0);
	kvpool_rig_close(&rig);
}
END_TEST

START_TEST(should_let_a_member_of_an_evicted_client_go_on_as_one_of_its_own)
{
	struct kvpool_rig rig, member;
	uint8_t token[16];
	json_t *page;

	kvpool_rig_open(path(), (struct kvpool_options){0}, &rig);
	ck_assert_int_eq(kvpool_token(rig.pool, token), 0);
	kvpool_rig_open(path(), (struct kvpool_options){.join = token}, &member);
	kvpool_rig_until_attached(&member);
	page = kvpool_raw_get(admin(), "/v1/clients");
	ck_assert_uint_eq(json_array_size(json_object_get(page, "clients")), 2);
	for (size_t i = 0; i < 2; i++) {
		const json_t *client = json_array_get(json_object_get(page, "clients"), i);
		json_t *answer;

		if (json_array_size(json_object_get(client, "members")) != 2)
			continue;
		ck_assert_int_eq(evict_client((uint32_t)kvpool_raw_number(client, "id"), &answer),
				 200);
		json_decref(answer);
	}
	json_decref(page);
	kvpool_rig_until_attached(&rig);
	kvpool_rig_until_attached(&member);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 3);
	kvpool_rig_close(&member);
	kvpool_rig_close(&rig);
}
END_TEST

START_TEST(should_end_with_a_handle_that_is_closed_though_a_child_forgot_its_copy)
{
	struct kvpool_actor actor;
	struct kvpool_rig rig;
	uint32_t id;

	kvpool_rig_open(path(), (struct kvpool_options){0}, &rig);
	ck_assert_int_eq(kvpool_rig_get(&rig, 6, 1), 0);
	/* It is a child of this process, and so has a copy of that socket. */
	id = begin(NULL, &actor);
	ck_assert_uint_ne(id, 0);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 3);
	kvpool_rig_close(&rig);
	kvpool_raw_await(admin(), "clients.attached_or_quarantined", 2);
	kvpool_actor_kill(&actor);
	kvpool_actor_dismiss(&actor);
}
END_TEST

static Suite *evict_suite(void)
{
	Suite *suite = suite_create("client_evict");
	TCase *tcase = tcase_create("evict");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, should_leave_a_stopped_client_what_it_holds);
	tcase_add_test(tcase,
		       should_evict_a_stopped_client_and_keep_its_reservations_in_quarantine);
	tcase_add_loop_test(tcase, should_say_so_where_there_is_no_such_client_to_evict, 0, 6);
	tcase_add_test(tcase, should_not_evict_a_client_twice);
	tcase_add_test(tcase, should_not_vouch_for_bytes_that_were_read_after_the_lease_ended);
	tcase_add_loop_test(tcase, should_not_vouch_for_a_copy_in_whose_middle_the_lease_ended, 0,
			    2);
	tcase_add_test(tcase, should_keep_the_mapping_of_a_client_that_was_evicted);
	tcase_add_test(tcase, should_let_a_member_of_an_evicted_client_go_on_as_one_of_its_own);
	tcase_add_test(tcase,
		       should_end_with_a_handle_that_is_closed_though_a_child_forgot_its_copy);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(evict_suite());
}
