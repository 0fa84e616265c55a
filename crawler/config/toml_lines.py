"""Where keys and tables stand in a TOML file, which `tomllib` does not tell."""

from __future__ import annotations

import re


class TomlLines:
    """The lines of a file of keys and then of tables of one name, numbered from 1."""

    def __init__(self, written: str, table: str) -> None:
        """*table*: the name of the tables, each under a line [[name]]."""
        self._lines = written.splitlines()
        is_header = re.compile(rf"\s*\[\[\s*{table}\s*\]\]").match
        self._headers = [at for at, line in enumerate(self._lines, start=1) if is_header(line)]

    def of_table(self, number: int) -> int:
        """Return the line of the header of table *number*, from 0."""
        return self._headers[number] if number < len(self._headers) else 1

    def of_key(self, name: str, begin: int) -> int:
        """Return the first line of *name* after the line *begin*."""
        is_key = re.compile(rf"\s*(?:{re.escape(name)}|\"{re.escape(name)}\")\s*=").match
        for at in range(begin, len(self._lines)):
            if is_key(self._lines[at]):
                return at + 1
        return max(begin, 1)

    def of_text(self, text: str, begin: int) -> int:
        """Return the first line that has *text* in quotes, from the line *begin* on."""
        for at in range(begin - 1, len(self._lines)):
            if f'"{text}"' in self._lines[at] or f"'{text}'" in self._lines[at]:
                return at + 1
        return begin
