/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host lets the daemon use, and how large the pool becomes: on hosts of the test's making.
 */
#include "daemon/cgroup.h"
#include "daemon/host.h"
#include "daemon/sizing.h"
#include "shm/base.h"
#include "tests/unit/fixture_host.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)

#define HUGE_2M "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define HUGE_1G "/sys/kernel/mm/hugepages/hugepages-1048576kB/"
#define THP     "/sys/kernel/mm/transparent_hugepage/"

/* ---- the host ---- */

static struct kvpool_host host;

static void read_host(void)
{
	ck_assert_int_eq(kvpool_host_read(fixture_host_root, &host), 0);
}

static void make_host(void)
{
	fixture_host_make();
	fixture_host_write("/proc/meminfo", "MemTotal:       16777216 kB\n"
					    "MemFree:         1000000 kB\n"
					    "MemAvailable:    8388608 kB\n"
					    "SwapTotal:             0 kB\n");
}

START_TEST(should_read_a_host_without_limits_and_huge_pages)
{
	read_host();
	ck_assert_uint_eq(host.available, 8 * GIB);
	ck_assert_uint_eq(host.cgroup_limit, KVPOOL_HOST_UNLIMITED);
	ck_assert_uint_eq(host.cgroup_room, KVPOOL_HOST_UNLIMITED);
	ck_assert_uint_eq(host.free_2m, 0);
	ck_assert_uint_eq(host.free_1g, 0);
	ck_assert(!host.thp);
	ck_assert(!host.swap);
}
END_TEST

START_TEST(should_say_that_it_cannot_tell_what_is_available)
{
	uint64_t room = 42;

	fixture_host_write("/proc/meminfo", "MemTotal: 16777216 kB\n");
	host.available = 42;
	ck_assert_int_eq(kvpool_host_read(fixture_host_root, &host), -ENODATA);
	ck_assert_int_eq(kvpool_host_read("/nonexistent", &host), -ENODATA);
	ck_assert_uint_eq(host.available, 42);
	ck_assert_int_eq(kvpool_host_room(fixture_host_root, &room), -ENODATA);
	ck_assert_uint_eq(room, 42);
}
END_TEST

START_TEST(should_see_that_swap_is_on)
{
	fixture_host_write("/proc/meminfo", "MemAvailable: 8388608 kB\nSwapTotal: 4 kB\n");
	read_host();
	ck_assert(host.swap);
}
END_TEST

START_TEST(should_find_the_tightest_limit_on_the_way_to_the_root)
{
	uint64_t room;

	fixture_host_write("/proc/self/cgroup", "0::/pods/pod1/main\n");
	fixture_host_write("/sys/fs/cgroup/pods/pod1/main/memory.max", "max\n");
	fixture_host_write("/sys/fs/cgroup/pods/pod1/main/memory.current", "1000\n");
	fixture_host_write("/sys/fs/cgroup/pods/pod1/memory.max", "4294967296\n");
	fixture_host_write("/sys/fs/cgroup/pods/pod1/memory.current", "1073741824\n");
	fixture_host_write("/sys/fs/cgroup/pods/memory.max", "8589934592\n");
	fixture_host_write("/sys/fs/cgroup/pods/memory.current", "6442450944\n");
	read_host();
	ck_assert_uint_eq(host.cgroup_limit, 8 * GIB);
	ck_assert_uint_eq(host.cgroup_room, 2 * GIB);
	ck_assert_int_eq(kvpool_host_room(fixture_host_root, &room), 0);
	ck_assert_uint_eq(room, 2 * GIB);
}
END_TEST

START_TEST(should_read_the_limit_at_the_root_of_a_containers_own_view)
{
	fixture_host_write("/proc/self/cgroup", "0::/\n");
	fixture_host_write("/sys/fs/cgroup/memory.max", "2147483648\n");
	fixture_host_write("/sys/fs/cgroup/memory.current", "0\n");
	read_host();
	ck_assert_uint_eq(host.cgroup_limit, 2 * GIB);
	ck_assert_uint_eq(host.cgroup_room, 2 * GIB);
}
END_TEST

