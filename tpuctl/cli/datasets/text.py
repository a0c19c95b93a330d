"""How a dataset, its fields and its examples look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl.bucket_layout import dataset, gs
from tpuctl.cli import output
from tpuctl.cli.datasets.tokens import described
from tpuctl.data.options import TOKENS
from tpuctl.data.output.manifest import Manifest
from tpuctl.data.schema.features import Feature, Image, Label, Tensor

if TYPE_CHECKING:
    from tpuctl.data.tokens.vocabulary import Vocabulary
    from tpuctl.flows.datasets.check import Example


def show_manifest(manifest: Manifest, bucket: str) -> None:
    """Print what a dataset consists of, and what it was made from."""
    source = manifest.source
    output.facts(
        {
            "dataset": f"{manifest.name} {manifest.version}",
            "records": manifest.records,
            "size": output.format_bytes(manifest.bytes),
            "made from": f"{source.kind}, seed {source.seed}",
            **(
                {"tokens": described(source.options.tokens)}
                if source.options and source.options.tokens
                else {}
            ),
            "skipped": source.skipped,
            "digest": manifest.digest[:12],
            "where": gs(bucket, dataset(manifest.name, manifest.version)),
        }
    )
    print()
    output.table(("FIELD", "TYPE"), [(name, _type(one)) for name, one in manifest.features.items()])
    print()
    rows = [
        (name, split.records, len(split.shards), output.format_bytes(split.bytes))
        for name, split in manifest.splits.items()
    ]
    output.table(("SPLIT", "RECORDS", "SHARDS", "SIZE"), rows)
    for bad in source.bad[:5]:
        output.note(f"skipped: {bad}")


def dataset_json(manifest: Manifest, bucket: str) -> dict[str, object]:
    """Return the JSON form of a dataset."""
    return {
        "name": manifest.name,
        "version": manifest.version,
        "uri": gs(bucket, dataset(manifest.name, manifest.version)),
        "records": manifest.records,
        "bytes": manifest.bytes,
        "shards": len(manifest.shards),
        "splits": {name: split.records for name, split in manifest.splits.items()},
        "classes": list(manifest.classes),
        "skipped": manifest.source.skipped,
        "digest": manifest.digest,
    }


def _type(feature: Feature) -> str:
    if isinstance(feature, Image):
        shape = " × ".join("?" if size is None else str(size) for size in feature.shape)
        return f"{feature.encoding or 'PNG or JPEG'} image, {shape}, {feature.dtype}"
    if isinstance(feature, Label):
        named = ", ".join(feature.classes[:6]) + (", ..." if len(feature.classes) > 6 else "")
        return f"label, {len(feature.classes)} classes: {named}"
    if isinstance(feature, Tensor):
        shape = " × ".join("?" if size is None else str(size) for size in feature.shape)
        return f"{feature.dtype}, {shape}" if shape else feature.dtype
    return "text"


def cell(example: Example, field: str, manifest: Manifest, vocabulary: Vocabulary | None = None) -> str:
    """Return one field of an example, on one line; of token ids, with their `vocabulary`, the tokens."""
    values, feature = example.values.get(field, []), manifest.features[field]
    if field == TOKENS and vocabulary:
        return _text(tokens_text(example, vocabulary).encode(), image=False)
    if isinstance(feature, Label) and values:
        number = int(values[0])
        return f"{number} ({feature.classes[number]})"
    texts = [_text(one, image=isinstance(feature, Image)) for one in values[:8]]
    return " ".join(texts) + (f" ... ({len(values)} values)" if len(values) > 8 else "")


def _text(value: bytes | int | float, *, image: bool) -> str:
    if not isinstance(value, bytes):
        return f"{value:.6g}" if isinstance(value, float) else str(int(value))
    if image:
        return output.format_bytes(len(value))
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"{output.format_bytes(len(value))} of binary data"
    shown = " ".join(text.split())
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def tokens_text(example: Example, vocabulary: Vocabulary) -> str:
    """Return the tokens of an example, without the padding."""
    return vocabulary.text([int(one) for one in example.values.get(TOKENS, [])])


def example_fields(example: Example, manifest: Manifest) -> dict[str, object]:
    """Return an example as JSON has it: one value alone, or a list; what is no text by its size."""

    def plain(value: bytes | int | float) -> object:
        if not isinstance(value, bytes):
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"bytes": len(value)}

    fields = {name: [plain(one) for one in values] for name, values in example.values.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
