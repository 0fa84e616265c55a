"""Writes the main content of a page as Markdown (CommonMark, and tables as GitHub has them),
compiled.

Rule: the lines of content are those of the text, and their words are the same; what is added are
signs for headings, lists, quotations, links, tables and code. Time and memory are linear.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from crawler.content.parsers.html_scan import ELEMENTS, is_kept, memory
from crawler.model.compiled import compiled_part, compiled_short

_A, _UL, _OL, _LI, _PRE, _LISTING, _CODE, _TABLE, _QUOTE, _H1 = map(
    ELEMENTS.index, "a ul ol li pre listing code table blockquote h1".split()
)
_H6: Final = ELEMENTS.index("h6")
# Features of a line.
_HEADING, _LIST, _PREFORMATTED, _IN_TABLE = 1, 2, 4, 8

_DEEPEST: Final = 12  # guess: lists and quotations within each other
_LONGEST_PREFIX: Final = 8 * _DEEPEST + 16  # bytes before a line
_TICK, _HASH, _BAR, _BACKSLASH, _BANG, _SPACE, _LF = map(ord, "`#|\\! \n")
_OPEN, _CLOSE, _OPEN_ROUND, _CLOSE_ROUND, _LT, _AMP, _STAR, _UNDERLINE, _TILDE = map(
    ord, "[]()<&*_~"
)
_DASH, _PLUS, _GT, _EQUALS, _DOT, _COLON = map(ord, "-+>=.:")
# Signs that mean something wherever they stand.
_SPECIAL: Final = np.array([chr(code) in "\\`*_[]<&|~" for code in range(256)], np.bool_)
_PLAIN: Final = np.array([code >= 32 and not _SPECIAL[code] for code in range(256)], np.bool_)
_NUMBER_DIGITS: Final = 9  # of an ordered list's item, at most
# What cannot stand in the URL of a link.
_ENCODED: Final = np.array([chr(code) in ' ()<>\\|"`[]*_~' for code in range(256)], np.bool_)
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8).astype(np.int64)


@compiled_part
def _is_word(code):
    return 48 <= code < 58 or 65 <= code < 91 or 97 <= code < 123 or code >= 128


@compiled_part
def _write_url(page, begin, end, text, at):
    """Write a URL as an attribute has it: its references mean the same in Markdown."""
    for index in range(begin, end):
        code = int(page[index])
        if code < 32 or code == 127:
            continue
        if _ENCODED[code]:
            text[at], text[at + 1], text[at + 2] = 37, _HEX[code >> 4], _HEX[code & 15]
            at += 3
        else:
            text[at] = code
            at += 1
    return at


@compiled_part
def _end_link(page, url_begin, url_end, text, begin, end):
    end = _trimmed_end(text, begin, end)
    text[end], text[end + 1] = _CLOSE, _OPEN_ROUND
    end = _write_url(page, url_begin, url_end, text, end + 2)
    text[end] = _CLOSE_ROUND
    return end + 1


@compiled_part
def _end_code(text, end, ticks):
    if ticks > 1:
        text[end] = _SPACE
        end += 1
    return _write_bytes(text, end, _TICK, ticks)


@compiled_part
def _end_fence(text, begin, end, kinds, depth, ticks):
    """End a block of code, without the empty lines at its end."""
    while end > begin and (text[end - 1] == _LF or text[end - 1] == _SPACE):
        end -= 1
    text[end] = _LF
    return _write_bytes(text, _prefix(text, end + 1, kinds, depth), _TICK, ticks)


@compiled_part
def _longest_ticks(out, begin, end):
    longest = run = 0
    for at in range(begin, end):
        run = run + 1 if out[at] == _TICK else 0
        longest = max(longest, run)
    return longest


@compiled_part
def _line_end(out, at, size):
    """Return where the line from *at* on ends."""
    while at < size and not 16 <= out[at] < 32:
        at += 1
    return at


@compiled_part
def _write_bytes(text, at, code, count):
    for _ in range(count):
        text[at] = code
        at += 1
    return at


@compiled_part
def _prefix(text, at, kinds, depth):
    """Write what stands before a line that goes on in *depth* lists and quotations."""
    for level in range(depth):
        if kinds[level] < 0:
            text[at], text[at + 1] = _GT, _SPACE
            at += 2
        else:
            at = _write_bytes(text, at, _SPACE, 2 if kinds[level] == 0 else 4)
    return at


@compiled_part
def _trimmed_end(text, begin, end):
    while end > begin and (text[end - 1] == _SPACE or text[end - 1] == 9):
        end -= 1
    return end


@compiled_short
def write_markdown(page, out, size, tags, lines, sees_all, kinds, text):
    """Write the kept *lines* of what `scan` wrote to *text*, and return how long that is. *kinds*:
    _DEEPEST + 1 integers: of each open list and quotation -1, 0 of an unordered list, or the number
    of the next item."""
    end = tag = 0
    depth = extra = 0  # lists and quotations; those too deep
    line, hidden, level, rows, columns = -1, 0, 0, 0, 0
    is_item = False  # an item has begun that has no text yet
    kept, in_row, in_pre, in_code, was_list = False, False, False, 0, False
    last_depth, fence_depth = 0, 0
    fence, begin = 0, 0  # ticks of an open block of code; where the line begins
    url_begin = url_end = 0  # of the link
    link, code_ticks = 0, 0  # 1: begins before the next letter; 2: open. The same in `in_code`
    at = 0
    while at <= size:
        while tag < len(tags) and (tags[tag, 0] <= at or at == size):
            element, is_end = tags[tag, 1] >> 1, tags[tag, 1] & 1
            if element == _A:
                if is_end:
                    if link == 2:
                        end = _end_link(page, url_begin, url_end, text, begin, end)
                    link = 0
                elif link != 2 and not in_code and not fence:
                    link, url_begin, url_end = 1, tags[tag, 2], tags[tag, 3]
            elif element == _CODE:
                if is_end:
                    if in_code == 2:
                        end = _end_code(text, end, code_ticks)
                    in_code = 0
                elif not in_pre and in_code == 0 and tag + 1 < len(tags):
                    # One that holds other tags is no code in a line.
                    after = tags[tag + 1, 0]
                    if tags[tag + 1, 1] == 2 * _CODE + 1 and _line_end(out, at + 1, after) >= after:
                        in_code, code_ticks = 1, _longest_ticks(out, at, after) + 1
            elif element in (_PRE, _LISTING):
                in_pre = not is_end
            elif element == _TABLE:
                rows = 0
            elif _H1 <= element <= _H6:
                level = 0 if is_end else element - _H1 + 1
            elif element == _LI:
                if not is_end:
                    is_item = True
            elif is_end:
                if extra:
                    extra -= 1
                elif depth:
                    depth -= 1
                is_item = False
            elif depth == _DEEPEST:
                extra += 1
            else:
                kinds[depth] = -1 if element == _QUOTE else 0 if element == _UL else 1
                depth += 1
                if element != _QUOTE:
                    is_item = False
            tag += 1
        if at == size:
            break
        code = int(out[at])
        # Most letters: nothing begins or ends at them, and they need no sign before them.
        if _PLAIN[code] and kept and hidden == 0 and end - begin > _NUMBER_DIGITS:
            if link != 1 and in_code != 1:
                stop = tags[tag, 0] if tag < len(tags) else size
                while at < stop and _PLAIN[out[at]]:
                    text[end] = out[at]
                    end += 1
                    at += 1
                continue
        if 16 <= code < 32 or code == 0:
            # The line before it ends here.
            if link == 2:
                end, link = _end_link(page, url_begin, url_end, text, begin, end), 0
            if in_code == 2:
                end, in_code = _end_code(text, end, code_ticks), 0
            if in_row:
                text[end], text[end + 1] = _SPACE, _BAR
                end += 2
                if rows == 1:
                    text[end] = _LF
                    end = _prefix(text, end + 1, kinds, depth)
                    for _ in range(columns):
                        text[end], text[end + 1], text[end + 2] = _BAR, _SPACE, _DASH
                        text[end + 3], text[end + 4], text[end + 5] = _DASH, _DASH, _SPACE
                        end += 6
                    text[end] = _BAR
                    end += 1
            in_row = False
            line += 1
            kept = is_kept(lines[line])
            if not kept:
                at += 1
                continue
            features = code - 16
            stop = _line_end(out, at + 1, size)
            if fence and not features & _PREFORMATTED:
                end = _end_fence(text, begin, end, kinds, fence_depth, fence)
                fence = 0
            has_tab = False
            if features & _IN_TABLE and not features & _PREFORMATTED:
                columns_here = 1
                for index in range(at + 1, stop):
                    columns_here += out[index] == 9
                has_tab = columns_here > 1
                if has_tab:
                    rows += 1
                    if rows == 1:
                        columns = columns_here
            is_list = depth > 0 and kinds[depth - 1] >= 0
            goes_on = (has_tab and rows > 1) or (is_list and is_item and was_list)
            if end:
                text[end] = _LF
                end += 1
                if not goes_on and not fence:
                    if depth and depth == last_depth:
                        end = _trimmed_end(text, 0, _prefix(text, end, kinds, depth))
                    text[end] = _LF
                    end += 1
            if is_list and is_item:
                end = _prefix(text, end, kinds, depth - 1)
                number = kinds[depth - 1]
                if number == 0:
                    text[end], text[end + 1] = _DASH, _SPACE
                    end += 2
                else:
                    number = min(number, 99)
                    if number > 9:
                        text[end] = 48 + number // 10
                        end += 1
                    text[end], text[end + 1] = 48 + number % 10, _DOT
                    end = _write_bytes(text, end + 2, _SPACE, 1 if number > 9 else 2)
                    kinds[depth - 1] = min(number + 1, 99)
            else:
                end = _prefix(text, end, kinds, depth)
            was_list, is_item, last_depth = is_list, False, depth
            if features & _PREFORMATTED:
                if not fence:
                    fence_depth = depth
                    fence = max(3, _longest_ticks(out, at + 1, stop) + 1)
                    end = _write_bytes(text, end, _TICK, fence)
                    text[end] = _LF
                    end = _prefix(text, end + 1, kinds, depth)
            elif has_tab:
                in_row = True
                text[end], text[end + 1] = _BAR, _SPACE
                end += 2
            elif features & _HEADING and level:
                end = _write_bytes(text, end, _HASH, level)
                text[end] = _SPACE
                end += 1
            begin = end
            at += 1
            continue
        at += 1
        if code == 3 or code == 4:
            if not sees_all:
                hidden += 1 if code == 3 else -1
            continue
        if not kept or hidden:
            continue
        if code == 11:
            text[end] = _LF
            end = _prefix(text, end + 1, kinds, depth)
            continue
        if code == 9 and in_row:
            text[end], text[end + 1], text[end + 2] = _SPACE, _BAR, _SPACE
            end += 3
            continue
        if code != 9 and code < 32:
            continue
        if fence:
            text[end] = code
            end += 1
            continue
        if code == _SPACE or code == 9:
            if end > begin:
                text[end] = _SPACE
                end += 1
            continue
        if link == 1:
            if end > begin and text[end - 1] == _BANG:  # it would be a picture
                text[end - 1], text[end] = _BACKSLASH, _BANG
                end += 1
            text[end] = _OPEN
            end, link = end + 1, 2
        if in_code == 1:
            end, in_code = _write_bytes(text, end, _TICK, code_ticks), 2
            if code_ticks > 1:
                text[end] = _SPACE
                end += 1
        if in_code == 2:
            if code == _BAR and in_row:
                text[end] = _BACKSLASH
                end += 1
            text[end] = code
            end += 1
            continue
        needs = _SPECIAL[code]
        if code == _UNDERLINE:
            needs = not (_is_word(int(out[at - 2])) and at < size and _is_word(int(out[at])))
        elif code == _AMP:
            needs = at < size and (_is_word(int(out[at])) or out[at] == _HASH)
        elif end == begin:
            needs = needs or code in (_HASH, _DASH, _PLUS, _GT, _EQUALS)
        if (code == _DOT or code == _CLOSE_ROUND) and 0 < end - begin <= _NUMBER_DIGITS:
            is_number = True
            for index in range(begin, end):
                is_number = is_number and 48 <= text[index] < 58
            needs = needs or is_number
        if needs:
            text[end] = _BACKSLASH
            end += 1
        text[end] = code
        end += 1
    if link == 2:
        end = _end_link(page, url_begin, url_end, text, begin, end)
    if in_code == 2:
        end = _end_code(text, end, code_ticks)
    if fence:
        end = _end_fence(text, begin, end, kinds, fence_depth, fence)
    elif in_row:
        text[end], text[end + 1] = _SPACE, _BAR
        end += 2
    return end


def markdown(page: Any, out: Any, size: int, tags: Any, lines: Any, *, sees_all: bool) -> str:
    """Return the kept *lines* of what `scan` wrote of *page* as Markdown."""
    # Each letter may be escaped, and of a URL each be three; ends of lines have prefixes.
    breaks = len(lines) + int(np.count_nonzero(np.frombuffer(out, np.uint8)[:size] == 11))
    urls = 3 * int((tags[:, 3] - tags[:, 2]).sum()) if len(tags) else 0
    tabs = int(np.count_nonzero(np.frombuffer(out, np.uint8)[:size] == 9))
    room = 4 * size + urls + breaks * 3 * _LONGEST_PREFIX + 16 * len(tags) + 16 * tabs + 64
    text = memory(room)
    kinds = np.zeros(_DEEPEST + 1, np.int64)
    end = write_markdown(page, out, size, tags, lines, sees_all, kinds, text)
    return str(text[:end], "utf-8")
