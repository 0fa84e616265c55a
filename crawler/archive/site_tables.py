"""The columns and outcomes of a crawl as tables in DuckDB, in bounded memory.

Rule: DuckDB may open the Parquet files that it is given and its own folder of temporary files, and
nothing else: no other file, no network, no extension. That folder is gone afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from crawler.archive.site_queries import (
    CAPTURES,
    INDEXED,
    OUTCOMES,
    SAME_FORM,
    TABLES,
    Table,
)
from crawler.model.types import ConfigError, DataDirError

try:
    import duckdb
except ImportError as missing:
    raise ConfigError(
        "pages and links are looked through by duckdb, which is not installed: pip install duckdb"
    ) from missing

MEMORY: Final = "2GB"
"""Of it DuckDB keeps its tables and what it joins; what does not fit is on disk meanwhile."""
_ROWS: Final = 10_000  # at once
_OF_CAPTURES: Final = {
    "description": "VARCHAR",
    "robots": "VARCHAR",
    "robots_header": "VARCHAR",
    "truncated": "VARCHAR",
    "noindex": "BOOLEAN",
    "depth": "INTEGER",
}
"""Columns that files of before them, or without their group, lack."""
_OF_LINKS: Final = ("url", "kind", "rel", "text")
_NO_OUTCOMES: Final = (
    'SELECT NULL::TIMESTAMP AS "at", NULL::VARCHAR AS url, NULL::VARCHAR AS fate,'
    " NULL::INTEGER AS status, NULL::VARCHAR AS reason, NULL::VARCHAR AS failure,"
    " NULL::FLOAT AS seconds, NULL::BIGINT AS bytes, NULL::INTEGER AS depth,"
    " NULL::VARCHAR AS target, NULL::VARCHAR AS seed, NULL::VARCHAR AS external WHERE false"
)
Row = tuple[Any, ...]


class SiteTables:
    """The tables of a crawl, and the answers to questions about them."""

    def __init__(self, base: duckdb.DuckDBPyConnection, lacks: frozenset[str]) -> None:
        self._base = base
        self.lacks = lacks
        """What could be asked of other crawls: words of `NEEDS`."""

    def make(self, tables: Sequence[Table]) -> None:
        for table in tables:
            if table.name != SAME_FORM:
                self._base.execute(table.sql)

    def count(self, sql: str) -> int:
        """Return how many rows *sql* has."""
        ((found,),) = self._base.execute(f"SELECT count(*) FROM ({_bare(sql)})").fetchall()
        return int(found)

    def heads(self, sql: str) -> list[str]:
        """Return the names of its columns."""
        return [str(row[0]) for row in self._base.execute(f"DESCRIBE {_bare(sql)}").fetchall()]

    def first(self, sql: str, most: int) -> list[Row]:
        return self._base.execute(f"SELECT * FROM ({_bare(sql)}) LIMIT {most:d}").fetchall()

    def rows(self, sql: str) -> Iterator[Row]:
        """Yield all rows."""
        found = self._base.execute(sql)
        while portion := found.fetchmany(_ROWS):
            yield from portion


@contextmanager
def open_site_tables(
    captures: Sequence[Path],
    outcomes: Sequence[Path],
    same_form: Callable[[str], str],
    memory: str = MEMORY,
    indexes: Sequence[Path] = (),
) -> Iterator[SiteTables]:
    """Make TABLES of columns and outcome files, of which there may be none of the latter.
    *indexes*: the CDXJ of the same archive, which only REQUISITES read.
    *same_form*: of URLs that the crawl counts as one. Raises DataDirError, also in the body: a file
    that cannot be read, a full disk."""
    with TemporaryDirectory(prefix="gossamer-site-") as folder:
        try:
            with _connect(Path(folder), [*captures, *outcomes, *indexes], memory) as base:
                base.create_function(SAME_FORM, same_form, ["VARCHAR"], "VARCHAR")
                made = SiteTables(base, frozenset(_views(base, captures, outcomes)))
                base.execute(f"CREATE VIEW {INDEXED} AS {_indexed(indexes)}")
                made.make(TABLES)
                yield made
        except duckdb.Error as error:
            words = str(error).partition("\n")[0]
            raise DataDirError(
                f"the crawl cannot be looked through: {words} (temporary files are in"
                f" {Path(folder).parent}; TMPDIR chooses another place)"
            ) from error


def _connect(folder: Path, files: Sequence[Path], memory: str) -> duckdb.DuckDBPyConnection:
    base = duckdb.connect(
        folder / "site.duckdb",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "memory_limit": memory,
            "temp_directory": str(folder / "spilled"),
        },
    )
    base.execute("SET TimeZone = 'UTC'")
    base.execute("SET allowed_paths = ?", [[str(file) for file in files]])
    base.execute("SET enable_external_access = false")
    base.execute("SET lock_configuration = true")
    return base


def _views(
    base: duckdb.DuckDBPyConnection, captures: Sequence[Path], outcomes: Sequence[Path]
) -> Iterator[str]:
    """Make the views of the files, with null for what they lack, and yield what of `NEEDS` they
    lack."""
    source = _read(captures)
    have = _names(base, f"SELECT * FROM {source}")
    of_links = _names(base, f"SELECT unnest(outlinks, recursive := true) FROM {source}")
    added = [f"NULL::{kind} AS {name}" for name, kind in _OF_CAPTURES.items() if name not in have]
    if not of_links.issuperset(_OF_LINKS):
        fields = (f"{name}: {_field(name, of_links)}" for name in _OF_LINKS)
        links = f"list_transform(outlinks, lambda link: {{{', '.join(fields)}}})"
        chosen = f"* REPLACE ({links} AS outlinks)"
    else:
        chosen = "*"
    base.execute(f"CREATE VIEW {CAPTURES} AS SELECT {', '.join([chosen, *added])} FROM {source}")
    told = f"SELECT * FROM {_read(outcomes)}" if outcomes else _NO_OUTCOMES
    if "external" not in _names(base, told):
        told = told.replace("*", "*, NULL::VARCHAR AS external", 1)
    base.execute(f"CREATE VIEW {OUTCOMES} AS {told}")
    if not outcomes:
        yield "outcomes"
    if "description" not in have:
        yield "about"


def _field(name: str, have: set[str]) -> str:
    return f"link.{name}" if name in have else "''"


def _names(base: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    return {str(row[0]) for row in base.execute(f"DESCRIBE {sql}").fetchall()}


def _indexed(indexes: Sequence[Path]) -> str:
    """Return what reads *indexes*: lines of a key, a date and JSON."""
    if not indexes:
        return 'SELECT NULL::VARCHAR AS url, NULL::VARCHAR AS "at", NULL::INT AS status WHERE false'
    # Each line is one value: no byte of it is the delimiter.
    lines = "delim = '\x01', quote = '', escape = '', header = false, columns = {line: 'VARCHAR'}"
    facts = "substr(line, strpos(line, ' {') + 1)"
    return (
        f"SELECT {facts} ->> 'url' AS url, split_part(line, ' ', 2) AS \"at\","
        f" TRY_CAST({facts} ->> 'status' AS INT) AS status"
        f" FROM read_csv([{_quoted(indexes)}], {lines})"
    )


def _quoted(files: Sequence[Path]) -> str:
    """Return the names of *files*, which the user's own folders name: a path can be no parameter of
    a view."""
    return ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)


def _read(files: Sequence[Path]) -> str:
    names = _quoted(files)
    return f"read_parquet([{names}], union_by_name = true, filename = true, file_row_number = true)"


def _bare(sql: str) -> str:
    return sql.strip().removesuffix(";")
