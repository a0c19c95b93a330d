"""Secrets are found in text by shape and by name, in options and variables by their names.

All else stays as it is.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.masking.samples import HARMLESS, HEX, LETTERS, OPTIONS, TOKENS, URLS
from tests.paths import ROOT
from tpuctl.masking import (
    SHAPES,
    is_number,
    is_random,
    is_secret,
    masked,
    masked_arguments,
    secrets_in,
    words_of,
)

SAMPLES = [(kind, token) for kind, tokens in TOKENS.items() for token in tokens]


@pytest.mark.parametrize(("kind", "token"), SAMPLES, ids=lambda value: value[:12])
@pytest.mark.parametrize("is_code", [True, False])
def test_each_shape_is_recognised(kind: str, token: str, is_code: bool) -> None:
    text = f"print({token!r})\nand {token} again"
    assert [secret.kind for secret in secrets_in(text, is_code=is_code)][:1] == [kind]
    assert token not in masked(text)


def test_every_shape_has_a_sample() -> None:
    in_urls = {secret.kind for text, _ in URLS for secret in secrets_in(text)}
    assert {*TOKENS, *in_urls} == {*SHAPES}


@pytest.mark.parametrize(("text", "secret"), URLS, ids=lambda value: value[:20])
def test_secrets_in_urls_and_headers_are_recognised(text: str, secret: str) -> None:
    assert masked(f"see {text} there") == f"see {text.replace(secret, '***')} there"


@pytest.mark.parametrize(
    "line",
    [
        'password = "hunter2"',
        "{'api_key': 'hunter2'}",
        'f(clientSecret="hunter2")',
        'x["auth_token"] = "hunter2"',
    ],
)
def test_a_quoted_value_in_code_is_recognised_by_its_name(line: str) -> None:
    assert masked(line) == line.replace("hunter2", "***")
    assert len(secrets_in(line, is_code=True)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "password = getpass.getpass()", "token = self._token(name)", "def login(password: str) -> None:",
        'FIELD_PASSWORD = "password_field"', 'api_key = os.environ["API_KEY"]', 'secret = ""',
        'raise ValueError("the password: it is wrong")', 'secret = "a sentence about it"',
        'key="image/encoded"',
        'url = f"http://{user}:{password}@{host}"', 'if text.startswith("-----' + 'BEGIN PRIVATE KEY-----"):',
    ],
)  # fmt: skip
def test_code_that_handles_secrets_holds_none(line: str) -> None:
    assert secrets_in(line, is_code=True) == []


def test_each_value_is_masked_and_a_short_one_where_it_stands_alone() -> None:
    values = ["hunter2", "pw1", "0.1", "12", "x"]
    text = "KeyError: 'hunter2' xhunter2x pw1 pw12 0.1, line 12, x"
    assert masked(text, values) == "KeyError: '***' x***x *** pw12 0.1, line 12, x"


def test_a_longer_value_is_masked_before_its_part() -> None:
    assert masked("abcdefgh", ["abcdef", "abcdefgh"]) == "***"


def test_a_private_key_without_its_end_is_masked_to_the_end() -> None:
    key = TOKENS["a private key"][0]
    assert masked(f"x {key[:70]}") == "x ***"


@pytest.mark.parametrize(
    "text", ["a=" * 50_000, "sk-" + "a-" * 50_000, "://:" * 30_000, "eyJ" * 40_000, "x" * 200_000]
)
@pytest.mark.timeout(120)
def test_a_long_text_is_read_to_its_end(text: str) -> None:
    """An expression that tries again and again at every character would take hours."""
    assert masked(text + "\npassword=hunter2").endswith("\npassword=***")


def test_the_files_of_this_repository_hold_none() -> None:
    """All but those of tests, some of which plant secrets."""
    listed = subprocess.run(
        ["git", "ls-files", ":!tests"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    places = []
    for name in listed.split("\n"):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            text = path.read_text(errors="replace")
            places += [f"{name}: {secret.kind}" for secret in secrets_in(text, is_code=True)]
    assert places == []


def test_the_hash_of_a_commit_is_no_secret() -> None:
    assert masked(f"commit {HEX}{HEX[:8]}") == f"commit {HEX}{HEX[:8]}"


@pytest.mark.parametrize(
    "line",
    [
        "google-auth==2.35.0", 'google-auth = ">=2.14.1,<3.0.dev0"', "google-auth = {version = 2}",
        "id-token: write", "github-token: ${{ secrets.GITHUB_TOKEN }}", "api_key: ${oc.env:API_KEY}",
        "assert config.password == 7", "GOOGLE_APPLICATION_CREDENTIALS=/etc/key.json",
    ],
)  # fmt: skip
def test_pins_rights_references_and_comparisons_hold_none(line: str) -> None:
    assert secrets_in(line) == []


@pytest.mark.parametrize(
    "line",
    ["APIKey2='hunter22'", 'a["Password"]  => "hunter22"', "x.access-token_1: hunter22", "SECRETS.=hunter22"],
)
@pytest.mark.parametrize("before", ["", "a = 1\n" * 9, "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}\n"])
def test_a_name_is_found_in_any_line_and_spelling(line: str, before: str) -> None:
    assert masked(f"{before}{line}\nb = 2") == f"{before}{line.replace('hunter22', '***')}\nb = 2"


@pytest.mark.parametrize(
    "line",
    [
        "export HF_TOKEN=<your token>", 'echo "export HF_TOKEN=hf_..."', '[ -n "${HF_SECRETS:-}" ]',
        "secrets: inherit", ': "${HF_TOKEN:?HF_TOKEN must be set}"', "TOKEN=$(curl -sf https://x1.example)",
        'client(api_key="not-needed")', '"github_token": os.environ["GITHUB_TOKEN2"],', "API_KEY=abc123",
        "HF_SECRETS=~/.token2.sh", '{"hf_access_token": "mock-1234"}', "DISABLE_CREDENTIALS: 1",
        "model.merge_class_token = 'mul-ln'", '"fusion_creating_compiler_pass": "TpuAdvancedMOF"',
        'layer_key = "Llama4MoEBlock_0"', 'key = f"params-Gemma3VisionEncoderLayer_0-{i}"',
        "githubConfigSecret: github-pat", "# Note on Hugging Face token: Maxtext can load it",
    ],
)  # fmt: skip
def test_who_is_told_of_secrets_gets_no_false_alarm(line: str) -> None:
    """Lines of public training repositories."""
    assert [secrets_in(line, is_code=is_code, is_told=True) for is_code in (True, False)] == [[], []]


@pytest.mark.parametrize("value", [HEX, LETTERS, f"{LETTERS}/{HEX[:7]}+", f"{HEX[:8]}-{HEX[:4]}-{HEX[4:8]}"])
@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "auth_token", "aws_secret_access_key", "SECRET_KEY", "clientSecret"]
)
def test_who_is_told_of_secrets_hears_of_issued_keys(name: str, value: str) -> None:
    for text in (f"{name}={value}", f"{name}: '{value}'", f'{{"{name}": "{value}"}}'):
        assert [text[found.start : found.end] for found in secrets_in(text, is_told=True)] == [value]


def test_who_is_told_of_secrets_hears_of_passwords_that_are_words() -> None:
    assert len(secrets_in("password = 'letmein'\nPWD: letmein", is_told=True)) == 2


SHORT = "abc"
"""A value that only a telling name makes a secret."""


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ACCESS_KEY", "STORAGE_ACCOUNT_KEY", "ES_ADMIN_KEY", "WANDB_API_KEY", "DD_APP_KEY", "TS_AUTH_KEY",
        "tls-client-key", "DEPLOY_KEY", "disk_encryption_key", "license-key", "MASTER_KEY", "privateKey",
        "SECRET_KEY", "google_service_key", "JWT_SIGNING_KEY", "--ssh-key", "AZURE_STORAGE_KEY",
    ],
)  # fmt: skip
def test_a_key_for_something_is_a_secret(name: str) -> None:
    assert is_secret(name, SHORT)


@pytest.mark.parametrize(
    "name",
    [
        "ACCESS_TOKEN", "REPLICATE_API_TOKEN", "authToken", "bearer-token", "TELEGRAM_BOT_TOKEN",
        "DEPLOY_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "HF_TOKEN", "id_token", "OAUTH_TOKEN",
        "PERSONAL_TOKEN", "--refresh-token", "SAS_TOKEN", "secretToken", "AWS_SECURITY_TOKEN",
        "AWS_SESSION_TOKEN", "SLACK_TOKEN", "wandb.token",
    ],
)  # fmt: skip
def test_a_token_of_a_service_is_a_secret(name: str) -> None:
    assert is_secret(name, SHORT)


@pytest.mark.parametrize(
    "name",
    [
        "s3.accesskey", "accesstoken", "APIKEY", "apitoken", "authtoken", "GOOGLE_CREDENTIAL",
        "db_credentials", "--passphrase", "ROOT_PASSWD", "password", "PASSWORDS", "privatekey",
        "CLIENT_SECRET", "secretkey", "app.secrets",
    ],
)  # fmt: skip
def test_a_word_that_means_a_secret_is_enough(name: str) -> None:
    assert is_secret(name, SHORT)


@pytest.mark.parametrize("name", ["db_auth", "DB_PASS", "github-pat", "MYSQL_PWD", "my_token", "auth"])
class TestALikelyName:
    def test_has_a_secret_from_six_characters_on(self, name: str) -> None:
        assert is_secret(name, "abcdef")
        assert not is_secret(name, "abcde")

    @pytest.mark.parametrize("value", ["secrets/of-ada", "1234567", "-1.5e+3", "1,2,3,4"])
    def test_has_no_secret_where_that_is_a_path_or_a_number(self, name: str, value: str) -> None:
        assert not is_secret(name, value)


@pytest.mark.parametrize(
    "word",
    [
        "begin", "bos", "cls", "decoder", "end", "eos", "first", "image", "last", "mask", "max", "min", "new",
        "next", "num", "pad", "prefix", "prompt", "sep", "special", "start", "stop", "suffix", "text", "unk",
        "user",
    ],
)  # fmt: skip
def test_a_token_of_a_text_is_no_secret(word: str) -> None:
    assert not is_secret(f"--{word}-token", "something")
    assert not is_secret(f"{word.upper()}_TOKEN", "something")


@pytest.mark.parametrize(
    "name",
    [
        "pad_auth", "session_cookie", "sort-key", "pad_pass", "pad-pat", "ssh_private", "pad_pwd", "session",
        "url.sig", "X-Goog-Signature", "pad_token",
    ],
)  # fmt: skip
def test_a_possible_name_has_a_secret_if_that_looks_random(name: str) -> None:
    assert is_secret(name, LETTERS)
    assert not is_secret(name, "plain-words")


@pytest.mark.parametrize("name", ["seed", "keyboard", "monkey_business", "tokenizer", "", "--", "42"])
def test_another_name_has_none(name: str) -> None:
    assert not is_secret(name, LETTERS)


@pytest.mark.parametrize(
    "value",
    [
        "", "*", "***", "...", "xxx", "XXXX", "$API_KEY", "${API_KEY}", "$(cat key)", "%s", "%(key)s", "{",
        "{key}", "<key>", "[key]", "None", "null", "TRUE", "false", "changeme", "redacted", "masked",
        "your-key", "your_key_here", "your key",
    ],
)  # fmt: skip
def test_a_value_that_stands_for_a_secret_is_none(value: str) -> None:
    assert not is_secret("password", value)


@pytest.mark.parametrize("value", ["..", "xx", "your", "nonesuch", "$lower", "*a", "<key", "42"])
def test_a_value_that_only_resembles_one_that_stands_for_a_secret_is_one(value: str) -> None:
    assert is_secret("password", value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("API_KEY2", ["api", "key"]), ("apiKey", ["api", "key"]), ("--api-key", ["api", "key"]),
        ("HFToken", ["hf", "token"]), ("wandb.api_key", ["wandb", "api", "key"]), ("ID", ["id"]), ("7", []),
    ],
)  # fmt: skip
def test_words_are_separated_however_they_are_joined(name: str, words: list[str]) -> None:
    assert words_of(name) == words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("abcd1234efgh", True),  # 12 characters, all different
        ("abcd1234efg", False),  # 11
        ("abcdefghijkl", False),  # no digit
        ("123456789012", False),  # no letter
        ("ab12ab12ab12", False),  # 4 characters in turn: 2 bits each
        ("abcd1234" * 2, True),  # 8 in turn: 3 bits each
        ("aabcd123" * 2, False),  # 7: fewer than 3 bits
        ("words.then-abcd1234efgh", True),  # a part is enough
    ],
)
def test_a_long_mix_of_letters_and_digits_is_random(value: str, expected: bool) -> None:
    assert is_random(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0.1", True), ("1e-5", True), ("1,2", True), ("-3E+2", True), ("1 2", False), ("x1", False),
        ("", False),
    ],
)  # fmt: skip
def test_a_number_or_a_list_of_numbers_is_one(value: str, expected: bool) -> None:
    assert is_number(value) is expected


@pytest.mark.parametrize(("arguments", "secret"), OPTIONS, ids=lambda value: str(value)[:40])
def test_the_value_of_an_option_with_a_telling_name_is_masked(arguments: list[str], secret: str) -> None:
    result = masked_arguments(["--epochs", "3", *arguments, "--rate", "0.1"])
    assert secret not in " ".join(result.arguments)
    assert result.arguments[:2] + result.arguments[-2:] == ("--epochs", "3", "--rate", "0.1")
    assert len(result.arguments) == len(arguments) + 4, "the arguments stay countable"
    assert secret in result.values
    assert len(result.labels) == 1
    assert secret not in result.labels[0]


@pytest.mark.parametrize(
    "token", [token for tokens in TOKENS.values() for token in tokens], ids=lambda t: t[:12]
)
def test_a_token_is_masked_wherever_it_is(token: str) -> None:
    for arguments in ([token], [f"--x={token}"], ["--x", token], [f"prefix:{token}"]):
        result = masked_arguments(arguments)
        assert token not in "".join(result.arguments)
        assert token[-12:] not in "".join(result.arguments)
        assert result.labels


@pytest.mark.parametrize(("text", "secret"), URLS, ids=lambda value: value[:20])
def test_a_url_keeps_what_is_no_secret(text: str, secret: str) -> None:
    assert masked_arguments([text]).arguments == (text.replace(secret, "***"),)


@pytest.mark.parametrize("arguments", HARMLESS, ids=lambda arguments: arguments[0])
def test_other_arguments_stay_as_they_are(arguments: list[str]) -> None:
    result = masked_arguments(arguments)
    assert (result.arguments, result.labels, result.values) == (tuple(arguments), (), ())


def test_what_held_each_secret_is_named() -> None:
    token = TOKENS["a GitHub token"][0]
    result = masked_arguments(["--api-key=abc", "--password", "x", token])
    assert result.labels == ("--api-key", "--password", "argument 4 (a GitHub token)")
    assert result.arguments == ("--api-key=***", "--password", "***", "***")
