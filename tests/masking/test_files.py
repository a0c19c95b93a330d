"""Files with credentials are recognised by name and content; a stored diff holds no line with a secret."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.masking.samples import KEY_LINE, LETTERS, TOKENS, private_key
from tpuctl.masking import Place, credential_kind, is_settings_file, masked_diff

KEY = private_key().encode()
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
CREDENTIALS = [
    (".env", b"A=1"), ("sub/.env.local", b"A=1"), ("prod.env", b"A=1"), ("id_rsa", b""),
    ("keys/id_ed25519", b""),
    ("tls.pem", CERTIFICATE + KEY), ("server.key", KEY), ("deploy", KEY), ("a.p12", b"\0"), (".netrc", b""),
    ("key.json", b'{\n "type": "service_account"}'), ("x.json", b'{"type":"authorized_user"}'),
    (".ssh/config", b""),
    ("KEY.PEM", KEY), ("tls.pem.bak", KEY), ("id_ed25519.old", KEY),
    ("SA.JSON", b'{"type": "service_account"}'),
    ("sa.json.orig", b'{"type": "service_account"}'), ("prod.env.bak", b"A=1"), (".s3cfg", b""),
    ("home/.aws/credentials", b""), ("kaggle.json", b"{}"), ("terraform.tfstate", b"{}"), ("ID_RSA", b""),
]  # fmt: skip
OTHERS = [
    ("ca.pem", CERTIFICATE), ("id_rsa.pub", b"ssh-rsa AAAA"), (".env.example", b"A="), ("job.py", KEY),
    ("notes.md", KEY),
    ("config.json", b'{"type": "service"}'), ("environment.yml", b""), ("key.json", b"{}"), ("envs.py", b""),
    ("tokens.txt", b"[PAD]"), ("ssh/x.py", b""), ("credentials.py", b""), ("keyboard.key", b"\0\1"),
]  # fmt: skip


NAMED = [
    ".env.production", "id_dsa", "id_ecdsa", "putty.ppk", "a.pfx", "a.jks", "a.keystore", "a.kdbx", "_netrc",
    ".pgpass", ".pypirc", ".git-credentials", ".htpasswd", ".dockercfg", ".boto", "terraform.tfstate.backup",
    "application_default_credentials.json", ".databrickscfg", "rclone.conf", "prod.env.old", ".gnupg/x",
    ".azure/x", ".kube/config", ".docker/config.json", "gcloud/x",
]  # fmt: skip
"""Names of which each alone says that the file holds credentials."""
TEMPLATES = [".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", "a/.ENV.SAMPLE"]
KEY_FILES = [
    "a.pem", "a.key", "a.p8", "a.crt", "a.cer", "a.json", "a.txt", "a",
    "a.key.bak", "a.key.backup", "a.key.old", "a.key.orig", "a.key.save",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_files_are_recognised_by_their_names_alone(name: str) -> None:
    assert credential_kind(name, b"") == "credentials"


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_settings_hold_no_credentials(name: str) -> None:
    assert credential_kind(name, b"A=") == ""


@pytest.mark.parametrize("name", KEY_FILES)
def test_a_key_is_recognised_by_what_the_file_holds(name: str) -> None:
    assert credential_kind(name, KEY) == "a private key"
    assert credential_kind(name, CERTIFICATE) == ""


@pytest.mark.parametrize(("name", "content"), CREDENTIALS, ids=lambda value: str(value)[:30])
def test_credentials_are_recognised(name: str, content: bytes) -> None:
    assert credential_kind(name, content)


@pytest.mark.parametrize(("name", "content"), OTHERS, ids=lambda value: str(value)[:30])
def test_other_files_are_not(name: str, content: bytes) -> None:
    assert credential_kind(name, content) == ""


TOKEN = TOKENS["a GitHub token"][0]


def diff_of(folder: Path, **changes: tuple[str, str]) -> str:
    """The diff that git prints for files (name with `_` for `.`) with an old and a new text."""

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    for name, (old, _) in changes.items():
        (folder / name.replace("_", ".")).write_text(old)
    git("add", "-A", "-f")
    git("commit", "-qm", "first")
    for name, (_, new) in changes.items():
        (folder / name.replace("_", ".")).write_text(new)
    return git("diff", "HEAD")


def test_a_line_with_a_token_is_left_out_and_named(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, job_py=("import a\nb = 1\nc = 2\n", f"import a\nb = 1\nc = '{TOKEN}'\nd = 3\n"))
    stored, places = masked_diff(diff)
    assert places == [Place("job.py", 3, "a GitHub token")]
    assert "+[left out: looks like a GitHub token]\n+d = 3\n" in stored
    assert TOKEN not in stored
    assert stored.count("\n") == diff.count("\n")


def test_removed_and_unchanged_lines_are_read_too(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, job_py=(f"a = '{TOKEN}'\nb = '{TOKEN}'\n", f"a = 1\nb = '{TOKEN}'\n"))
    stored, places = masked_diff(diff)
    assert [place.line for place in places] == [1, 2]
    assert TOKEN not in stored


def test_every_line_of_a_private_key_is_left_out(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, job_py=("a = 1\n", f'a = 1\nKEY = """{private_key()}"""\nb = 2\n'))
    stored, places = masked_diff(diff)
    assert [place.line for place in places] == [2, 3, 4, 5]
    assert KEY_LINE[:20] not in stored
    assert stored.endswith("+b = 2\n")


def test_a_key_ends_with_its_file(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, a_py=("", "-----" + "BEGIN PRIVATE KEY-----\nx\n"), b_py=("", "b = 2\n"))
    assert masked_diff(diff)[0].endswith("+b = 2\n")


def test_settings_need_no_quotes_and_code_does(tmp_path: Path) -> None:
    line = "password = hunter2\n"
    diff = diff_of(tmp_path, a_ini=("", line), b_py=("", line), c_env=("", line.upper()), Makefile=("", line))
    stored, places = masked_diff(diff)
    assert [place.file for place in places] == ["a.ini", "c.env"]
    assert stored.count("hunter2") == 2
    assert "HUNTER2" not in stored


@pytest.mark.parametrize(
    "name",
    [
        "run.bash", "a.cfg", "nginx.conf", "prod.env", "setup.ini", "a/config.json", "log4j.properties",
        "run.sh", "terraform.tfvars", "pyproject.toml", "notes.txt", "job.yaml", "job.yml", "a.zsh", ".env",
        "a/.env.local",
    ],
)  # fmt: skip
def test_settings_are_known_by_their_names(name: str) -> None:
    diff = f"--- a/{name}\n+++ b/{name}\n@@ -0,0 +1 @@\n+password=hunter2\n"
    assert is_settings_file(name)
    assert [(place.file, place.line) for place in masked_diff(diff)[1]] == [(name, 1)]


@pytest.mark.parametrize("name", ["job.py", "Makefile", "env", "a.env/job.py", "yaml"])
def test_other_files_are_code(name: str) -> None:
    assert not is_settings_file(name)


def test_the_line_that_git_shows_beside_a_hunk_is_masked(tmp_path: Path) -> None:
    body = "".join(f"    x{number} = {number}\n" for number in range(20))
    head = f"def login(token='{TOKEN}'):\n"
    diff = diff_of(tmp_path, job_py=(head + body, head + body + "    y = 1\n"))
    assert TOKEN in diff
    assert TOKEN not in masked_diff(diff)[0]


def test_lines_that_look_like_headers_are_content(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, job_py=("-- a/x.ini\na = 1\n", f"++ b/x.ini\na = '{TOKEN}'\n"))
    assert [(place.file, place.line) for place in masked_diff(diff)[1]] == [("job.py", 2)]


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, job_py=("", f"a = 1\nb = '{TOKEN}'\n"))
    cut = diff[: diff.index(TOKEN) + 12]
    stored, _ = masked_diff(cut)
    assert stored.endswith("+a = 1\n")


@pytest.mark.parametrize("diff", ["", "no diff at all\n", "@@ -1 +1 @@\n", "@@ -9999999,5 +1,5 @@\n-\n"])
def test_what_is_no_diff_is_kept(diff: str) -> None:
    assert masked_diff(diff) == (diff, [])


def test_a_diff_without_secrets_stays_as_it_is(tmp_path: Path) -> None:
    diff = diff_of(tmp_path, job_py=("a\n", "b\n\n\f\x0bc\r\nd"), other_md=("x\n", f"sha {LETTERS}\n"))
    assert masked_diff(diff) == (diff, [])
