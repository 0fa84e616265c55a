"""What Redis is sent for an operation: its own text and what that needs, no more."""

from __future__ import annotations

import re

import pytest

from crawler.shared.keys import CRAWL_SCRIPTS, FEED_SCRIPTS, Scripts
from crawler.shared.owned.scripts import OwnedScripts

DEFINED = re.compile(r"^local (?:function )?([\w,\s]+?)(?: =|\()", re.MULTILINE)
TEXTS = {name: Scripts().text(name) for name in (*FEED_SCRIPTS, *CRAWL_SCRIPTS)} | {
    name: OwnedScripts().text(name) for name in OwnedScripts().names()
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_definition_is_used_in_its_operation(name: str) -> None:
    """Redis makes each function anew at each call."""
    text = re.sub(r"--.*", "", TEXTS[name])
    words = re.findall(r"\w+", text)
    for defined in DEFINED.findall(text):
        names = {*re.findall(r"\w+", defined)} - {"wall"}  # of the clock, which all have
        assert not names or any(words.count(each) > 1 for each in names), (
            f"{name} does not use {defined}"
        )


def test_an_operation_has_what_it_needs_and_what_that_needs() -> None:
    text = TEXTS["near"]
    assert "local function near_key" in text, "it names it"
    assert "local root" in text, "that names this"
    assert "local function claims_key" not in text
    assert text.startswith("#!lua flags=allow-oom\n")
