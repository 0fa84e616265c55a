"""Enumerations of the words that a setting or an argument accepts.

Rule: a member's value is the word that users write; its name is what the code uses.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias


class HostUnit(StrEnum):
    """The unit that politeness counts as one host."""

    HOST = "host"
    DOMAIN = "domain"
    ADDRESS = "address"  # hosts by their names, of which those of one address take turns


class ScopeChoice(StrEnum):
    """How far a crawl may go from its seeds."""

    ANY = "any"
    DOMAIN = "domain"
    HOST = "host"
    PREFIX = "prefix"  # the folders of the seeds, and what is below these
    PAGE = "page"  # the seeds, and no links of them
    REGEX = "regex"  # URLs in which a pattern of `allow` is found


class ColumnGroup(StrEnum):
    """Columns that are found and written together, or not at all."""

    ANSWER = "answer"  # what the server said of the page
    ABOUT = "about"  # what the page says of itself
    LANGUAGE = "language"  # of its text, as detected
    QUALITY = "quality"  # counts and shares of its text by which data sets are filtered
    ANCHORS = "anchors"  # texts and languages of its links
    CRAWL = "crawl"  # how and by which crawl it was found
    MARKDOWN = "markdown"  # the text with its structure
    RENDERED = "rendered"  # how a browser made the page
    PREFERENCES = "preferences"  # what its publisher asks of those who use it


class Tls(StrEnum):
    """Whether a page with an invalid certificate is refused (strict) or accepted (lenient)."""

    STRICT = "strict"
    LENIENT = "lenient"


class RenderChoice(StrEnum):
    """Which pages a browser makes of their answers, with what their scripts add. AUTO: those where
    that seems to bring text or links, and a sample of the others."""

    NEVER = "never"
    AUTO = "auto"
    ALWAYS = "always"


class Use(StrEnum):
    """What the content of a page may be used for, in the words of the AIPREF vocabulary."""

    TRAIN_AI = "train-ai"
    SEARCH = "search"


class Preference(StrEnum):
    """What a publisher says of a use."""

    ALLOW = "allow"
    DISALLOW = "disallow"
    UNKNOWN = "unknown"  # nothing, or nothing that can be read


class PreferenceFiles(StrEnum):
    """Which files beside robots.txt are fetched for the preferences that they state."""

    NONE = "none"
    NAMED = "named"  # licences that robots.txt, an answer or a page names
    ALL = "all"  # these, and the tdmrep.json of each origin


class ProgressStyle(StrEnum):
    """How a running crawl shows its progress. AUTO: a line on a terminal, log lines elsewhere."""

    AUTO = "auto"
    LINE = "line"
    LOG = "log"
    OFF = "off"


class RedisFsync(StrEnum):
    """When a Redis server writes its append-only file to disk, in the words of appendfsync."""

    EVERYSEC = "everysec"
    ALWAYS = "always"


class AutoByServer(StrEnum):
    """Marks a limit that is computed from the configuration of a server."""

    AUTO = "auto"


class AutoByScope(StrEnum):
    """Marks a limit that applies if a crawl covers the whole web, not if it covers one host."""

    AUTO = "auto"


class NearDuplicateChoice(StrEnum):
    """What is done with a near duplicate of an earlier page. Each member does less."""

    FOLLOW = "follow"  # stored, marked, its links followed
    STORE = "store"  # stored, marked
    MARK = "mark"  # marked: neither stored nor followed
    OFF = "off"  # not looked for


class RevisitChoice(StrEnum):
    """Whether a page is visited again, where that has no fixed interval."""

    ONCE = "once"
    ADAPTIVE = "adaptive"  # when a visit gains most, as far as its change rate is known


RevisitMode: TypeAlias = float | RevisitChoice
"""The seconds between two visits, or a word."""


class ChangeChoice(StrEnum):
    """What counts as a change of a page."""

    TEXT = "text"  # of its text
    BYTES = "bytes"  # of its body
    SIMILAR = "similar"  # of so much of its text that it is no near duplicate of itself


class OnlyChoice(StrEnum):
    """Which pages a run fetches."""

    ALL = "all"
    NEW = "new"  # no known page, but those that bring links
    FAILED = "failed"  # what was given up, and waits after a failure
    CHANGED = "changed"  # each known page that is visited again, once; new links wait


class RoundKind(StrEnum):
    """Which URLs are fetched in rounds."""

    NEW = "new"  # that were never visited
    REVISIT = "revisit"  # pages that are visited again
    BOTH = "both"


class LaterVisits(StrEnum):
    """Which pages that wait for a later visit have it in this run."""

    AS_DUE = "as due"
    NONE = "none"
    LISTS = "lists"  # those that bring links, each once
    EACH = "each"  # each once


class ListState(StrEnum):
    """How far a list of URLs is that all workers of a run fetch."""

    ADDING = "adding"  # this worker is to add its URLs
    WAITS = "waits"  # another worker does
    ADDED = "added"
