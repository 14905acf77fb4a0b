/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl as a person and as a script sees it: what it prints, where, and its exit codes. Against
 * a real daemon, and against a small fake one for answers that a real one does not give.
 */
#include "client/kvpool.h"
#include "shm/base.h"
#include "tests/integration/command.h"
#include "tests/integration/harness.h"
#include "tools/admin_client.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static struct kvpool_harness *daemon_;
static struct kvpool_command command;
static char fake_socket[KVPOOL_ADMIN_SOCKET_BYTES];
static pid_t fake;

static void setup(void)
{
	ck_assert_int_eq(kvpool_harness_new(NULL, &daemon_), 0);
	snprintf(fake_socket, sizeof(fake_socket), "%.80s/fake.sock",
		 kvpool_harness_folder(daemon_));
	fake = 0;
}

static void teardown(void)
{
	if (fake != 0) {
		kill(fake, SIGKILL);
		waitpid(fake, NULL, 0);
	}
	kvpool_command_clear(&command);
	kvpool_harness_free(daemon_);
}

/* Runs kvpoolctl with up to four arguments. */
static void ctl(const char *a, const char *b, const char *c, const char *d)
{
	const char *const arguments[] = {getenv("KVPOOLCTL"), a, b, c, d, NULL};

	ck_assert_ptr_nonnull(arguments[0]);
	kvpool_command_clear(&command);
	kvpool_command_run(arguments, &command);
}

static void must_say(int code, const char *where, const char *what)
{
	ck_assert_msg(command.code == code, "exit code %d\n%s%s", command.code, command.out,
		      command.err);
	ck_assert_msg(strstr(where, what) != NULL, "no \"%s\" in:\n%s", what, where);
}

/* Answers every request with this text, in a process of its own. */
static void fake_daemon(const char *status, const char *body)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char request[2048];

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", fake_socket);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	fake = fork();
	ck_assert_int_ge(fake, 0);
	while (fake == 0) {
		int fd = accept(listener, NULL, NULL);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fd < 0 || read(fd, request, sizeof(request)) <= 0)
			_exit(1);
		dprintf(fd, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
			status, strlen(body), body);
		close(fd);
	}
	close(listener);
}

START_TEST(should_show_the_accounting_of_a_running_daemon)
{
	ctl("--socket", kvpool_harness_admin_socket(daemon_), "status", NULL);
	must_say(0, command.out, "kvpoold ");
	must_say(0, command.out, "quarantined");
	must_say(0, command.out, "64 MiB");
	ck_assert_str_eq(command.err, "");
}
END_TEST

START_TEST(should_pass_the_daemons_json_on)
{
	json_error_t problem;
	json_t *document;

	ctl("--json", "status", "--socket", kvpool_harness_admin_socket(daemon_));
	document = json_loads(command.out, 0, &problem);
	ck_assert_msg(document != NULL, "%s", problem.text);
	ck_assert_int_eq(json_integer_value(json_object_get(document, "schema_version")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(document, "pid")),
			 kvpool_harness_pid(daemon_));
	json_decref(document);
}
END_TEST

START_TEST(should_list_a_client_by_its_name)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.socket = kvpool_harness_socket(daemon_),
		.name = "llama-on-the-left",
		.deadline_ns = UINT64_C(10000000000),
		.flags = KVPOOL_OPEN_REQUIRE,
	};
	struct kvpool *pool = NULL;

	ctl("clients", "--socket", kvpool_harness_admin_socket(daemon_), NULL);
	must_say(0, command.out, "no clients");
	ck_assert_int_eq(kvpool_open(&options, &pool), 0);
	ctl("clients", "--socket", kvpool_harness_admin_socket(daemon_), NULL);
	must_say(0, command.out, "llama-on-the-left");
	must_say(0, command.out, "QUARANTINED");
	kvpool_close(pool);
}
END_TEST

START_TEST(should_say_both_versions)
{
	ctl("version", "--socket", kvpool_harness_admin_socket(daemon_), NULL);
	must_say(0, command.out, "kvpoolctl ");
	must_say(0, command.out, "kvpoold ");
	ctl("version", "--socket", fake_socket, NULL);
	must_say(0, command.out, "kvpoolctl ");
	must_say(0, command.err, "no daemon answers");
	ck_assert_ptr_null(strstr(command.out, "kvpoold "));
}
END_TEST

START_TEST(should_exit_with_3_where_no_daemon_answers)
{
	ctl("--socket", fake_socket, "status", NULL);
	must_say(3, command.err, fake_socket);
	ck_assert_str_eq(command.out, "");
	kvpool_harness_kill(daemon_);
	ctl("--socket", kvpool_harness_admin_socket(daemon_), "clients", NULL);
	must_say(3, command.err, "no daemon answers");
}
END_TEST

START_TEST(should_exit_with_2_where_the_command_line_is_wrong)
{
	char path[300];

	ctl("--colour", "status", NULL, NULL);
	must_say(2, command.err, "--colour is no option");
	ctl("explode", NULL, NULL, NULL);
	must_say(2, command.err, "explode is no command");
	ctl(NULL, NULL, NULL, NULL);
	must_say(2, command.err, "which command?");
	ctl("status", "--socket", NULL, NULL);
	must_say(2, command.err, "--socket needs a value");
	ctl("status", "clients", NULL, NULL);
	must_say(2, command.err, "one command at a time");
	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	ctl("status", "--socket", path, NULL);
	must_say(2, command.err, "1 to 107 bytes");
}
END_TEST