START_TEST(should_count_the_high_mark_as_a_limit)
{
	fixture_host_write("/proc/self/cgroup", "0::/a\n");
	fixture_host_write("/sys/fs/cgroup/a/memory.max", "8589934592\n");
	fixture_host_write("/sys/fs/cgroup/a/memory.high", "4294967296\n");
	fixture_host_write("/sys/fs/cgroup/a/memory.current", "1073741824\n");
	read_host();
	ck_assert_uint_eq(host.cgroup_limit, 4 * GIB);
	ck_assert_uint_eq(host.cgroup_room, 3 * GIB);
}
END_TEST

START_TEST(should_count_file_pages_that_can_go_as_room)
{
	fixture_host_write("/proc/self/cgroup", "0::/a\n");
	fixture_host_write("/sys/fs/cgroup/a/memory.max", "4294967296\n");
	fixture_host_write("/sys/fs/cgroup/a/memory.current", "4294967296\n");
	fixture_host_write("/sys/fs/cgroup/a/memory.stat",
			   "anon 1\nfile 2\ninactive_file 3221225472\nactive_file 9\n");
	read_host();
	ck_assert_uint_eq(host.cgroup_room, 3 * GIB);
}
END_TEST

START_TEST(should_have_no_room_under_a_limit_that_is_exceeded)
{
	fixture_host_write("/proc/self/cgroup", "0::/a\n");
	fixture_host_write("/sys/fs/cgroup/a/memory.max", "1000\n");
	fixture_host_write("/sys/fs/cgroup/a/memory.current", "2000\n");
	read_host();
	ck_assert_uint_eq(host.cgroup_room, 0);
	ck_assert_uint_eq(host.cgroup_limit, 1000);
}
END_TEST

START_TEST(should_read_version_1_and_its_way_to_say_unlimited)
{
	fixture_host_write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x/y\n0::/x\n");
	fixture_host_write("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes",
			   "9223372036854771712\n");
	fixture_host_write("/sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "5\n");
	read_host();
	ck_assert_uint_eq(host.cgroup_limit, KVPOOL_HOST_UNLIMITED);
	fixture_host_write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "3221225472\n");
	fixture_host_write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "2147483648\n");
	fixture_host_write("/sys/fs/cgroup/memory/x/memory.stat",
			   "inactive_file 7\ntotal_inactive_file 1073741824\n");
	read_host();
	ck_assert_uint_eq(host.cgroup_limit, 3 * GIB);
	ck_assert_uint_eq(host.cgroup_room, 2 * GIB);
}
END_TEST

START_TEST(should_count_huge_pages_that_nobody_has_reserved)
{
	fixture_host_write(HUGE_2M "free_hugepages", "100\n");
	fixture_host_write(HUGE_2M "resv_hugepages", "30\n");
	fixture_host_write(HUGE_1G "free_hugepages", "4\n");
	read_host();
	ck_assert_uint_eq(host.free_2m, 140 * MIB);
	ck_assert_uint_eq(host.free_1g, 4 * GIB);
	fixture_host_write(HUGE_2M "resv_hugepages", "300\n");
	read_host();
	ck_assert_uint_eq(host.free_2m, 0);
}
END_TEST

START_TEST(should_count_no_more_huge_pages_than_the_control_group_allows)
{
	fixture_host_write(HUGE_2M "free_hugepages", "100\n");
	fixture_host_write("/proc/self/cgroup", "0::/a\n");
	fixture_host_write("/sys/fs/cgroup/a/hugetlb.2MB.max", "20971520\n");
	fixture_host_write("/sys/fs/cgroup/a/hugetlb.2MB.current", "4194304\n");
	read_host();
	ck_assert_uint_eq(host.free_2m, 16 * MIB);
}
END_TEST

static const struct {
	const char *general;
	const char *of_2m; /* NULL: an older kernel */
	bool expected;
} thp_choices[] = {
	{"[always] within_size advise never deny force\n", NULL, true},
	{"always [within_size] advise never deny force\n", NULL, true},
	{"always within_size [advise] never deny force\n", NULL, true},
	{"always within_size advise never deny [force]\n", NULL, true},
	{"always within_size advise [never] deny force\n", NULL, false},
	{"always within_size advise never [deny] force\n", NULL, false},
	{"garbage\n", NULL, false},
	{"always within_size [advise] never deny force\n",
	 "always [inherit] within_size advise never\n", true},
	{"always within_size advise [never] deny force\n",
	 "always [inherit] within_size advise never\n", false},
	{"always within_size [advise] never deny force\n",
	 "always inherit within_size advise [never]\n", false},
	{"always within_size advise [never] deny force\n",
	 "always inherit within_size [advise] never\n", true},
};

