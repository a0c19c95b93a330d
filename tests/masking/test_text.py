"""Secrets are found in text by shape and by name; this repository's own files hold none."""

from __future__ import annotations

import subprocess

import pytest

from tests.masking.samples import HEX, LETTERS, TOKENS, URLS
from tests.paths import ROOT
from tpuctl.masking import SHAPES, masked, secrets_in

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
