"""Secrets among arguments are masked, whatever form the option has; other arguments stay as they are."""

from __future__ import annotations

import pytest

from tests.masking.samples import HARMLESS, OPTIONS, TOKENS, URLS
from tpuctl.masking import masked_arguments


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
