"""Decides by the name of an option or a variable whether its value is a secret."""

from __future__ import annotations

import math
import re
from collections import Counter

KEYS = frozenset({
    "access", "account", "admin", "api", "app", "auth", "client", "deploy", "encryption", "license",
    "master", "private", "secret", "service", "signing", "ssh", "storage",
})  # fmt: skip
"""Words that make a key secret: `api_key`, `ssh-key`."""
TOKENS = frozenset({
    "access", "api", "auth", "bearer", "bot", "deploy", "github", "gitlab", "hf", "id", "oauth",
    "personal", "refresh", "sas", "secret", "security", "session", "slack", "wandb",
})  # fmt: skip
"""Words that make a token secret."""
SECRET_WORDS = frozenset({
    "accesskey", "accesstoken", "apikey", "apitoken", "authtoken", "credential", "credentials",
    "passphrase", "passwd", "password", "passwords", "privatekey", "secret", "secretkey", "secrets",
})  # fmt: skip
"""Last words of names whose values are secret, whatever they look like."""
LIKELY_WORDS = frozenset({
    "auth", "pass", "pat", "pwd", "token",
})  # fmt: skip
"""Last words of names whose values are secret unless they are numbers, short, or of a tokenizer."""
POSSIBLE_WORDS = frozenset({
    "auth", "cookie", "key", "pass", "pat", "private", "pwd", "session", "sig", "signature", "token",
})  # fmt: skip
"""Last words of names whose values are secret if they look random."""
TEXT_TOKENS = frozenset({
    "begin", "bos", "cls", "decoder", "end", "eos", "first", "image", "last", "mask", "max", "min",
    "new", "next", "num", "pad", "prefix", "prompt", "sep", "special", "start", "stop", "suffix",
    "text", "unk", "user",
})  # fmt: skip
"""Words that make a token one of a text: `--pad-token`."""
SHORTEST = 6
"""Fewest characters of a secret that is recognised by a likely name only."""
PLACEHOLDER = re.compile(
    r"\*+|\.{3,}|[xX]{3,}|\$[A-Z_][A-Z0-9_]*|\$\{.*\}|\$\(.*\)|%\w?|%\(\w+\)s|[{\[(]+|\{.*\}|<.*>|\[.*\]"
    r"|(?i:none|null|true|false|changeme|redacted|masked|your[-_ ].*)"
)
"""Values that stand for a secret."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PART = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]*[A-Za-z])(?=[A-Za-z0-9]*\d)[A-Za-z0-9+]{12,}")
_LEAST_ENTROPY = 3.0
"""Bits a character: English words have fewer."""


def is_secret(name: str, value: str) -> bool:
    """Return whether the value of an option or a variable looks like a secret, by the words of its name."""
    words = words_of(name)
    if not words or not value or PLACEHOLDER.fullmatch(value):
        return False
    before, last = "".join(words[-2:-1]), words[-1]
    if last in SECRET_WORDS or (last == "key" and before in KEYS) or (last == "token" and before in TOKENS):
        return True
    if last in LIKELY_WORDS and before not in TEXT_TOKENS and len(value) >= SHORTEST:
        return "/" not in value and not is_number(value)
    return last in POSSIBLE_WORDS and is_random(value)


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, however they are joined: `API_KEY2`, `apiKey`, `api-key`."""
    return [word.lower() for word in _WORDS.findall(name)]


def is_random(value: str) -> bool:
    """Return whether a part of a value looks generated: long, with letters and digits, of high entropy."""
    return any(_entropy(part) >= _LEAST_ENTROPY for part in _PART.findall(value))


def is_number(value: str) -> bool:
    """Return whether a value is a number or a list of numbers."""
    return bool(re.fullmatch(r"[\d.,eE+-]+", value))


def _entropy(text: str) -> float:
    """Return Shannon's entropy of a text's characters, in bits a character."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
