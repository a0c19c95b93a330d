"""Groups the data commands; each has its own module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpuctl.cli import output, printing
from tpuctl.cli.datasets import rendering
from tpuctl.cli.datasets.analysis import diff, sample, split, stats
from tpuctl.cli.datasets.fetch import fetch, pull
from tpuctl.cli.datasets.options import ref_argument
from tpuctl.cli.datasets.rendering import plan
from tpuctl.cli.datasets.upload import dataflow, upload
from tpuctl.cli.groups import Group
from tpuctl.cli.progress import show_count
from tpuctl.cli.session import Session, with_session
from tpuctl.client.datasets import steps
from tpuctl.datasets import DatasetRef

if TYPE_CHECKING:
    from tpuctl.data.output.manifest import Manifest


from typing import TYPE_CHECKING

from tpuctl.cli.session import confirm, dry_run_option, yes_option
from tpuctl.flows.runs.lookup import readers_of
from tpuctl.parallel import within

if TYPE_CHECKING:
    from tpuctl.flows.datasets.rm import Removal


from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.cli.value_types import OUTPUT_PATH
from tpuctl.data.options import TOKENS
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.schema.features import Audio, Box, Feature, Image, Label, Objects, Several
from tpuctl.errors import UsageError

if TYPE_CHECKING:
    from tpuctl.data.tokens import Vocabulary
    from tpuctl.flows.datasets.head import Example


# The command data head: shows the first examples of a dataset as text, JSON or a sheet of images.
Value = bytes | int | float
_MOST_VALUES = 8
_MOST_CHARACTERS = 60
_MOST_PROBLEMS = 5


@click.command()
@ref_argument
@click.option("--split", default="", help="Split to read. [default: the first]")
@click.option(
    "-n", "--count", type=click.IntRange(1, 400), default=5, show_default=True, help="Number of examples."
)
@click.option("--image", type=OUTPUT_PATH, help="Write the images side by side to this PNG file.")
@with_session
def head(session: Session, ref: DatasetRef, split: str, count: int, image: Path | None) -> None:
    """Show the first examples of a dataset.

    \b
    Example:
      tpuctl data head digits -n 16 --image digits.png
    """
    manifest = steps.manifest(session, ref)
    examples, vocabulary = steps.head(session, manifest, split, count)
    _show(session, examples, manifest, vocabulary)
    if image:
        _write_sheet(image, examples, manifest)


def _show(
    session: Session, examples: Sequence[Example], manifest: Manifest, vocabulary: Vocabulary | None
) -> None:
    if session.as_json:
        texts = {"texts": [_tokens(example, vocabulary) for example in examples]} if vocabulary else {}
        output.json({"examples": [_fields(example) for example in examples], **texts})
        return
    rows = [
        [_cell(example, field, manifest, vocabulary) for field in manifest.features] for example in examples
    ]
    output.table([field.upper() for field in manifest.features], rows)


def _cell(example: Example, field: str, manifest: Manifest, vocabulary: Vocabulary | None = None) -> str:
    """Return one field of an example, on one line; of token ids, with their `vocabulary`, the tokens."""
    values, feature = example.values.get(field, ()), manifest.features[field]
    if field == TOKENS and vocabulary:
        return _text(_tokens(example, vocabulary).encode(), image=False)
    if isinstance(feature, Objects):
        return _objects(example, field, feature)
    if isinstance(feature, Audio):
        return f"{len(values) / max(feature.sample_rate * feature.channels, 1):.3g} s"
    return _values(values, feature)


def _objects(example: Example, field: str, feature: Objects) -> str:
    """Return the number of objects, and their classes."""
    label = next((name for name, item in feature.fields.items() if isinstance(item, Label)), None)
    name = label or next(iter(feature.fields), "")
    values, width = example.values.get(f"{field}/{name}", ()), 1
    if isinstance(feature.fields.get(name), Box):
        width = 4
    classes = f": {_values(values, feature.fields[name])}" if label and values else ""
    return f"{len(values) // width}{classes}"


def _values(values: Sequence[bytes | int | float], feature: Feature) -> str:
    """Return the first values of a field."""
    item = feature.item if isinstance(feature, Several) else feature
    if isinstance(item, Label) and values:
        texts = [_class(value, item.classes) for value in values[:_MOST_VALUES]]
    else:
        texts = [_text(value, image=isinstance(feature, Image)) for value in values[:_MOST_VALUES]]
    return " ".join(texts) + (f" ... ({len(values)} values)" if len(values) > _MOST_VALUES else "")


def _class(value: Value, classes: Sequence[str]) -> str:
    """Return the number and name of a class; the value alone where the dataset has no such class."""
    if not isinstance(value, int) or not 0 <= value < len(classes):
        return _text(value, image=False)
    name = classes[value]
    return name if name == str(value) else f"{value} ({name})"


def _text(value: Value, *, image: bool) -> str:
    if not isinstance(value, bytes):
        return f"{value:.6g}" if isinstance(value, float) else str(int(value))
    if image:
        return output.format_bytes(len(value))
    try:
        text = " ".join(value.decode().split())
    except UnicodeDecodeError:
        return f"{output.format_bytes(len(value))} of binary data"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def _tokens(example: Example, vocabulary: Vocabulary) -> str:
    """Return the tokens of an example, without the padding."""
    return vocabulary.text([value for value in example.values.get(TOKENS, []) if isinstance(value, int)])


def _fields(example: Example) -> dict[str, object]:
    """Return an example as JSON has it: a single value alone, or a list; binary data by its size."""

    def plain(value: Value) -> object:
        if not isinstance(value, bytes):
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"bytes": len(value)}

    fields = {name: [plain(value) for value in values] for name, values in example.values.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _write_sheet(path: Path, examples: Sequence[Example], manifest: Manifest) -> None:
    from tpuctl.client.datasets.pictures import encoded_picture
    from tpuctl.data.images.contact_sheet import contact_sheet, undrawable  # Pillow

    field = next((name for name, feature in manifest.features.items() if isinstance(feature, Image)), None)
    if field is None:
        raise UsageError(f"The dataset '{manifest.name}' holds no images.", hint="Run it without --image.")
    captions = [name for name in manifest.features if name != field]
    images = [
        (
            encoded_picture(example, field),
            ", ".join(_cell(example, name, manifest) for name in captions),
        )
        for example in examples
    ]
    sheet = contact_sheet(images)
    try:
        path.write_bytes(sheet.png)
    except OSError as error:
        raise UsageError(
            f"Cannot write '{path}': {error.strerror}.", hint="Give a file in a folder that exists."
        ) from error
    output.note(f"{len(images)} image{'s' * (len(images) > 1)} in {path}")
    if sheet.converted:
        were = "were" if sheet.converted > 1 else "was"
        where = "in frames, with the reasons" if sheet.converted > 1 else "in a frame, with the reason"
        output.note(f"{sheet.converted} of them {were} converted for the dataset: {where}.")
    for problem in sheet.problems[:_MOST_PROBLEMS]:
        output.note(f"Warning: an image is not drawn: it {problem}.")
    lacking = undrawable(caption for _, caption in images)
    if lacking:
        output.note(f"Its captions show ? for letters that are not of English: {lacking[:_MOST_CHARACTERS]}")


# The command data rm.


@click.command()
@ref_argument
@yes_option
@dry_run_option
@with_session
def rm(session: Session, ref: DatasetRef, yes: bool, dry_run: bool) -> None:
    """Remove a version of a dataset (NAME/VERSION), or the objects of an unfinished upload.

    Without a version, the dataset must have only one. Runs that used it keep their records.

    \b
    Example:
      tpuctl data rm digits/1.0.0
    """
    from tpuctl.flows.datasets import rm as flow

    bucket = session.cloud.data_bucket
    removal = flow.plan_removal(bucket, ref, session.warn)
    if dry_run:
        output.requests(flow.requests(bucket, removal), as_json=session.as_json)
        return
    readers = within(lambda: readers_of(session.cloud.bucket, bucket.name, removal.ref))
    for run in readers.value or ():
        output.note(f"Warning: run '{run}' has not ended for good, and reads {removal.ref}.")
    _confirm(removal, bucket.name, yes=yes)
    flow.remove(bucket, removal)
    session.listed.remove("datasets", [str(removal.ref)])
    _show_removed(session, removal)


def _confirm(removal: Removal, bucket: str, *, yes: bool) -> None:
    manifest = removal.manifest
    if not yes:
        contents = (
            rendering.count_of_records(manifest.records)
            if manifest
            else "no dataset: objects of an unfinished upload"
        )
        facts = {
            "remove": removal.ref,
            "holds": contents,
            "objects": f"{len(removal.objects)} ({output.format_bytes(removal.bytes)})",
            "where": removal.ref.uri(bucket),
        }
        output.facts(facts, err=True)
    confirm(f"Remove {removal.ref}?", yes=yes)


def _show_removed(session: Session, removal: Removal) -> None:
    count = len(removal.objects)
    if session.as_json:
        uri = removal.ref.uri(session.cloud.data_bucket.name)
        output.json({"removed": str(removal.ref), "objects": count, "uri": uri})
        return
    printing.write(f"Removed {removal.ref}: {count} objects.")


# The command data verify.
_SHALLOW = "sizes and checksums compared; --deep also reads the records"


@click.command()
@ref_argument
@click.option("--deep", is_flag=True, help="Also read every record; takes as long as a download.")
@with_session
def verify(session: Session, ref: DatasetRef, deep: bool) -> None:
    """Check that every object of a dataset exists and matches the manifest.

    \b
    Example:
      tpuctl data verify digits --deep
    """
    manifest = steps.manifest(session, ref)
    with show_count("files checked") as report:
        steps.verify(session, manifest, report, deep=deep)
    _show_verified(session, manifest, deep=deep)


def _show_verified(session: Session, manifest: Manifest, *, deep: bool) -> None:
    if session.as_json:
        bucket = session.cloud.data_bucket.name
        output.json({**rendering.fields(manifest, bucket), "deep": deep, "ok": True})
        return
    extent = "every record was read" if deep else _SHALLOW
    printing.write(f"{manifest.ref} is complete: {rendering.sentence(manifest)} ({extent}).")


# The command data describe.


@click.command()
@ref_argument
@with_session
def describe(session: Session, ref: DatasetRef) -> None:
    """Show the fields, splits and source of a dataset (NAME, or NAME/VERSION).

    \b
    Example:
      tpuctl data describe digits
    """
    bucket = session.cloud.data_bucket
    manifest = steps.manifest(session, ref)
    if session.as_json:
        uri = manifest.ref.uri(bucket.name)
        output.json({"uri": uri, "digest": manifest.digest, "manifest": manifest})
    else:
        rendering.show_description(manifest, bucket.name)
        output.hint(f"tpuctl data head {ref}")


# The command data ls.


@click.command()
@with_session
def ls(session: Session) -> None:
    """List the datasets in the bucket.

    \b
    Example:
      tpuctl data ls
    """
    bucket = session.cloud.data_bucket
    manifests = steps.manifests(session)
    session.listed.replace("datasets", (name for item in manifests for name in (item.name, str(item.ref))))
    if session.as_json:
        output.json({"datasets": [rendering.fields(manifest, bucket.name) for manifest in manifests]})
    else:
        output.table(rendering.COLUMNS, map(rendering.row, manifests))
        if not manifests:
            output.note(f"There are no datasets in gs://{bucket.name}.")
            output.hint("tpuctl data upload NAME SOURCE")


@click.group(cls=Group)
def data() -> None:
    """Upload, list, check and remove datasets: TFRecord shards in the bucket."""


for _command in (
    fetch,
    plan,
    upload,
    dataflow,
    ls,
    describe,
    head,
    stats,
    diff,
    split,
    sample,
    verify,
    pull,
    rm,
):
    data.add_command(_command)
