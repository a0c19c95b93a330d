"""Evaluates IAM conditions: the part of the Common Expression Language that they use for resources.

https://cloud.google.com/iam/docs/conditions-attribute-reference: `resource.name`, `resource.type`,
`resource.service`, `request.time` and `destination.port`, with `startsWith`, `endsWith`, `extract`,
comparisons, `&&`, `||`, `!`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from tpuctl.errors import UsageError

Value: TypeAlias = str | int | datetime
Attributes: TypeAlias = Mapping[str, Value]
"""The attributes of a request by name: `resource.name`, `request.time` ..."""
Term: TypeAlias = Callable[[Attributes], Value]

TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<name>[A-Za-z_][\w.]*)"""
    r"""|(?P<number>\d{1,18})|(?P<sign>&&|\|\||==|!=|<=|>=|[!<>().,]))"""
)
COMPARISONS: Mapping[str, Callable[[Value, Value], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,  # type: ignore[operator]  # a TypeError: the condition fails
    "<=": lambda left, right: left <= right,  # type: ignore[operator]
    ">": lambda left, right: left > right,  # type: ignore[operator]
    ">=": lambda left, right: left >= right,  # type: ignore[operator]
}
METHODS: Mapping[str, Callable[[str, str], Value]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "extract": lambda text, template: _extract(text, template),
}
ATTRIBUTES = ("resource.name", "resource.type", "resource.service", "request.time", "destination.port")


class _Undecided(Exception):
    """A condition needs an attribute that the request does not have."""


@dataclass(frozen=True)
class Condition:
    """The expression of a binding."""

    expression: str
    _term: Term = field(compare=False, repr=False)

    @classmethod
    def parse(cls, expression: str) -> Condition:
        """Return the condition that a text expresses; raises UsageError for what cannot be evaluated."""
        parser = _Parser(expression)
        return cls(expression, parser.complete())

    def holds(self, attributes: Attributes) -> bool:
        """Return whether it holds; as at Google not if it cannot be decided, such as without a type."""
        try:
            return self._term({**attributes, "request.time": datetime.now(UTC)}) is True
        except (_Undecided, TypeError):
            return False


class _Parser:
    """Parses by recursive descent: each method reads one level of the grammar and returns its term."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = list(self._split())
        self._position = 0

    def complete(self) -> Term:
        term = self._either()
        if self._position < len(self._tokens):
            raise self._error()
        return term

    def _split(self) -> Sequence[tuple[str, str]]:
        tokens, position, text = [], 0, self._expression.strip()
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise self._error()
            tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        return tokens

    def _either(self) -> Term:
        terms = [self._every()]
        while self._accept("||"):
            terms.append(self._every())
        return terms[0] if len(terms) == 1 else lambda attributes: _any_true(terms, attributes)

    def _every(self) -> Term:
        terms = [self._negation()]
        while self._accept("&&"):
            terms.append(self._negation())
        return terms[0] if len(terms) == 1 else lambda attributes: _all_true(terms, attributes)

    def _negation(self) -> Term:
        if self._accept("!"):
            term = self._negation()
            return lambda attributes: not _boolean(term(attributes))
        return self._comparison()

    def _comparison(self) -> Term:
        left = self._operand()
        for sign, compare in COMPARISONS.items():
            if self._accept(sign):
                right = self._operand()
                return lambda attributes: compare(left(attributes), right(attributes))
        return left

    def _operand(self) -> Term:
        if self._accept("("):
            term = self._either()
            self._expect(")")
        else:
            term = self._atom()
        while self._accept("."):
            term = self._method(term, self._next("name"))
        return term

    def _atom(self) -> Term:
        kind, token = self._peek()
        self._position += 1
        if kind == "text":
            text = re.sub(r"\\(.)", r"\1", token[1:-1])
            return lambda _: text
        if kind == "number":
            return lambda _: int(token)
        if token in ("true", "false"):
            return lambda _: token == "true"  # noqa: S105  a word of an expression
        if token in ("timestamp", "date"):
            return self._timestamp()
        attribute, _, method = token.rpartition(".")
        if attribute in ATTRIBUTES:
            return self._method(_attribute(attribute), method)
        if token in ATTRIBUTES:
            return _attribute(token)
        raise self._error()

    def _method(self, term: Term, name: str) -> Term:
        if name not in METHODS:
            raise self._error()
        argument = self._argument()
        return lambda attributes: METHODS[name](_text(term(attributes)), argument)

    def _timestamp(self) -> Term:
        try:
            time = datetime.fromisoformat(self._argument())
        except ValueError:
            raise self._error() from None
        moment = time if time.tzinfo else time.replace(tzinfo=UTC)
        return lambda _: moment

    def _argument(self) -> str:
        self._expect("(")
        text = re.sub(r"\\(.)", r"\1", self._next("text")[1:-1])
        self._expect(")")
        return text

    def _peek(self) -> tuple[str, str]:
        if self._position == len(self._tokens):
            raise self._error()
        return self._tokens[self._position]

    def _next(self, kind: str) -> str:
        found_kind, token = self._peek()
        if found_kind != kind:
            raise self._error()
        self._position += 1
        return token

    def _accept(self, sign: str) -> bool:
        if self._position < len(self._tokens) and self._tokens[self._position] == ("sign", sign):
            self._position += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._error()

    def _error(self) -> UsageError:
        return UsageError(
            f"The simulator cannot evaluate the condition '{self._expression}'.",
            hint="It knows resource.name, resource.type, resource.service, request.time and destination.port "
            "with startsWith, endsWith, extract and comparisons.",
        )


def _attribute(name: str) -> Term:
    def value(attributes: Attributes) -> Value:
        if name not in attributes:
            raise _Undecided(name)
        return attributes[name]

    return value


def _any_true(terms: Sequence[Term], attributes: Attributes) -> bool:
    """As in CEL a true term decides, also beside one that cannot be decided."""
    undecided = False
    for term in terms:
        try:
            if _boolean(term(attributes)):
                return True
        except (_Undecided, TypeError):
            undecided = True
    if undecided:
        raise _Undecided
    return False


def _all_true(terms: Sequence[Term], attributes: Attributes) -> bool:
    return not _any_true([lambda values, term=term: not _boolean(term(values)) for term in terms], attributes)  # type: ignore[misc]


def _boolean(value: Value) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _extract(text: str, template: str) -> str:
    """Return what stands for `{name}` where a template first occurs in a text, '' where it does not.

    https://cloud.google.com/iam/docs/conditions-attribute-reference#extract
    """
    before, _, rest = template.partition("{")
    after = rest.partition("}")[2]
    start = text.find(before)
    if start < 0:
        return ""
    start += len(before)
    end = text.find(after, start) if after else len(text)
    return text[start:end] if end >= 0 else ""
