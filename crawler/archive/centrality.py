"""PageRank and harmonic centrality of the nodes of a graph, by numpy alone (decision 64).

Rule: pure. Nodes are numbered from 0; the edges are given as two arrays, each edge once, and none
of a node to itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

DAMPING: Final = 0.85
_PRECISION: Final = 1e-9  # the sum of all changes in the last round
_MOST_ROUNDS: Final = 1000
_TOGETHER: Final = 64  # searches at once, each a bit of a word
MOST_SOURCES: Final = 4096
"""Of more nodes with links so many are drawn: paths from each cost 4 us for 1,000 edges."""

Nodes = NDArray[np.int32]


class InLinks(NamedTuple):
    """The edges in the order of their targets."""

    sources: Nodes
    targets: Nodes  # the nodes that are linked to, ascending
    begins: NDArray[np.int64]  # of the sources of each
    in_degrees: NDArray[np.int64]  # of all nodes
    out_degrees: NDArray[np.int64]  # of all nodes


def in_links(nodes: int, sources: Nodes, targets: Nodes) -> InLinks:
    in_degrees = np.bincount(targets, minlength=nodes)
    linked = in_degrees.nonzero()[0].astype(np.int32)
    begins = in_degrees[linked].cumsum() - in_degrees[linked]
    by_target = sources[targets.argsort(kind="stable")]
    return InLinks(by_target, linked, begins, in_degrees, np.bincount(sources, minlength=nodes))


def page_rank(links: InLinks) -> NDArray[np.float64]:
    """Return the PageRank of each node, whose sum is 1. A node without links counts as one that
    links to all."""
    nodes = len(links.in_degrees)
    leads_nowhere = links.out_degrees == 0
    shares = 1.0 / np.maximum(links.out_degrees, 1)
    rank = np.full(nodes, 1.0 / max(nodes, 1))
    for _ in range(_MOST_ROUNDS):
        spread = 1.0 - DAMPING + DAMPING * rank[leads_nowhere].sum()
        following = np.full(nodes, spread / max(nodes, 1))
        if len(links.targets):
            got = np.add.reduceat((rank * shares)[links.sources], links.begins)
            following[links.targets] += DAMPING * got
        change = np.abs(following - rank).sum()
        rank = following
        if change < _PRECISION:
            break
    return rank


def harmonic_centrality(
    links: InLinks, most_sources: int = MOST_SOURCES
) -> tuple[NDArray[np.float64], int]:
    """Return of each node the sum of 1/d over all nodes from which d links lead to it at least, and
    how many of the nodes with links were drawn for paths of more than one link; 0: all count, and
    the sums are exact."""
    centrality = links.in_degrees.astype(np.float64)
    if not len(links.targets):
        return centrality, 0
    sources = links.out_degrees.nonzero()[0]
    all_sources = len(sources)
    if all_sources > most_sources:
        sources = np.random.default_rng(0).choice(sources, most_sources, replace=False)
    further = np.zeros(len(centrality))
    for begin in range(0, len(sources), _TOGETHER):
        _add_paths(links, sources[begin : begin + _TOGETHER], further)
    centrality += further * (all_sources / len(sources))
    return centrality, len(sources) if len(sources) < all_sources else 0


def _add_paths(links: InLinks, sources: NDArray[np.int64], found: NDArray[np.float64]) -> None:
    """Add to *found* 1/d for each of the *sources* from which d links, two or more, lead to a node.
    All are searched at once, breadth-first."""
    reached_now = np.zeros(len(found), np.uint64)
    reached_now[sources] = np.uint64(1) << np.arange(len(sources), dtype=np.uint64)
    reached = reached_now.copy()
    distance = 0
    while True:
        distance += 1
        words = np.bitwise_or.reduceat(reached_now[links.sources], links.begins)
        reached_now = np.zeros(len(found), np.uint64)
        reached_now[links.targets] = words
        reached_now &= ~reached
        if not reached_now.any():
            return
        if distance > 1:
            found += np.bitwise_count(reached_now) / distance
        reached |= reached_now
