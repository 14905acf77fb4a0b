/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large the pool is and how it is divided: from what was asked for and what the host has.
 *
 * Pure functions over their arguments; struct kvpool_host (host.h) says what there is.
 */
#ifndef KVPOOL_DAEMON_SIZING_H
#define KVPOOL_DAEMON_SIZING_H

#include "daemon/host.h"
#include "daemon/pool.h"

#include <stddef.h>
#include <stdint.h>

#define KVPOOL_SIZING_ERROR_BYTES 384
#define KVPOOL_SIZING_POOL_MIN    (UINT64_C(64) << 20) /* where no size was asked for */
#define KVPOOL_SIZING_SEGMENT_MIN (UINT64_C(1) << 20)
#define KVPOOL_SIZING_EXTENT_MIN  (UINT64_C(64) << 10)

/* At most one of the two is not 0. */
struct kvpool_size {
	uint64_t bytes;
	uint32_t percent; /* of what may be used */
};

struct kvpool_sizing_wish {
	struct kvpool_size size; /* both 0: choose */
	uint64_t segment_bytes;  /* 0: choose */
	uint64_t extent_bytes;   /* 0: choose */
	enum kvpool_pages pages;
	bool populate; /* false: pages come as they are touched, so that a pool may be larger than
			  what is free */
};

struct kvpool_sizing {
	uint64_t bytes; /* a multiple of segment_bytes */
	uint64_t segment_bytes;
	uint64_t extent_bytes;
	uint64_t step_bytes; /* populated at a time: an extent */
	uint64_t usable;     /* what may be used on these pages */
};

enum {
	KVPOOL_SIZING_E_TOO_BIG = 1,   /* more than may be used */
	KVPOOL_SIZING_E_TOO_SMALL = 2, /* too little asked for, or too little there */
	KVPOOL_SIZING_E_SHAPE = 3,     /* segment, extent, pages and size do not fit together */
};

/* 0; or one of the enum above, with one line in `error` that holds the arithmetic. */
int kvpool_sizing_choose(const struct kvpool_host *host, const struct kvpool_sizing_wish *wish,
			 char error[KVPOOL_SIZING_ERROR_BYTES], struct kvpool_sizing *out);

/* "512M", "1.5G", "50%", plain bytes. 0, or -EINVAL. */
int kvpool_size_parse(const char *text, struct kvpool_size *out);

/* "20.9 GiB"; returns `text`. */
const char *kvpool_size_format(uint64_t bytes, char *text, size_t text_bytes);

#endif