START_TEST(should_know_whether_transparent_huge_pages_are_allowed)
{
	fixture_host_write(THP "shmem_enabled", thp_choices[_i].general);
	if (thp_choices[_i].of_2m != NULL)
		fixture_host_write(THP "hugepages-2048kB/shmem_enabled", thp_choices[_i].of_2m);
	read_host();
	ck_assert_int_eq(host.thp, thp_choices[_i].expected);
}
END_TEST

/* ---- sizes ---- */

static const struct {
	const char *text;
	uint64_t bytes;
	uint32_t percent;
} sizes[] = {
	{"1", 1, 0},
	{"4096", 4096, 0},
	{"12B", 12, 0},
	{"64k", 64 * KIB, 0},
	{"512M", 512 * MIB, 0},
	{"512MiB", 512 * MIB, 0},
	{"512mb", 512 * MIB, 0},
	{"4G", 4 * GIB, 0},
	{"1.5G", 3 * GIB / 2, 0},
	{"0.25K", 256, 0},
	{"0.000001T", TIB / 1000000, 0},
	{"2T", 2 * TIB, 0},
	{"16777215T", 16777215 * TIB, 0},
	{"1%", 0, 1},
	{"50%", 0, 50},
	{"100%", 0, 100},
};

START_TEST(should_read_sizes_as_people_write_them)
{
	struct kvpool_size size = {7, 7};

	ck_assert_int_eq(kvpool_size_parse(sizes[_i].text, &size), 0);
	ck_assert_uint_eq(size.bytes, sizes[_i].bytes);
	ck_assert_uint_eq(size.percent, sizes[_i].percent);
}
END_TEST

static const char *const no_sizes[] = {
	"",           "G",
	" 4G",        "-4G",
	"+4G",        "4 G",
	"4Q",         "4Gx",
	"4GiBs",      "1.G",
	".5G",        "1.5",
	"1.5B",       "1..5G",
	"0",          "0G",
	"0%",         "101%",
	"1.5%",       "%",
	"0x10",       "4GG",
	"4,5G",       "4iB",
	"1e9",        "1%%",
	"0.0000001T", "18446744073709551616",
	"16777216T",  "99999999999999999999T",
};

START_TEST(should_refuse_what_is_no_size)
{
	struct kvpool_size size = {7, 7};

	ck_assert_int_eq(kvpool_size_parse(no_sizes[_i], &size), -EINVAL);
	ck_assert_uint_eq(size.bytes, 7);
	ck_assert_uint_eq(size.percent, 7);
}
END_TEST

static const struct {
	uint64_t bytes;
	const char *text;
} formats[] = {
	{0, "0"},
	{1, "1 B"},
	{1023, "1023 B"},
	{1024, "1 KiB"},
	{1536, "1.5 KiB"},
	{64 * GIB, "64 GiB"},
	{64 * GIB - 1, "63.9 GiB"},
	{GIB + GIB / 2, "1.5 GiB"},
	{GIB - 1, "1023.9 MiB"},
	{UINT64_MAX, "16777215.9 TiB"},
};

START_TEST(should_write_sizes_for_people_and_never_round_them_up)
{
	char text[32];

	ck_assert_str_eq(kvpool_size_format(formats[_i].bytes, text, sizeof(text)),
			 formats[_i].text);
}
END_TEST

/* ---- the pool ---- */

static char error[KVPOOL_SIZING_ERROR_BYTES];

static struct kvpool_host host_of(uint64_t available)
{
	return (struct kvpool_host){
		.available = available,
		.cgroup_limit = KVPOOL_HOST_UNLIMITED,
		.cgroup_room = KVPOOL_HOST_UNLIMITED,
	};
}

static struct kvpool_sizing choose(const struct kvpool_host *h,
				   const struct kvpool_sizing_wish *wish)
{
	struct kvpool_sizing s;

	error[0] = '\0';
	ck_assert_msg(kvpool_sizing_choose(h, wish, error, &s) == 0, "%s", error);
	ck_assert_uint_gt(s.bytes, 0);
	ck_assert(KVPOOL_IS_POW2(s.segment_bytes));
	ck_assert_uint_eq(s.bytes & (s.segment_bytes - 1), 0);
	ck_assert(KVPOOL_IS_POW2(s.extent_bytes));
	ck_assert(KVPOOL_IS_POW2(s.step_bytes));
	ck_assert_uint_le(s.extent_bytes, s.step_bytes);
	ck_assert_uint_le(s.step_bytes, s.segment_bytes);
	return s;
}

