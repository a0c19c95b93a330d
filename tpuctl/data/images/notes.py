"""Writes into a converted image why it was converted, and reads it there."""

from __future__ import annotations

_PREFIX = "Converted by tpuctl: "
_SEARCHED = 4096
"""Bytes of an image in which its comment is: before the first pixel."""


def comment(why: tuple[str, ...]) -> str:
    """Return the comment of an image that was converted for these reasons; empty without one."""
    return _PREFIX + ", ".join(why) if why else ""


def conversion_of(data: bytes) -> str:
    """Return why an image in a dataset was converted, empty if its file is as the user had it."""
    head = data[:_SEARCHED]
    begin = head.find(_PREFIX.encode())
    if begin < 0:
        return ""
    size = int.from_bytes(head[begin - 2 : begin], "big") - 2  # the length of a comment in a JPEG
    if head.startswith(b"\x89PNG"):
        size = int.from_bytes(head[begin - 16 : begin - 12], "big") - len(b"Comment\0")
    text = head[begin + len(_PREFIX) : begin + max(size, 0)]
    return text.decode("ascii", "replace")
