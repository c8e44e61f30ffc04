import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xmc_tf.metrics.table import format_table
from xmc_tf.ranks.communicator import Communicator

SHORT_BYTES = 4096
REPEATS = 3
# A link with less than this part of the bandwidth of good links is reported. One slow host of three makes two of three
# links slow, so good links are the best quarter.
_SLOW, _GOOD = 0.5, 75
_MOST_COLUMNS = 16


@dataclass(frozen=True)
class Link:
    """The speed of the link between two hosts that both send at the same time."""

    hosts: tuple[str, str]
    ms: float  # for a message of SHORT_BYTES
    megabytes_per_second: float  # in each direction

    def __str__(self) -> str:
        return f"{self.hosts[0]} – {self.hosts[1]}: {self.megabytes_per_second:,.0f} MB/s, {self.ms:.2f} ms"


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Return rounds of disjoint pairs, such that every two of ``count`` participants form a pair exactly once."""
    places = list(range(count + count % 2))
    found = []
    for _ in range(len(places) - 1):
        pairs = zip(places[: len(places) // 2], reversed(places[len(places) // 2 :]), strict=True)
        found.append(sorted((min(pair), max(pair)) for pair in pairs if max(pair) < count))
        places = [places[0], places[-1], *places[1:-1]]
    return [pairs for pairs in found if pairs]


def measure_links(world: Communicator, long_bytes: int) -> list[Link]:
    """Measure the link between every two hosts, by messages between their first ranks. All ranks must call this."""
    hosts: dict[str, int] = {}
    for rank, host in enumerate(world.allgather(world.host)):
        hosts.setdefault(host, rank)
    names, ranks = list(hosts), list(hosts.values())
    links = []
    for pairs in rounds(len(names)):
        partner = {ranks[a]: ranks[b] for a, b in pairs} | {ranks[b]: ranks[a] for a, b in pairs}
        seconds = tuple(_exchange(world, partner.get(world.rank), size) for size in (SHORT_BYTES, long_bytes))
        slowest = np.array(world.allgather(seconds))
        for a, b in pairs:
            short, long = slowest[[ranks[a], ranks[b]]].max(axis=0)
            links.append(Link((names[a], names[b]), 1e3 * float(short), long_bytes / 1e6 / max(float(long), 1e-9)))
    return links


def _exchange(world: Communicator, partner: int | None, size: int) -> float:
    """Return the shortest time of a few exchanges with the partner. Ranks without a partner send nothing."""
    counts = np.zeros(world.size, np.int64)
    if partner is not None:
        counts[partner] = size
    sent = np.zeros(int(counts.sum()), np.uint8)
    taken = []
    for _ in range(REPEATS):
        world.barrier()
        begun = time.perf_counter()
        world.alltoall_array(sent, counts)
        taken.append(time.perf_counter() - begun)
    return min(taken)


def slow_links(links: Sequence[Link]) -> list[Link]:
    """Return the links that are much slower than the fastest quarter, slowest first."""
    good = float(np.percentile([link.megabytes_per_second for link in links], _GOOD)) if links else 0.0
    slow = [link for link in links if link.megabytes_per_second < _SLOW * good]
    return sorted(slow, key=lambda link: link.megabytes_per_second)


def as_table(links: Sequence[Link]) -> str:
    """Return a table of the bandwidths and the slowest link. With many hosts, it shows only the slowest links."""
    hosts = sorted({host for link in links for host in link.hosts})
    order = sorted(links, key=lambda link: link.megabytes_per_second)
    median = float(np.median([link.megabytes_per_second for link in links]))
    last = f"slowest: {order[0]} (median {median:,.0f} MB/s)"
    if len(hosts) > _MOST_COLUMNS:
        return "\n".join(
            [f"the slowest of {len(links):,} links between hosts:", *map(str, order[:_MOST_COLUMNS]), last]
        )
    speed = {frozenset(link.hosts): f"{link.megabytes_per_second:,.0f}" for link in links}
    rows = [[one, *("–" if one == other else speed[frozenset((one, other))] for other in hosts)] for one in hosts]
    return f"{format_table(['MB/s between', *hosts], rows)}\n{last}"
