/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings from flags and from a file, and what is said where they are wrong.
 */
#include "daemon/options.h"
#include "daemon/options_table.h"
#include "shm/base.h"
#include "tests/unit/fixture_host.h"

#include <stdarg.h>

#define FLAGS_MAX 16

static struct kvpool_options options;
static char error[KVPOOL_OPTIONS_ERROR_BYTES];
static char file[PATH_MAX];

static void setup(void)
{
	fixture_host_make();
	(void)snprintf(file, sizeof(file), "%s/kvpoold.conf", fixture_host_root);
	memset(&options, 0, sizeof(options));
	error[0] = '\0';
}

static void teardown(void)
{
	kvpool_options_free(&options);
	fixture_host_remove();
}

/* Reads these flags, up to NULL, with `default_file`. */
static int read_with(const char *default_file, const char *flag, ...)
{
	char *argv[FLAGS_MAX] = {(char *)"kvpoold"};
	int argc = 1;
	va_list args;

	va_start(args, flag);
	for (; flag != NULL; flag = va_arg(args, const char *)) {
		ck_assert_int_lt(argc, FLAGS_MAX - 1);
		argv[argc++] = (char *)flag;
	}
	va_end(args);
	return kvpool_options_read(argc, argv, default_file, error, &options);
}

/* Checks the message, which begins with the file's path where that is not NULL. */
static void refuse_with(int r, const char *path, const char *text)
{
	char whole[KVPOOL_OPTIONS_ERROR_BYTES + PATH_MAX];

	(void)snprintf(whole, sizeof(whole), "%s%s", path == NULL ? "" : path, text);
	ck_assert_int_eq(r, KVPOOL_OPTIONS_E_USAGE);
	ck_assert_str_eq(error, whole);
	ck_assert_ptr_null(options.config);
}

START_TEST(should_run_without_flags_and_file)
{
	ck_assert_int_eq(read_with(NULL, NULL), 0);
	ck_assert(!options.help && !options.version && !options.check);
	ck_assert_ptr_null(options.config);
	ck_assert_ptr_null(options.socket);
	ck_assert_ptr_null(options.admin_socket);
	ck_assert_int_eq(options.log_level, KVPOOL_LOG_NOTICE);
	ck_assert_int_eq(options.loop, KVPOOL_LOOP_AUTO);
	ck_assert_uint_eq(options.spin_max_us, 1000);
	ck_assert_uint_eq(options.crash_window, 10);
	ck_assert_uint_eq(options.size.bytes, 0);
	ck_assert_uint_eq(options.size.percent, 0);
	ck_assert_uint_eq(options.segment_size, 0);
	ck_assert_uint_eq(options.extent_size, 0);
	ck_assert_int_eq(options.pages, KVPOOL_PAGES_AUTO);
	ck_assert(options.populate && options.numa);
	ck_assert_uint_eq(options.max_blocks, 0);
	ck_assert_uint_eq(options.max_clients, 1024);
	ck_assert_uint_eq(options.max_leases, 0);
	ck_assert_uint_eq(options.max_reserved_blocks, 0);
	ck_assert_uint_eq(options.idle_limit, 3600);
}
END_TEST

static void check_all(void)
{
	ck_assert_str_eq(options.socket, "/a/b.sock");
	ck_assert_str_eq(options.admin_socket, "/a/c.sock");
	ck_assert_int_eq(options.log_level, KVPOOL_LOG_DEBUG);
	ck_assert_int_eq(options.loop, KVPOOL_LOOP_EPOLL);
	ck_assert_uint_eq(options.spin_max_us, 0);
	ck_assert_uint_eq(options.crash_window, 120);
	ck_assert_uint_eq(options.size.bytes, 1536u << 20);
	ck_assert_uint_eq(options.segment_size, 256u << 20);
	ck_assert_uint_eq(options.extent_size, 8u << 20);
	ck_assert_int_eq(options.pages, KVPOOL_PAGES_4K);
	ck_assert(!options.populate && !options.numa);
	ck_assert_uint_eq(options.max_blocks, 1000000);
	ck_assert_uint_eq(options.max_clients, 7);
	ck_assert_uint_eq(options.max_leases, 8);
	ck_assert_uint_eq(options.max_reserved_blocks, 9);
	ck_assert_uint_eq(options.idle_limit, 7200);
}

