"""Finds secrets in a text by the shapes of known tokens and by the names of values, and masks them.

A secret without a known shape and a telling name, such as a password alone, is not recognised.
Formats of tokens:
https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns and
https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import attrgetter

from tpuctl.masking.names import PLACEHOLDER, SHORTEST, is_number, is_secret, words_of

MASK = "***"
"""Stands for a secret wherever it is shown or stored."""
SHAPES = {
    # kind -> expression; the group `secret`, else the whole match, is the secret
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?![\"'.,])(?s:.*?)"
    r"(?:-----END [A-Z0-9 ]{1,60}-----|\Z)",
    "an AWS access key": r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "a GitHub token": r"(?<![A-Za-z0-9])(?:gh[oprsu]_[A-Za-z0-9]{36,255}|github_pat_\w{40,255})",
    "a GitLab token": r"(?<![A-Za-z0-9])gl(?:pat|ptt|rt|dt)-[\w-]{20,255}",
    "a Hugging Face token": r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{30,100}|api_org_[A-Za-z0-9]{30,100})",
    "an API key": r"(?<![\w-])(?:sk-(?=[\w-]{0,60}\d)(?=[\w-]{0,60}[A-Z])[\w-]{20,400}"
    r"|sk-[a-f0-9]{32,64}|gsk_[A-Za-z0-9]{40,100}|xai-[A-Za-z0-9]{60,100}|r8_[A-Za-z0-9]{30,60}"
    r"|KGAT_[0-9a-f]{32}|wandb_v1_\w{40,120}|dapi[0-9a-f]{32}|dop_v1_[0-9a-f]{64}"
    r"|SG\.[\w-]{16,64}\.[\w-]{16,64})",
    "a Google credential": r"(?<![\w-])(?:AIza[\w-]{35}|ya29\.[\w.-]{20,2000}|GOCSPX-[\w-]{20,60}"
    r"|1//0[\w-]{30,300})",
    "a Slack token": r"(?<![A-Za-z0-9])(?:xox[abeoprs]-[A-Za-z0-9-]{10,300}|xapp-\d-[A-Za-z0-9-]{10,300})"
    r"|hooks\.slack\.com/services/(?P<secret>[A-Za-z0-9/]{20,100})",
    "a Stripe key": r"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[A-Za-z0-9]{16,250}",
    "a package registry's token": r"(?<![A-Za-z0-9])(?:pypi-AgE[\w-]{50,500}|npm_[A-Za-z0-9]{36}"
    r"|dckr_pat_[\w-]{20,60})",
    "an age key": r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    "a JSON web token": r"(?<![\w-])eyJ[\w-]{10,4000}\.eyJ[\w-]{10,8000}\.[\w-]{0,4000}",
    "a URL with a password": r"://[^\s/@:'\"<>]{0,200}:(?P<secret>[^\s/'\"<>]{1,1000})@",
    "a signed URL": r"(?i:[?&;](?:x-goog-signature|x-amz-signature|sig)=)(?P<secret>[\w%+/=-]{16,2000})",
    "an authorization header": r"\b(?i:bearer|basic) (?=[^\s'\"]{0,40}\d)(?P<secret>[\w.~+/=-]{16,8000})",
}
_SHORTEST_WORD = 3
"""Fewest characters of a value that is masked where it stands alone."""
_ASSIGNMENT = (
    r"(?P<mark>[\"']?)(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{0,99})(?P=mark)\]? {0,4}(?:=>?|:=?) {0,4}"
    r"(?:[rbuf]{0,2}(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\n]){1,8000})"
    r"|(?P<bare>[^\s\"'`,;&)\]}]{1,8000}))"
)


@dataclass(frozen=True)
class Secret:
    """Where a text holds what looks like a secret, and what it looks like; never the secret itself."""

    start: int
    end: int
    kind: str


def secrets_in(text: str, *, is_code: bool = False) -> list[Secret]:
    """Return what looks like a secret in a text, in order.

    In code only a quoted text is a value: `password = read()` assigns none.
    """
    listed: list[Secret] = []
    candidates = sorted((*_shapes(text), *_assignments(text, is_code=is_code)), key=attrgetter("start"))
    for secret in candidates:
        if not listed or secret.start >= listed[-1].end:
            listed.append(secret)
    return listed


def masked(text: str, values: Collection[str] = ()) -> str:
    """Return a text in which what looks like a secret is masked, and each of `values`.

    A short value is masked where it stands alone, a number or one of fewer than three characters nowhere.
    """
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= SHORTEST:
            text = text.replace(value, MASK)
        elif len(value) >= _SHORTEST_WORD and not is_number(value):
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _: MASK, text)
    parts, end = list[str](), 0
    for secret in secrets_in(text):
        parts += (text[end : secret.start], MASK)
        end = secret.end
    return "".join((*parts, text[end:]))


def _shapes(text: str) -> Iterator[Secret]:
    for kind, expression in SHAPES.items():  # compiled when they are needed, which `re` remembers
        for match in re.finditer(expression, text):
            group = "secret" if match.groupdict().get("secret") else 0
            if not PLACEHOLDER.fullmatch(match[group]):
                yield Secret(*match.span(group), kind)


def _assignments(text: str, *, is_code: bool) -> Iterator[Secret]:
    for match in re.finditer(_ASSIGNMENT, text):
        group = "quoted" if match["quoted"] else "bare"
        name, value = match["name"], match[group]
        if is_code and (group == "bare" or _is_word(name, value)):
            continue
        if is_secret(name, value):
            yield Secret(*match.span(group), f"the value of {name}")


def _is_word(name: str, value: str) -> bool:
    """Whether a text in code rather is a word or a sentence: `password_field = "password"`."""
    return len(value) < 4 or " " in value or bool({*words_of(name)} & {*words_of(value)})
