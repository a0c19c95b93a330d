"""Recognises secrets, and masks them: in texts, arguments, diffs and files.

- Decides by the name of an option or a variable whether its value is a secret.
- Finds secrets in a text by the shapes of known tokens and by the names of values, and masks them.

  A secret without a known shape and a telling name, such as a password alone, is not recognised.
  Formats of tokens:
  https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns and
  https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml
- Masks secrets among the arguments of a program.
- Recognises files that hold credentials, by their names and their first bytes.
- Leaves lines with secrets out of a diff as git prints it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from operator import attrgetter
from pathlib import PurePosixPath

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
CHOSEN_WORDS = frozenset({"passphrase", "passwd", "password", "passwords", "pwd"})
"""Last words of names whose values people choose: these may be words, and others have letters and digits."""
EXAMPLES = frozenset({"dummy", "example", "fake", "mock", "placeholder", "sample", "test"})
"""Words of values that are none."""
SHORTEST = 6
"""Fewest characters of a secret that is recognised by a likely name only."""
_NO_TOKENS = "{[(<>=!~^"
"""Begin a table or versions: `google-auth = ">=2.14"` in a lock file."""
PLACEHOLDER = re.compile(
    r"\*+|\.{3,}|[xX]{3,}|\$[A-Z_][A-Z0-9_]*|\$\{.*|\$\(.*|%\w?|%\(\w+\)s|[{\[(]+|\{.*\}|<.*>|\[.*\]"
    r"|(?i:none|null|true|false|read|write|changeme|redacted|masked|your[-_ ].*)"
)
"""Values that stand for a secret."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ELSEWHERE = re.compile(r"\w+(?:\.\w+)+[\[(].*|[~.]{1,2}/.*", re.DOTALL)
"""Code or a file that has a secret: `os.environ["TOKEN"]`, `~/.token`."""
_CAPITALISED = re.compile(r"[A-Z][a-z]{2,}")
_PART = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]*[A-Za-z])(?=[A-Za-z0-9]*\d)[A-Za-z0-9+]{12,}")
_LEAST_ENTROPY = 3.0
"""Bits a character: English words have fewer."""


def is_secret(name: str, value: str) -> bool:
    """Return whether the value of an option or a variable looks like a secret, by the words of its name."""
    words = words_of(name)
    if not words or not value or PLACEHOLDER.fullmatch(value):
        return False
    before, last = "".join(words[-2:-1]), words[-1]
    if last.startswith("credential") and ("/" in value or value.endswith(".json")):
        return False  # where they are
    if last in SECRET_WORDS or (last == "key" and before in KEYS) or (last == "token" and before in TOKENS):
        return True
    if last in LIKELY_WORDS and before not in TEXT_TOKENS and len(value) >= SHORTEST:
        return "/" not in value and value[0] not in _NO_TOKENS and not is_number(value)
    return last in POSSIBLE_WORDS and is_random(value)


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, however they are joined: `API_KEY2`, `apiKey`, `api-key`."""
    return [word.lower() for word in _WORDS.findall(name)]


def is_random(value: str) -> bool:
    """Return whether a part of a value looks generated: long, with letters and digits, of high entropy."""
    return any(_entropy(part) >= _LEAST_ENTROPY and not _is_camel_case(part) for part in _PART.findall(value))


def _is_camel_case(part: str) -> bool:
    """Whether more than half of a text is capitalised words: `Gemma3VisionEncoderLayer`."""
    return 2 * len("".join(_CAPITALISED.findall(part))) > len(part)


def is_number(value: str) -> bool:
    """Return whether a value is a number or a list of numbers."""
    return bool(re.fullmatch(r"[\d.,eE+-]+", value))


def _entropy(text: str) -> float:
    """Return Shannon's entropy of a text's characters, in bits a character."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


