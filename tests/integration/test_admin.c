/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin socket: what it shows, and that it shows no secret.
 */
#include "tests/integration/harness.h"
#include "tests/integration/raw_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct kvpool_harness *daemon_;

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
}

static void teardown(void)
{
	kvpool_harness_free(daemon_);
}

static const char *path(void)
{
	return kvpool_harness_socket(daemon_);
}

static const char *admin(void)
{
	return kvpool_harness_admin_socket(daemon_);
}

static const char *text_at(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	ck_assert_msg(text != NULL, "no text %s", name);
	return text;
}

START_TEST(should_show_what_the_daemon_chose_and_did)
{
	struct kvpool_reply reply;
	struct kvpool_raw raw;
	json_t *page;
	char epoch[20];

	kvpool_raw_attach(path(), "shown", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	(void)kvpool_raw_store(&raw, 1);
	ck_assert_int_eq(kvpool_raw_match(&raw, 1, 0, &reply), KVPOOL_STATUS_OK);
	ck_assert_int_eq(kvpool_raw_match(&raw, 2, 0, &reply), KVPOOL_STATUS_OK);
	page = kvpool_raw_get(admin(), "/v1/status");
	(void)snprintf(epoch, sizeof(epoch), "%016llx", (unsigned long long)raw.welcome.epoch);
	ck_assert_str_eq(text_at(page, "epoch"), epoch);
	ck_assert_str_eq(text_at(page, "state"), "serving");
	ck_assert_str_eq(text_at(json_object_get(page, "sockets"), "data"), path());
	ck_assert_str_eq(text_at(json_object_get(page, "sockets"), "admin"), admin());
	ck_assert_int_gt((int64_t)strlen(text_at(page, "version")), 0);
	ck_assert_int_gt((int64_t)strlen(text_at(page, "commit")), 0);
	ck_assert_int_eq(kvpool_raw_number(page, "pid"), kvpool_harness_pid(daemon_));
	ck_assert_int_eq(kvpool_raw_number(page, "pool.bytes"), 64 << 20);
	ck_assert_int_eq(kvpool_raw_number(page, "service.requests.layout"), 1);
	ck_assert_int_eq(kvpool_raw_number(page, "service.requests.reserve"), 1);
	ck_assert_int_eq(kvpool_raw_number(page, "service.requests.match"), 2);
	ck_assert_int_eq(kvpool_raw_number(page, "service.replies"), 5);
	ck_assert_int_eq(kvpool_raw_number(page, "counters.match_keys"), 2);
	ck_assert_int_eq(kvpool_raw_number(page, "counters.match_hit_keys"), 1);
	ck_assert_int_eq(kvpool_raw_number(page, "counters.match_hit_tokens"), 16);
	ck_assert_int_eq(kvpool_raw_number(page, "accounting.blocks.ready"), 1);
	ck_assert_int_eq(kvpool_raw_number(page, "accounting.bytes.ready"), 4096);
	ck_assert_int_eq(kvpool_raw_number(page, "violations.request"), 0);
	json_decref(page);
	kvpool_raw_expect_exact(admin());
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_show_clients_domains_and_layouts)
{
	struct kvpool_raw first, second;
	struct kvpool_reply reply;
	json_t *page, *one;
	char domain[32];

	kvpool_raw_attach(path(), "engine", 0, NULL, &first);
	kvpool_raw_attach(path(), "worker", KVPOOL_ATTACH_JOIN | KVPOOL_ATTACH_READ_ONLY,
			  first.welcome.token, &second);
	kvpool_raw_layout(&first, 8192);
	(void)kvpool_raw_store(&first, 1);
	ck_assert_int_eq(kvpool_raw_reserve(&first, 2, &reply), KVPOOL_STATUS_OK);
	ck_assert_int_eq(kvpool_raw_match(&first, 1, 0, &reply), KVPOOL_STATUS_OK);
	(void)snprintf(domain, sizeof(domain), "uid-%u", (unsigned int)getuid());

	page = kvpool_raw_get(admin(), "/v1/clients");
	ck_assert_uint_eq(json_array_size(json_object_get(page, "clients")), 1);
	one = json_array_get(json_object_get(page, "clients"), 0);
	ck_assert_int_eq(kvpool_raw_number(one, "id"), first.welcome.client);
	ck_assert_str_eq(text_at(one, "name"), "engine");
	ck_assert_str_eq(text_at(one, "domain"), domain);
	ck_assert_str_eq(text_at(one, "state"), "attached");
	ck_assert_uint_eq(json_array_size(json_object_get(one, "members")), 2);
	ck_assert_int_eq(
		kvpool_raw_number(json_array_get(json_object_get(one, "members"), 0), "pid"),
		getpid());
	ck_assert_int_eq(kvpool_raw_number(one, "leases"), 1);
	ck_assert_int_eq(kvpool_raw_number(one, "leased_bytes"), 8192);
	ck_assert_int_eq(kvpool_raw_number(one, "reserved_blocks"), 1);
	ck_assert_int_eq(kvpool_raw_number(one, "layouts"), 1);
	ck_assert_int_eq(kvpool_raw_number(one, "channels.hot") +
				 kvpool_raw_number(one, "channels.cold"),
			 2);
	ck_assert_int_ge(kvpool_raw_number(one, "idle_ms"), 0);
	json_decref(page);

	page = kvpool_raw_get(admin(), "/v1/domains");
	one = json_array_get(json_object_get(page, "domains"), 0);
	ck_assert_str_eq(text_at(one, "name"), domain);
	ck_assert_int_eq(kvpool_raw_number(one, "clients"), 1);
	ck_assert_int_eq(kvpool_raw_number(one, "accounting.bytes.ready"), 8192);
	ck_assert_int_eq(kvpool_raw_number(one, "accounting.bytes.reserved"), 8192);
	json_decref(page);

	page = kvpool_raw_get(admin(), "/v1/layouts");
	one = json_array_get(json_object_get(page, "layouts"), 0);
	ck_assert_str_eq(text_at(one, "label"), "raw");
	ck_assert_int_eq(kvpool_raw_number(one, "block_tokens"), 16);
	ck_assert_int_eq(kvpool_raw_number(one, "blocks"), 2);
	ck_assert_int_eq(kvpool_raw_number(one, "clients"), 1);
	one = json_array_get(json_object_get(one, "groups"), 0);
	ck_assert_str_eq(text_at(one, "kind"), "full");
	ck_assert_int_eq(kvpool_raw_number(one, "slot_bytes"), 8192);
	json_decref(page);
	kvpool_raw_close(&second);
	kvpool_raw_close(&first);
}
END_TEST

static void hex(const uint8_t *bytes, size_t n, char *out)
{
	size_t i;

	for (i = 0; i < n; i++)
		(void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

START_TEST(should_show_no_token_and_no_key)
{
	static const char *const pages[] = {"/v1/status", "/v1/clients", "/v1/domains",
					    "/v1/layouts", "/v1/verify"};
	char token[2 * KVPOOL_TOKEN_BYTES + 1], key[2 * KVPOOL_KEY_BYTES + 1], *text;
	uint8_t bytes[KVPOOL_KEY_BYTES];
	struct kvpool_raw raw;
	json_t *page;
	size_t i;

	kvpool_raw_attach(path(), "secret", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	(void)kvpool_raw_store(&raw, 1);
	hex(raw.welcome.token, KVPOOL_TOKEN_BYTES, token);
	kvpool_raw_key(1, 0, bytes);
	hex(bytes, KVPOOL_KEY_BYTES, key);
	for (i = 0; i < KVPOOL_ARRAY_SIZE(pages); i++) {
		page = kvpool_raw_get(admin(), pages[i]);
		text = json_dumps(page, 0);
		ck_assert_ptr_nonnull(text);
		/* A quarter of either would be too much. */
		token[8] = key[16] = '\0';
		ck_assert_ptr_null(strstr(text, token));
		ck_assert_ptr_null(strstr(text, key));
		free(text);
		json_decref(page);
	}
	ck_assert_ptr_null(strstr(kvpool_harness_stderr(daemon_), token));
	ck_assert_ptr_null(strstr(kvpool_harness_stderr(daemon_), key));
	kvpool_raw_close(&raw);
}
END_TEST

START_TEST(should_answer_in_json_also_where_it_refuses)
{
	json_t *page;
	int code;

	page = kvpool_raw_http(admin(), "GET", "/v2/nothing", &code);
	ck_assert_int_eq(code, 404);
	(void)text_at(page, "error");
	ck_assert_int_eq(kvpool_raw_number(page, "schema_version"), 1);
	json_decref(page);
	page = kvpool_raw_http(admin(), "POST", "/v1/status", &code);
	ck_assert_int_eq(code, 405);
	(void)text_at(page, "error");
	json_decref(page);
	page = kvpool_raw_http(admin(), "DELETE", "/v1/clients", &code);
	ck_assert_int_eq(code, 405);
	json_decref(page);
	page = kvpool_raw_get(admin(), "/healthz");
	ck_assert_str_eq(text_at(page, "status"), "ok");
	json_decref(page);
}
END_TEST

static bool verified(void *cookie)
{
	json_t *page = kvpool_raw_get(admin(), "/v1/verify");
	bool over = json_is_false(json_object_get(page, "running"));

	(void)cookie;
	json_decref(page);
	return over;
}

START_TEST(should_verify_when_it_is_posted_and_show_it_when_asked)
{
	struct kvpool_raw raw;
	json_t *page;
	int code;

	kvpool_raw_attach(path(), "verified", 0, NULL, &raw);
	kvpool_raw_layout(&raw, 4096);
	(void)kvpool_raw_store(&raw, 1);
	page = kvpool_raw_get(admin(), "/v1/verify");
	ck_assert_int_eq(kvpool_raw_number(page, "runs"), 0);
	json_decref(page);
	page = kvpool_raw_http(admin(), "POST", "/v1/verify?domain=nobody", &code);
	ck_assert_int_eq(code, 404);
	(void)text_at(page, "error");
	json_decref(page);
	for (int64_t run = 1; run <= 2; run++) {
		page = kvpool_raw_http(admin(), "POST", "/v1/verify", &code);
		ck_assert_int_eq(code, 200);
		ck_assert_int_eq(kvpool_raw_number(page, "runs"), run);
		json_decref(page);
		ck_assert(kvpool_harness_until(verified, NULL, KVPOOL_RAW_MS));
	}
	page = kvpool_raw_get(admin(), "/v1/verify");
	ck_assert_int_eq(kvpool_raw_number(page, "without_checksum"), 1);
	ck_assert_str_eq(text_at(page, "structure"), "sound");
	json_decref(page);
	page = kvpool_raw_http(admin(), "DELETE", "/v1/verify", &code);
	ck_assert_int_eq(code, 405);
	json_decref(page);
	kvpool_raw_close(&raw);
}
END_TEST

/* Callers that say nothing, or nonsense, hold up nobody. */
START_TEST(should_serve_others_beside_callers_that_say_nothing)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct kvpool_raw raw;
	int fds[20];
	size_t i;

	(void)strncpy(address.sun_path, admin(), sizeof(address.sun_path) - 1);
	for (i = 0; i < KVPOOL_ARRAY_SIZE(fds); i++) {
		fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&address, sizeof(address)), 0);
		if (i % 2)
			ck_assert_int_eq(send(fds[i], "\x00\xff garbage", 10, MSG_NOSIGNAL), 10);
	}
	json_decref(kvpool_raw_get(admin(), "/v1/status"));
	kvpool_raw_attach(path(), "beside", 0, NULL, &raw);
	kvpool_raw_close(&raw);
	for (i = 0; i < KVPOOL_ARRAY_SIZE(fds); i++)
		(void)close(fds[i]);
	json_decref(kvpool_raw_get(admin(), "/v1/status"));
}
END_TEST

static Suite *admin_suite(void)
{
	Suite *suite = suite_create("admin");
	TCase *pages = tcase_create("pages");

	tcase_add_checked_fixture(pages, setup, teardown);
	tcase_set_timeout(pages, 60);
	tcase_add_test(pages, should_show_what_the_daemon_chose_and_did);
	tcase_add_test(pages, should_show_clients_domains_and_layouts);
	tcase_add_test(pages, should_show_no_token_and_no_key);
	tcase_add_test(pages, should_answer_in_json_also_where_it_refuses);
	tcase_add_test(pages, should_verify_when_it_is_posted_and_show_it_when_asked);
	tcase_add_test(pages, should_serve_others_beside_callers_that_say_nothing);
	suite_add_tcase(suite, pages);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(admin_suite());
}
