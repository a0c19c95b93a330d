"""A source whose text has become token ids: it wraps another, of whatever kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.options import TOKENS, TokenOptions
from tpuctl.data.schema.features import Feature, Tensor, example_kind
from tpuctl.data.source import Indices, Observations, Part, Records, Source
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.example_encoding import Encoder, packed_ints
from tpuctl.data.tokens.encoder import TokenEncoder
from tpuctl.data.tokens.vocabulary import Vocabulary

_MEASURED = 500
"""Records that are read to estimate the size of all."""


class TokenizedSource:
    """The records of another source with the vector `tokens` in place of the text; all else stays."""

    exact = False

    def __init__(self, inner: Source, asked: TokenOptions, vocabulary: Vocabulary) -> None:
        """`asked.text` names the field of the text."""
        self._inner = inner
        self._text = asked.text
        self._ids = TokenEncoder(asked.kind, vocabulary, asked.length)
        self._tokens = Tensor("int64", (asked.length,))
        self.features = self._replaced(inner.features)
        self._encoder = Encoder({name: example_kind(one) for name, one in self.features.items()})
        self.supervised = self._pair(inner.supervised)
        self.kind = inner.kind
        self.labels: NDArray[np.integer] | None = inner.labels
        self.bad: Sequence[BadRecord] = inner.bad
        self.fingerprint = inner.fingerprint
        self.parts: Sequence[Part] = self._measured(inner.parts)

    def read(self, indices: Indices, seen: Observations) -> Records:
        for record in self._inner.read(indices, seen):
            yield record if isinstance(record, BadRecord) else self._example(record)

    def stamp(self, indices: Indices) -> bytes:
        return self._inner.stamp(indices)

    def check(self) -> None:
        self._inner.check()

    def final_features(self, seen: Observations) -> Mapping[str, Feature]:
        return self._replaced(self._inner.final_features(seen))

    def close(self) -> None:
        self._inner.close()

    def _example(self, record: bytes) -> bytes:
        values: dict[str, Any] = dict(decode(record))
        values[TOKENS] = packed_ints(self._ids(text_of(values.pop(self._text))))
        return self._encoder.encode([values.get(name, ()) for name in self.features])

    def _replaced(self, features: Mapping[str, Feature]) -> dict[str, Feature]:
        """Return the features with the tokens where the text was."""
        return {
            TOKENS if name == self._text else name: self._tokens if name == self._text else one
            for name, one in features.items()
        }

    def _pair(self, pair: tuple[str, str] | None) -> tuple[str, str] | None:
        if pair is None:
            return None
        first, second = (TOKENS if name == self._text else name for name in pair)
        return first, second

    def _measured(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the splits with their bytes, estimated from some records evenly over all."""
        count = sum(part.records for part in parts)
        some = np.unique(np.linspace(0, max(count - 1, 0), min(_MEASURED, count)).astype(np.int64))
        sizes = [len(one) for one in self.read(some, Observations()) if isinstance(one, bytes)]
        mean = sum(sizes) / len(sizes) if sizes else 0
        return tuple(Part(part.split, part.records, round(mean * part.records)) for part in parts)


def text_of(values: Sequence[Any]) -> str:
    """Return the text of a feature's values; what is not UTF-8 becomes U+FFFD, which no token holds."""
    return bytes(values[0]).decode(errors="replace") if values else ""