MASK = "***"
"""Stands for a secret wherever it is shown or stored."""
_REQUESTS = ("a URL with a password", "a signed URL", "an authorization header")
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
_BEGINNINGS = {
    "a private key": "-----BEGIN", "an AWS access key": "AKIA ASIA ABIA ACCA",
    "a GitHub token": "ghp_ gho_ ghr_ ghs_ ghu_ github_pat_", "a GitLab token": "glpat- glptt- glrt- gldt-",
    "a Hugging Face token": "hf_ api_org_", "a JSON web token": ".eyJ", "an age key": "AGE-SECRET",
    "an API key": "sk- gsk_ xai- r8_ KGAT_ wandb_v1_ dapi dop_v1_ SG.",
    "a Google credential": "AIza ya29. GOCSPX- 1//0", "a Slack token": "xox xapp- hooks.slack",
    "a Stripe key": "rk_live_ rk_test_ sk_live_ sk_test_",
    "a package registry's token": "pypi-AgE npm_ dckr_pat_",
}  # fmt: skip
"""Shape -> plain texts of which one is in it; most texts have none, and are read once."""
_ANY_BEGINNING = "|".join(re.escape(text) for texts in _BEGINNINGS.values() for text in texts.split())
"""Plain texts alone, as `re` then looks for their first letters."""
_OF_REQUESTS = r"(?:sig|signature)=|(?:bearer|basic) "
"""The same for _REQUESTS but the first, in lower case."""
_SHORTEST_WORD = 3
"""Fewest characters of a value that is masked where it stands alone."""
_ASSIGNMENT = (
    r"(?P<mark>[\"']?)(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{0,99})(?P=mark)\]? {0,4}(?:=(?!=)>?|:=?) {0,4}"
    r"(?:[rbuf]{0,2}(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\n]){1,8000})"
    r"|(?P<bare>[^\s\"'`,;&)\]}]{1,8000}))"
)
_LAST_WORDS = "|".join(sorted({*SECRET_WORDS, *LIKELY_WORDS, *POSSIBLE_WORDS}, reverse=True))
_NAME_END = rf"(?:{_LAST_WORDS})(?:[^\Wa-z]|[.-])*[\"']?\]? {{0,4}}[=:]"
"""Where the name in an assignment ends if its value may be a secret, in lower case."""


@dataclass(frozen=True)
class Secret:
    """Where a text holds what looks like a secret, and what it looks like; never the secret itself."""

    start: int
    end: int
    kind: str


def secrets_in(text: str, *, is_code: bool = False, is_told: bool = False) -> list[Secret]:
    """Return what looks like a secret in a text, in order.

    In code only a quoted text is a value: `password = read()` assigns none. A user who `is_told` of each gets
    no false alarm: a word, a few characters or an example are none then, unless people choose such secrets.
    """
    listed: list[Secret] = []
    lower = text.lower()
    candidates = sorted(
        (*_shapes(text, lower), *_assignments(text, lower, is_code=is_code, is_told=is_told)),
        key=attrgetter("start"),
    )
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


def _shapes(text: str, lower: str) -> Iterator[Secret]:
    # Expressions are compiled when they are needed, which `re` remembers.
    kinds = [*(_REQUESTS if re.search(_OF_REQUESTS, lower) else _REQUESTS[:1])]
    if re.search(_ANY_BEGINNING, text):
        kinds += [kind for kind, parts in _BEGINNINGS.items() if any(part in text for part in parts.split())]
    for kind in kinds:
        for match in re.finditer(SHAPES[kind], text):
            group = "secret" if match.groupdict().get("secret") else 0
            if not PLACEHOLDER.fullmatch(match[group]):
                yield Secret(*match.span(group), kind)


def _assignments(text: str, lower: str, *, is_code: bool, is_told: bool) -> Iterator[Secret]:
    for start, end in _lines_of_names(text, lower):
        for match in re.compile(_ASSIGNMENT).finditer(text, start, end):
            group = "quoted" if match["quoted"] else "bare"
            name, value = match["name"], match[group]
            if is_code and (group == "bare" or _is_word(name, value)):
                continue
            if is_secret(name, value) and (not is_told or _is_sure(name, value)):
                yield Secret(*match.span(group), f"the value of {name}")