START_TEST(should_take_every_setting_from_flags)
{
	char *argv[] = {
		(char *)"kvpoold",
		(char *)"--socket=/a/b.sock",
		(char *)"--admin-socket=/a/c.sock",
		(char *)"--log-level=debug",
		(char *)"--loop=epoll",
		(char *)"--spin-max-us=0",
		(char *)"--crash-window=2m",
		(char *)"--size",
		(char *)"1.5G",
		(char *)"--segment-size=256M",
		(char *)"--extent-size=8M",
		(char *)"--pages=4k",
		(char *)"--populate=no",
		(char *)"--numa=off",
		(char *)"--max-blocks=1000000",
		(char *)"--max-clients=7",
		(char *)"--max-leases=8",
		(char *)"--max-reserved-blocks=9",
		(char *)"--idle-limit=2h",
		(char *)"--check",
		NULL,
	};

	ck_assert_int_eq(
		kvpool_options_read((int)KVPOOL_ARRAY_SIZE(argv) - 1, argv, NULL, error, &options),
		0);
	check_all();
	ck_assert(options.check);
}
END_TEST

static const char whole_file[] = "; a comment\n"
				 "# another\n"
				 "[daemon]\n"
				 "socket = /a/b.sock\n"
				 "admin_socket=/a/c.sock\n"
				 "log_level = Debug\n"
				 "loop: epoll\n"
				 "spin_max_us = 0\n"
				 "crash_window = 2m\n"
				 "\n"
				 "[pool]\r\n"
				 "size = 1.5G   ; behind a value\r\n"
				 "segment_size = 256M\n"
				 "extent_size = 8M\n"
				 "pages = 4K\n"
				 "populate = no\n"
				 "numa = false\n"
				 "max_blocks = 1000000\n"
				 "[limits]\n"
				 "max_clients = 7\n"
				 "max_leases = 8\n"
				 "max_reserved_blocks = 9\n"
				 "idle_limit = 120m";

START_TEST(should_take_every_setting_from_a_file)
{
	fixture_host_write("/kvpoold.conf", whole_file);
	ck_assert_int_eq(read_with(NULL, "--config", file, NULL), 0);
	check_all();
	ck_assert_str_eq(options.config, file);
}
END_TEST

START_TEST(should_let_flags_win_over_the_file)
{
	fixture_host_write("/kvpoold.conf", "[pool]\nsize = 50%\npages = 2M\n[daemon]\nsocket = "
					    "/from/file\n");
	ck_assert_int_eq(read_with(file, "--size=64M", "--socket=/from/flag", NULL), 0);
	ck_assert_uint_eq(options.size.bytes, 64u << 20);
	ck_assert_uint_eq(options.size.percent, 0);
	ck_assert_int_eq(options.pages, KVPOOL_PAGES_2M);
	ck_assert_str_eq(options.socket, "/from/flag");
	ck_assert_str_eq(options.config, file);
}
END_TEST

START_TEST(should_check_what_the_file_says_though_a_flag_wins)
{
	fixture_host_write("/kvpoold.conf", "[daemon]\nsocket = /x\n[pool]\nsize = lots\n");
	refuse_with(read_with(file, "--size=64M", "--socket=/y", NULL), file,
		    ":4: size: \"lots\" is not allowed; allowed: bytes, with K, M, G or T behind, "
		    "or a percentage: 512M, 1.5G, 50%");
}
END_TEST

START_TEST(should_do_without_the_default_file_but_not_without_one_that_was_named)
{
	ck_assert_int_eq(read_with(file, NULL), 0);
	ck_assert_ptr_null(options.config);
	(void)snprintf(file, sizeof(file), "%s/none", fixture_host_root);
	ck_assert_int_eq(read_with(NULL, "--config", file, NULL), KVPOOL_OPTIONS_E_USAGE);
	ck_assert_ptr_nonnull(strstr(error, "cannot read the settings file "));
	ck_assert_ptr_nonnull(strstr(error, file));
	ck_assert_ptr_nonnull(strstr(error, ": No such file or directory"));
	ck_assert_int_eq(read_with(NULL, "--config", fixture_host_root, NULL),
			 KVPOOL_OPTIONS_E_USAGE);
	ck_assert_ptr_nonnull(strstr(error, ": Is a directory"));
}
END_TEST

START_TEST(should_say_that_the_default_file_cannot_be_read)
{
	ck_assert_int_eq(read_with(fixture_host_root, NULL), KVPOOL_OPTIONS_E_USAGE);
	ck_assert_ptr_nonnull(strstr(error, ": Is a directory"));
}
END_TEST

START_TEST(should_stop_reading_for_help_and_version)
{
	ck_assert_int_eq(read_with("/dev/null/none", "--help", NULL), 0);
	ck_assert(options.help);
	ck_assert_int_eq(read_with("/dev/null/none", "--version", NULL), 0);
	ck_assert(options.version);
}
END_TEST

