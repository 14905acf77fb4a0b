/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a figure was measured: machine, kernel, commit, date; and what decides sizes (caches,
 * memory). Pure readers of /proc, /sys and the C library; main thread.
 */
#ifndef KVPOOL_TOOLS_BENCH_MACHINE_H
#define KVPOOL_TOOLS_BENCH_MACHINE_H

#include <jansson.h>
#include <stdint.h>

/* The largest cache that a core sees, in bytes; 0 where nobody says. */
uint64_t kvpool_machine_cache_bytes(void);

/* MemAvailable, in bytes; 0 where /proc does not say. */
uint64_t kvpool_machine_available_bytes(void);

/* Puts `machine`, `kernel`, `commit` and `date` into the object. -ENOMEM. */
int kvpool_machine_describe(json_t *into);

#endif