def _lines_of_names(text: str, lower: str) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of each line that assigns to a secret's name; all of a text of rare letters."""
    if len(lower) != len(text):  # one that has two in lower case moves those behind it
        yield 0, len(text)
        return
    end, found = 0, re.compile(_NAME_END)
    while match := found.search(lower, end):
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        end = end if end >= 0 else len(text)
        yield start, end


def _is_word(name: str, value: str) -> bool:
    """Whether a text in code rather is a word or a sentence: `password_field = "password"`."""
    return len(value) < 4 or " " in value or bool({*words_of(name)} & {*words_of(value)})


def _is_sure(name: str, value: str) -> bool:
    """Whether a value is no word, no code and no example: a service issues keys of letters and digits."""
    if _ELSEWHERE.fullmatch(value) or EXAMPLES.intersection(words_of(value)):
        return False
    is_chosen = words_of(name)[-1] in CHOSEN_WORDS
    return is_chosen or (len(value) >= _LEAST_ISSUED and bool(_ISSUED.match(value)))


_ISSUED = re.compile(r"(?=.*[A-Za-z]).*\d", re.DOTALL)
_LEAST_ISSUED = 8
"""Characters of a key or a token; services issue longer ones."""
_OPTION = re.compile(r"(?:--?|\+{1,2}|~)?(?P<name>[A-Za-z_][\w./-]{0,99}?)(?:=(?P<value>.*))?", re.DOTALL)
"""`--name value`, `--name=value`, and `name=value` as Hydra and make take it."""


@dataclass(frozen=True)
class MaskedArguments:
    """Arguments that can be stored, what they do not show, and where it was."""

    arguments: tuple[str, ...]
    values: tuple[str, ...] = ()
    """The secrets themselves."""
    labels: tuple[str, ...] = ()
    """What holds each: `--api-key`, or `argument 3 (a GitHub token)`."""


def masked_arguments(arguments: Sequence[str]) -> MaskedArguments:
    """Mask the values of options whose names tell of a secret, and everything that looks like a token."""
    shown: list[str] = []
    values: list[str] = []
    labels: list[str] = []
    option = ""
    for number, argument in enumerate(arguments, start=1):
        match = _OPTION.fullmatch(argument)
        name, value = (match["name"], match["value"]) if match else ("", None)
        if option and not argument.startswith("--") and is_secret(option, argument):
            shown.append(MASK)
            values.append(argument)
            labels.append(option)
        elif value is not None and is_secret(name, value):
            prefix = argument.removesuffix(value)
            shown.append(prefix + MASK)
            values.append(value)
            labels.append(prefix.rstrip("="))
        else:
            shown.append(masked(argument))
            secrets = secrets_in(argument)
            values += [argument[secret.start : secret.end] for secret in secrets]
            labels += [f"argument {number} ({secret.kind})" for secret in secrets]
        option = argument if argument.startswith("-") and value is None else ""
    return MaskedArguments(tuple(shown), tuple(values), tuple(labels))


NAMES = (
    ".env", ".env.*", "*.env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.ppk", "*.p12", "*.pfx",
    "*.jks",
    "*.keystore", "*.kdbx", ".netrc", "_netrc", ".pgpass", ".pypirc", ".git-credentials", ".htpasswd",
    ".dockercfg", ".boto", "application_default_credentials.json", "kaggle.json", "*.tfstate",
    "*.tfstate.backup", ".s3cfg", ".databrickscfg", "rclone.conf", "*.env.bak", "*.env.old",
)  # fmt: skip
"""Names of files that hold credentials in their usual use."""
_NAMED = "|".join(map(translate, NAMES))
TEMPLATES = (".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults")
"""Files beside those that hold none."""
FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".kube", ".docker", "gcloud"})
"""Folders of programs that keep their credentials there."""
KEY_SUFFIXES = frozenset({".pem", ".key", ".p8", ".crt", ".cer", ".json", ".txt", ""})
"""Files that may hold a key and nothing else: certificates alone are public."""
COPY_SUFFIXES = frozenset({".bak", ".backup", ".old", ".orig", ".save"})
"""What programs and people append to the name of a copy."""
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_GOOGLE = re.compile(rb'"type"\s*:\s*"(?:service_account|authorized_user|external_account_authorized_user)"')


