"""Reads and writes Cloud Storage through Google's own client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import requests
from google.api_core.exceptions import NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials, Credentials
from google.cloud.storage import Blob, Client
from google.cloud.storage.exceptions import DataCorruption

from tpuctl.bucket_layout import gs
from tpuctl.bucket_objects import too_large
from tpuctl.catalogue.bucket_rules import BucketRules
from tpuctl.catalogue.quotas import Usage
from tpuctl.catalogue.regions import BucketLocation
from tpuctl.cloud.downloads import (
    BoundedBuffer,
    BufferFullError,
    ChunkStream,
    ObjectDownloads,
    ObjectStream,
    ReportCount,
    silent,
)
from tpuctl.cloud.error_mapping import Row, Service, translated
from tpuctl.cloud.request_log import Recorder
from tpuctl.cloud.server_time import AnswerClock
from tpuctl.errors import BucketMissingError, ConfigError, ConflictError, DeadlineError, NotFoundError
from tpuctl.nodes import HttpRequest
from tpuctl.object_content import Content

ROWS = (
    Row(
        "requester-pays",
        (3,),
        "Bucket is a requester pays bucket but no user project provided.",
        ConfigError,
        "{subject}: {words}",
        "The bucket bills those who use it, for which tpuctl names no project: use another bucket, or turn "
        "it off: gcloud storage buckets update gs://BUCKET --no-requester-pays",
        text="requester pays",
    ),
    Row(
        "retention",
        (7,),
        "Object 'O' is subject to bucket's retention policy and cannot be deleted, overwritten or archived",
        ConfigError,
        "{subject}: {words}",
        "Objects of runs are overwritten and deleted: use a bucket without a retention policy.",
        text="retention policy",
    ),
    Row(
        "key",
        (7,),
        "Permission denied on Cloud KMS key.",
        ConfigError,
        "{subject}: {words}",
        "Let Cloud Storage use the bucket's key: gcloud storage service-agent --authorize-cmek=KEY",
        text="Cloud KMS key",
    ),
)
"""Answers of Cloud Storage."""
SERVICE = Service("storage.googleapis.com", "roles/storage.objectUser", ROWS)
UPLOAD_PART = 8 * 1024 * 1024
"""Bytes held in memory per object that is being uploaded; a multiple of 256 KiB, as the service asks."""

LISTED_FIELDS = "items(name,size,crc32c,generation,updated,contentType),nextPageToken"
"""What a listing says of each object: a third of what it would say unasked."""
LARGEST_READ = 64 * 1024 * 1024
"""Most bytes of an object that is read into memory at once, unless its reader allows fewer."""


@dataclass(frozen=True)
class Object:
    """One object as the bucket lists it."""

    name: str
    content: Content
    generation: int
    updated: str
    """ISO-8601, UTC."""
    content_type: str = ""
    md5: str = field(default="", compare=False)
    """MD5 in base64, where it was asked for and the object was not composed of parts."""
    metadata: Mapping[str, str] = field(default_factory=dict, compare=False)
    """What its writer has added to it, where it was asked for."""

    @property
    def size(self) -> int:
        """Bytes of its content."""
        return self.content.size


@dataclass(frozen=True)
class Grant:
    """A member's role on a bucket."""

    role: str
    member: str
    """`serviceAccount:E-MAIL`, `allUsers` ..."""
    is_conditional: bool


class StorageClient(Client):  # type: ignore[misc]
    """Google's client with a session of ours, which downloads and the clock use, too."""

    def __init__(self, project: str, credentials: Credentials, session: requests.Session, url: str) -> None:
        """Take credentials with scopes; `url` is that of the service, empty for Google's."""
        options = {"api_endpoint": url} if url else None
        super().__init__(project, credentials, _http=session, client_options=options)
        self.credentials: Any = credentials
        self.session = session


CREATE_BUCKET = (
    "Create it in the TPUs' region: {setup}gcloud storage buckets create gs://{name} --location=REGION "
    "--uniform-bucket-level-access; or configure another one."
)
CHECK_BUCKET = "Check its name: {setup}gcloud storage ls"
"""What helps where a bucket is missing that is to be read only."""