static const struct {
	const char *flags[3];
	const char *text;
} bad_flags[] = {
	{{"--sise=4G"}, "unknown or ambiguous flag \"--sise=4G\"; --help lists all"},
	{{"--max=4"}, "unknown or ambiguous flag \"--max=4\"; --help lists all"},
	{{"-s"}, "unknown flag \"-s\"; --help lists all, with two dashes"},
	{{"--check=yes"}, "--check=yes: this flag takes no value"},
	{{"--socket"}, "--socket needs a value: a path"},
	{{"--socket="}, "--socket: \"\" is not allowed; allowed: a path"},
	{{"start"}, "unexpected \"start\": kvpoold takes flags only; --help lists all"},
	{{"--check", "now"}, "unexpected \"now\": kvpoold takes flags only; --help lists all"},
	{{"--size=12Q"},
	 "--size: \"12Q\" is not allowed; allowed: bytes, with K, M, G or T behind, or a "
	 "percentage: 512M, 1.5G, 50%"},
	{{"--segment-size=100M"},
	 "--segment-size: \"100M\" is not allowed; allowed: a power of two from 1 MiB to 1 GiB"},
	{{"--segment-size=50%"},
	 "--segment-size: \"50%\" is not allowed; allowed: a power of two from 1 MiB to 1 GiB"},
	{{"--extent-size=32K"},
	 "--extent-size: \"32K\" is not allowed; allowed: a power of two from 64 KiB to 1 GiB"},
	{{"--pages=huge"}, "--pages: \"huge\" is not allowed; allowed: auto, 1G, 2M, thp or 4k"},
	{{"--loop", "poll"}, "--loop: \"poll\" is not allowed; allowed: auto, io_uring or epoll"},
	{{"--log-level=loud"},
	 "--log-level: \"loud\" is not allowed; allowed: error, warning, notice, info or debug"},
	{{"--populate=maybe"}, "--populate: \"maybe\" is not allowed; allowed: yes or no"},
	{{"--max-clients=0"},
	 "--max-clients: \"0\" is not allowed; allowed: a number from 1 to 65536"},
	{{"--max-clients=65537"},
	 "--max-clients: \"65537\" is not allowed; allowed: a number from 1 to 65536"},
	{{"--max-leases=-1"},
	 "--max-leases: \"-1\" is not allowed; allowed: a number from 0 to 4294967295"},
	{{"--max-leases= 1"},
	 "--max-leases: \" 1\" is not allowed; allowed: a number from 0 to 4294967295"},
	{{"--spin-max-us=1e3"},
	 "--spin-max-us: \"1e3\" is not allowed; allowed: a number from 0 to 100000"},
	{{"--max-blocks=99999999999999999999"},
	 "--max-blocks: \"99999999999999999999\" is not allowed; allowed: a number from 0 to "
	 "4294967295"},
	{{"--idle-limit=5d"},
	 "--idle-limit: \"5d\" is not allowed; allowed: seconds, or with s, m or h behind: 90s, "
	 "60m, 2h"},
	{{"--idle-limit=9999999h"},
	 "--idle-limit: \"9999999h\" is not allowed; allowed: seconds, or with s, m or h behind: "
	 "90s, 60m, 2h"},
};

START_TEST(should_say_what_is_wrong_with_a_flag)
{
	const char *const *flags = bad_flags[_i].flags;

	refuse_with(read_with(NULL, flags[0], flags[1], flags[2], NULL), NULL, bad_flags[_i].text);
}
END_TEST

static const struct {
	const char *file;
	const char *text;
} bad_files[] = {
	{"[pool]\nsize = 4G\nsegment_size\n",
	 ":3: \"segment_size\" is neither a [section] nor name = value nor a comment (; or #)"},
	{"[pool\nsize = 4G\n",
	 ":1: \"[pool\" is neither a [section] nor name = value nor a comment (; or #)"},
	{"\n\n[pool]\nsise = 4G\n",
	 ":4: unknown name \"sise\" in [pool]; allowed: size, segment_size, extent_size, pages, "
	 "populate, numa, max_blocks"},
	{"[pools]\nfoo = 4G\n", ":2: unknown section [pools]; allowed: [daemon], [pool], [limits]"},
	{"foo = 4G\n", ":1: unknown section []; allowed: [daemon], [pool], [limits]"},
	{"[daemon]\nsize = 4G\n", ":2: size belongs into section [pool], not [daemon]"},
	{"size = 4G\n", ":1: size belongs into section [pool], which must come before it"},
	{"[pool]\nsize = 4G\n\nsize = 5G\n", ":4: size was set on line 2 already"},
	{"[pool]\nsize = 4G\n  8G\n", ":3: size was set on line 2 already"},
	{"[pool]\npages = 3M\n",
	 ":2: pages: \"3M\" is not allowed; allowed: auto, 1G, 2M, thp or 4k"},
	{"[pool]\nsize =\n",
	 ":2: size: \"\" is not allowed; allowed: bytes, with K, M, G or T behind, or a "
	 "percentage: 512M, 1.5G, 50%"},
	{"[limits]\nmax_clients = many\nmax_leases = none\n",
	 ":2: max_clients: \"many\" is not allowed; allowed: a number from 1 to 65536"},
	{"[daemon]\nconfig = /x\n",
	 ":2: unknown name \"config\" in [daemon]; allowed: socket, admin_socket, log_level, loop, "
	 "spin_max_us, crash_window"},
};