def credential_kind(name: str, content: bytes) -> str:
    """Return what credentials a file holds, such as "a private key", or "" for any other file.

    `name` is its path with slashes; `content` needs not be complete.
    """
    path = PurePosixPath(name)
    base = path.name.lower()
    original = PurePosixPath(base)
    suffix = original.with_suffix("").suffix if original.suffix in COPY_SUFFIXES else original.suffix
    if suffix in KEY_SUFFIXES and _PRIVATE_KEY.search(content):
        return "a private key"
    if suffix == ".json" and _GOOGLE.search(content):
        return "a Google credential"
    if base in TEMPLATES:
        return ""
    is_named = re.match(_NAMED, base)
    return "credentials" if is_named or FOLDERS.intersection(path.parts[:-1]) else ""


SETTINGS_SUFFIXES = frozenset({
    ".bash", ".cfg", ".conf", ".env", ".ini", ".json", ".properties", ".sh", ".tfvars", ".toml",
    ".txt", ".yaml", ".yml", ".zsh",
})  # fmt: skip
"""Files in which a value needs no quotes."""
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Place:
    """A line with a secret, and what the secret looks like."""

    file: str
    line: int
    kind: str


def is_settings_file(name: str) -> bool:
    """Return whether a file rather holds settings than code, by its name."""
    path = PurePosixPath(name)
    return path.suffix in SETTINGS_SUFFIXES or path.name.startswith(".env")


def masked_diff(diff: str) -> tuple[str, list[Place]]:
    """Return a diff whose lines with secrets are replaced, and the places of these lines.

    A last line without an end was cut, perhaps in a secret: it is left out.
    """
    reader = _DiffReader()
    lines = [reader.read(line) for line in diff.split("\n")[:-1]]
    return "".join(f"{line}\n" for line in lines), reader.places


@dataclass
class _DiffReader:
    """Follows files, lines and private keys through a diff."""

    places: list[Place] = field(default_factory=list)
    _file: str = ""
    _old: int = 0
    _new: int = 0
    _old_left: int = 0
    _new_left: int = 0
    _in_key: bool = False

    def read(self, line: str) -> str:
        """Return a line as it can be stored."""
        if self._old_left > 0 or self._new_left > 0:
            return self._read_content(line)
        self._in_key = False
        hunk = _HUNK.match(line)
        if hunk:
            old, old_left, new, new_left = (int(number or 1) for number in hunk.groups())
            self._old, self._old_left, self._new, self._new_left = old, old_left, new, new_left
        elif line.startswith(("--- ", "+++ ")) and not line.endswith("/dev/null"):
            self._file = line[4:].strip('"').partition("/")[2].rstrip("\t")
        return masked(line)

    def _read_content(self, line: str) -> str:
        sign, content = line[:1], line[1:]
        if sign == "\\":  # "\ No newline at end of file"
            return line
        number = self._old if sign == "-" else self._new
        self._count(sign)
        kind = self._kind(content)
        if not kind:
            return line
        self.places.append(Place(self._file, number, kind))
        return f"{sign}[left out: looks like {kind}]"

    def _count(self, sign: str) -> None:
        if sign != "+":
            self._old, self._old_left = self._old + 1, self._old_left - 1
        if sign != "-":
            self._new, self._new_left = self._new + 1, self._new_left - 1

    def _kind(self, content: str) -> str:
        """What the secret in a line looks like, empty without one; follows a key over its lines."""
        secrets = secrets_in(content, is_code=not is_settings_file(self._file))
        if self._in_key:
            self._in_key = "-----END" not in content
            return "a private key"
        self._in_key = any(_is_open_key(content, secret) for secret in secrets)
        return secrets[0].kind if secrets else ""


def _is_open_key(content: str, secret: Secret) -> bool:
    return content.startswith("-----BEGIN", secret.start) and "-----END" not in content[secret.start :]