@contextmanager
def naming_bucket(bucket: str, name: str, hint: str, shell_setup: str = "") -> Iterator[None]:
    """Translate errors about an object; raises BucketMissingError with `hint` where its bucket is missing."""
    try:
        with translated(gs(bucket, name), SERVICE):
            yield
    except NotFoundError as error:
        if not _names_bucket(str(error.__cause__)):
            raise
        setup = f"{shell_setup} && " * bool(shell_setup)
        raise BucketMissingError(
            f"The bucket gs://{bucket} does not exist.",
            hint=hint.format(name=bucket, setup=setup),
            bucket=bucket,
            **error.facts,
        ) from error.__cause__


class Bucket:
    """One bucket; raises tpuctl's errors."""

    def __init__(
        self,
        client: StorageClient,
        name: str,
        *,
        shell_setup: str = "",
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """Take a name in the right format; hints put `shell_setup` before commands of gcloud.

        `warn` is told if this machine's clock is off.
        """
        self._client = client
        self._bucket = client.bucket(name)
        self._shell_setup = shell_setup
        self._downloads = ObjectDownloads(client, name)
        self._clock = AnswerClock(warn)
        client.session.hooks["response"].append(self._clock.note)
        self.name = name

    def dry_run(self) -> DryRunBucket:
        """Return a bucket of the same name and endpoint that records requests and sends none."""
        return DryRunBucket(self._client, self.name)

    def check(self) -> None:
        """Raise unless the bucket exists and its objects can be listed."""
        self.objects("datasets/", most=1)

    def now(self) -> datetime:
        """Return the time by which the bucket dates its objects; raises DeadlineError if it tells none."""
        if self._clock.now() is None:
            self.check()
        now = self._clock.now()
        if now is None:
            raise DeadlineError(f"{gs(self.name, '')} does not tell the time.", hint="Try again in a minute.")
        return now

    def location(self) -> BucketLocation:
        """Return where the bucket is, asked once; raises ConfigError without storage.buckets.get."""
        return self._settings[0]

    def rules(self) -> BucketRules:
        """Return what the bucket does by itself, asked once; raises as `location`."""
        return self._settings[1]

    @cached_property
    def _settings(self) -> tuple[BucketLocation, BucketRules]:
        with self._translated(""):
            self._bucket.reload()
        bucket = self._bucket
        regions = tuple(str(region).lower() for region in bucket.data_locations or ())
        rules = BucketRules(
            self.name,
            storage_class=str(bucket.storage_class),
            has_versions=bool(bucket.versioning_enabled),
            soft_delete_seconds=int(bucket.soft_delete_policy.retention_duration_seconds or 0),
            retention_seconds=int(bucket.retention_period or 0),
            has_default_hold=bool(bucket.default_event_based_hold),
            is_requester_pays=bool(bucket.requester_pays),
            lifecycle=tuple(dict(rule) for rule in bucket.lifecycle_rules),
            prevents_public_access=bucket.iam_configuration.public_access_prevention == "enforced",
        )
        return BucketLocation(self.name, str(bucket.location).lower(), regions), rules

    def grants(self) -> list[Grant]:
        """Return every role on the bucket; raises ConfigError without storage.buckets.getIamPolicy."""
        with self._translated(""):
            policy = self._bucket.get_iam_policy(requested_policy_version=3)
        return [
            Grant(str(binding["role"]), str(member), bool(binding.get("condition")))
            for binding in policy.bindings
            for member in binding["members"]
        ]

    def objects(
        self, prefix: str, *, most: int | None = None, start: str = "", glob: str = "", more: str = ""
    ) -> list[Object]:
        """Return the objects whose names begin with `prefix`, in order; `start` and `glob` narrow them.

        `more` is another field that the listing says of each: MD5 or METADATA.
        """
        with self._translated(prefix):
            blobs = self._bucket.list_blobs(
                prefix=prefix or None,
                max_results=most,
                start_offset=start or None,
                match_glob=glob or None,
                fields=LISTED_FIELDS.replace("crc32c", f"crc32c,{more}") if more else LISTED_FIELDS,
            )
            return [_object(blob) for blob in blobs]

    def usage(self, most: int) -> Usage:
        """Return how much is in the bucket, former versions too, by at most so many objects."""
        count = size = 0
        with self._translated(""):
            for blob in self._bucket.list_blobs(
                versions=True, max_results=most + 1, fields="items(name,generation,size),nextPageToken"
            ):
                if count == most:
                    return Usage(count, size, is_complete=False)
                count, size = count + 1, size + int(blob.size or 0)
        return Usage(count, size, is_complete=True)

    def folders(self, prefix: str) -> list[str]:
        """Return the names directly under a prefix that have something below them, without slashes."""
        with self._translated(prefix):
            pages = self._bucket.list_blobs(prefix=prefix, delimiter="/")
            for _ in pages:
                pass
            return sorted(folder[len(prefix) :].rstrip("/") for folder in pages.prefixes)

    def read(self, name: str, most: int = LARGEST_READ) -> bytes:
        """Return an object's bytes as they are stored, verified by their checksum.

        Raises NotFoundError when there is no such object, BadObjectError as soon as it has sent more than
        `most` bytes: the limit holds for what arrives, whatever a listing said before.
        """
        return self._read(self._bucket.blob(name), most)

    def read_listed(self, item: Object, most: int = LARGEST_READ) -> bytes:
        """Return the bytes of the generation that was listed; raises as `read` does if it is gone."""
        return self._read(self._bucket.blob(item.name, generation=item.generation), most)

    def _read(self, blob: Blob, most: int) -> bytes:
        buffer = BoundedBuffer(most)
        with self._translated(blob.name):
            try:
                blob.download_to_file(buffer, raw_download=True)
            except BufferFullError as error:
                raise too_large(blob.name, most) from error
        return buffer.getvalue()

    def find(self, name: str, most: int = LARGEST_READ) -> bytes | None:
        """Return an object's bytes, or None when there is no such object; raises as `read` does."""
        try:
            return self.read(name, most)
        except BucketMissingError:
            raise
        except NotFoundError:
            return None

    def create(
        self,
        name: str,
        data: bytes,
        content_type: str = "application/json",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Write an object that must not exist yet; raises ConflictError when it does."""
        with self._translated(name):
            blob = self._bucket.blob(name)
            blob.metadata = metadata or None
            try:
                blob.upload_from_string(data, content_type=content_type, if_generation_match=0)
            except PreconditionFailed as error:
                if not _holds(blob, data):  # our own write, its answer lost, is no conflict
                    raise ConflictError(
                        f"{gs(self.name, name)} exists already.", hint="Another process was first."
                    ) from error

    def replace(
        self,
        item: Object,
        data: bytes,
        content_type: str = "application/json",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Write an object over one generation of it; raises ConflictError when it has another by now."""
        with self._translated(item.name):
            blob = self._bucket.blob(item.name)
            blob.metadata = metadata or None
            blob.upload_from_string(data, content_type=content_type, if_generation_match=item.generation)

    def upload(
        self, name: str, chunks: Iterable[bytes], content_type: str, part: int = UPLOAD_PART
    ) -> Object:
        """Write or replace an object from a stream, verified by its checksum, in flat memory.

        It is sent `part` bytes at a time, a multiple of 256 KiB; three times as many are held.
        """
        with self._translated(name):
            blob = self._bucket.blob(name, chunk_size=part)
            blob.upload_from_file(ChunkStream(chunks), content_type=content_type, checksum="crc32c")
            return _object(blob)

    def add(self, name: str, chunks: Iterable[bytes], content_type: str, part: int = UPLOAD_PART) -> Object:
        """Write an object that must not exist yet from a stream, in flat memory; raises ConflictError.

        No checksum is sent: the caller compares the content returned with the one it knows.
        """
        with self._translated(name):
            blob = self._bucket.blob(name, chunk_size=part)
            stream = ChunkStream(chunks)
            blob.upload_from_file(stream, content_type=content_type, checksum=None, if_generation_match=0)
            return _object(blob)

    def stat(self, name: str) -> Object | None:
        """Return an object's content and generation, or None when there is no such object."""
        try:
            with self._translated(name):
                blob = self._bucket.blob(name)
                blob.reload()
                return _object(blob)
        except BucketMissingError:
            raise
        except NotFoundError:
            return None

    def stream(self, item: Object, part: int = UPLOAD_PART) -> ObjectStream:
        """Return one generation of an object as a stream, fetched `part` bytes at a time."""
        return ObjectStream(lambda start, end: self.read_range(item, start, end), item.size, part)

    def read_range(self, item: Object, start: int, end: int) -> bytes:
        """Return the stored bytes from `start` to before `end` of one generation of an object."""
        blob = self._bucket.blob(item.name, generation=item.generation)
        with self._translated(item.name):
            return bytes(blob.download_as_bytes(start=start, end=end - 1, raw_download=True))

    def move(self, item: Object, name: str) -> None:
        """Rename one generation of an object, within the service; the new name must be free.

        Raises NotFoundError when that generation is gone, ConflictError when the name is taken.
        """
        with self._translated(item.name):
            blob = self._bucket.blob(item.name)
            self._bucket.move_blob(
                blob, name, if_generation_match=0, if_source_generation_match=item.generation
            )

    def copy(self, item: Object, name: str) -> None:
        """Copy one generation of an object to a name that must be free; raises as `move` does."""
        with self._translated(item.name):
            blob = self._bucket.blob(item.name)
            self._bucket.copy_blob(
                blob, self._bucket, name, if_generation_match=0, if_source_generation_match=item.generation
            )

    def remove(self, item: Object) -> None:
        """Delete one generation of an object, if it still exists."""
        try:
            with self._translated(item.name):
                self._bucket.delete_blob(item.name, if_generation_match=item.generation)
        except BucketMissingError:
            raise
        except (NotFoundError, ConflictError):
            pass  # deleted by another process, or replaced

    def download(self, item: Object, path: Path, report: ReportCount = silent) -> None:
        """Fetch one generation of an object, as it is stored, into a file that does not exist yet.

        Verifies its checksum on the way, and deletes the file if anything is raised. What is stored
        compressed is not unpacked: it may have any size.
        """
        try:
            with self._translated(item.name):
                self._downloads.fetch(item, path, report)
        except FileExistsError:
            raise
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            with naming_bucket(self.name, name, CREATE_BUCKET, self._shell_setup):
                yield
        except DataCorruption as error:
            raise DeadlineError(
                f"{gs(self.name, name)} arrived damaged.",
                hint="Run the command again: nothing was kept.",
            ) from error


class DryRunBucket(Bucket):
    """A bucket that takes every write, sends nothing and is always empty."""

    def __init__(self, client: StorageClient, name: str) -> None:
        """Take over the endpoint of `client`."""
        self._recorder = Recorder()
        session = requests.Session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, self._recorder)
        credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
        super().__init__(StorageClient(client.project, credentials, session, client.api_endpoint), name)

    @property
    def requests(self) -> list[HttpRequest]:
        """The requests that change something, in order; what only the service knows is in CAPITALS."""
        return list(self._recorder.requests)


def _names_bucket(message: str) -> bool:
    """Return whether a 404 is the bucket's; a missing object's own name may hold any words."""
    return "bucket does not exist" in message and "No such object: " not in message


def _holds(blob: Blob, data: bytes) -> bool:
    """Return whether the object has these bytes; False when another process has deleted it."""
    try:
        return bool(blob.download_as_bytes() == data)
    except NotFound:
        return False


def _object(blob: Blob) -> Object:
    return Object(
        name=blob.name,
        content=Content(int(blob.size or 0), blob.crc32c or ""),
        generation=int(blob.generation or 0),
        updated=blob.updated.strftime("%Y-%m-%dT%H:%M:%SZ") if blob.updated else "",
        content_type=blob.content_type or "",
        md5=blob.md5_hash or "",
        metadata=blob.metadata or {},
    )


def list_buckets(client: Client, project: str) -> list[str]:
    """Return the names of a project's buckets; raises ConfigError without storage.buckets.list."""
    with translated(f"The buckets of project {project}", SERVICE):
        return [bucket.name for bucket in client.list_buckets(fields="items(name),nextPageToken")]
