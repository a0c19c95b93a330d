"""Makes text from elsewhere safe to show: what would steer a terminal or mislead a reader becomes visible.

Buckets, services, hosts, files and the environment hold text that anybody may have written. Escaped are
control characters (with them every escape sequence, 7-bit and 8-bit), bidirectional controls
(https://trojansource.codes), characters that show nothing, lone surrogates, and marks piled on a letter.

Kept is what people write: every letter, combining marks, emoji, and invisible characters where a script
needs them: joiners after letters that join and between emoji, a variation selector after what it varies,
directional marks beside right-to-left letters, word breaks between letters of scripts without spaces, the
flags of England, Scotland and Wales. https://unicode.org/reports/tr31/ (2.3) and tr51/

- Says sizes as people read them.
- Cuts a stream of bytes into whole lines, with memory for one line of a bounded length.
- Writes the numbers of workers as `--worker` reads them: ranges, since there may be hundreds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache


def format_bytes(size: float) -> str:
    """Return a size in bytes with its unit: `1.2 MB` (powers of ten)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


LONGEST = 1 << 16
"""Bytes of a line that are shown in one piece."""


class WholeLines:
    """Collects a stream; a line that is too long is cut, and of a progress bar the last state is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the lines that are complete, each with its line end."""
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            complete, self._rest = self._rest + head + newline, tail
            return complete
        self._rest += tail
        if len(self._rest) <= LONGEST:
            return b""
        overwritten = self._rest.rstrip(b"\r").rfind(b"\r")
        if overwritten >= 0:
            self._rest = self._rest[overwritten + 1 :]
            return b""
        return self.end()

    def end(self) -> bytes:
        """Return what is left, as a line, or nothing."""
        rest, self._rest = self._rest, b""
        return rest + b"\n" if rest else b""


def ranges(workers: Iterable[int]) -> str:
    """Return numbers as ascending ranges: `0-3, 7`."""
    spans: list[list[int]] = []
    for worker in sorted(workers):
        if spans and worker == spans[-1][1] + 1:
            spans[-1][1] = worker
        else:
            spans.append([worker, worker])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in spans)


def named(workers: Iterable[int]) -> str:
    """Return workers with their noun: `worker 3`, `workers 0-3, 7`."""
    listed = list(workers)
    return f"worker{'s' * (len(listed) > 1)} {ranges(listed)}"


_RTL = r"\u05be-\u05f4\u0620-\u08ff\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
_JOINING = (
    r"\u0620-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af\ua840-\uaaff"
    r"\ufb50-\ufdcf\ufe70-\ufefc"
)
_WITHOUT_SPACES = r"\u0e01-\u0eff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff"
_EMOJI = (
    r"\u203c\u2049\u2122\u2139\u2190-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299\xa9\xae\U0001f000-\U0001faff"
)
_IDEOGRAPHS = r"\u3000-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARKS = (
    r"\u0300-\u034e\u0350-\u036f\u0483-\u0489\u0610-\u061a\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    r"\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
_INVISIBLE = (
    r"\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800"
    r"\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in tags) + "\U000e007f"
    for tags in ("gbeng", "gbsct", "gbwls")
)
_KEPT = "|".join(
    (
        _FLAGS,
        rf"(?<=[{_JOINING}])[\u200c\u200d]",
        rf"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])",
        rf"(?<=[{_EMOJI}])[\ufe0e\ufe0f]",
        r"(?<=[0-9#*])\ufe0f(?=\u20e3)",
        rf"(?<=[{_IDEOGRAPHS}\u1000-\u109f\u2200-\u2aff])[\ufe00-\ufe02]",
        rf"(?<=[{_IDEOGRAPHS}])[\U000e0100-\U000e01ef]",
        r"(?<=[\u1820-\u18aa])[\u180b-\u180f]",
        rf"(?<=[{_RTL}])[\u061c\u200e\u200f]|[\u061c\u200e\u200f](?=[{_RTL}])",
        rf"(?<=[{_WITHOUT_SPACES}])\u200b(?=[{_WITHOUT_SPACES}])",
    )
)
_PILED = rf"(?<=[{_MARKS}]{{6}})[{_MARKS}]"

