# SPDX-License-Identifier: Apache-2.0
"""What every engine connector needs, without a word about any engine's release.

An engine with paged KV memory plugs in twice: a :class:`~kvpool.engine.scheduler.Scheduler` in the
process that decides what runs next, and a :class:`~kvpool.engine.worker.Worker` in each process
that owns KV memory. They talk through picklable records only (:mod:`kvpool.engine.jobs`).

Nothing here raises into the engine because of the pool: no daemon, a dead one, a full one, a slow
one are misses.
"""
