/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: the socket of one member process, the proof of its life, and its channels.
 *
 * Owned by server->peers while it is served. A member that is not served any more stays, owned by
 * its client, until it is proven gone: its process is no more (pidfd), and the last copy of its end
 * of the socket is closed, for a child or whoever else was given a copy may have the blocks mapped
 * too. Service thread only. Never waits for the peer: what does not fit in the socket's buffer at
 * once is a violation, and a violation drops this peer alone.
 */
#ifndef KVPOOL_DAEMON_PEER_H
#define KVPOOL_DAEMON_PEER_H

#include "daemon/list.h"
#include "daemon/loop.h"
#include "daemon/violation.h"
#include "shm/handshake.h"

#include <stdbool.h>
#include <sys/types.h>

struct kvpool_client;
struct kvpool_server;

enum kvpool_peer_state {
	KVPOOL_PEER_GREETED = 1,  /* HELLO was sent */
	KVPOOL_PEER_ATTACHED = 2, /* WELCOME was sent; a member of `client` */
	KVPOOL_PEER_OVER = 3,     /* not served any more; a member that is not proven gone yet */
};

struct kvpool_peer {
	struct kvpool_list link;        /* in server->peers, until it is over */
	struct kvpool_list member_link; /* in client->members */
	struct kvpool_list channels;    /* owned */
	struct kvpool_server *server;   /* borrowed */
	struct kvpool_client *client;   /* borrowed; NULL until attached */
	struct kvpool_source *source;   /* owned: the socket */
	struct kvpool_source *watch;    /* owned: the pidfd, once attached */
	struct kvpool_source *deadline; /* owned: until attached */
	int fd;                         /* owned; -1 once nobody has the other end */
	int pidfd;                      /* owned */
	pid_t pid;                      /* in our namespace; 0: not visible from here */
	uid_t uid;
	uint32_t member; /* number within the client */
	enum kvpool_peer_state state;
	uint32_t features;
	bool read_only; /* gets descriptors that cannot be written through */
	bool claiming;  /* resumed, and has not said yet all that it holds */
	bool gone;      /* the pidfd says: no such process any more */
};

/* A connection was accepted: takes `fd`, greets. A peer that cannot be had is refused. */
void kvpool_peer_accept(struct kvpool_server *server, int fd, bool starved);

/*
 * Serves it no more: channels and, with the last member, leases end. The other side sees the end of
 * the socket; ours stays open while a member's other end does, to see when that goes. May free peer
 * and client. Never call it from below the service of one of its channels.
 */
void kvpool_peer_end(struct kvpool_peer *peer);

/* Says why, best effort, and ends the peer. Counts a violation of this kind. */
void kvpool_peer_violate(struct kvpool_peer *peer, enum kvpool_violation kind,
			 enum kvpool_refusal reason, const char *fmt, ...) KVPOOL_PRINTF(4, 5);

/* The same for what is not the peer's fault. */
void kvpool_peer_refuse(struct kvpool_peer *peer, enum kvpool_refusal reason, const char *fmt, ...)
	KVPOOL_PRINTF(3, 4);

/* Whether the process is not proven gone yet, asked now. */
bool kvpool_peer_alive(const struct kvpool_peer *peer);

/* Whether neither its process nor its end of the socket is there any more. */
static inline bool kvpool_peer_proven_gone(const struct kvpool_peer *peer)
{
	return peer->gone && peer->fd < 0;
}

/* Closes and frees; it is in no list of members any more. For its client. */
void kvpool_peer_free(struct kvpool_peer *peer);

#endif
