"""The store against a plain model in memory: after any operations both have the same objects."""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import google_crc32c
import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from tests.sim.gcs.running_server import BUCKET, PROJECT
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.blobs import NAMING_TABLES
from tpuctl.sim.gcs.storage.store import ListQuery, Store, list_page
from tpuctl.sim.gcs.storage.stored_object import StoredObject

Result = TypeVar("Result")

NAMES = st.sampled_from(["a", "a/b", "a/c", "b", "é", "a/\U0010ffff"])
DATA = st.binary(max_size=40)
PREFIXES = st.sampled_from(["", "a", "a/", "b"])
CONDITION = st.sampled_from([None, "absent", "present", "stale"])


class StoreAgainstModel(RuleBasedStateMachine):
    """`live` and `old` are the model: name -> (generation, bytes, metadata), newest last in `old`."""

    generations: Bundle[tuple[str, int]] = Bundle("generations")

    @initialize(versioned=st.booleans())
    def begin(self, versioned: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tpuctl-model-"))
        self.versioned = versioned
        self.store = Store(self.folder)
        self.store.create_bucket(BUCKET, PROJECT, versioning={"enabled": versioned})
        self.live: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.old: dict[tuple[str, int], tuple[bytes, dict[str, str]]] = {}
        self.newest = 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    def conditions(self, name: str, condition: str | None) -> tuple[Preconditions, bool]:
        """Return preconditions, and whether the model says that they hold."""
        generation = self.live[name][0] if name in self.live else 0
        if condition is None:
            return Preconditions(), True
        if condition == "absent":
            return Preconditions(generation_match=0), generation == 0
        if condition == "present":
            return Preconditions(generation_not_match=0), generation != 0
        return Preconditions(generation_match=generation + 1), False

    def attempt(self, expected: bool, act: Callable[[], Result]) -> Result | None:
        """Call `act`, and check that it succeeds or fails as the model expects."""
        try:
            result = act()
        except GcsError as error:
            result, status = None, error.status
        else:
            status = 200
        assert (status == 200) == expected
        assert status in (200, 404, 412)
        return result

    def became(
        self, name: str, stored: StoredObject, data: bytes, metadata: dict[str, str]
    ) -> tuple[str, int]:
        """Note in the model that a name has a new live generation."""
        assert stored.generation > self.newest
        self.newest = stored.generation
        self.retired(name)
        self.live[name] = (stored.generation, data, metadata)
        return name, stored.generation

    def retired(self, name: str) -> None:
        if name in self.live:
            generation, data, metadata = self.live.pop(name)
            if self.versioned:
                self.old[name, generation] = (data, metadata)

    @rule(target=generations, name=NAMES, data=DATA, condition=CONDITION)
    def write(self, name: str, data: bytes, condition: str | None) -> tuple[str, int]:
        conditions, holds = self.conditions(name, condition)
        metadata = {"size": str(len(data))}

        def act() -> StoredObject:
            with self.store.blobs.create() as writer:
                writer.write([data])
                fields = {"metadata": metadata}
                return self.store.objects.create(BUCKET, name, writer.finish(), fields, conditions)

        stored = self.attempt(holds, act)
        return self.became(name, stored, data, metadata) if stored else (name, 0)

    @rule(target=generations, source=NAMES, name=NAMES, condition=CONDITION)
    def copy(self, source: str, name: str, condition: str | None) -> tuple[str, int]:
        conditions, holds = self.conditions(name, condition)
        live = self.live.get(source)
        stored = self.attempt(
            holds and live is not None,
            lambda: self.store.objects.copy(
                self.store.objects.get(BUCKET, source), BUCKET, name, {}, conditions
            ),
        )
        return self.became(name, stored, *live[1:]) if stored and live else (name, 0)

    @rule(target=generations, source=NAMES, name=NAMES)
    def move(self, source: str, name: str) -> tuple[str, int]:
        live = self.live.get(source)
        stored = self.attempt(
            live is not None,
            lambda: self.store.objects.move(
                self.store.objects.get(BUCKET, source), name, Preconditions(), Preconditions()
            ),
        )
        if not stored or not live:
            return name, 0
        moved = self.became(name, stored, *live[1:])
        if source != name:
            self.retired(source)
        return moved

    @rule(name=NAMES, color=st.sampled_from(["red", None]))
    def patch(self, name: str, color: str | None) -> None:
        live = self.live.get(name)
        changed = self.attempt(
            live is not None,
            lambda: self.store.objects.patch(
                self.store.objects.get(BUCKET, name), {"metadata": {"color": color}}, Preconditions()
            ),
        )
        if changed and live:
            metadata = {key: value for key, value in live[2].items() if key != "color"}
            self.live[name] = (live[0], live[1], metadata | ({"color": color} if color else {}))

    @rule(name=NAMES, condition=CONDITION)
    def delete(self, name: str, condition: str | None) -> None:
        conditions, holds = self.conditions(name, condition)
        expected = holds and name in self.live
        self.attempt(expected, lambda: self.store.objects.delete(BUCKET, name, None, conditions) or True)
        if expected:
            self.retired(name)

    @rule(which=generations)
    def delete_generation(self, which: tuple[str, int]) -> None:
        name, generation = which
        is_live = self.live.get(name, (0,))[0] == generation
        expected = generation != 0 and (is_live or which in self.old)
        self.attempt(
            expected, lambda: self.store.objects.delete(BUCKET, name, generation, Preconditions()) or True
        )
        if expected and is_live:
            del self.live[name]
        elif expected:
            del self.old[which]

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = Store(self.folder)

    @rule(
        prefix=st.sampled_from(["", "a", "a/", "b"]),
        delimiter=st.sampled_from(["", "/"]),
        limit=st.integers(1, 3),
    )
    def list(self, prefix: str, delimiter: str, limit: int) -> None:
        query: ListQuery | None = ListQuery(prefix=prefix, delimiter=delimiter, limit=limit)
        items, prefixes = [], []
        while query is not None:
            page = list_page(self.store.database, BUCKET, query)
            assert len(page) <= limit
            items += [stored.name for stored in page.items]
            prefixes += page.prefixes
            query = ListQuery(prefix, delimiter, limit=limit, position=page.next) if page.next else None
        expected = sorted((name for name in self.live if name.startswith(prefix)), key=str.encode)
        below = [name for name in expected if delimiter and delimiter in name[len(prefix) :]]
        assert items == [name for name in expected if name not in below]
        assert prefixes == list(
            dict.fromkeys(name[: name.index(delimiter, len(prefix)) + 1] for name in below)
        )

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        everything = {(name, live[0]): live[1:] for name, live in self.live.items()} | self.old
        query = ListQuery(versions=True)
        listed = {
            (stored.name, stored.generation): stored
            for stored in list_page(self.store.database, BUCKET, query).items
        }
        assert set(listed) == set(everything)
        for key, (data, metadata) in everything.items():
            stored = listed[key]
            with self.store.blobs.open(stored.blob) as file:
                assert file.read() == data
            assert stored.fields["metadata"] == metadata
            assert stored.live == (key[0] in self.live and self.live[key[0]][0] == key[1])
            assert stored.crc32c == crc32c_of(data)

    @invariant()
    def no_file_is_left_over(self) -> None:
        if hasattr(self, "store"):
            files = {path.name for path in (self.folder / "blobs").glob("??/*")}
            tables = (self.store.database.rows(str, f"select blob from {table}") for table in NAMING_TABLES)
            assert files == {blob for blobs in tables for blob in blobs}


def crc32c_of(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