static void refuse_choice(const struct kvpool_host *h, const struct kvpool_sizing_wish *wish,
			  int why, const char *text)
{
	struct kvpool_sizing s = {.bytes = 42};

	ck_assert_int_eq(kvpool_sizing_choose(h, wish, error, &s), why);
	ck_assert_str_eq(error, text);
	ck_assert_uint_eq(s.bytes, 42);
}

static const struct {
	struct kvpool_host host;
	enum kvpool_pages pages;
	uint64_t bytes, segment, extent;
} chosen[] = {
	/* Half of what is free; a 16th and a 64th of it. */
	{{8 * GIB, UINT64_MAX, UINT64_MAX, 0, 0, false, false}, 0, 4 * GIB, 256 * MIB, 64 * MIB},
	{{24 * GIB, UINT64_MAX, UINT64_MAX, 0, 0, false, false}, 0, 12 * GIB, 512 * MIB, 64 * MIB},
	{{TIB, UINT64_MAX, UINT64_MAX, 0, 0, false, false}, 0, 512 * GIB, GIB, 64 * MIB},
	/* The smallest. */
	{{128 * MIB, UINT64_MAX, UINT64_MAX, 0, 0, false, false}, 0, 64 * MIB, 16 * MIB, 4 * MIB},
	/* Down to whole segments. */
	{{2 * GIB + 40 * MIB, UINT64_MAX, UINT64_MAX, 0, 0, false, false},
	 0,
	 GIB,
	 64 * MIB,
	 16 * MIB},
	/* The control group leaves less than the host. */
	{{64 * GIB, 8 * GIB, 4 * GIB, 0, 0, false, false}, 0, 2 * GIB, 128 * MIB, 32 * MIB},
	/* Huge pages are more, or less, than half of the rest. */
	{{8 * GIB, UINT64_MAX, UINT64_MAX, 6 * GIB, 0, false, false},
	 0,
	 6 * GIB,
	 256 * MIB,
	 64 * MIB},
	{{8 * GIB, UINT64_MAX, UINT64_MAX, GIB, 0, false, false}, 0, 4 * GIB, 256 * MIB, 64 * MIB},
	/* Pages of 1 GiB that would hold all of it make for segments of that size. */
	{{4 * GIB, UINT64_MAX, UINT64_MAX, 0, 6 * GIB, false, false}, 0, 6 * GIB, GIB, 64 * MIB},
	{{4 * GIB, UINT64_MAX, UINT64_MAX, 0, 6 * GIB, false, false},
	 KVPOOL_PAGES_1G,
	 6 * GIB,
	 GIB,
	 64 * MIB},
	{{64 * GIB, UINT64_MAX, UINT64_MAX, 512 * MIB, 0, false, false},
	 KVPOOL_PAGES_2M,
	 512 * MIB,
	 32 * MIB,
	 8 * MIB},
	/* Asked for ordinary pages: huge ones do not count. */
	{{8 * GIB, UINT64_MAX, UINT64_MAX, 16 * GIB, 0, false, false},
	 KVPOOL_PAGES_4K,
	 4 * GIB,
	 256 * MIB,
	 64 * MIB},
};

START_TEST(should_choose_a_size_where_none_is_asked_for)
{
	struct kvpool_sizing_wish wish = {.pages = chosen[_i].pages, .populate = true};
	struct kvpool_sizing s = choose(&chosen[_i].host, &wish);

	ck_assert_uint_eq(s.bytes, chosen[_i].bytes);
	ck_assert_uint_eq(s.segment_bytes, chosen[_i].segment);
	ck_assert_uint_eq(s.extent_bytes, chosen[_i].extent);
}
END_TEST

START_TEST(should_take_a_percentage_of_what_may_be_used)
{
	struct kvpool_host h = host_of(40 * GIB);
	struct kvpool_sizing_wish wish = {.size = {.percent = 50}, .populate = true};
	struct kvpool_sizing s = choose(&h, &wish);

	ck_assert_uint_eq(s.usable, 38 * GIB);
	ck_assert_uint_le(s.bytes, 19 * GIB);
	ck_assert_uint_gt(s.bytes + s.segment_bytes, 19 * GIB - GIB / 100);
	wish.size.percent = 100;
	s = choose(&h, &wish);
	ck_assert_uint_le(s.bytes, 38 * GIB);
}
END_TEST

