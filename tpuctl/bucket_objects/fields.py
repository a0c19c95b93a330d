"""Types of fields in records of the bucket, each with its bounds; `Meta` is checked when a record is read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
"""A number that every reader of JSON holds exactly."""
LAST_ATTEMPT = 9999
AttemptNumber = Annotated[int, Meta(ge=1, le=LAST_ATTEMPT)]
WorkerNumber = Annotated[int, Meta(ge=0, lt=4096)]
"""Number of a worker; the largest slice, 9,216 chips of TPU7x, has 2,304 hosts."""
ExitCode = Annotated[int, Meta(ge=-255, le=(1 << 32) - 1)]
Hosts = Annotated[int, Meta(ge=0, le=4096)]
Word = Annotated[str, Meta(pattern=r"\A[a-z][a-z-]{0,30}\Z")]
"""A state or an outcome, also one that a later version adds."""
Label = Annotated[str, Meta(max_length=256)]
Line = Annotated[str, Meta(max_length=4096)]
Text = Annotated[str, Meta(max_length=131_072)]
"""Linux passes no longer argument or variable to a program (MAX_ARG_STRLEN)."""
Metadata = Annotated[str, Meta(max_length=262_144)]
"""Of Compute Engine: 256 KiB a value."""
ResourceName = Annotated[str, Meta(pattern=r"\A[a-z0-9](?:[a-z0-9.:-]{0,98}[a-z0-9])?\Z")]
"""A project, zone or node; older projects have a domain, `example.com:name`."""
PackageName = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,199}\Z")]
"""Of a package, normalized as in PEP 503; with PackageVersion as inventory.py of the worker lists them."""
PackageVersion = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._+!-]{0,199}\Z")]
PythonVersion = Annotated[str, Meta(pattern=r"\A[0-9]{1,3}(?:\.[0-9]{1,5}){0,3}[A-Za-z0-9.+-]{0,40}\Z")]
"""`3.11.7`, also `3.13.0rc1` and `3.12.3+`."""
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Crc32c = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9+/]{6}==\Z")]
FileName = Annotated[str, Meta(pattern=r"\A(?!\.)[^/\\\x00-\x1f\x7f]{1,300}\Z")]
"""The name of an object directly below a folder."""
ObjectName = Annotated[
    str, Meta(pattern=r"\A(?!/)(?!(?:.*/)?\.\.(?:/|\Z))[^\x00-\x08\x0a-\x1f\x7f]{1,1000}\Z")
]
"""The name of an object somewhere below a folder: that of a class list has the name of a column in it."""
