"""The graph of the hosts of an archive, and that of their domains, from the links in its columns.

Rule: files are as Common Crawl's: names reversed ("org.example.www") and numbered from 0 in their
order, an edge once however many links there are, none to the same host or domain. Memory is taken
by hosts (250 bytes) and edges (24 bytes), not by links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from gzip import GzipFile
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawler.archive.arrow import pa, pc, pq
from crawler.archive.centrality import (
    Nodes,
    harmonic_centrality,
    in_links,
    page_rank,
)
from crawler.archive.columns import BATCH_ROWS
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError, StoreUnavailable
from crawler.model.url import registered_domain
from crawler.policy.ranks import RANK_COLUMNS, can_have_rank, reversed_name

_MERGED_EDGES: Final = 1 << 22  # so many at least are added before they are merged
_LINES: Final = 10_000  # written at a time
_HALF: Final = np.uint64(32)  # an edge is a number: the source in its upper half, the target below
_TARGET: Final = np.uint64((1 << 32) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes and edges, in the order in which they are written."""

    names: list[str]  # reversed, ascending
    sources: Nodes
    targets: Nodes  # of each edge
    hosts: Nodes | None = None  # of each domain; None: the nodes are hosts


class HostLinks:
    """The hosts and links of an archive, added file by file."""

    def __init__(self, merged_edges: int = _MERGED_EDGES) -> None:
        self._merged_edges = merged_edges
        self._numbers: dict[str, int] = {}  # by host, in the order in which they were found
        self._edges = np.empty(0, np.uint64)  # both numbers in one, ascending, each once
        self._added: list[NDArray[np.uint64]] = []
        self._number_of = lru_cache(maxsize=1 << 16)(self._number)

    def add(self, columns: Path) -> int:
        """Add the links in one columns file, and return how many pages it has. Raises
        DataDirError, FileNotFoundError."""
        pages = 0
        try:
            with pq.ParquetFile(columns) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=[_HOST, _LINK_URL]):
                    pages += batch.num_rows
                    self._add_batch(batch)
        except pa.ArrowException as error:
            raise DataDirError(
                f"{columns} cannot be read: {error}. Make it again: {PROGRAM} archive parse"
            ) from error
        return pages

    def _add_batch(self, batch: pa.RecordBatch) -> None:
        pages = self._numbers_in(batch[_HOST])
        lists = batch[_LINKS]
        authorities = pc.extract_regex(lists.flatten().field("url"), _AUTHORITY).field("authority")
        sources = pages[pc.list_parent_indices(lists).to_numpy()]
        targets = self._numbers_in(authorities)
        is_edge = (sources != targets) & (sources >= 0) & (targets >= 0)
        edges = sources[is_edge].astype(np.uint64) << _HALF | targets[is_edge].astype(np.uint64)
        self._added.append(np.unique(edges))
        if sum(map(len, self._added)) > max(self._merged_edges, len(self._edges) // 2):
            self._merge()

    def _numbers_in(self, authorities: pa.Array) -> NDArray[np.int64]:
        encoded = pc.fill_null(authorities, "").dictionary_encode()
        hosts = [self._number_of(authority) for authority in encoded.dictionary.to_pylist()]
        numbers: NDArray[np.int64] = np.array(hosts, np.int64)[encoded.indices.to_numpy()]
        return numbers

    def _number(self, authority: str) -> int:
        """Return the number of a host, -1 of what is none."""
        host = authority.rpartition("@")[2]
        name = host if host.endswith("]") else (host.rpartition(":")[0] or host).rstrip(".")
        return self._numbers.setdefault(name, len(self._numbers)) if can_have_rank(name) else -1

    def _merge(self) -> None:
        self._edges = np.unique(np.concatenate([self._edges, *self._added]))
        self._added = []

    def graph(self) -> Graph:
        """Return the graph of the hosts."""
        self._merge()
        names = [reversed_name(name) for name in self._numbers]
        nodes, names = _numbered(names)
        sources, targets = _ends(self._edges)
        return Graph(names, *_sorted(nodes[sources], nodes[targets]))


_HOST: Final = "host"
_LINKS: Final = "outlinks"
_LINK_URL: Final = "outlinks.list.element.url"
_AUTHORITY: Final = "^https?://(?P<authority>[^/?#]*)"


def domain_graph(hosts: Graph) -> Graph:
    """Return the graph of the registered domains of *hosts*."""
    find = registered_domain.__wrapped__  # each host is asked for once
    domains = [reversed_name(find(reversed_name(name))) for name in hosts.names]
    nodes, names = _numbered(domains)
    sources, targets = nodes[hosts.sources], nodes[hosts.targets]
    is_edge = sources != targets
    counts = np.bincount(nodes, minlength=len(names)).astype(np.int32)
    return Graph(names, *_sorted(sources[is_edge], targets[is_edge]), counts)


def _numbered(names: list[str]) -> tuple[Nodes, list[str]]:
    """Return the number of each of *names*, and the names in the order of their numbers."""
    ascending = sorted(set(names))
    number_of = {name: number for number, name in enumerate(ascending)}
    return np.array([number_of[name] for name in names], np.int32), ascending


def _sorted(sources: Nodes, targets: Nodes) -> tuple[Nodes, Nodes]:
    """Return the edges in order, each once."""
    return _ends(np.unique(sources.astype(np.uint64) << _HALF | targets.astype(np.uint64)))


def _ends(edges: NDArray[np.uint64]) -> tuple[Nodes, Nodes]:
    return (edges >> _HALF).astype(np.int32), (edges & _TARGET).astype(np.int32)


class WrittenGraph(NamedTuple):
    """What was written of a graph."""

    nodes: int
    edges: int
    drawn: int  # the nodes from which paths were searched; 0: from all


def write_graph(graph: Graph, folder: Path, what: str) -> WrittenGraph:
    """Write the vertices, edges and ranks of *graph* into *folder*, in place of those that are
    there. *what*: what files begin with, host or domain. Raises StoreUnavailable."""
    links = in_links(len(graph.names), graph.sources, graph.targets)
    harmonic, drawn = harmonic_centrality(links)
    ranks = page_rank(links)
    _write(folder / f"{what}-vertices.txt.gz", _vertices(graph))
    edges = zip(_values(graph.sources), _values(graph.targets), strict=True)
    _write(folder / f"{what}-edges.txt.gz", map("%d\t%d\n".__mod__, edges))
    lines = _ranks(graph, harmonic, ranks, links.in_degrees)
    _write(folder / f"{what}-ranks.txt.gz", lines)
    return WrittenGraph(len(graph.names), len(graph.sources), drawn)


def _vertices(graph: Graph) -> Iterator[str]:
    if graph.hosts is None:
        return (f"{number}\t{name}\n" for number, name in enumerate(graph.names))
    hosts = _values(graph.hosts)
    named = enumerate(zip(graph.names, hosts, strict=True))
    return (f"{number}\t{name}\t{count}\n" for number, (name, count) in named)


def _ranks(
    graph: Graph,
    harmonic: NDArray[np.float64],
    ranks: NDArray[np.float64],
    in_degrees: NDArray[np.int64],
) -> Iterator[str]:
    """Yield the lines of the ranks, the best first. Nodes of equal centrality are in the order of
    their PageRank, then of their names."""
    positions = np.empty(len(ranks), np.int64)
    positions[(-ranks).argsort(kind="stable")] = np.arange(1, len(ranks) + 1)
    columns = RANK_COLUMNS if graph.hosts is not None else RANK_COLUMNS[:-1]
    yield "\t".join(f"#{name}" for name in (*columns, "in_degree")) + "\n"
    for place, node in enumerate(_values(np.lexsort((-ranks, -harmonic))), 1):
        cells = [place, f"{harmonic[node]:.9g}", positions[node], f"{ranks[node]:.9g}"]
        cells.append(graph.names[node])
        if graph.hosts is not None:
            cells.append(graph.hosts[node])
        yield "\t".join(map(str, (*cells, in_degrees[node]))) + "\n"


def _values(array: NDArray[np.signedinteger]) -> Iterator[int]:
    """Yield the numbers in *array* as ints, which take ten times as much memory."""
    for begin in range(0, len(array), _LINES):
        yield from array[begin : begin + _LINES].tolist()


def _write(final: Path, lines: Iterable[str]) -> None:
    """Write *lines* by gzip, whole or not at all, the same bytes each time."""
    draft = final.with_name(f"{final.name}.open")
    try:
        with (
            draft.open("wb") as out,
            GzipFile("", "wb", 4, out, mtime=0) as packed,
        ):
            rest = iter(lines)
            while some := "".join(islice(rest, _LINES)):
                packed.write(some.encode())
        draft.replace(final)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreUnavailable(f"cannot write {final}: {error.strerror or error}") from error
