/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages on the SOCK_SEQPACKET socket: attach, further channels, segments by descriptor.
 *
 * One message is one packet; a packet of another length than its type's is a violation. The daemon
 * speaks first (HELLO). The client's first message must be ATTACH. Clients never send descriptors:
 * one that does is dropped. What the client writes is checked field by field on the received copy.
 */
#ifndef KVPOOL_SHM_HANDSHAKE_H
#define KVPOOL_SHM_HANDSHAKE_H

#include "shm/base.h"
#include "shm/limits.h"

#define KVPOOL_PROTOCOL_MAGIC    UINT64_C(0x6c6f6f70766b) /* "kvpool", little-endian */
#define KVPOOL_PROTOCOL_MIN      1u
#define KVPOOL_PROTOCOL_MAX      1u
#define KVPOOL_MESSAGE_BYTES_MAX 512u
#define KVPOOL_MESSAGE_FDS_MAX   3u

enum kvpool_feature {
	KVPOOL_FEATURE_WAIT = 1u << 0,     /* KVPOOL_OP_WAIT is served */
	KVPOOL_FEATURE_CHECKSUM = 1u << 1, /* COMMIT may carry a CRC32C */
	KVPOOL_FEATURE_VERIFY = 1u << 2,   /* KVPOOL_OP_SUMS and KVPOOL_OP_DROP are served */
	KVPOOL_FEATURE_RETIRE = 1u << 3,   /* the pool outlives the daemon: RETIRE is heard */
	KVPOOL_FEATURE_RESUME = 1u << 4, /* so do clients: RESUME and KVPOOL_OP_CLAIM are served */
	KVPOOL_FEATURES = KVPOOL_FEATURE_WAIT | KVPOOL_FEATURE_CHECKSUM | KVPOOL_FEATURE_VERIFY |
			  KVPOOL_FEATURE_RETIRE | KVPOOL_FEATURE_RESUME,
};

enum kvpool_message_type {
	KVPOOL_MESSAGE_HELLO = 1,       /* daemon: struct kvpool_hello */
	KVPOOL_MESSAGE_ATTACH = 2,      /* client: struct kvpool_attach */
	KVPOOL_MESSAGE_WELCOME = 3,     /* daemon: struct kvpool_welcome */
	KVPOOL_MESSAGE_REFUSED = 4,     /* daemon: struct kvpool_refused; then it closes, except
					   after SEGMENT_GET with UNKNOWN and CHANNEL_GET with
					   LIMIT or RESOURCES */
	KVPOOL_MESSAGE_CHANNEL_GET = 5, /* client: struct kvpool_channel_get */
	KVPOOL_MESSAGE_CHANNEL = 6,     /* daemon: struct kvpool_channel_grant and 3 descriptors */
	KVPOOL_MESSAGE_SEGMENT_GET = 7, /* client: struct kvpool_segment_get */
	KVPOOL_MESSAGE_SEGMENT = 8,     /* daemon: struct kvpool_segment_grant and 1 descriptor */
	KVPOOL_MESSAGE_CHANNEL_PUT = 9, /* client: struct kvpool_channel_put; not answered */
	KVPOOL_MESSAGE_RETIRE = 10,     /* client: struct kvpool_retire; not answered */
	KVPOOL_MESSAGE_RETIRE_MEMBER = 11, /* client: struct kvpool_retire_member; not answered;
					      where RESUME is served */
};

enum kvpool_attach_flag {
	KVPOOL_ATTACH_READ_ONLY = 1u << 0, /* segments come as descriptors that cannot be written */
	KVPOOL_ATTACH_JOIN = 1u << 1,      /* a further member of the client with this token */
	KVPOOL_ATTACH_RESUME = 1u << 2, /* the client of an earlier daemon life with this token, or
					   a new one where there is none: see WELCOME */
	KVPOOL_ATTACH_GPU = 1u << 3, /* its blocks may be under DMA for a while after its death */
	KVPOOL_ATTACH_FLAGS = (1u << 4) - 1,
};

enum kvpool_refusal {
	KVPOOL_REFUSAL_VERSION = 1,
	KVPOOL_REFUSAL_MESSAGE = 2,    /* malformed; `text` says what */
	KVPOOL_REFUSAL_TOKEN = 3,      /* nobody of this domain has that token */
	KVPOOL_REFUSAL_LIMIT = 4,      /* as many clients, members or channels as allowed */
	KVPOOL_REFUSAL_PERMISSION = 5, /* this user may not use this socket */
	KVPOOL_REFUSAL_RESOURCES = 6,  /* the daemon is out of descriptors or memory: try later */
	KVPOOL_REFUSAL_DRAINING = 7,
	KVPOOL_REFUSAL_UNKNOWN = 8, /* SEGMENT_GET: no such segment in this domain; socket stays */
	KVPOOL_REFUSAL_EVICTED = 9, /* the operator ended this client; it may attach afresh */
};

struct kvpool_message {
	uint32_t type;  /* enum kvpool_message_type */
	uint32_t bytes; /* of the whole packet */
};

