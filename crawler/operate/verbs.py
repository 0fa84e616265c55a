"""What an operator can do to a crawl: one table, from which commands and HTTP API are made.

Rule: pure. A verb that changes a rule is a list of edits of `rules.toml`; changes of the frontier
are made by the crawl, by the line in the audit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from crawler.data.operator_files import Act, RuleEdit, Value
from crawler.model.types import ConfigError
from crawler.policy.seeds import seed_url
from crawler.policy.targets import read_target

MAX_TARGETS: Final = 10_000
"""In one act: a line of the audit of some 700 kB."""


COUNT_S: Final = 0.7
"""The time of a dry run: over 1e7 URLs that wait a pattern takes minutes, and whoever asks waits a
second."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One row of the table."""

    name: str
    takes: str  # its words, as a command line shows them
    meaning: str
    key: str = ""  # of the rule that it sets
    needs_target: bool = True
    is_work: bool = False  # the crawl carries it out, and counts the URLs it touches


VERBS: Final[Mapping[str, Verb]] = {
    each.name: each
    for each in (
        Verb(
            "pause",
            "[TARGET] [UNTIL]",
            "Ask TARGET, or nobody at all, for nothing until then, or until resume. URLs keep their"
            " place.",
            "paused",
            needs_target=False,
        ),
        Verb(
            "resume",
            "[TARGET]",
            "End the pause of TARGET, or of the crawl.",
            "paused",
            needs_target=False,
        ),
        Verb(
            "delay", "TARGET TIME", "Let TARGET rest so long after each fetch (5s, 2m).", "delay_s"
        ),
        Verb(
            "level",
            "TARGET N",
            "Give the URLs of TARGET, found or waiting, level N.",
            "level",
            is_work=True,
        ),
        Verb(
            "refuse",
            "TARGET",
            "Fetch nothing of TARGET. What waits is kept for when the rule has gone.",
            "refuse",
            is_work=True,
        ),
        Verb("drop", "TARGET", "Make dead letters of what waits of TARGET.", is_work=True),
        Verb(
            "purge",
            "TARGET",
            "For a deletion request: refuse TARGET for good, forget what waits or is kept of it,"
            " and list what the archive holds of it, as JSON lines.",
            "refuse",
            is_work=True,
        ),
        Verb("add", "URL...", "Add URLs as seeds.", is_work=True),
        Verb(
            "retry",
            "URL | --all",
            "Put the dead letter of URL back, or all of them: they wait as if they had never"
            " failed.",
            needs_target=False,
            is_work=True,
        ),
        Verb(
            "stop",
            "",
            "End the crawl in good order. It goes on at its next start.",
            "stopped",
            needs_target=False,
        ),
        Verb("concurrency", "N", "Fetch N URLs at once.", "concurrency", needs_target=False),
        Verb(
            "rules",
            "FILE",
            "Replace all rules by those of FILE, unless there is an error in it.",
            needs_target=False,
        ),
        Verb("undo", "[ACT]", "Undo the last act, or the one of that number.", needs_target=False),
    )
}


class ActRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an operator asks for, as JSON."""

    verb: str
    targets: tuple[str, ...] = ()
    value: str = ""
    level: int | None = None  # add: of the URLs
    all: bool = False  # retry: every dead letter
    again: bool = False  # add: fetch them even if they were fetched before
    before: str | None = None  # rules: the text that was edited; if it has changed, nothing is done
    dry_run: bool = False  # say how many URLs it would touch, and do nothing


class ActAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What has become of a request."""

    said: str  # a sentence
    number: int = 0  # of the act; 0: nothing was done
    waiting: int | None = None  # of a dry run: the URLs that wait and that it would touch
    is_part: bool = False  # of a dry run: there may be more of them, since not all were looked at
    touched: int | None = None  # URLs; only of a retry, if it is carried out soon
    known: int = 0  # of the first 1,000 URLs to be added, without `again`: those that are not new


class WaitingCount(NamedTuple):
    """What a dry run has counted."""

    waiting: int  # the URLs that wait and that would be touched
    looked_at: int  # of all that wait
    is_part: bool  # the time was over before all were looked at

    def answer(self) -> ActAnswer:
        said = f"{self.waiting:,} waiting URLs would be touched"
        if self.is_part:
            said = f"at least {said}, of the first {self.looked_at:,} that were looked at"
        return ActAnswer(said, waiting=self.waiting, is_part=self.is_part)


def read_words(verb: str, words: Sequence[str]) -> ActRequest:
    """Return the request that *words* of a command line make. Raises ConfigError."""
    found, rest = _verb(verb), list(words)
    value = ""
    if found.name in ("concurrency", "undo", "rules"):
        value = rest.pop(0) if rest else ""
    elif found.name in ("delay", "level"):
        value = rest.pop() if len(rest) > 1 else ""
    elif found.name == "pause" and rest and _is_time(rest[-1]):
        value = rest.pop()
    request = ActRequest(verb, tuple(rest), value)
    check(request)
    return request


