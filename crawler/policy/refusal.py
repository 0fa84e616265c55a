"""Why a URL is refused.

Rule: a refusal is a value that explains itself: it names the rule and the figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Reason(StrEnum):
    """The rule that refused a URL."""

    NOT_A_URL = "not_a_url"
    SCHEME = "scheme"
    BAD_HOST = "bad_host"
    NO_CONTACT = "no_contact"
    INSIDE_ADDRESS = "inside_address"
    OUT_OF_SCOPE = "out_of_scope"
    IN_SCOPE = "in_scope"
    MAX_DEPTH = "max_depth"
    DENIED = "denied"
    NOT_ALLOWED = "not_allowed"
    FILE_TYPE = "file_type"
    URL_TOO_LONG = "url_too_long"
    PATH_TOO_DEEP = "path_too_deep"
    REPEATED_SEGMENTS = "repeated_segments"
    REPEATED_QUERY = "repeated_query"
    QUERY_TOO_LONG = "query_too_long"
    REPEATED_SESSION = "repeated_session"
    CALENDAR = "calendar"
    PATTERN = "pattern"
    HOST_BUDGET = "host_budget"
    DOMAIN_BUDGET = "domain_budget"
    OPERATOR = "operator"
    SINCE = "since"
    SEED_LIMIT = "seed_limit"
    NOT_CHOSEN = "not_chosen"
    CHOSEN_TWICE = "chosen_twice"


RULES: Final = MappingProxyType(
    {
        Reason.NOT_A_URL: "it cannot be read as a URL",
        Reason.SCHEME: "only http and https are fetched",
        Reason.BAD_HOST: "no server can have this host name",
        Reason.NO_CONTACT: "without a contact address only loopback is crawled",
        Reason.INSIDE_ADDRESS: "addresses that are not public need a setting",
        Reason.OUT_OF_SCOPE: "the scope of this crawl is the seeds' own hosts, domains or folders",
        Reason.IN_SCOPE: "what is in the scope is fetched as a page, and is not only checked",
        Reason.MAX_DEPTH: "it is too many links away from the seeds",
        Reason.DENIED: "it matches a pattern of what is denied",
        Reason.NOT_ALLOWED: "it matches no pattern of what is allowed",
        Reason.FILE_TYPE: "files of this type are not fetched",
        Reason.URL_TOO_LONG: "longer URLs are taken for a trap",
        Reason.PATH_TOO_DEEP: "deeper paths are taken for a trap",
        Reason.REPEATED_SEGMENTS: "a path that repeats itself is taken for a trap",
        Reason.REPEATED_QUERY: "a query that repeats itself is taken for a trap",
        Reason.QUERY_TOO_LONG: "a query with more parameters is taken for a trap",
        Reason.REPEATED_SESSION: "a session id inside another is taken for a trap",
        Reason.CALENDAR: "a date so far away is taken for that of a calendar without an end",
        Reason.SINCE: "its sitemap says that it has not changed since then",
        Reason.SEED_LIMIT: "enough of its seed was fetched",
        Reason.NOT_CHOSEN: "this run fetches only what was chosen",
        Reason.CHOSEN_TWICE: "this run fetches it as one of its list",
        Reason.PATTERN: "URLs like it have brought enough",
        Reason.HOST_BUDGET: "its host has its full number of URLs",
        Reason.DOMAIN_BUDGET: "its registered domain has its full number of URLs",
        Reason.OPERATOR: "a rule of the operator refuses it",
    }
)


SETTINGS: Final = MappingProxyType(
    {
        Reason.NO_CONTACT: "CRAWLER_CONTACT",
        Reason.INSIDE_ADDRESS: "CRAWLER_ALLOW_INSIDE",
        Reason.OUT_OF_SCOPE: "the argument scope",
        Reason.MAX_DEPTH: "the argument max_depth",
        Reason.DENIED: "the argument deny",
    }
)
"""What sets the limit of a rule that may refuse what a spider's code names."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A URL that is not admitted. Arrow: links -> counters and `why`."""

    reason: Reason
    detail: str  # the figure of this URL, and the limit of the rule

    def explain(self) -> str:
        """Return the reason as one sentence."""
        return f"{RULES[self.reason]}: {self.detail}"

    def advise(self) -> str:
        """Return the reason, and what sets its limit."""
        setting = SETTINGS.get(self.reason)
        return f"{self.explain()} (set by {setting})" if setting else self.explain()

    def of_target(self, url: str) -> str:
        """Return why *url*, where a seed leads, is not fetched, and what can be done."""
        if self.reason is Reason.OUT_OF_SCOPE:
            return (
                f"leads to {url}, which is not in the scope: give {url} as a seed, or a wider"
                " scope, such as -a scope=any"
            )
        return f"leads to {url}, which is not fetched: {self.advise()}"
