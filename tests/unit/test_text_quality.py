"""The truth of bench.text_quality: the words of a source, as they stand on its page."""

from __future__ import annotations

import pytest

from bench.text_quality import Score, from_asciidoc, from_rst, score, words


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


def test_a_score_counts_words_as_often_as_they_come() -> None:
    assert score(words("a a b"), words("a b c d")) == Score(2 / 3, 2 / 4)
    assert score(words(""), words("a")).f1 == 0
