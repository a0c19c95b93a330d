from __future__ import annotations

import io
import json
import random
import struct
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from tests.data.source_trees import examples, items, no_progress, only_bad, opened
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Audio, Label
from tpuctl.data.source import Source
from tpuctl.data.sources.audio import InvalidSound, inspect_sound, samples, sound_library
from tpuctl.data.sources.registry import open_source
from tpuctl.errors import ConfigError, UsageError

WAVE = np.array([0, 1, -1, 100, -100, 127, -128, 5], np.int64)


def wav(values: NDArray[np.int64] = WAVE, *, rate: int = 8000, channels: int = 1, width: int = 2) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(channels)
        file.setframerate(rate)
        file.setsampwidth(width)
        shifted = values + 128 if width == 1 else values
        file.writeframes(
            b"".join(int(value).to_bytes(width, "little", signed=width > 1) for value in shifted)
        )
    return stream.getvalue()


def flac(
    values: NDArray[np.int64] = WAVE, *, rate: int = 8000, channels: int = 1, kind: str = "PCM_16"
) -> bytes:
    stream, bits = io.BytesIO(), int(kind[4:].replace("S8", "8"))
    wide = (values << (32 - bits)).astype(np.int32).reshape(-1, channels)
    soundfile.write(stream, wide, 8000, format="FLAC", subtype=kind)
    return stream.getvalue()


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def read(root: Path, options: Options = Options()) -> Source:  # noqa: B008
    return opened(open_source(root, None, options, no_progress))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_the_samples_of_wav_are_whole_numbers(width: int, channels: int) -> None:
    values = (
        WAVE if width == 1 else np.concatenate([WAVE, [-(1 << (8 * width - 1)), (1 << (8 * width - 1)) - 1]])
    )
    data = wav(values, width=width, channels=channels)
    info = inspect_sound(data)
    assert (info.encoding, info.rate, info.channels, info.bits) == ("wav", 8000, channels, 8 * width)
    assert samples(data, info).tolist() == values.tolist()


@pytest.mark.parametrize("kind", ["PCM_S8", "PCM_16", "PCM_24"])
@pytest.mark.parametrize("channels", [1, 2])
def test_the_samples_of_flac_are_those_that_were_written(kind: str, channels: int) -> None:
    data = flac(kind=kind, channels=channels)
    info = inspect_sound(data)
    assert (info.encoding, info.rate, info.channels) == ("flac", 8000, channels)
    assert samples(data, info).tolist() == WAVE.tolist()


def test_a_record_has_the_samples_and_the_class_of_its_folder(tmp_path: Path) -> None:
    write(tmp_path, {"train/no/1.wav": wav(), "train/yes/2.wav": wav(-WAVE[:4]), "test/yes/3.wav": wav()})
    source = read(tmp_path)
    assert (source.kind, source.bad, source.supervised) == ("audio", [], ("audio", "label"))
    assert source.features == {"audio": Audio(8000, 1, "wav"), "label": Label(("no", "yes"))}
    assert [(part.split, part.records) for part in source.parts] == [("test", 1), ("train", 2)]
    assert examples(source)[1:] == [
        {"audio": WAVE.tolist(), "label": [0]},
        {"audio": [0, -1, 1, -100], "label": [1]},
    ]


def test_most_sounds_decide_on_rate_and_channels_and_the_others_are_named(tmp_path: Path) -> None:
    files = {"a/1.wav": wav(rate=16000), "a/2.wav": wav(), "a/3.flac": flac(), "a/4.wav": wav(channels=2)}
    source = read(write(tmp_path, files))
    assert source.features["audio"] == Audio(8000, 1, None)
    bad = [record for record in items(source) if isinstance(record, BadRecord)]
    rule = "2 of 4 have 8000 samples a second in 1 channel"
    assert [str(record) for record in bad] == [
        f"'a/1.wav' has 16000 samples a second in 1 channel, and {rule}",
        f"'a/4.wav' has 8000 samples a second in 2 channels, and {rule}",
    ]
    assert bad[0].hint == "Convert it: ffmpeg -i OLD -ar 8000 -ac 1 NEW"


