"""Small trees of images, made as a user would have them, and what becomes of a source."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tpuctl.data.options import BadRecord
from tpuctl.data.output.shards import Shard, ShardResult
from tpuctl.data.plan import DatasetPlan
from tpuctl.data.source import Observations, Source
from tpuctl.data.tfrecord.example_decoding import Values, decode

Tree = Callable[..., Path]
_OPENED: list[Source] = []


def opened(source: Source) -> Source:
    """Have a source closed at the end of the test."""
    _OPENED.append(source)
    return source


def close_opened() -> None:
    """Close them, each once."""
    for source in {id(source): source for source in _OPENED}.values():
        source.close()
    _OPENED.clear()


def write_image(path: Path, *, size: tuple[int, int] = (8, 6), mode: str = "RGB", shade: int = 0) -> Path:
    """Write one image whose content depends on `shade`; the suffix decides the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    gray = Image.new("L", size)
    gray.putdata([(shade * 31 + i * 7) % 256 for i in range(size[0] * size[1])])
    gray.convert(mode).save(path)
    return path


def bytes_of(shard: Shard, *, skip_bad: bool = False) -> tuple[bytes, ShardResult]:
    """Make one shard in memory."""
    stream = shard.stream(skip_bad=skip_bad)
    data = b"".join(stream)
    return data, stream.result


def produce(planned: DatasetPlan, *, skip_bad: bool = False) -> dict[str, bytes]:
    """Make every object of a dataset in memory, in the order they are to be written."""
    opened(planned.source)
    objects: dict[str, bytes] = {}
    results: list[ShardResult] = []
    for shard in planned.shards():
        objects[shard.file], result = bytes_of(shard, skip_bad=skip_bad)
        results.append(result)
    return {**objects, **planned.finish(results)}


def items(source: Source, *indices: int) -> list[bytes | BadRecord]:
    """Read records of a source, all without `indices`."""
    chosen = indices or range(sum(part.records for part in source.parts))
    return list(source.read(np.array(chosen, np.int64), Observations()))


def examples(source: Source) -> list[dict[str, Values]]:
    """Read all records of a source that are not bad, decoded."""
    return [decode(record) for record in items(source) if isinstance(record, bytes)]


def no_progress(scanned: int, total: int) -> None:
    """Report nothing."""


def png(size: int) -> bytes:
    """Return a whole PNG of exactly so many bytes, 100 at least: what follows its end is passed over."""
    stream = io.BytesIO()
    Image.new("RGB", (8, 6)).save(stream, "PNG")
    return stream.getvalue().ljust(size, b"\0")


def damaged_png() -> bytes:
    """Return a PNG with a flipped bit in its pixels, too large for its header to show that."""
    stream = io.BytesIO()
    Image.effect_noise((100, 100), 50).save(stream, "PNG")
    data = bytearray(stream.getvalue())
    data[len(data) // 2] ^= 1
    return bytes(data)


def only_bad(source: Source) -> str:
    """Read all of a source, and return what it says of its only bad record."""
    (bad,) = (record for record in items(source) if isinstance(record, BadRecord))
    return str(bad)
