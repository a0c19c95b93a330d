"""The name of an option or a variable tells whether its value is a secret."""

from __future__ import annotations

import pytest

from tests.masking.samples import LETTERS
from tpuctl.masking import is_number, is_random, is_secret, words_of

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