START_TEST(should_make_small_pools_where_they_are_asked_for)
{
	struct kvpool_host h = host_of(8 * GIB);
	struct kvpool_sizing_wish wish = {.size = {.bytes = 3 * MIB}, .populate = true};
	struct kvpool_sizing s = choose(&h, &wish);

	ck_assert_uint_eq(s.bytes, 2 * MIB);
	ck_assert_uint_eq(s.segment_bytes, 2 * MIB);
	wish.size.bytes = 48 * MIB;
	s = choose(&h, &wish);
	ck_assert_uint_eq(s.bytes, 48 * MIB);
	ck_assert_uint_eq(s.segment_bytes, 16 * MIB);
}
END_TEST

START_TEST(should_show_the_arithmetic_where_the_size_is_too_big)
{
	struct kvpool_host h = host_of(22 * GIB);
	struct kvpool_sizing_wish wish = {.size = {.bytes = 64 * GIB}, .populate = true};

	refuse_choice(&h, &wish, KVPOOL_SIZING_E_TOO_BIG,
		      "size 64 GiB is more than may be used: MemAvailable 22 GiB, cgroup limit "
		      "none, free huge pages 0: at most 20.9 GiB");
	h.cgroup_limit = 8 * GIB;
	h.cgroup_room = 6 * GIB;
	h.free_2m = GIB;
	refuse_choice(&h, &wish, KVPOOL_SIZING_E_TOO_BIG,
		      "size 64 GiB is more than may be used: MemAvailable 22 GiB, cgroup limit "
		      "8 GiB of which 6 GiB is left, free huge pages 1 GiB: at most 6.7 GiB");
	wish.pages = KVPOOL_PAGES_2M;
	refuse_choice(&h, &wish, KVPOOL_SIZING_E_TOO_BIG,
		      "size 64 GiB is more than may be used: MemAvailable 22 GiB, cgroup limit "
		      "8 GiB of which 6 GiB is left, free huge pages of 2M 1 GiB: at most 1 GiB");
}
END_TEST

START_TEST(should_allow_more_than_there_is_where_it_is_not_to_be_populated)
{
	struct kvpool_host h = host_of(22 * GIB);
	struct kvpool_sizing_wish wish = {.size = {.bytes = 64 * GIB}};

	ck_assert_uint_eq(choose(&h, &wish).bytes, 64 * GIB);
}
END_TEST

START_TEST(should_say_that_there_is_too_little_memory_for_any_pool)
{
	struct kvpool_host h = host_of(100 * MIB);
	struct kvpool_sizing_wish wish = {.populate = true};

	refuse_choice(
		&h, &wish, KVPOOL_SIZING_E_TOO_SMALL,
		"too little memory for the smallest default size, 64 MiB (a smaller pool must "
		"be asked for): MemAvailable 100 MiB, cgroup limit none, free huge pages 0: at "
		"most 95 MiB");
	wish.pages = KVPOOL_PAGES_1G;
	ck_assert_int_eq(kvpool_sizing_choose(&h, &wish, error, NULL), KVPOOL_SIZING_E_TOO_SMALL);
}
END_TEST

