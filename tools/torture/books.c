/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What outlives every process that is killed: see books.h.
 */
#include "tools/torture/books.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#define BYTES (sizeof(struct kvpool_books) + KVPOOL_BOOKS_VERSIONS_MAX * sizeof(uint64_t))

int kvpool_books_new(struct kvpool_books **out)
{
	/* Pages come as versions do. */
	void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	*out = at;
	return 0;
}

void kvpool_books_free(struct kvpool_books *books)
{
	if (books)
		munmap(books, BYTES);
}

uint32_t kvpool_books_begin(struct kvpool_books *books, uint64_t key)
{
	uint32_t version = atomic_load(&books->versions_n);

	/* Never beyond the end, so that it cannot wrap. */
	do {
		if (version + 1 >= KVPOOL_BOOKS_VERSIONS_MAX)
			return 0;
	} while (!atomic_compare_exchange_weak(&books->versions_n, &version, version + 1));
	atomic_store(&books->versions[version + 1], key << 8 | KVPOOL_VERSION_BEGUN);
	return version + 1;
}

void kvpool_books_set(struct kvpool_books *books, uint32_t version, enum kvpool_version state)
{
	uint64_t key = atomic_load(&books->versions[version]) >> 8;

	atomic_store(&books->versions[version], key << 8 | state);
}

bool kvpool_books_may_be_found(const struct kvpool_books *books, uint32_t version, uint64_t key)
{
	uint64_t entry;

	if (version == 0 || version >= KVPOOL_BOOKS_VERSIONS_MAX)
		return false;
	entry = atomic_load(&books->versions[version]);
	return entry == (key << 8 | KVPOOL_VERSION_OFFERED) ||
	       entry == (key << 8 | KVPOOL_VERSION_TAKEN);
}

void kvpool_books_fault(struct kvpool_books *books, const char *format, ...)
{
	uint32_t at = atomic_fetch_add(&books->faults_n, 1);
	va_list arguments;

	if (at >= KVPOOL_BOOKS_FAULTS_MAX)
		return;
	va_start(arguments, format);
	vsnprintf(books->faults[at], KVPOOL_BOOKS_TEXT_BYTES, format, arguments);
	va_end(arguments);
}
