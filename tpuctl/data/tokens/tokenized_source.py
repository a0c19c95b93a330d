"""Wraps a source of any format, and replaces its text by token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.options import TOKENS, TokenOptions
from tpuctl.data.schema.features import Feature, Tensor, example_kinds
from tpuctl.data.source import Indices, Observations, Part, Records, Source, evenly_spaced
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.example_encoding import Encoder, Value, packed_ints
from tpuctl.data.tokens.encoder import TokenEncoder
from tpuctl.data.tokens.vocabulary import Vocabulary

_MEASURED = 500
"""Records that are read to estimate the size of all."""


class TokenizedSource(Source):
    """The records of another source with the vector `tokens` in place of the text; other fields stay."""

    def __init__(self, inner: Source, options: TokenOptions, vocabulary: Vocabulary) -> None:
        """`options.text` names the field of the text."""
        self._inner = inner
        self._text = options.text
        self._ids = TokenEncoder(options.kind, vocabulary, options.length)
        self._tokens = Tensor("int64", (options.length,))
        features = self._replaced(inner.features)
        kinds = example_kinds(features)
        self._names = tuple(kinds)
        self._encoder = Encoder(kinds)
        super().__init__(
            kind=inner.kind,
            origin=inner,
            features=features,
            supervised=self._supervised(inner.supervised),
            labels=inner.labels,
            also=inner.also,
        )
        self.parts = self._measured(inner.parts)

    def read(self, indices: Indices, observations: Observations) -> Records:
        for record in self._inner.read(indices, observations):
            yield record if isinstance(record, BadRecord) else self._example(record)

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        return self._replaced(self._inner.final_features(observations))

    def close(self) -> None:
        self._inner.close()

    def _example(self, record: bytes) -> bytes:
        texts = decode(record)
        values: dict[str, Value] = dict(texts)
        values[TOKENS] = packed_ints(self._ids(text_of(texts[self._text])))
        return self._encoder.encode([values.get(name, ()) for name in self._names])

    def _replaced(self, features: Mapping[str, Feature]) -> dict[str, Feature]:
        """Return the features with the tokens in place of the text."""
        return {
            TOKENS if name == self._text else name: self._tokens if name == self._text else feature
            for name, feature in features.items()
        }

    def _supervised(self, pair: tuple[str, str] | None) -> tuple[str, str] | None:
        if pair is None:
            return None
        first, second = (TOKENS if name == self._text else name for name in pair)
        return first, second

    def _measured(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the splits with their bytes, estimated from some records."""
        sizes = self.sizes(evenly_spaced(sum(part.records for part in parts), _MEASURED))
        mean = sum(sizes) / len(sizes) if sizes else 0
        return tuple(Part(part.split, part.records, round(mean * part.records)) for part in parts)


def text_of(values: Values) -> str:
    """Return the text of a feature's values; bytes that are not UTF-8 become U+FFFD, which no token has."""
    text = values[0] if values else b""
    return text.decode(errors="replace") if isinstance(text, bytes) else ""
