/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of kvpoold: from flags and from an ini file, which have the same names; flags win.
 *
 * One table (options_table.c) gives name, section, type, bounds and help of each. Owned by main();
 * read-only once the daemon runs.
 */
#ifndef KVPOOL_DAEMON_OPTIONS_H
#define KVPOOL_DAEMON_OPTIONS_H

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/pool.h"
#include "daemon/sizing.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define KVPOOL_OPTIONS_ERROR_BYTES 512
#define KVPOOL_OPTIONS_FILE        "/etc/kvpool/kvpoold.conf"

struct kvpool_options {
	bool help;    /* nothing else was looked at */
	bool version; /* likewise */
	bool check;
	bool supervise;
	char *config; /* owned; the file that was read; NULL: none */

	/* [daemon] */
	char *socket;       /* owned; NULL: not given */
	char *admin_socket; /* owned; NULL: not given */
	enum kvpool_log_level log_level;
	enum kvpool_loop_kind loop;
	uint32_t spin_max_us;
	uint32_t crash_window; /* seconds; 0: the pool is never given up */

	/* [pool] */
	struct kvpool_size size; /* both 0: not given */
	uint64_t segment_size;   /* 0: not given */
	uint64_t extent_size;    /* 0: not given */
	enum kvpool_pages pages;
	bool populate;
	bool numa;
	uint32_t max_blocks; /* 0: as many as the pool may hold */

	/* [limits] */
	uint32_t max_clients;
	uint32_t max_leases;          /* a client; 0: the cache's own limit */
	uint32_t max_reserved_blocks; /* a client; 0: no limit */
	uint32_t idle_limit;          /* seconds; 0: never */
};

enum {
	KVPOOL_OPTIONS_E_USAGE = 1, /* the flags or the file are wrong; exit with 2 */
};

/*
 * Defaults, then the file (--config, else `default_file` where that exists; NULL: none), then the
 * flags. 0; KVPOOL_OPTIONS_E_USAGE with one line in `error`; -ENOMEM. On failure `out` needs no
 * kvpool_options_free().
 */
int kvpool_options_read(int argc, char *const argv[], const char *default_file,
			char error[KVPOOL_OPTIONS_ERROR_BYTES], struct kvpool_options *out);

/* Frees what it owns. Takes NULL. */
void kvpool_options_free(struct kvpool_options *options);

/* What --help prints. */
void kvpool_options_help(FILE *to);

#endif
