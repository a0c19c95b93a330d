"""Converts Reuters-21578 to class folders: each story under its first topic, of the most frequent topics.

The format is described in the archive's README.txt (Lewis, 1997): SGML in ISO 8859-1, a thousand stories a
file, the topics of a story in <TOPICS><D>earn</D><D>acq</D></TOPICS>, its text in <TEXT>, there mostly in
<BODY>.
"""

from __future__ import annotations

import gzip
import html
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tpuctl.data.order.permutation import Permutation
from tpuctl.data.public.unpacking import DAMAGED, Budget, damaged, members
from tpuctl.errors import UsageError

TOPICS = 46
"""Classes of the set that Keras has under this name."""
SEED = 113
"""Of the order in which the stories of the archive are dealt to the splits; the one Keras shuffles by."""
_TRAIN = 0.8

_FILE = re.compile(r"(^|/)reut2-\d{3}\.sgm$")
_STORY = re.compile(r"<REUTERS\b(?:(?!<REUTERS\b).)*?</REUTERS>", re.DOTALL)
_TOPIC = re.compile(r"<TOPICS><D>([^<]*)</D>", re.DOTALL)
_TEXT = re.compile(r"<TEXT\b[^<>]*>((?:(?!<TEXT\b).)*?)</TEXT>", re.DOTALL)
_BODY = re.compile(r"<BODY>((?:(?!<BODY>).)*?)</BODY>", re.DOTALL)
_TAG = re.compile(r"</?[A-Z][A-Z-]*(?![\w-])[^<>]*>")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SAFE = re.compile(r"[a-z0-9][a-z0-9.-]*")


class Story(NamedTuple):
    """One story."""

    text: str
    topic: str


def from_archive(files: Sequence[Path], folder: Path) -> None:
    """Unpack `reuters21578.tar.gz`; the stories are drawn, four of five to `train`."""
    (file,) = files
    try:
        stories = frequent(_stories(file), TOPICS)
    except DAMAGED as error:
        raise damaged(file, str(error)) from error
    if not stories:
        raise UsageError(f"'{file.name}' holds no stories.", hint="Give reuters21578.tar.gz.", file=str(file))
    order = Permutation(len(stories), SEED, "reuters")(np.arange(len(stories)))
    write([stories[place] for place in order.tolist()], folder)


def from_json(files: Sequence[Path], folder: Path) -> None:
    """Unpack `[texts, labels, class names]`, gzipped; the first four of five are `train`."""
    (file,) = files
    try:
        with gzip.open(file) as stream:
            texts, labels, names = json.loads(b"".join(Budget(file).blocks(stream)))
        stories = [Story(text, names[label]) for text, label in zip(texts, labels, strict=True)]
        if any(not isinstance(field, str) for story in stories for field in story):
            raise TypeError("texts and class names are strings")
    except (OSError, EOFError, zlib.error, ValueError, TypeError, IndexError, RecursionError) as error:
        raise damaged(file, str(error)) from error
    write(stories, folder)


def parse(sgml: str) -> Iterator[Story]:
    """Yield the stories with a topic, under the first one they have.

    A story without a body, a headline that came in advance, has what stands in its text.
    """
    for story in _STORY.finditer(sgml):
        topic, text = _TOPIC.search(story[0]), _TEXT.search(story[0])
        if topic and text:
            body = _BODY.search(text[1])
            plain = html.unescape(body[1] if body else _TAG.sub("", text[1]))
            yield Story(_CONTROL.sub("", plain), topic[1])


def frequent(stories: Iterable[Story], most: int) -> list[Story]:
    """Return the stories under the most frequent topics; of those as frequent, the first by name."""
    listed = list(stories)
    counts = Counter(story.topic for story in listed)
    topics = set(sorted(counts, key=lambda topic: (-counts[topic], topic))[:most])
    return [story for story in listed if story.topic in topics]


def write(stories: Sequence[Story], folder: Path) -> None:
    """Write each story to a file of its own: `train/earn/00001.txt`; raises UsageError for a wrong topic."""
    training, folders = int(len(stories) * _TRAIN), set[Path]()
    for number, story in enumerate(stories):
        if not _SAFE.fullmatch(story.topic):
            raise UsageError(
                f"'{story.topic}' cannot be the name of a class folder.", hint="This is not Reuters-21578."
            )
        place = folder / ("train" if number < training else "test") / story.topic
        if place not in folders:
            place.mkdir(parents=True)
            folders.add(place)
        (place / f"{number:05d}.txt").write_bytes(story.text.encode())


def _stories(file: Path) -> Iterator[Story]:
    space = Budget(file)
    for member in members(file):
        if member.plain and _FILE.search(member.name):
            with member.open() as stream:
                yield from parse(b"".join(space.blocks(stream)).decode("latin-1"))
