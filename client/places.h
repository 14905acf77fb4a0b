/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the daemon's socket may be, in the order in which it is looked for.
 *
 * Settled when the handle is made; read-only afterwards.
 */
#ifndef KVPOOL_CLIENT_PLACES_H
#define KVPOOL_CLIENT_PLACES_H

#include <stdint.h>
#include <sys/un.h>

#define KVPOOL_PLACES_MAX 2u

struct kvpool_places {
	struct sockaddr_un at[KVPOOL_PLACES_MAX];
	uint32_t n;
};

/*
 * `socket` where it is given, else $KVPOOL_SOCKET, else the system's and the user's place.
 * -ENAMETOOLONG for a path that was named and does not fit in a socket address.
 */
int kvpool_places_find(const char *socket, struct kvpool_places *out);

/*
 * Connects to the first that answers, without waiting. -EACCES where one may not be used, -ENOTCONN
 * where none answers, -EMFILE and the like as they come. The descriptor does not block.
 */
int kvpool_places_connect(const struct kvpool_places *places, int *out);

#endif