START_TEST(should_name_the_admin_socket_to_whoever_gives_the_data_socket)
{
	ctl("status", "--socket", kvpool_harness_socket(daemon_), NULL);
	must_say(2, command.err, kvpool_harness_admin_socket(daemon_));
}
END_TEST

START_TEST(should_exit_with_4_where_it_is_refused)
{
	fake_daemon("403 Forbidden", "{}");
	ctl("--socket", fake_socket, "status", NULL);
	must_say(4, command.err, "403");
}
END_TEST

START_TEST(should_report_a_socket_that_it_may_not_open_as_refused)
{
	char why[KVPOOL_ADMIN_WHY_BYTES] = "";
	json_t *document = NULL;
	int status = -1;
	pid_t pid;

	/* Root may open everything: become somebody else, who cannot enter the folder. */
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (geteuid() != 0 && chmod(kvpool_harness_admin_socket(daemon_), 0) != 0)
			_exit(100);
		if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
			_exit(101);
		_exit(kvpool_admin_client_get(kvpool_harness_admin_socket(daemon_), "/v1/status",
					      why, sizeof(why), &document));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), KVPOOL_ADMIN_E_REFUSED);
}
END_TEST

START_TEST(should_exit_with_5_where_the_pool_did_not_become_what_was_wanted)
{
	fake_daemon("200 OK", "{\"schema_version\":1,\"state\":\"serving\",\"pool\":{\"error\":"
			      "\"segment 3: Cannot allocate memory\"}}");
	ctl("--socket", fake_socket, "status", NULL);
	must_say(5, command.err, "segment 3: Cannot allocate memory");
	must_say(5, command.out, "serving");
}
END_TEST

START_TEST(should_exit_with_6_where_the_daemon_speaks_another_version)
{
	fake_daemon("200 OK", "{\"schema_version\":7}");
	ctl("--socket", fake_socket, "status", NULL);
	must_say(6, command.err, "schema_version 7");
}
END_TEST

START_TEST(should_exit_with_1_where_something_else_answers)
{
	fake_daemon("200 OK", "<html>hello</html>");
	ctl("--socket", fake_socket, "status", NULL);
	must_say(1, command.err, "is no kvpoold");
	ck_assert_str_eq(command.out, "");
}
END_TEST

START_TEST(should_keep_control_characters_of_a_clients_name_off_the_terminal)
{
	fake_daemon("200 OK", "{\"schema_version\":1,\"clients\":[{\"id\":3,\"name\":"
			      "\"\\u001b[2Jgone\\n\",\"members\":[{}],\"idle_ms\":1500}]}");
	ctl("--socket", fake_socket, "clients", NULL);
	must_say(0, command.out, "?[2Jgone?");
	ck_assert_ptr_null(strchr(command.out, '\033'));
}
END_TEST

START_TEST(should_mark_clients_that_are_silent_stopped_dead_or_evicted)
{
	fake_daemon("200 OK",
		    "{\"schema_version\":1,\"clients\":[{\"id\":3,\"name\":\"slow\",\"state\":"
		    "\"attached\",\"members\":[{\"process\":\"stopped\"},{\"process\":\"running\"}"
		    ",{\"process\":\"gone\"}],\"idle_ms\":180000},{\"id\":4,\"name\":\"out\","
		    "\"state\":\"gone-quarantined\",\"evicted\":true,\"members\":[{}],\"idle_ms\":"
		    "5}]}");
	ctl("--socket", fake_socket, "clients", NULL);
	must_say(0, command.out, "silent 3 min");
	must_say(0, command.out, "3, 1 stopped, 1 dead");
	must_say(0, command.out, "evicted");
	must_say(0, command.out, "active");
	ck_assert_ptr_null(strstr(command.out, "gone-quarantined"));
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("kvpoolctl");
	TCase *tcase = tcase_create("kvpoolctl");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, should_show_the_accounting_of_a_running_daemon);
	tcase_add_test(tcase, should_pass_the_daemons_json_on);
	tcase_add_test(tcase, should_list_a_client_by_its_name);
	tcase_add_test(tcase, should_say_both_versions);
	tcase_add_test(tcase, should_exit_with_3_where_no_daemon_answers);
	tcase_add_test(tcase, should_exit_with_2_where_the_command_line_is_wrong);
	tcase_add_test(tcase, should_name_the_admin_socket_to_whoever_gives_the_data_socket);
	tcase_add_test(tcase, should_exit_with_4_where_it_is_refused);
	tcase_add_test(tcase, should_report_a_socket_that_it_may_not_open_as_refused);
	tcase_add_test(tcase, should_exit_with_5_where_the_pool_did_not_become_what_was_wanted);
	tcase_add_test(tcase, should_exit_with_6_where_the_daemon_speaks_another_version);
	tcase_add_test(tcase, should_exit_with_1_where_something_else_answers);
	tcase_add_test(tcase, should_keep_control_characters_of_a_clients_name_off_the_terminal);
	tcase_add_test(tcase, should_mark_clients_that_are_silent_stopped_dead_or_evicted);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return kvpool_harness_run(make_suite());
}
