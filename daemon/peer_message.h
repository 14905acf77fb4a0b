/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client's message does: a table says for each type when it may come, how long it is, and
 * who handles it.
 *
 * Part of the peer; service thread only.
 */
#ifndef KVPOOL_DAEMON_PEER_MESSAGE_H
#define KVPOOL_DAEMON_PEER_MESSAGE_H

#include "shm/base.h"

#include <stdbool.h>

struct kvpool_peer;

/*
 * One packet, a private copy aligned to 8, of at most KVPOOL_MESSAGE_BYTES_MAX. False: the peer is
 * gone and may not be touched.
 */
bool kvpool_peer_message(struct kvpool_peer *peer, const void *packet, uint32_t bytes);

#endif
