/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of kvpoold's settings: names, types, bounds and help of each, for flags and file alike.
 *
 * Constant; usable from any thread.
 */
#include "daemon/options_table.h"

#include "shm/limits.h"

#define AT(field) offsetof(struct kvpool_options, field)

static const struct kvpool_option_word log_levels[] = {
	{"error", KVPOOL_LOG_ERROR}, {"warning", KVPOOL_LOG_WARNING}, {"notice", KVPOOL_LOG_NOTICE},
	{"info", KVPOOL_LOG_INFO},   {"debug", KVPOOL_LOG_DEBUG},     {NULL, 0},
};

static const struct kvpool_option_word loops[] = {
	{"auto", KVPOOL_LOOP_AUTO},
	{"io_uring", KVPOOL_LOOP_URING},
	{"epoll", KVPOOL_LOOP_EPOLL},
	{NULL, 0},
};

static const struct kvpool_option_word pages[] = {
	{"auto", KVPOOL_PAGES_AUTO}, {"1G", KVPOOL_PAGES_1G}, {"2M", KVPOOL_PAGES_2M},
	{"thp", KVPOOL_PAGES_THP},   {"4k", KVPOOL_PAGES_4K}, {NULL, 0},
};

/* clang-format off */
const struct kvpool_option kvpool_options_table[KVPOOL_OPTIONS_COUNT] = {
	{NULL, "config", KVPOOL_OPTION_PATH, AT(config), .argument = "FILE",
	 .help = "settings file; " KVPOOL_OPTIONS_FILE " is read where it exists and this is not "
		 "given"},
	{NULL, "check", KVPOOL_OPTION_FLAG, AT(check),
	 .help = "check flags and file, say what would be chosen, and exit"},
	{NULL, "supervise", KVPOOL_OPTION_FLAG, AT(supervise),
	 .help = "be a small parent that starts the daemon, keeps its memory when it dies and starts "
		 "it again; for hosts and containers without systemd"},
	{NULL, "help", KVPOOL_OPTION_FLAG, AT(help), .help = "this text"},
	{NULL, "version", KVPOOL_OPTION_FLAG, AT(version), .help = "the version"},

	{"daemon", "socket", KVPOOL_OPTION_PATH, AT(socket), .argument = "PATH",
	 .help = "where clients attach; else the socket that systemd passed, "
		 "/run/kvpool/kvpool.sock, $XDG_RUNTIME_DIR/kvpool.sock"},
	{"daemon", "admin_socket", KVPOOL_OPTION_PATH, AT(admin_socket), .argument = "PATH",
	 .help = "where kvpoolctl asks; else beside the other"},
	{"daemon", "log_level", KVPOOL_OPTION_CHOICE, AT(log_level), .words = log_levels,
	 .argument = "LEVEL", .help = "lines above this level are dropped (notice)"},
	{"daemon", "loop", KVPOOL_OPTION_CHOICE, AT(loop), .words = loops, .argument = "KIND",
	 .help = "how to wait for events; auto is io_uring, and epoll where that is refused (auto)"},
	{"daemon", "spin_max_us", KVPOOL_OPTION_NUMBER, AT(spin_max_us), 0, 100000,
	 .argument = "N",
	 .help = "longest time, in microseconds, to look for the next request before sleeping; 0 "
		 "sleeps at once (1000)"},
	{"daemon", "crash_window", KVPOOL_OPTION_SECONDS, AT(crash_window), 0, 3600,
	 .argument = "TIME",
	 .help = "a life that took over an earlier one's pool and ends within this time is a crash; "
		 "after three the pool is given up; 0: never, for tests that kill it (10s)"},

	{"pool", "size", KVPOOL_OPTION_SIZE, AT(size), .argument = "SIZE",
	 .help = "memory for blocks: 512M, 4G, or 50% of what may be used; else half of what is "
		 "free, or all free huge pages where these are more"},
	{"pool", "segment_size", KVPOOL_OPTION_BYTES, AT(segment_size), KVPOOL_SIZING_SEGMENT_MIN,
	 KVPOOL_SEGMENT_MAX, .argument = "SIZE",
	 .help = "what a domain gets at a time; else a 16th of the pool, from 16M to 1G"},
	{"pool", "extent_size", KVPOOL_OPTION_BYTES, AT(extent_size), KVPOOL_SIZING_EXTENT_MIN,
	 KVPOOL_SEGMENT_MAX, .argument = "SIZE",
	 .help = "run of blocks of one size, and the largest block; else a 64th of the pool, from "
		 "4M to 64M"},
	{"pool", "pages", KVPOOL_OPTION_CHOICE, AT(pages), .words = pages, .argument = "KIND",
	 .help = "pages to lie on; auto takes the best that are free, any other no substitute "
		 "(auto)"},
	{"pool", "populate", KVPOOL_OPTION_BOOL, AT(populate), .argument = "yes|no",
	 .help = "take the memory at start; no leaves it to the first touch (yes)"},
	{"pool", "numa", KVPOOL_OPTION_BOOL, AT(numa), .argument = "yes|no",
	 .help = "spread segments over the memory nodes, one node each (yes)"},
	{"pool", "max_blocks", KVPOOL_OPTION_NUMBER, AT(max_blocks), 0, UINT32_MAX,
	 .argument = "N", .help = "most blocks of one domain; 0: as many as fit (0)"},

	{"limits", "max_clients", KVPOOL_OPTION_NUMBER, AT(max_clients), 1, 65536, .argument = "N",
	 .help = "most clients at a time (1024)"},
	{"limits", "max_leases", KVPOOL_OPTION_NUMBER, AT(max_leases), 0, UINT32_MAX,
	 .argument = "N", .help = "most leases of one client; 0: the built-in limit (0)"},
	{"limits", "max_reserved_blocks", KVPOOL_OPTION_NUMBER, AT(max_reserved_blocks), 0,
	 UINT32_MAX, .argument = "N",
	 .help = "most blocks that one client may be writing; 0: no limit (0)"},
	{"limits", "idle_limit", KVPOOL_OPTION_SECONDS, AT(idle_limit), 0, UINT32_MAX,
	 .argument = "TIME",
	 .help = "a block that nobody used for this long goes: 90s, 60m, 2h; 0: never (60m)"},
};
/* clang-format on */