START_TEST(should_say_where_and_what_is_wrong_in_a_file)
{
	fixture_host_write("/kvpoold.conf", bad_files[_i].file);
	refuse_with(read_with(file, NULL), file, bad_files[_i].text);
}
END_TEST

START_TEST(should_refuse_a_line_that_would_be_cut)
{
	char text[1000];

	memset(text, 'x', sizeof(text));
	memcpy(text, "[daemon]\nsocket = /", 19);
	text[sizeof(text) - 1] = '\0';
	fixture_host_write("/kvpoold.conf", text);
	refuse_with(read_with(file, NULL), file, ":2: the line is longer than 197 bytes");
}
END_TEST

START_TEST(should_take_a_line_of_the_greatest_length)
{
	char text[256];
	size_t n;

	memset(text, 'x', sizeof(text));
	memcpy(text, "[daemon]\nsocket = /", 19);
	n = strlen("[daemon]\n") + 197;
	memcpy(text + n, "\nloop = epoll\n", sizeof("\nloop = epoll\n"));
	fixture_host_write("/kvpoold.conf", text);
	ck_assert_msg(read_with(file, NULL) == 0, "%s", error);
	ck_assert_uint_eq(strlen(options.socket), 197 - strlen("socket = "));
	ck_assert_int_eq(options.loop, KVPOOL_LOOP_EPOLL);
}
END_TEST

START_TEST(should_refuse_a_file_with_a_zero_byte)
{
	FILE *to = fopen(file, "we");

	ck_assert_ptr_nonnull(to);
	ck_assert_uint_eq(fwrite("[pool]\n\0size = 4G\n", 1, 18, to), 18);
	ck_assert_int_eq(fclose(to), 0);
	ck_assert_int_eq(read_with(file, NULL), KVPOOL_OPTIONS_E_USAGE);
	ck_assert_ptr_nonnull(strstr(error, "cannot read the settings file"));
}
END_TEST

START_TEST(should_name_every_setting_in_the_help)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	ck_assert_ptr_nonnull(to);
	kvpool_options_help(to);
	ck_assert_int_eq(fclose(to), 0);
	for (size_t i = 0; i < KVPOOL_OPTIONS_COUNT; i++) {
		const struct kvpool_option *o = &kvpool_options_table[i];
		char name[64], flag[70];

		kvpool_option_flag_name(o, name, sizeof(name));
		(void)snprintf(flag, sizeof(flag), "\n  --%s", name);
		ck_assert_msg(strstr(text, flag) != NULL, "no %s", name);
	}
	for (char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
		ck_assert_uint_le(strcspn(line, "\n"), 100);
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("options");
	TCase *tcase = tcase_create("settings");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, should_run_without_flags_and_file);
	tcase_add_test(tcase, should_take_every_setting_from_flags);
	tcase_add_test(tcase, should_take_every_setting_from_a_file);
	tcase_add_test(tcase, should_let_flags_win_over_the_file);
	tcase_add_test(tcase, should_check_what_the_file_says_though_a_flag_wins);
	tcase_add_test(tcase,
		       should_do_without_the_default_file_but_not_without_one_that_was_named);
	tcase_add_test(tcase, should_say_that_the_default_file_cannot_be_read);
	tcase_add_test(tcase, should_stop_reading_for_help_and_version);
	tcase_add_loop_test(tcase, should_say_what_is_wrong_with_a_flag, 0,
			    (int)KVPOOL_ARRAY_SIZE(bad_flags));
	tcase_add_loop_test(tcase, should_say_where_and_what_is_wrong_in_a_file, 0,
			    (int)KVPOOL_ARRAY_SIZE(bad_files));
	tcase_add_test(tcase, should_refuse_a_line_that_would_be_cut);
	tcase_add_test(tcase, should_take_a_line_of_the_greatest_length);
	tcase_add_test(tcase, should_refuse_a_file_with_a_zero_byte);
	tcase_add_test(tcase, should_name_every_setting_in_the_help);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