def with_format(code: int) -> bytes:
    data = bytearray(wav())
    struct.pack_into("<H", data, 20, code)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"ID3 nothing", "is not a WAV or FLAC file"),
        (wav()[:30], "ends in the middle of its header"),
        (wav()[:-4], "has 12 bytes of samples, and its header says 16"),
        (wav(WAVE[:0]), "has no samples"),
        (with_format(3), "has floating-point samples, and whole numbers are stored"),
        (with_format(6), "has compressed samples"),
        (b"RIFF\x24\0\0\0WAVEdata\x10\0\0\0" + bytes(16), "has samples before their format"),
    ],
)
def test_a_sound_that_cannot_be_used_is_named(tmp_path: Path, data: bytes, why: str) -> None:
    source = read(write(tmp_path, {"a/1.wav": wav(), "a/2.wav": data}))
    assert only_bad(source) == f"'a/2.wav' {why}"


def with_field(place: int, form: str, value: int) -> bytes:
    data = bytearray(wav())
    struct.pack_into(form, data, place, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (with_field(22, "<H", 0), "8000 samples a second, 0 channels and 16 bits"),
        (with_field(22, "<H", 65), "8000 samples a second, 65 channels and 16 bits"),
        (with_field(24, "<I", 0), "0 samples a second, 1 channels and 16 bits"),
        (with_field(34, "<H", 12), "8000 samples a second, 1 channels and 12 bits"),
    ],
)
def test_a_sound_of_no_usual_format_is_refused_with_what_it_has(data: bytes, what: str) -> None:
    with pytest.raises(InvalidSound, match=f"^has {what}, which is not read$"):
        inspect_sound(data)


def test_a_sound_has_up_to_64_channels() -> None:
    data = wav(np.arange(128), channels=64)
    info = inspect_sound(data)
    assert info.channels == 64
    assert samples(data, info).tolist() == list(range(128))


def test_a_long_chunk_before_the_samples_is_skipped() -> None:
    data = wav()
    listed = data[:36] + b"LIST" + struct.pack("<I", 4001) + bytes(4002) + data[36:]
    assert samples(listed, inspect_sound(listed)).tolist() == WAVE.tolist()


def test_a_damaged_flac_is_named(tmp_path: Path) -> None:
    whole = flac(np.tile(WAVE, 500))
    source = read(write(tmp_path, {"a/1.flac": whole, "a/2.flac": whole[: len(whole) // 2]}))
    assert "'a/2.flac' " in only_bad(source)


def test_random_damage_ends_in_words() -> None:
    generator = random.Random(3)
    for whole in (wav(channels=2), flac(np.tile(WAVE, 20))):
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(generator.randint(1, 4)):
                data[generator.randrange(len(data))] = generator.randrange(256)
            damaged = bytes(data[: generator.choice((len(data), generator.randrange(len(data))))])
            try:
                samples(damaged, inspect_sound(damaged))
            except InvalidSound:
                continue


def test_sounds_beside_a_table_are_a_field(tmp_path: Path) -> None:
    write(tmp_path, {"a.wav": wav(), "b.wav": wav(-WAVE)})
    rows = [{"file_name": "b.wav", "text": "hello"}]
    (tmp_path / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert examples(read(tmp_path)) == [{"audio": (-WAVE).tolist(), "text": [b"hello"]}]


def test_flac_without_its_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    sound_library.cache_clear()
    with pytest.raises(ConfigError, match="Reading FLAC needs soundfile") as caught:
        read(write(tmp_path, {"a/1.flac": flac()}))
    assert "pip install soundfile" in caught.value.hint
    assert len(examples(read(write(tmp_path / "wav", {"a/1.wav": wav()})))) == 1


@pytest.mark.parametrize("options", [Options(resize=(3, 3)), Options(channels=1), Options(label="x")])
def test_options_of_pictures_and_tables_are_refused(tmp_path: Path, options: Options) -> None:
    with pytest.raises(UsageError):
        read(write(tmp_path, {"a/1.wav": wav()}), options)


def test_a_sound_of_more_than_33_million_samples_is_refused_before_it_is_decoded() -> None:
    most = 33_554_432
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setframerate(8000)
        file.setsampwidth(1)
        file.writeframes(bytes(most + 1))
    data = stream.getvalue()
    with pytest.raises(InvalidSound, match=f"has {most + 1} samples, and at most {most} are read") as refused:
        samples(data, inspect_sound(data))
    assert refused.value.hint == "Cut it into pieces."
