"""What is counted in a text: by definition, by a slow judge, and in what nobody would write."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.model.page import DetectedLanguage, TextQuality
from crawler.page import language
from crawler.page.language import MOST_CHARS, UNKNOWN, detect_language
from crawler.page.text_quality import text_quality
from tests.harness.budget import examples
from tests.harness.interpreted import interpreted

INTERPRETED = interpreted("crawler.page.text_scan")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", {"words": 0, "characters": 0, "mean_word_length": 0}, id="nothing"),
        pytest.param("one two\nthree", {"words": 3, "mean_word_length": 11 / 3}, id="words"),
        pytest.param("\u6f22\u5b57 \u3067\u3059abc", {"words": 5}, id="Han and kana: each a word"),
        pytest.param("\u0e44\u0e17\u0e22", {"words": 3}, id="Thai, without spaces"),
        pytest.param("\ud55c\uad6d\uc5b4 \uc77d\uae30", {"words": 2}, id="Korean has spaces"),
        pytest.param("a 1 -- b2 \xe9 \u2192", {"alphabetic_word_share": 3 / 6}, id="with a letter"),
        pytest.param(
            "The cat and a dog, with that. It have?", {"stop_word_share": 5 / 9}, id="stop words"
        ),
        pytest.param("then band theme to2 to", {"stop_word_share": 1 / 5}, id="within others"),
        pytest.param("#a b # c", {"hash_word_ratio": 2 / 4}, id="hashes"),
        pytest.param("a... b\u2026 c.. d.....", {"ellipsis_word_ratio": 3 / 4}, id="ellipses"),
        pytest.param("\u2022 a\n- b\n* c\nd", {"bullet_line_share": 2 / 4}, id="bullets"),
        pytest.param("a...\nb \u2026\nc..", {"ellipsis_line_share": 2 / 3}, id="ends in ellipsis"),
        pytest.param(
            'A.\nB"\nC\n\u6f22\u3002\n\u0939\u0964', {"terminal_line_share": 4 / 5}, id="sentences"
        ),
        pytest.param(f"{'x' * 30}\n{'x' * 31}", {"short_line_share": 1 / 2}, id="short lines"),
        pytest.param(
            "\xe9" * 30 + "\n" + "\xe9" * 31, {"short_line_share": 1 / 2}, id="of letters"
        ),
        pytest.param(
            "same here\nother\n same here \n\nsame here",
            {"repeated_line_share": 2 / 4, "repeated_character_share": 18 / 38},
            id="lines that repeat",
        ),
        pytest.param("a b\nc d\n", {"newline_word_ratio": 2 / 4}, id="line ends"),
        pytest.param("a1 22", {"digit_share": 3 / 5}, id="digits"),
        pytest.param("if { x }", {"curly_brackets": True}, id="a curly bracket"),
        pytest.param("So: Lorem ipsum dolor", {"lorem_ipsum": True}, id="filler"),
        pytest.param("a\ud800b", {"words": 1, "characters": 3}, id="half of a surrogate pair"),
    ],
)
def test_what_is_counted(text: str, expected: dict[str, object]) -> None:
    found = text_quality(text, None)
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected)


def judged(text: str) -> dict[str, Any]:
    """The same by regular expressions."""
    lines = [line.strip(SPACES) for line in text.split("\n")]
    lines = [line for line in lines if line]
    again = [line for at, line in enumerate(lines) if line in lines[:at]]
    return {
        "words": len(re.findall(r"[^\0- ]+", text)),
        "repeated_line_share": len(again) / (len(lines) or 1),
        "repeated_character_share": sum(map(len, again)) / (len(text) or 1),
        "short_line_share": sum(len(line) <= 30 for line in lines) / (len(lines) or 1),
        "digit_share": sum(letter in "0123456789" for letter in text) / (len(text) or 1),
        "bullet_line_share": sum(line[0] in "-\u2022" for line in lines) / (len(lines) or 1),
    }


SPACES = "".join(map(chr, range(33)))
PIECES = st.sampled_from(
    (
        *("a", "word", "The", "and ", " ", "\n", "\t", "- ", "\u2022", "\xe9", "\u0436", "\0"),
        *("12", "#", "...", "\u2026", ".", "{", "x" * 29, "x" * 300, "the same line\n", "\x7f"),
        "\U0001f600",
    )
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@settings(max_examples=examples(300))
@given(TEXTS)
def test_counts_are_those_of_a_slow_judge(text: str) -> None:
    found, expected = text_quality(text, None), judged(text)
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected)


@settings(max_examples=examples(100))
@given(st.text(st.characters(exclude_categories=())) | TEXTS)
def test_the_interpreter_counts_the_same(text: str) -> None:
    found = text_quality(text, 0.5)
    with patch("crawler.page.text_scan", INTERPRETED):
        assert text_quality(text, 0.5) == found
    shares = [name for name in TextQuality.__struct_fields__ if name.endswith("_share")]
    assert all(0 <= getattr(found, name) <= 1 for name in shares)


SENTENCES = {
    "ar": "اللغة العربية هي أكثر اللغات تحدثا",
    "de": "Der Hund lief gestern über die Straße, weil er die Katze nicht sehen wollte.",
    "en": "The dog ran over the street yesterday because it did not want to see the cat.",
    "es": "El perro cruzó ayer la calle porque no quería ver al gato de la vecina.",
    "he": "הכלב רץ אתמול ברחוב כי הוא לא רצה",
    "id": "Anjing itu berlari di jalan kemarin karena tidak ingin melihat kucing tetangga.",
    "ja": "犬は昨日通りを走りました。猫を見たくなかったからです。",
    "ru": "Собака вчера перебежала улицу, потому что не хотела",
    "zh": "这是一个简体中文的句子。我们来看看结果如何。",
}


@pytest.mark.parametrize("code", SENTENCES)
def test_the_language_of_a_sentence(code: str) -> None:
    found = detect_language(SENTENCES[code] + " \x85\ud800\x01")
    assert found.detected_language == code
    assert found.language_score is not None and 0.5 < found.language_score <= 1


def test_only_the_beginning_tells_the_language() -> None:
    assert detect_language("1 " * MOST_CHARS + SENTENCES["en"]) == UNKNOWN
    assert detect_language("") == UNKNOWN


@settings(max_examples=examples(200))
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_a_language_or_none(text: str) -> None:
    found = detect_language(text)
    assert found == UNKNOWN or 0 <= (found.language_score or 0) <= 1


def test_without_a_detector_no_language_is_told() -> None:
    with patch.object(language, "cld2", None):
        assert detect_language(SENTENCES["en"]) == DetectedLanguage()
