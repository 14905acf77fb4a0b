/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the service thread looks before it sleeps: see spin.h.
 */
#include "daemon/spin.h"

#include "shm/base.h"

/* Weight of the newest gap: 1/8. A burst of about six requests wins the long spin back. */
#define WEIGHT_SHIFT 3

void kvpool_spin_init(struct kvpool_spin *spin, uint64_t max_ns)
{
	spin->max_ns = max_ns;
	spin->average_ns = 2 * max_ns;
	spin->last_ns = 0;
}

void kvpool_spin_note(struct kvpool_spin *spin, uint64_t now_ns)
{
	/*
	 * The cap makes the average a vote: one pause of an hour counts as one long gap, no more,
	 * and the average is below max_ns where more than half of the recent gaps were short.
	 */
	uint64_t cap = 2 * spin->max_ns;
	uint64_t gap = cap;

	if (spin->last_ns != 0)
		gap = now_ns > spin->last_ns ? KVPOOL_MIN(now_ns - spin->last_ns, cap) : 0;
	spin->average_ns -= spin->average_ns >> WEIGHT_SHIFT;
	spin->average_ns += gap >> WEIGHT_SHIFT;
	spin->last_ns = now_ns;
}

uint64_t kvpool_spin_window(const struct kvpool_spin *spin)
{
	if (spin->average_ns < spin->max_ns)
		return spin->max_ns;
	return KVPOOL_MIN(spin->max_ns, KVPOOL_SPIN_SHORT_NS);
}

bool kvpool_spin_awake(const struct kvpool_spin *spin, uint64_t now_ns)
{
	return spin->last_ns != 0 && now_ns < spin->last_ns + kvpool_spin_window(spin);
}
