"""The tables of the store, in one SQLite file."""

from __future__ import annotations

from pathlib import Path

from tpuctl.sim.state.transactions import SqliteFile

SCHEMA = """
create table if not exists buckets (
    name text primary key, project text not null, created text not null, updated text not null,
    metageneration integer not null, fields text not null, policy text
) without rowid;
create table if not exists objects (
    bucket text not null, name text not null, generation integer not null, live integer not null,
    metageneration integer not null, blob text not null, size integer not null, crc32c text not null,
    md5 text, components integer, created text not null, updated text not null, deleted text,
    fields text not null,
    primary key (bucket, name, generation)
) without rowid;
create index if not exists objects_by_blob on objects (blob);
create table if not exists sessions (
    id text primary key, bucket text not null, name text not null, fields text not null, claims text not null,
    conditions text not null, blob text not null, created real not null, result text
) without rowid;
create index if not exists sessions_by_blob on sessions (blob);
create table if not exists soft_deleted (
    bucket text not null, name text not null, generation integer not null, live integer not null,
    metageneration integer not null, blob text not null, size integer not null, crc32c text not null,
    md5 text, components integer, created text not null, updated text not null, deleted text,
    fields text not null, expires real not null,
    primary key (bucket, name, generation)
) without rowid;
create index if not exists soft_deleted_by_blob on soft_deleted (blob);
create table if not exists multiparts (
    id text primary key, bucket text not null, name text not null, fields text not null, created text not null
) without rowid;
create table if not exists parts (
    multipart text not null, number integer not null, blob text not null, size integer not null,
    crc32c text not null, md5 text not null, created text not null,
    primary key (multipart, number)
) without rowid;
create index if not exists parts_by_blob on parts (blob);
"""


class Database(SqliteFile):
    """The file of these tables; every change happens inside `transaction`."""

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        super().__init__(path, SCHEMA, fsync=fsync)