_COLOUR = (
    r"\x1b\[(?:(?:0?[0-47]|2[1-47]|[34][0-79]|9[0-7]|10[0-7]|[34]8;5;\d{1,3}|[34]8;2;\d{1,3};\d{1,3};\d{1,3})"
    r"(?:;|(?=m))){0,16}m"
)
"""SGR sequences of colours, bold, dim, italic, underline and reverse; not those that hide text or blink."""
_ERASE = r"\x1b\[[0-2]?K"
"""Erases a line: progress bars write it beside a carriage return, where nothing is left to erase."""


def _with_stretches(controls: str) -> str:
    """Return the pattern of a place; `controls` are characters that it escapes everywhere, ESC left out.

    A control character takes the ASCII after it along, up to a backslash: a flood is few matches.
    """
    stretch = rf"[{controls}\x1b\x7f-\x9f](?:[{controls}\x20-\x5b\x5d-\x9f]+|\x1b(?!\[))*"
    return rf"{_KEPT}|(?P<unsafe>{stretch}|[{_INVISIBLE}]|{_PILED})"


_PATTERNS = {
    # where: what is kept, and in the group `unsafe` what is escaped
    "line": _with_stretches(r"\x00-\x1a\x1c-\x1f"),
    "block": _with_stretches(r"\x00-\x08\x0b-\x1a\x1c-\x1f"),
    "json": rf"{_KEPT}|(?P<unsafe>[\x00-\x08\x0b-\x1f{_INVISIBLE}]|{_PILED})",
    "log": rf"(?P<colour>{_COLOUR})|{_ERASE}|" + _with_stretches(r"\x00-\x08\x0a-\x1a\x1c-\x1f\udc80-\udcff"),
}
_RESET = "\x1b[0m"


def line(text: str) -> str:
    """Return a text as one line, such as a name or a cell of a table, with `\\x1b`, `\\n`, `\\u202e`."""
    return text if _is_plain(text) else _pattern("line").sub(_visible, text)


def block(text: str) -> str:
    """Return a text of several lines: line ends and tabs stay, all else as in `line`."""
    if _is_plain(text.replace("\n", "")):
        return text
    return _pattern("block").sub(_visible, text.replace("\r\n", "\n"))


def log_line(text: str, *, colours: bool) -> str:
    """Return a line of a program's log, as a terminal would show it in the end.

    Of what carriage returns overwrite, as progress bars do, the last state stays. Colours stay if `colours`
    and end with the line, or are removed. Tabs stay. A byte that is no UTF-8, decoded by
    `surrogateescape`, is shown as `\\xff`; all else is as in `line`.
    """
    if "\r" in text:
        text = next((state for state in reversed(text.split("\r")) if state), "")
    if _is_plain(text):
        return text
    has_colours = False

    def shown(match: re.Match[str]) -> str:
        nonlocal has_colours
        if match["unsafe"]:
            return _escape(match["unsafe"]).replace(r"\udc", r"\x")
        if match["colour"]:
            has_colours = colours
            return match["colour"] if colours else ""
        return "" if match[0].startswith("\x1b") else match[0]

    return _pattern("log").sub(shown, text) + (_RESET if has_colours else "")


def json(document: str) -> str:
    """Return a JSON document with the same value and no character that `block` escapes."""
    return document if _is_plain(document) else _pattern("json").sub(_json_escape, document)


@cache
def _pattern(place: str) -> re.Pattern[str]:
    """Compile a pattern at its first use: most commands show plain ASCII, and start faster without."""
    return re.compile(_PATTERNS[place])


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _visible(match: re.Match[str]) -> str:
    return _escape(match["unsafe"]) if match["unsafe"] else match[0]


def _escape(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")


def _json_escape(match: re.Match[str]) -> str:
    """Outside of strings JSON has no such character, so that an escape always stands in a string."""
    if not match["unsafe"]:
        return match[0]
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
