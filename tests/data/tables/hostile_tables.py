"""Makes tables as nobody wants them, from a seed: for tests that compare two ways of reading."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable

ODD_NUMBERS = (
    "", " 4 ", "inf", "-inf", "nan", "-nan", "NA", "n/a", "null", "-0", "-0.0", ".5", "5.", "-.5", "+3",
    "1e5", "1E-30", "007", "-007", "00.5", "1e38", "1e-46", "3.4028235677973366e38", "0x1", "1_0", "٣",
    "-", ".", "--1", "1.2.3", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
    "16777217", "9007199254740993", "0.30000000000000004", "123456789012345678901",
)  # fmt: skip
ODD_TEXTS = (
    "", " ", "a", "é", "日本語", "👩\u200d👩", 'say "hi"', "two\nlines", "carriage\rreturn", "a,b", ";", "\t",
    "|", '"', '""', "x" * 127, "y" * 128, "z" * 20_000, "true", "'", "\ufeff", "\u2028", "end\n", "\x1f",
)  # fmt: skip
_BROKEN = (
    b"", b"\n", b"\r\n", b"1,2\n", b'"open\n', b"\xff\xfe\n", b"a,\xc3\n", b"a\x00b,1\n", b'x"y"z,1,2\n',
    b'"a"b,1\n', b"a\rb\n", b",,,,,,,\n",
)  # fmt: skip
_NAMES = ("label", "x", "long name " * 20, "ä", "b", "n", "class")


def csv_table(seed: int) -> bytes:
    """Return a CSV file; of the same seed, the same bytes."""
    rng = random.Random(seed)
    columns = [rng.choice(_COLUMNS)(rng) for _ in range(rng.randrange(1, 6))]
    names = rng.sample(_NAMES, len(columns))
    count = rng.choice((1, 15, 16, 40, 200))
    form = (rng.choice(",,,;\t|"), rng.choice(("\n", "\n", "\r\n")), rng.choice(_QUOTING))
    lines = [_line(names, *form[:2], csv.QUOTE_MINIMAL)]
    for _ in range(count):
        lines.append(_line([column() for column in columns], *form))
        if rng.random() < 0.01:
            lines.append(rng.choice((b"\n", b"\r\n", b"\n\n\n")))
    if rng.random() < 0.2:
        lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(_BROKEN))
    text = b"".join(lines)
    if rng.random() < 0.2:
        text = text.rstrip(b"\r\n")
    return b"\xef\xbb\xbf" * (rng.random() < 0.1) + text


def _line(cells: list[str], delimiter: str, end: str, quoting: int) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator=end, quoting=quoting).writerow(cells)  # type: ignore[arg-type]
    return stream.getvalue().encode()


def _wholes(rng: random.Random) -> Callable[[], str]:
    most = 10 ** rng.randrange(1, 19)
    return lambda: str(rng.randrange(-most, most))


def _reals(rng: random.Random) -> Callable[[], str]:
    forms: tuple[Callable[[float], str], ...] = (
        repr, "{:.3f}".format, "{:.12f}".format, "{:.25f}".format, "{:g}".format,
    )  # fmt: skip
    form, scale = rng.choice(forms), 10.0 ** rng.randrange(-20, 20)
    return lambda: form(rng.uniform(-scale, scale))


def _mixed(rng: random.Random) -> Callable[[], str]:
    usual, share = rng.choice((_wholes, _reals))(rng), rng.choice((0.002, 0.05, 0.5))
    return lambda: rng.choice(ODD_NUMBERS) if rng.random() < share else usual()


def _words(rng: random.Random) -> Callable[[], str]:
    few = rng.choice(
        (("cat", "dog"), ("0", "1", "2"), ("true", "False"), ("a", "", "NA"), ("longer than eight", "b"))
    )
    return lambda: rng.choice(few)


def _texts(rng: random.Random) -> Callable[[], str]:
    share = rng.choice((0.0, 0.05, 1.0))
    return lambda: rng.choice(ODD_TEXTS) if rng.random() < share else f"text {rng.randrange(1000)}"


_COLUMNS = (_wholes, _reals, _mixed, _words, _texts)
_QUOTING = (csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)
