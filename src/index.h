/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index: from (key, layout, group) to a block, by linear hashing over 64-byte buckets.
 *
 * It grows by one bucket at a time, so no operation ever waits for a rehash. Bucket b of a table of
 * n splits into b and b + 2^level; a hash whose bucket does not exist yet uses the one it will be
 * split from. At most half of the slots are used on average, so that about one lookup in fifty
 * needs a second line. A slot holds an 8-bit tag and a block id; the record behind it holds the
 * full key, which is always compared.
 *
 * Keys come from clients, so the hash is keyed with 256 secret bits: whoever does not know them
 * cannot aim at a bucket. Records lie in the catalog, buckets in private memory of their own,
 * sparse and on huge pages where there are any. Owned by a cache; its one thread uses it.
 */
#ifndef KVPOOL_SRC_INDEX_H
#define KVPOOL_SRC_INDEX_H

#include "src/catalog.h"

#define KVPOOL_BUCKET_SLOTS 11u

/* One line of the index. Slots fill from the first; a bucket has a `next` only when it is full. */
struct kvpool_bucket {
	KVPOOL_ALIGNED(KVPOOL_CACHELINE) uint32_t sequence; /* grows with every change */
	uint32_t next;                                      /* overflow bucket; 0: none */
	uint8_t tag[KVPOOL_BUCKET_SLOTS + 1]; /* 1..255 of a used slot, 0 of a free one */
	uint32_t id[KVPOOL_BUCKET_SLOTS];     /* block; 0: free */
};

KVPOOL_ASSERT_SIZE(struct kvpool_bucket, 64);
KVPOOL_ASSERT_OFFSET(struct kvpool_bucket, tag, 8);
KVPOOL_ASSERT_OFFSET(struct kvpool_bucket, id, 20);

struct kvpool_index {
	struct kvpool_bucket *buckets;       /* owned: mapped */
	const struct kvpool_record *records; /* borrowed: catalog */
	uint64_t secret[4];
	uint64_t mask;      /* of the table twice as large as the last full one */
	uint32_t n_buckets; /* primary, in use */
	uint32_t buckets_max;
	uint32_t n_items;
	uint32_t overflow_fresh; /* overflow buckets ever used; their numbers follow buckets_max */
	uint32_t overflow_max;
	uint32_t overflow_free; /* list through `next`; 0: empty */
};

/* For all blocks of the catalog. -ENOMEM. */
int kvpool_index_init(struct kvpool_index *index, const struct kvpool_catalog *catalog,
		      const uint64_t secret[4]);

/* Takes a zeroed index too. */
void kvpool_index_fini(struct kvpool_index *index);

/* The block's record is complete; the block is in no bucket yet. Cannot fail. */
void kvpool_index_insert(struct kvpool_index *index, uint32_t block);

/* The block is in the index and its record still holds the key it was inserted with. */
void kvpool_index_remove(struct kvpool_index *index, uint32_t block);

/* Walks the whole index. Its first fault as a text; NULL where it is sound. */
const char *kvpool_index_check(const struct kvpool_index *index);

static inline uint64_t kvpool_index_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t kvpool_index_hash(const struct kvpool_index *index, const uint8_t *key,
					 uint16_t layout, uint8_t group)
{
	const uint64_t *s = index->secret;
	uint64_t k[4];

	memcpy(k, key, sizeof(k));
	k[0] = kvpool_index_mix(k[0] ^ s[0], k[1] ^ s[1]);
	k[2] = kvpool_index_mix(k[2] ^ s[2], k[3] ^ s[3]);
	return kvpool_index_mix(k[0] ^ ((uint64_t)layout << 8 | group) ^ s[3], k[2] ^ s[0]);
}

/* Without a branch: whether a bucket was split already is a coin toss for every key. */
static inline uint32_t kvpool_index_bucket(const struct kvpool_index *index, uint64_t hash)
{
	uint64_t bucket = hash & index->mask;
	uint64_t unborn = bucket >= index->n_buckets;

	return (uint32_t)(bucket - ((index->mask + 1) / 2 & (0 - unborn)));
}

static inline uint8_t kvpool_index_tag(uint64_t hash)
{
	uint8_t tag = (uint8_t)(hash >> 56);

	return tag ? tag : 1;
}

static inline const struct kvpool_bucket *kvpool_index_home(const struct kvpool_index *index,
							    uint64_t hash)
{
	return &index->buckets[kvpool_index_bucket(index, hash)];
}

/* A bit at the top of each byte of `tags` that equals the tag; exact. */
static inline uint64_t kvpool_index_equal(uint64_t tags, uint8_t tag)
{
	const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
	uint64_t x = tags ^ (UINT64_C(0x0101010101010101) * tag);

	return ~(((x & low) + low) | x | low);
}

/* Bit 8 i is set where slot i of 0..7 has the tag, bit 8 i + 1 where slot 8 + i has it. */
static inline uint64_t kvpool_index_probe(const struct kvpool_bucket *bucket, uint8_t tag)
{
	uint64_t low;
	uint32_t high;

	memcpy(&low, bucket->tag, sizeof(low));
	memcpy(&high, bucket->tag + sizeof(low), sizeof(high));
	return kvpool_index_equal(low, tag) >> 7 | kvpool_index_equal(high, tag) >> 6;
}

static inline uint32_t kvpool_index_slot(uint64_t hits)
{
	uint32_t bit = (uint32_t)__builtin_ctzll(hits);

	return bit / 8 + bit % 8 * 8;
}

static inline bool kvpool_index_same(const struct kvpool_record *record, const uint8_t *key,
				     uint16_t layout, uint8_t group)
{
	uint64_t a[4], b[4];

	memcpy(a, record->key, sizeof(a));
	memcpy(b, key, sizeof(b));
	return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0 &&
	       record->layout == layout && record->group == group;
}

/*
 * The block that most likely has this hash, by the tags of its first bucket alone; 0 where that has
 * none. For fetching its record: kvpool_index_find() decides.
 */
static inline uint32_t kvpool_index_guess(const struct kvpool_bucket *home, uint64_t hash)
{
	uint64_t hits = kvpool_index_probe(home, kvpool_index_tag(hash));

	return hits ? home->id[kvpool_index_slot(hits)] : 0;
}

/* The block of this key, 0 where there is none. `key` is private; `hash` is its hash. */
static inline uint32_t kvpool_index_find(const struct kvpool_index *index, uint64_t hash,
					 const uint8_t *key, uint16_t layout, uint8_t group)
{
	const struct kvpool_bucket *bucket = kvpool_index_home(index, hash);
	uint8_t tag = kvpool_index_tag(hash);

	for (;;) {
		uint64_t hits = kvpool_index_probe(bucket, tag);

		while (hits) {
			uint32_t block = bucket->id[kvpool_index_slot(hits)];

			if (kvpool_index_same(&index->records[block], key, layout, group))
				return block;
			hits &= hits - 1;
		}
		if (KVPOOL_LIKELY(!bucket->next))
			return 0;
		bucket = &index->buckets[bucket->next];
	}
}

#endif
