/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changing the index: insert, remove, split.
 *
 * Invariant: in a chain of buckets only the last has free slots, and in a bucket the used slots
 * come first. So chains are as short as can be, overflow buckets are bounded by blocks over slots,
 * and insertion cannot fail. Owned by a cache; its one thread uses it.
 */
#include "src/index.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

#define BUCKETS_FIRST 16u

/* Half of what fits at a load of one: lookups then nearly always end in their first line. */
#define LOAD_SLOTS_PER_BUCKET (KVPOOL_BUCKET_SLOTS / 2.0)

/* A table grows by one bucket when more than half of its slots are used. */
static bool must_grow(const struct kvpool_index *index)
{
	return (uint64_t)index->n_items * 2 > (uint64_t)index->n_buckets * KVPOOL_BUCKET_SLOTS &&
	       index->n_buckets < index->buckets_max;
}

/*
 * Bits of a number over the whole word, one to one: a secret of few bits set (a test's, say) would
 * make a poor multiplier, and a random one stays as good.
 */
static uint64_t spread(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static size_t table_bytes(const struct kvpool_index *index)
{
	return ((size_t)index->buckets_max + index->overflow_max) * sizeof(struct kvpool_bucket);
}

int kvpool_index_init(struct kvpool_index *index, const struct kvpool_catalog *catalog,
		      const uint64_t secret[4])
{
	struct kvpool_index new = {
		.records = catalog->records,
		.mask = BUCKETS_FIRST * 2 - 1,
		.n_buckets = BUCKETS_FIRST,
		.buckets_max =
			BUCKETS_FIRST + (uint32_t)(catalog->blocks_max / LOAD_SLOTS_PER_BUCKET) + 1,
		/*
		 * Only the last bucket of a chain may have free slots, so the chains together never
		 * have more overflow buckets than there are blocks over slots.
		 */
		.overflow_max = catalog->blocks_max / KVPOOL_BUCKET_SLOTS + 1,
	};
	void *table = mmap(NULL, table_bytes(&new), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (table == MAP_FAILED)
		return -ENOMEM;
	(void)madvise(table, table_bytes(&new), MADV_HUGEPAGE); /* a hint */
	(void)madvise(table, table_bytes(&new), MADV_DONTDUMP);
	new.buckets = table;
	for (uint32_t i = 0; i < KVPOOL_ARRAY_SIZE(new.secret); i++)
		new.secret[i] = spread(secret[i] + i);
	*index = new;
	return 0;
}

void kvpool_index_fini(struct kvpool_index *index)
{
	if (index->buckets)
		munmap(index->buckets, table_bytes(index));
	*index = (struct kvpool_index){0};
}

static uint64_t hash_of(const struct kvpool_index *index, uint32_t block)
{
	const struct kvpool_record *r = &index->records[block];

	return kvpool_index_hash(index, r->key, r->layout, r->group);
}

static uint32_t used_slots(const struct kvpool_bucket *bucket)
{
	uint32_t n = 0;

	while (n < KVPOOL_BUCKET_SLOTS && bucket->id[n])
		n++;
	return n;
}

static uint32_t overflow_take(struct kvpool_index *index)
{
	uint32_t number = index->overflow_free;

	if (number) {
		index->overflow_free = index->buckets[number].next;
		index->buckets[number].next = 0;
		return number;
	}
	assert(index->overflow_fresh < index->overflow_max);
	return index->buckets_max + index->overflow_fresh++;
}

static void overflow_give(struct kvpool_index *index, uint32_t number)
{
	struct kvpool_bucket *bucket = &index->buckets[number];

	*bucket = (struct kvpool_bucket){.sequence = bucket->sequence + 1,
					 .next = index->overflow_free};
	index->overflow_free = number;
}

static void put(struct kvpool_index *index, uint32_t block, uint64_t hash)
{
	struct kvpool_bucket *bucket = &index->buckets[kvpool_index_bucket(index, hash)];
	uint32_t slot;

	while (bucket->next)
		bucket = &index->buckets[bucket->next];
	slot = used_slots(bucket);
	if (slot == KVPOOL_BUCKET_SLOTS) {
		uint32_t number = overflow_take(index);

		bucket->sequence++;
		bucket->next = number;
		bucket = &index->buckets[number];
		slot = 0;
	}
	bucket->sequence++;
	bucket->tag[slot] = kvpool_index_tag(hash);
	bucket->id[slot] = block;
}

/* Moves the items of one bucket's copy to where they belong now. */
static void put_all(struct kvpool_index *index, const struct kvpool_bucket *copy)
{
	uint32_t n = used_slots(copy);

	for (uint32_t i = 0; i < n; i++)
		kvpool_line_fetch(&index->records[copy->id[i]]);
	for (uint32_t i = 0; i < n; i++)
		put(index, copy->id[i], hash_of(index, copy->id[i]));
}

static void split(struct kvpool_index *index)
{
	struct kvpool_bucket *from, copy;

	if (index->n_buckets == index->mask + 1)
		index->mask = index->mask << 1 | 1;
	from = &index->buckets[index->n_buckets & index->mask >> 1];
	copy = *from;
	*from = (struct kvpool_bucket){.sequence = copy.sequence + 1};
	index->n_buckets++;
	put_all(index, &copy);
	while (copy.next) {
		uint32_t number = copy.next;

		copy = index->buckets[number];
		overflow_give(index, number);
		put_all(index, &copy);
	}
}

void kvpool_index_insert(struct kvpool_index *index, uint32_t block)
{
	put(index, block, hash_of(index, block));
	index->n_items++;
	if (must_grow(index))
		split(index);
}

/* Takes the last item of the chain whose last bucket is `last`, linked from `before`. */
static void take_last(struct kvpool_index *index, struct kvpool_bucket *before,
		      struct kvpool_bucket *last, uint32_t *id, uint8_t *tag)
{
	uint32_t slot = used_slots(last) - 1;

	*id = last->id[slot];
	*tag = last->tag[slot];
	last->sequence++;
	last->id[slot] = 0;
	last->tag[slot] = 0;
	if (slot == 0 && before) {
		uint32_t number = before->next;

		before->sequence++;
		before->next = 0;
		overflow_give(index, number);
	}
}

void kvpool_index_remove(struct kvpool_index *index, uint32_t block)
{
	struct kvpool_bucket *bucket, *last, *before = NULL;
	uint64_t hash = hash_of(index, block);
	uint32_t slot, id;
	uint8_t tag;

	bucket = &index->buckets[kvpool_index_bucket(index, hash)];
	for (;;) {
		for (slot = 0; slot < KVPOOL_BUCKET_SLOTS && bucket->id[slot] != block; slot++)
			;
		if (slot < KVPOOL_BUCKET_SLOTS)
			break;
		assert(bucket->next);
		before = bucket;
		bucket = &index->buckets[bucket->next];
	}
	for (last = bucket; last->next; last = &index->buckets[last->next])
		before = last;
	take_last(index, before, last, &id, &tag);
	if (id != block) {
		bucket->sequence++;
		bucket->id[slot] = id;
		bucket->tag[slot] = tag;
	}
	index->n_items--;
}

const char *kvpool_index_check(const struct kvpool_index *index)
{
	uint64_t items = 0;

	for (uint32_t b = 0; b < index->n_buckets; b++) {
		const struct kvpool_bucket *bucket = &index->buckets[b];

		for (;;) {
			uint32_t n = used_slots(bucket);

			if (n < KVPOOL_BUCKET_SLOTS && bucket->next)
				return "index: a bucket with free slots has an overflow bucket";
			if (n == 0 && bucket != &index->buckets[b])
				return "index: an overflow bucket is empty";
			for (uint32_t i = 0; i < KVPOOL_BUCKET_SLOTS; i++) {
				uint64_t hash;

				if (i >= n && (bucket->id[i] || bucket->tag[i]))
					return "index: a hole between used slots";
				if (i >= n)
					continue;
				hash = hash_of(index, bucket->id[i]);
				if (kvpool_index_bucket(index, hash) != b)
					return "index: a block is in a bucket of another hash";
				if (kvpool_index_tag(hash) != bucket->tag[i])
					return "index: a tag does not belong to its block";
			}
			items += n;
			if (!bucket->next)
				break;
			bucket = &index->buckets[bucket->next];
		}
	}
	return items == index->n_items ? NULL : "index: the number of items is wrong";
}
