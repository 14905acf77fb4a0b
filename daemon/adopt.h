/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new life of the daemon takes over what the one before it left: domains with their blocks, and
 * the clients that may still read and write there.
 *
 * No object: works on the server while it is made, before anybody can connect. Service thread only.
 */
#ifndef KVPOOL_DAEMON_ADOPT_H
#define KVPOOL_DAEMON_ADOPT_H

struct kvpool_kept;
struct kvpool_server;

/*
 * `kept` may be NULL: the first life. A domain that cannot be taken over, or of which a process
 * that may write is not known, starts empty. Fills in server->adoption. -ENOMEM.
 */
int kvpool_adopt(struct kvpool_server *server, struct kvpool_kept *kept);

#endif
