"""Compares what run.sh has written into results/ with what the run wrote; Python's standard library only."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path


def crc32c(path: Path) -> str:
    """Return the CRC-32C of a file as Cloud Storage writes it: slow, for files of which it lists no MD5."""
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    crc = 0xFFFFFFFF
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            for byte in block:
                crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return base64.b64encode((crc ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


def md5(path: Path) -> str:
    """Return the MD5 of a file as Cloud Storage writes it."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return base64.b64encode(digest.digest()).decode()


def state(path: Path, file: dict[str, object]) -> str:
    """Return how a file compares with the record of it."""
    if not path.is_file():
        return "missing"
    if path.stat().st_size != file["bytes"]:
        return "different"
    digest = (md5(path), file["md5"]) if file.get("md5") else (crc32c(path), file["crc32c"])
    return "same" if digest[0] == digest[1] else "different"


def main() -> int:
    """Print a line about each file of the run; return 1 unless all of them are the same."""
    here = Path(__file__).resolve().parent
    results = Path(sys.argv[1]) if sys.argv[1:] else here / "results"
    record = json.loads((here / "record" / "results.json").read_text(encoding="utf-8"))
    states = {}
    for file in record["listed_files"]:
        states[file["name"]] = state(results.joinpath(*file["name"].split("/")), file)
        print(f"{states[file['name']]:<10} {ascii(file['name'])[1:-1]}")
    same = list(states.values()).count("same")
    print(f"{same} of {len(states)} files are the same, byte for byte.")
    if record["left_out"]:
        print(f"{record['left_out']} more files of the run are not listed in its record.")
    return 0 if same == len(states) else 1


if __name__ == "__main__":
    sys.exit(main())