def check(request: ActRequest) -> None:
    """Raise ConfigError if *request* cannot be carried out by any crawl."""
    verb = _verb(request.verb)
    wanted = f"{verb.name} takes {verb.takes or 'nothing more'}"
    if verb.needs_target and not request.targets:
        raise ConfigError(wanted)
    takes_targets = verb.needs_target or "TARGET" in verb.takes or verb.name == "retry"
    if not takes_targets and request.targets:
        raise ConfigError(wanted)
    if request.all != (verb.name == "retry" and not request.targets):
        raise ConfigError(wanted)
    if len(request.targets) > MAX_TARGETS:
        raise ConfigError(f"{len(request.targets):,} targets: at most {MAX_TARGETS:,} at once")
    are_urls = verb.name in ("add", "retry")
    read = seed_url if are_urls else read_target
    for target in request.targets:
        try:
            read(target)
        except ValueError as error:
            text = f"{target[:80]!r}: {error}" if are_urls else str(error)
            raise ConfigError(text) from None
    edits_of(request, 0.0)


def edits_of(request: ActRequest, now: float) -> list[RuleEdit]:
    """Return the changes of the rules that *request* asks for. Raises ConfigError."""
    verb = _verb(request.verb)
    if not verb.key:
        return []
    value = _value(verb, request.value, now)
    targets = [target.strip() for target in request.targets] or [""]
    return [RuleEdit(target, verb.key, value) for target in targets]


def _value(verb: Verb, text: str, now: float) -> Value:
    if verb.name == "resume":
        return None
    if verb.name in ("refuse", "purge"):
        return True
    if verb.name == "stop":
        return now
    if verb.name == "pause":
        until = _time(text) if text else True
        if until is not True and until <= now:
            raise ConfigError(f"{text} is past: a pause ends later, or without a time at resume")
        return until
    if verb.name == "delay":
        return _seconds(text)
    if not text.isdecimal():
        raise ConfigError(f"{verb.name} takes {verb.takes}: want a whole number, got {text!r}")
    return int(text)


def _verb(name: str) -> Verb:
    if name not in VERBS:
        raise ConfigError(f"there is no verb {name[:40]!r}; there are {', '.join(VERBS)}")
    return VERBS[name]


_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_duration = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)").fullmatch


def _seconds(text: str) -> float:
    found = _duration(text)
    if found is None:
        raise ConfigError(f"{text!r} is no time: want seconds, or a time such as 500ms, 5s, 2m, 1h")
    return float(found[1]) * _UNITS[found[2]]


def _is_time(text: str) -> bool:
    try:
        _time(text)
    except ConfigError:
        return False
    return True


def _time(text: str) -> float:
    """Return the epoch seconds of a date and time with its offset."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no time: write 2026-12-01T08:00:00Z") from None
    if at.tzinfo is None:
        raise ConfigError(f"{text!r} has no offset: write {text}Z for UTC")
    return at.timestamp()


def last_to_undo(acts: Sequence[Act], number: str) -> Act:
    """Return the act that an undo is about: the last that was not undone, or that of *number*.
    Raises ConfigError."""
    undone = {act.undoes for act in acts}
    open_ones = [act for act in acts if act.number not in undone and not act.undoes]
    if number:
        open_ones = [act for act in open_ones if str(act.number) == number]
    if not open_ones:
        raise ConfigError(
            f"there is no act {number} to undo" if number else "there is nothing to undo"
        )
    act = open_ones[-1]
    if act.verb not in UNDOABLE:
        raise ConfigError(f"act {act.number} ({act.verb}) cannot be undone")
    return act


UNDOABLE: Final = frozenset(
    {
        *("pause", "resume", "delay", "level", "refuse", "drop", "purge", "add", "concurrency"),
        "rules",
    }
)


def openapi() -> dict[str, Any]:
    """Return the description of the HTTP API, in OpenAPI 3.1."""
    asked, components = msgspec.json.schema_components(
        [ActRequest, ActAnswer], ref_template="#/components/schemas/{name}"
    )
    answered = {"description": "Done, and durable.", "content": json_content(asked[1])}
    refused = {
        "description": "Not done; `error` says why.",
        "content": json_content({"type": "object"}),
    }
    paths = {
        f"/api/{verb.name}": {
            "post": {
                "summary": verb.meaning,
                "operationId": verb.name,
                "requestBody": {"content": json_content(asked[0])},
                "responses": {"200": answered, "400": refused, "401": refused, "403": refused},
            }
        }
        for verb in VERBS.values()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gossamer", "version": "1"},
        "paths": paths,
        "components": {"schemas": components},
    }


def json_content(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a body in JSON, for OpenAPI."""
    return {"application/json": {"schema": schema}}