static const struct {
	struct kvpool_sizing_wish wish;
	int why;
	const char *text;
} misshapen[] = {
	{{.size = {.bytes = 64 * MIB}, .segment_bytes = 128 * MIB},
	 KVPOOL_SIZING_E_TOO_SMALL,
	 "size 64 MiB is less than one segment of 128 MiB"},
	{{.size = {.bytes = MIB / 2}},
	 KVPOOL_SIZING_E_TOO_SMALL,
	 "size 512 KiB is less than one segment of 1 MiB"},
	{{.size = {.bytes = GIB}, .segment_bytes = 24 * MIB},
	 KVPOOL_SIZING_E_SHAPE,
	 "segment_size 24 MiB is not a power of two from 1 MiB to 1 GiB"},
	{{.size = {.bytes = 4 * GIB}, .segment_bytes = 2 * GIB},
	 KVPOOL_SIZING_E_SHAPE,
	 "segment_size 2 GiB is not a power of two from 1 MiB to 1 GiB"},
	{{.size = {.bytes = GIB}, .segment_bytes = MIB, .pages = KVPOOL_PAGES_2M},
	 KVPOOL_SIZING_E_SHAPE,
	 "segment_size 1 MiB is not a power of two from 2 MiB to 1 GiB"},
	{{.size = {.bytes = 4 * GIB}, .segment_bytes = 512 * MIB, .pages = KVPOOL_PAGES_1G},
	 KVPOOL_SIZING_E_SHAPE,
	 "segment_size 512 MiB does not go with pages of 1G: it must be 1 GiB"},
	{{.size = {.bytes = GIB}, .segment_bytes = 16 * MIB, .extent_bytes = 32 * MIB},
	 KVPOOL_SIZING_E_SHAPE,
	 "extent_size 32 MiB is not a power of two from 64 KiB to the segment's size, 16 MiB"},
	{{.size = {.bytes = GIB}, .extent_bytes = 5 * MIB},
	 KVPOOL_SIZING_E_SHAPE,
	 "extent_size 5 MiB is not a power of two from 64 KiB to the segment's size, 64 MiB"},
	{{.size = {.bytes = 128 * GIB}, .segment_bytes = MIB},
	 KVPOOL_SIZING_E_SHAPE,
	 "size 128 GiB in segments of 1 MiB makes more than 65536 of them: choose a larger "
	 "segment_size"},
};

START_TEST(should_refuse_sizes_that_do_not_fit_together)
{
	struct kvpool_host h = host_of(TIB);

	refuse_choice(&h, &misshapen[_i].wish, misshapen[_i].why, misshapen[_i].text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sizing");
	TCase *hosts = tcase_create("host"), *text = tcase_create("sizes"),
	      *pool = tcase_create("pool");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, hosts);
	tcase_add_checked_fixture(hosts, make_host, fixture_host_remove);
	tcase_add_test(hosts, should_read_a_host_without_limits_and_huge_pages);
	tcase_add_test(hosts, should_say_that_it_cannot_tell_what_is_available);
	tcase_add_test(hosts, should_see_that_swap_is_on);
	tcase_add_test(hosts, should_find_the_tightest_limit_on_the_way_to_the_root);
	tcase_add_test(hosts, should_read_the_limit_at_the_root_of_a_containers_own_view);
	tcase_add_test(hosts, should_count_the_high_mark_as_a_limit);
	tcase_add_test(hosts, should_count_file_pages_that_can_go_as_room);
	tcase_add_test(hosts, should_have_no_room_under_a_limit_that_is_exceeded);
	tcase_add_test(hosts, should_read_version_1_and_its_way_to_say_unlimited);
	tcase_add_test(hosts, should_count_huge_pages_that_nobody_has_reserved);
	tcase_add_test(hosts, should_count_no_more_huge_pages_than_the_control_group_allows);
	tcase_add_loop_test(hosts, should_know_whether_transparent_huge_pages_are_allowed, 0,
			    (int)KVPOOL_ARRAY_SIZE(thp_choices));
	suite_add_tcase(suite, text);
	tcase_add_loop_test(text, should_read_sizes_as_people_write_them, 0,
			    (int)KVPOOL_ARRAY_SIZE(sizes));
	tcase_add_loop_test(text, should_refuse_what_is_no_size, 0,
			    (int)KVPOOL_ARRAY_SIZE(no_sizes));
	tcase_add_loop_test(text, should_write_sizes_for_people_and_never_round_them_up, 0,
			    (int)KVPOOL_ARRAY_SIZE(formats));
	suite_add_tcase(suite, pool);
	tcase_add_loop_test(pool, should_choose_a_size_where_none_is_asked_for, 0,
			    (int)KVPOOL_ARRAY_SIZE(chosen));
	tcase_add_test(pool, should_take_a_percentage_of_what_may_be_used);
	tcase_add_test(pool, should_make_small_pools_where_they_are_asked_for);
	tcase_add_test(pool, should_show_the_arithmetic_where_the_size_is_too_big);
	tcase_add_test(pool, should_allow_more_than_there_is_where_it_is_not_to_be_populated);
	tcase_add_test(pool, should_say_that_there_is_too_little_memory_for_any_pool);
	tcase_add_loop_test(pool, should_refuse_sizes_that_do_not_fit_together, 0,
			    (int)KVPOOL_ARRAY_SIZE(misshapen));
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
