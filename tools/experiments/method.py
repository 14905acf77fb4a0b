# SPDX-License-Identifier: Apache-2.0
"""How the experiment was done, in words: what stands in the results beside the figures."""

from __future__ import annotations

from experiments.arms import CPUS, Setup
from experiments.mix import Shape
from experiments.plan import MAIN_WEIGHT, WARM_UP_PART
from experiments.run import Settings

ARMS = """- **Arms.** none: `enable_prefix_caching=False`. engine: vLLM's own prefix caching.
kvpool: that, and a daemon. `KVPOOL_DISABLE=1` in the first two. All have the same KV memory:
{setup.cache_tokens:,} tokens an engine ({cache_mib} MiB), which is room for the {setup.sequences}
longest requests that run at once and a fifth more. Nothing is ever preempted, and some prompts stay
cached, as on an accelerator that a large model fills. The pool has {setup.pool_mib:,} MiB,
{pool_ratio:.1f} times both caches together. Blocks of {setup.block_tokens} tokens, steps of at most
{setup.step_tokens:,}."""

ROUTING = """- **Routing.** A request goes to the engine with the fewest unfinished requests; among
equals a seeded generator chooses. The same rule in all arms, aware of no cache."""

PROMPTS = """- **Prompts.** {shape.shortest} to {shape.longest:,} tokens, lognormal (median
{shape.median_tokens}, sigma {shape.spread:g}), {settings.output_tokens} tokens out, greedy.
{shape.applications} applications with instructions of {shape.instruction_tokens} tokens, documents
that are read again with another question, conversations that continue, prompts that nobody repeats;
the rules are in `tools/experiments/mix.py`. Every deck has the same lengths, so arm none has the
same work at every mix. "Repeated" counts whole blocks that an earlier prompt of the point had: what
one endless shared cache would serve. Points have no block in common, so none finds what another
left."""

OPEN = """- **Open loop.** Poisson arrivals given their number, at every load the same moments on
another scale. Latency counts from the moment a request is due, whether the sender was late or not.
{requests} requests a point, {main_requests} at the main one (30 %, 0.9), three quarters at load
0.5, beyond 1 and at the other mixes. Of these the first {warm_up_percent} % are sent and not
counted, in any arm: they find empty queues and empty caches. Beyond load 1 only kvpool is
measured."""

CLOSED = """- **Closed loop.** {settings.in_flight} requests in flight, {settings.closed_requests}
in all. Requests a second: prompt tokens of the requests that ended between the end of the
{settings.in_flight}th and the last start, over that time and the mean length, so that start and end
with fewer in flight do not count. Arm none's at 30 % is the capacity that loads refer to."""

ORDER = """- **Order.** All engines run all the time (an idle one sleeps); the arms of a point
follow each other at once, and the arm that begins changes from point to point."""

CLIENT = """- **The client** shares the two CPUs with the engines and the daemon, at the same
niceness (0); it sleeps between arrivals, and `sent_late_p99_s` says how late it sent."""


def lines(setup: Setup, shape: Shape, settings: Settings, requests: int) -> list[str]:
    """Markdown list items."""
    cache_mib = setup.cache_tokens * setup.token_bytes / (1 << 20)
    values = {
        "setup": setup,
        "shape": shape,
        "settings": settings,
        "requests": requests,
        "main_requests": round(requests * MAIN_WEIGHT),
        "warm_up_percent": round(100 * WARM_UP_PART),
        "cache_mib": round(cache_mib),
        "pool_ratio": setup.pool_mib / (len(CPUS) * cache_mib),
    }
    texts = (ARMS, ROUTING, PROMPTS, OPEN, CLOSED, ORDER, CLIENT)
    return [" ".join(text.format(**values).split()) for text in texts]
