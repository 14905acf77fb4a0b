/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations behind serve.c, one function each.
 *
 * Each returns an enum kvpool_status for the reply, whose other fields it fills in; or SERVE_LATER,
 * where there is no reply now; or a negative errno, where the environment failed. Service thread
 * only. The flags and the rights of the member were checked before.
 */
#ifndef KVPOOL_DAEMON_SERVE_OPS_H
#define KVPOOL_DAEMON_SERVE_OPS_H

#include "shm/wire.h"

struct kvpool_channel;

#define KVPOOL_SERVE_LATER KVPOOL_STATUS_COUNT

typedef int kvpool_serve_fn(struct kvpool_channel *channel, const struct kvpool_request *request,
			    struct kvpool_reply *reply);

kvpool_serve_fn kvpool_serve_layout;
kvpool_serve_fn kvpool_serve_match;
kvpool_serve_fn kvpool_serve_wait;
kvpool_serve_fn kvpool_serve_reserve;
kvpool_serve_fn kvpool_serve_commit;
kvpool_serve_fn kvpool_serve_abort;
kvpool_serve_fn kvpool_serve_release;
kvpool_serve_fn kvpool_serve_forget;
kvpool_serve_fn kvpool_serve_sums;
kvpool_serve_fn kvpool_serve_drop;
kvpool_serve_fn kvpool_serve_claim;

#endif
