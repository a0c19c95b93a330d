"""Reuters-21578: what its SGML holds, and the class folders that are made of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.data.public.test_unpacking import below, tarred
from tests.data.source_trees import opened
from tpuctl.data import public
from tpuctl.data.plan import plan
from tpuctl.data.public import Story
from tpuctl.data.schema.features import Label
from tpuctl.errors import UsageError

SGML = """<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="5544" NEWID="1">
<DATE>26-FEB-1987</DATE>
<TOPICS><D>cocoa</D><D>sugar</D></TOPICS>
<PLACES><D>brazil</D></PLACES>
<UNKNOWN>&#5;&#5;&#5;C T</UNKNOWN>
<TEXT>&#2;
<TITLE>BAHIA COCOA REVIEW</TITLE>
<DATELINE>    SALVADOR, Feb 26 - </DATELINE><BODY>Showers at R&amp;D &lt;COC>
were 5 &lt; 6.
 Reuter
\x1f&#3;</BODY></TEXT>
</REUTERS>
<REUTERS TOPICS="YES" LEWISSPLIT="TEST" NEWID="2">
<TOPICS><D>earn</D></TOPICS>
<TEXT TYPE="BRIEF">&#2;
******<TITLE>WHIRLPOOL 1ST QTR SHR 66 CTS
</TITLE>Blah blah blah.
&#3;

</TEXT>
</REUTERS>
<REUTERS TOPICS="NO" NEWID="3">
<TOPICS></TOPICS><TEXT><BODY>no topic</BODY></TEXT></REUTERS>
"""


def test_a_story_is_its_body_or_what_stands_in_its_text() -> None:
    assert list(public.parse(SGML)) == [
        Story("Showers at R&D <COC>\nwere 5 < 6.\n Reuter\n", "cocoa"),
        Story("\n******WHIRLPOOL 1ST QTR SHR 66 CTS\nBlah blah blah.\n\n\n", "earn"),
    ]


def test_the_most_frequent_topics_are_kept_and_ties_go_by_name() -> None:
    stories = [Story(str(number), topic) for number, topic in enumerate("cabcadb")]
    assert [story.topic for story in public.frequent(stories, 2)] == ["a", "b", "a", "b"]


def test_an_archive_becomes_class_folders_in_drawn_splits(tmp_path: Path) -> None:
    stories = "".join(
        f"<REUTERS NEWID={n}><TOPICS><D>{'earn' if n % 3 else 'acq'}</D></TOPICS>"
        f"<TEXT><BODY>story {n} gr\u00fcn</BODY></TEXT></REUTERS>"
        for n in range(50)
    )
    files = {"reut2-000.sgm": stories.encode("latin-1"), "README.txt": b"x", "reut2-001.sgm": SGML.encode()}
    (tmp_path / "out").mkdir()
    public.from_archive([tarred(tmp_path / "reuters.tar.gz", files)], tmp_path / "out")
    planned = plan(tmp_path / "out", name="reuters")
    opened(planned.source)
    assert {split.name: split.records for split in planned.splits} == {"train": 41, "test": 11}
    assert planned.features["label"] == Label(("acq", "cocoa", "earn"))
    files = below(tmp_path / "out")
    assert sorted(text for text in files.values() if b"story" in text) == sorted(
        f"story {n} gr\u00fcn".encode() for n in range(50)
    )
    assert {name.split("/")[1] for name, text in files.items() if b"story 3 " in text} == {"acq"}
    drawn = {int(text.split()[1]) for name, text in files.items() if name[:4] == "test" and b"story" in text}
    assert sorted(drawn) == [2, 3, 7, 15, 23, 24, 25, 31, 37, 44], "in every version, and not in order"
    again = tmp_path / "again"
    again.mkdir()
    public.from_archive([tmp_path / "reuters.tar.gz"], again)
    assert below(again) == files


def test_texts_in_json_are_dealt_in_their_order(tmp_path: Path) -> None:
    content = [[f"text {n}\r\n" for n in range(10)], [n % 2 for n in range(10)], ["earn", "money-fx"]]
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    (tmp_path / "out").mkdir()
    public.from_json([tmp_path / "a.json.gz"], tmp_path / "out")
    files = below(tmp_path / "out")
    assert files["train/earn/00000.txt"] == b"text 0\r\n"
    assert [name for name in files if name.startswith("test")] == [
        "test/earn/00008.txt",
        "test/money-fx/00009.txt",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([["a"], [0], ["../out"]], "'../out' cannot be the name of a class folder"),
        ([["a"], [7], ["earn"]], "is damaged"),
        ([["a", "b"], [0], ["earn"]], "is damaged"),
        ([[1], [0], ["earn"]], "is damaged"),
        ({}, "is damaged"),
    ],
)
def test_json_of_another_shape_is_refused(tmp_path: Path, content: object, message: str) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match=message):
        public.from_json([tmp_path / "a.json.gz"], tmp_path / "out")


def test_a_damaged_archive_and_one_without_stories_are_named(tmp_path: Path) -> None:
    file = tarred(tmp_path / "reuters.tar.gz", {"README.txt": b"x"})
    with pytest.raises(UsageError, match=r"'reuters.tar.gz' holds no stories"):
        public.from_archive([file], tmp_path)
    file.write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"'reuters.tar.gz' is damaged"):
        public.from_archive([file], tmp_path)
