"""The words a setting or an argument may hold, where only certain words make sense.

Rule: the values are what the user writes; the names are what we write.
"""

from __future__ import annotations

from enum import StrEnum


class HostUnit(StrEnum):
    """What politeness counts as one host."""

    HOST = "host"
    DOMAIN = "domain"


class ScopeChoice(StrEnum):
    """How far from its seeds a crawl may go."""

    ANY = "any"
    HOST = "host"
    DOMAIN = "domain"


class Tls(StrEnum):
    """What becomes of a page whose certificate is wrong: refused, or taken all the same."""

    STRICT = "strict"
    LENIENT = "lenient"


class ProgressStyle(StrEnum):
    """How a running crawl shows itself. AUTO: a line on a terminal, log lines elsewhere."""

    AUTO = "auto"
    LINE = "line"
    LOG = "log"
    OFF = "off"


class RedisFsync(StrEnum):
    """When a Redis server writes its append-only file to the disk: its own words."""

    EVERYSEC = "everysec"
    ALWAYS = "always"


class ByServer(StrEnum):
    """A limit that follows from how a server is set up."""

    AUTO = "auto"


class ByScope(StrEnum):
    """A limit that a crawl of the whole web needs and a crawl of one host does not."""

    AUTO = "auto"


class NearDuplicates(StrEnum):
    """What becomes of a page with nearly the same text as one before. Each does less."""

    FOLLOW = "follow"  # stored, marked, its links followed
    STORE = "store"  # stored, marked
    MARK = "mark"  # marked: neither stored nor followed
    OFF = "off"  # not looked for
