"""The truth of bench.text_quality: the words of a source, as they stand on its page."""

from __future__ import annotations

import gzip
from pathlib import Path
from shutil import which

import pytest

from bench.text_quality import (
    Score,
    docbook,
    from_asciidoc,
    from_docbook,
    from_roff,
    from_rst,
    score,
    words,
)


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        pytest.param("Title\n=====\n\nSome *words* and ``code``.", "title some words and code",
                     id="titles and marks"),
        pytest.param(":ref:`the text <target>` and :func:`~a.b`", "the text and a b", id="roles"),
        pytest.param("`A link <http://x.example/>`_ and `another`_", "a link and another",
                     id="links"),
        pytest.param(".. _target:\n\n.. |x| replace:: y\n\nText", "text", id="targets"),
        pytest.param(".. a comment\n   of two lines\n\nText", "text", id="comments"),
        pytest.param(".. code-block:: python\n   :linenos:\n\n   x = 1", "x 1", id="code"),
    ],
)  # fmt: skip
def test_words_of_restructured_text(source: str, seen: str) -> None:
    assert words(from_rst(source)) == words(seen)


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        pytest.param("git-add(1)\n==========\n\nAdd 'files'.", "git add 1 add files", id="titles"),
        pytest.param("[verse]\n----\nlinkgit:git-rm[1]\n----", "git rm 1", id="blocks"),
        pytest.param("see <<id,the text>> at https://x.example/[there]", "see the text at there",
                     id="links"),
    ],
)  # fmt: skip
def test_words_of_asciidoc(source: str, seen: str) -> None:
    assert words(from_asciidoc(source)) == words(seen)


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        pytest.param("<p>The <b>&konsole;</b> of &kde;</p>", "the konsole of kde", id="names"),
        pytest.param("<p>&Ctrl;<keycap>Z</keycap><keycap>Y</keycap></p>", "ctrl z y", id="keys"),
        pytest.param("<p>a<!-- b --><i>c</i>d</p>", "acd", id="comments"),
        pytest.param("<p>a <textobject><p>b</p></textobject>c</p>", "a c", id="alternatives"),
        pytest.param("<!DOCTYPE p [\n<!ENTITY % x 'y'>\n]>\n<p>a &lt; b</p>", "a b", id="heads"),
        pytest.param("<p>50&percnt;&mdash;60</p>", "50 60", id="signs"),
    ],
)
def test_words_of_docbook(source: str, seen: str) -> None:
    assert words(from_docbook(docbook(source))) == words(seen)


@pytest.mark.skipif(not which("groff"), reason="groff formats the manual")
def test_words_of_roff(tmp_path: Path) -> None:
    manual = tmp_path / "thing.1.gz"
    source = '.TH THING 1\n.SH NAME\nthing \\- do \\fBsome\\fP things\n.SH "SEE ALSO"\nother(1)\n'
    manual.write_bytes(gzip.compress(source.encode()))
    assert words(from_roff(manual)) == words("name thing do some things see also other 1")


def test_a_score_counts_words_as_often_as_they_come() -> None:
    assert score(words("a a b"), words("a b c d")) == Score(2 / 3, 2 / 4)
    assert score(words(""), words("a")).f1 == 0