KVPOOL_ASSERT_SIZE(struct kvpool_message, 8);

struct kvpool_hello {
	struct kvpool_message head;
	uint64_t magic; /* KVPOOL_PROTOCOL_MAGIC */
	uint32_t version_min;
	uint32_t version_max;
	uint32_t features; /* enum kvpool_feature */
	uint32_t ring_entries_max;
	uint64_t arena_bytes_max;
	uint64_t epoch;
	uint8_t reserved[16];
};

KVPOOL_ASSERT_SIZE(struct kvpool_hello, 64);

struct kvpool_attach {
	struct kvpool_message head;
	uint32_t version;      /* the client's choice in the daemon's range */
	uint32_t features;     /* what the client would use; the answer holds the intersection */
	uint32_t flags;        /* enum kvpool_attach_flag */
	uint32_t ring_entries; /* wish for the first channel: a power of two */
	uint64_t arena_bytes;  /* wish for the first channel: a multiple of 4096 */
	uint8_t token[KVPOOL_TOKEN_BYTES]; /* zero unless JOIN or RESUME */
	char name[KVPOOL_NAME_BYTES];      /* for people; NUL-terminated, printable */
	uint32_t member_plus_1; /* RESUME: the number that this handle had, as WELCOME said; else 0
				 */
	uint8_t reserved[12];
};

KVPOOL_ASSERT_SIZE(struct kvpool_attach, 128);
KVPOOL_ASSERT_OFFSET(struct kvpool_attach, member_plus_1, 112);

enum kvpool_welcome_flag {
	KVPOOL_WELCOME_RESUMED = 1u << 0, /* after RESUME: it is that client, with all it held */
};

struct kvpool_welcome {
	struct kvpool_message head;
	uint32_t version;
	uint32_t features;
	uint64_t epoch;
	uint32_t client; /* id, as kvpoolctl shows it */
	uint32_t member;
	uint8_t token[KVPOOL_TOKEN_BYTES]; /* lets further processes join this client */
	uint64_t segment_bytes;            /* of the largest segment */
	uint64_t extent_bytes;             /* a block with its shards is at most this long */
	char domain[KVPOOL_NAME_BYTES];
	uint64_t client_epoch; /* of the life in which the client began; 0 without RESUME */
	uint32_t flags;        /* enum kvpool_welcome_flag */
	uint8_t reserved[20];
};

KVPOOL_ASSERT_SIZE(struct kvpool_welcome, 160);
KVPOOL_ASSERT_OFFSET(struct kvpool_welcome, client_epoch, 128);

struct kvpool_refused {
	struct kvpool_message head;
	uint32_t reason; /* enum kvpool_refusal */
	uint32_t version_min;
	uint32_t version_max;
	uint32_t reserved;
	char text[232]; /* for people; NUL-terminated */
};

KVPOOL_ASSERT_SIZE(struct kvpool_refused, 256);

struct kvpool_channel_get {
	struct kvpool_message head;
	uint32_t ring_entries;
	uint32_t reserved;
	uint64_t arena_bytes;
};

KVPOOL_ASSERT_SIZE(struct kvpool_channel_get, 24);

/* With three descriptors: channel memory, daemon's doorbell, client's doorbell (eventfds). */
struct kvpool_channel_grant {
	struct kvpool_message head;
	uint32_t channel; /* number within the client */
	uint32_t ring_entries;
	uint64_t arena_bytes;
	uint64_t total_bytes;
};

KVPOOL_ASSERT_SIZE(struct kvpool_channel_grant, 32);

struct kvpool_channel_put {
	struct kvpool_message head;
	uint32_t channel;
	uint32_t reserved;
};

KVPOOL_ASSERT_SIZE(struct kvpool_channel_put, 16);

/*
 * This process reads and writes no block any more that was granted to the client of an earlier life
 * of the daemon with this token.
 */
struct kvpool_retire {
	struct kvpool_message head;
	uint8_t token[KVPOOL_TOKEN_BYTES];
};

KVPOOL_ASSERT_SIZE(struct kvpool_retire, 24);

/* The same of one handle of this process: the member that it was. */
struct kvpool_retire_member {
	struct kvpool_message head;
	uint8_t token[KVPOOL_TOKEN_BYTES];
	uint32_t member;
	uint32_t reserved;
};

KVPOOL_ASSERT_SIZE(struct kvpool_retire_member, 32);

struct kvpool_segment_get {
	struct kvpool_message head;
	uint32_t segment;
	uint32_t reserved;
};

KVPOOL_ASSERT_SIZE(struct kvpool_segment_get, 16);

/* With one descriptor, sealed against resizing. */
struct kvpool_segment_grant {
	struct kvpool_message head;
	uint32_t segment;
	uint32_t node; /* NUMA node; UINT32_MAX where it is not bound */
	uint64_t bytes;
	uint32_t page_shift; /* 12, 21 or 30 */
	uint32_t read_only;  /* 1: the descriptor cannot be mapped writable */
};

KVPOOL_ASSERT_SIZE(struct kvpool_segment_grant, 32);

#endif
