"""A key is one line of a node's metadata: who could add a line could log in as root."""

from __future__ import annotations

import pytest

from tpuctl.nodes import SshKey


@pytest.mark.parametrize("user", ["ada\nroot", "ada\r", "ada:x", "ada root", "", "ada\x00", "ada\u2028root"])
def test_a_user_that_would_be_more_than_one_is_refused(user: str) -> None:
    with pytest.raises(ValueError, match="cannot be the user of a key"):
        SshKey(user, "ssh-ed25519 AAAA")


@pytest.mark.parametrize("public_key", ["ssh-ed25519 AAAA\nroot:ssh-ed25519 BBBB", "ssh-ed25519 AAAA\r"])
def test_a_key_of_two_lines_is_refused(public_key: str) -> None:
    with pytest.raises(ValueError, match="is not one line"):
        SshKey("ada", public_key)
