"""Secrets that a user hands to a job reach the job, and no object, file, output or list of processes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.masking.samples import HEX, LETTERS, TOKENS, private_key
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.submission.environment import read_environment_file
from tpuctl.polling import Backoff, poll
from tpuctl.sim.faults import grpc_fault

Tpuctl = Callable[..., CommandResult]
VARIABLES = {
    "WANDB_API_KEY": HEX + "89abcdef",
    "DATABASE_URL": "postgres" + "://ada:from-the-url@db.example.com/runs",
    "HF_AUTH": TOKENS["a Hugging Face token"][0],
    "AWS_PASS": "correct horse battery",
    "SSH_PRIVATE": private_key(),
    "PLAIN": "a value without a telling name",
    "QUOTES": "'; echo $(id) \"",
}
SHELL = {"GITHUB_PAT": TOKENS["a GitHub token"][0], "PIN_CODE": "pin-4711-code"}
"""Variables that --env takes from the shell."""
HIDDEN = {
    "API_SECRET": "secret-of-the-shell",
    "KEY_FILE": "two lines\nof a secret file",
    "OF_FILE": "env-file-value",
}
"""Variables of --secret, from the shell and from a file, and of --env-file."""
ARGUMENTS = {
    "--api-key=": "argument-api-key", "--password": "argument-password", "--x=": TOKENS["an API key"][0],
    "--db=": "mysql" + "://ada:argument-url-password@db/x",
}  # fmt: skip
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# accelerator = "v3-8"\n# ///\n'
BODY = """\
import hashlib, os, sys, time
names = sorted({names})
digest = hashlib.sha256(repr(([os.environ[name] for name in names], sys.argv[1:])).encode()).hexdigest()
print("digest", digest, flush=True)
while not os.path.exists({end!r}):
    time.sleep(0.05)
"""
REMOVED, OUTSIDE = "s" + f"k-removed-{LETTERS}", "outside-of-the-bundle"


def forms(secret: str) -> list[bytes]:
    """How a secret may be written: as it is, and encoded for JSON, URLs and mail."""
    plain = [secret, *secret.split("\n"), quote(secret), quote(secret, safe=""), repr(secret)[1:-1]]
    encoded = [base64.b64encode(secret.encode()).rstrip(b"=")[:-2]]
    return [*{text.encode() for text in plain if len(text) > 8 and not text.startswith("-----")}, *encoded]


def holders(secrets: list[str], contents: Iterator[tuple[str, bytes]]) -> list[str]:
    """The names of contents with a secret, and the beginning of the secret."""
    return [
        f"{name}: {secret[:12]}"
        for name, content in contents
        for secret in secrets
        if any(form in content for form in forms(secret))
    ]


def objects(bucket: Bucket) -> Iterator[tuple[str, bytes]]:
    for listed in bucket.objects(""):
        data = bucket.read(listed.name)
        yield listed.name, gzip.decompress(data) if listed.name.endswith(".gz") else data


def files(*folders: Path) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        for path in (Path(top, name) for top, _, names in os.walk(folder) for name in names):
            if path.is_file() and not path.is_symlink():
                with suppress(FileNotFoundError):  # who works there gives files other names
                    yield str(path), path.read_bytes()


def processes(entry: str, leave_out: int = 0) -> Iterator[tuple[str, bytes]]:
    """The command lines or the environments of all processes of this machine."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != leave_out:
                yield str(process), (process / entry).read_bytes()
        except OSError:  # it has ended
            pass


def is_in(process: str, folder: Path) -> bool:
    """Whether a process works in a folder: other tests on this machine run scripts of the same name."""
    try:
        return Path(process, "cwd").readlink().is_relative_to(folder)
    except OSError:  # it has ended, or is another user's
        return False


def git(*arguments: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    """A repository whose changes remove a token from the script, and add a file with another beside it."""
    script = Path("job.py")
    body = HEADER + BODY.format(names=[*VARIABLES, *SHELL, *HIDDEN], end=str(tmp_path / "end"))
    script.write_text(f"{body}KEY = '{REMOVED}'\n")
    Path("infra").mkdir()
    Path("infra/prod.env").write_text("A=1\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    script.write_text(body)
    Path("infra/prod.env").write_text(f"PASSWORD={OUTSIDE}\n")
    return script


def command_line(script: Path) -> list[str]:
    variables = [word for name, value in VARIABLES.items() for word in ("--env", f"{name}={value}")]
    shell = [f"--env={name}" for name in SHELL]
    shell += ["--secret", "API_SECRET", "--secret", "KEY_FILE=@../key", "--env-file", "../values"]
    return [
        "submit",
        str(script),
        "--name",
        "r1",
        *variables,
        *shell,
        "--",
        "--epochs",
        "3",
        *script_arguments(),
    ]


def script_arguments() -> list[str]:
    return [
        word
        for option, value in ARGUMENTS.items()
        for word in ([option + value] if option.endswith("=") else [option, value])
    ]


def test_a_dozen_secrets_reach_the_job_and_nothing_else(
    tpuctl: Tpuctl, node: str, bucket: Bucket, project: Path, simulator: RunningSimulator, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in [*SHELL.items(), ("API_SECRET", HIDDEN["API_SECRET"]), ("TPUCTL_DEBUG", "1")]:
        monkeypatch.setenv(name, value)
    Path("../key").write_text(HIDDEN["KEY_FILE"] + "\n")
    Path("../values").write_text(f"# of a file\nexport OF_FILE='{HIDDEN['OF_FILE']}'\n\n")
    environment = [*VARIABLES.values(), *SHELL.values(), *HIDDEN.values()]
    secrets = [*environment, *ARGUMENTS.values(), REMOVED, OUTSIDE]
    outputs = [tpuctl(*command_line(project)[:3], "r0", "--dry-run", *command_line(project)[4:])]
    outputs += [tpuctl(*command_line(project))]
    assert outputs[-1].code == 0, outputs[-1].err
    assert "[debug] SSH worker 0 of 'n1': run " in outputs[-1].err
    poll(
        lambda: "digest" in tpuctl("logs", "r1").out or None,
        awaiting="a line",
        timeout=60,
        backoff=Backoff(0.1),
    )
    outputs += [tpuctl("runs", "--json"), tpuctl("logs", "r1", "--json"), tpuctl("sim", "events")]
    scripts = [process for process, line in processes("cmdline") if b"job.py\0--epochs" in line]
    (script,) = (process for process in scripts if is_in(process, tmp_path))
    script_pid = int(Path(script).name)
    assert holders(environment, processes("cmdline")) == []
    assert holders([REMOVED, OUTSIDE, *ARGUMENTS.values()], processes("cmdline", leave_out=script_pid)) == []
    assert holders(secrets, processes("environ", leave_out=script_pid)) == []
    assert holders(secrets, files(tmp_path / "state")) == [], "while it runs"
    (tmp_path / "end").touch()
    outputs += [tpuctl("logs", "-f", "r1"), tpuctl("pull", "r1", "--to", "out")]
    texts = ((f"output {number}", (shown.out + shown.err).encode()) for number, shown in enumerate(outputs))
    assert holders(secrets, texts) == []
    assert holders(secrets, objects(bucket)) == []
    assert holders(secrets, files(tmp_path / "state", Path("out"))) == []
    names = sorted([*VARIABLES, *SHELL, *HIDDEN])
    arguments = ["--epochs", "3", *script_arguments()]
    values = [{**VARIABLES, **SHELL, **HIDDEN}[name] for name in names]
    digest = hashlib.sha256(repr((values, arguments)).encode()).hexdigest()
    assert f"digest {digest}\n" in outputs[-2].out, "the job has them all, unchanged"


def record(bucket: Bucket) -> runs.Run:
    return runs.decode(bucket.read("runs/r1/run.json"), runs.Run, "run.json")


def submit(tpuctl: Tpuctl, *arguments: str, text: str = HEADER) -> CommandResult:
    Path("job.py").write_text(text)
    return tpuctl("submit", "job.py", "--name", "r1", *arguments)


def test_the_record_has_names_and_the_values_that_were_asked_for(
    tpuctl: Tpuctl, node: str, bucket: Bucket
) -> None:
    text = HEADER.replace("# ///\n#", "# ///\n#", 1).replace(
        '"v3-8"\n', '"v3-8"\n# env = { RATE = "0.1", MODE = "x" }\n'
    )
    assert (
        submit(
            tpuctl, "--env", "A=1", "--env", "B=2", "--store-env", "A", "--store-env", "RATE", text=text
        ).code
        == 0
    )
    assert record(bucket).environment == {
        "RATE": "0.1",
        "MODE": "(not stored)",
        "A": "1",
        "B": "(not stored)",
    }


def test_arguments_are_recorded_but_secrets_and_the_user_is_told_once(
    tpuctl: Tpuctl, node: str, bucket: Bucket
) -> None:
    result = submit(tpuctl, "--", "--epochs", "3", "--api-key", "hunter2", "--db-password=hunter3")
    assert record(bucket).arguments == ("--epochs", "3", "--api-key", "***", "--db-password=***")
    (line,) = [line for line in result.err.splitlines() if "secret" in line]
    assert line.startswith("Warning: --api-key, --db-password")
    assert "--secret NAME" in line
    assert "hunter" not in result.err + result.out


def test_a_password_in_a_requirement_is_not_in_the_record(tpuctl: Tpuctl, node: str, bucket: Bucket) -> None:
    url = "https" + "://ada:hunter2@pypi.example.com/x.whl"
    result = submit(tpuctl, text=HEADER.replace("[]", f'["x @ {url}"]'))
    assert result.code == 0, result.err
    assert record(bucket).dependencies == (f"x @ {url.replace('hunter2', '***')}",)
    assert "job.py, line 2, which looks like a URL with a password" in result.err, "it is in the code, too"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("MY-KEY=hunter2", "does not begin with the name"), ("=hunter2", "does not begin with the name"),
        ("1X=hunter2", "does not begin with the name"), ("NOT_SET_HERE", "no variable NOT_SET_HERE"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_refused_without_its_value(
    tpuctl: Tpuctl, home: Path, option: str, words: str
) -> None:
    result = submit(tpuctl, "--json", "--env", option)
    assert result.code == 2
    assert words in result.err
    assert "hunter2" not in result.err + result.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--secret", "KEY=hunter2"], "--secret KEY has its value on the command line"),
        (["--secret", "MY-KEY"], "does not begin with the name"),
        (["--secret", "NOT_SET_HERE"], "no variable NOT_SET_HERE"),
        (["--secret", "KEY=@nothing"], "nothing cannot be read: No such file"),
        (["--secret", "KEY=@folder"], "folder cannot be read: Is a directory"),
        (["--secret", "KEY=@binary"], "binary is not a text file"),
        (["--secret", "KEY=@large"], "large is larger than 128 KiB"),
        (["--secret", "KEY=@values", "--env", "KEY=1"], "KEY is given by --secret and by --env"),
        (["--secret", "KEY=@values", "--store-env", "KEY"], "--store-env KEY would store a secret"),
        (["--env-file", "wrong"], "Line 2 of wrong is neither KEY=VALUE nor the name of a variable"),
        (["--env-file", "unset"], "Line 1 of unset is neither KEY=VALUE nor"),
    ],
)
def test_a_wrong_source_of_values_is_refused_without_them(
    tpuctl: Tpuctl, home: Path, options: list[str], words: str
) -> None:
    Path("folder").mkdir()
    Path("binary").write_bytes(b"hunter2\xff")
    Path("large").write_text("hunter2" * 20_000)
    Path("values").write_text("A=hunter2\n")
    Path("wrong").write_text("A=1\nhunter2\n")
    Path("unset").write_text("NOT_SET_HERE\n")
    result = submit(tpuctl, "--json", *options)
    assert result.code == 2
    assert words in result.err
    assert "hunter2" not in result.err + result.out


def test_a_setup_command_is_recorded_without_secrets(tpuctl: Tpuctl, node: str, bucket: Bucket) -> None:
    command = "pip download --password=hunter2 x; echo correct-horse"
    result = submit(tpuctl, "--setup", command, "--env", "WORDS=correct-horse", "--setup-timeout", "90s")
    assert result.code == 0, result.err
    assert record(bucket).setup == "pip download --password=*** x; echo ***"


def test_the_setup_command_of_the_header_gives_way_to_the_option(
    tpuctl: Tpuctl, node: str, bucket: Bucket
) -> None:
    text = HEADER.replace('"v3-8"\n', '"v3-8"\n# setup = "echo header"\n')
    assert submit(tpuctl, text=text).code == 0
    assert record(bucket).setup == "echo header"
    Path("job.py").write_text(text)
    assert tpuctl("submit", "job.py", "--name", "r2", "--queue", "--setup", "echo mine").code == 0
    assert runs.decode(bucket.read("runs/r2/run.json"), runs.Run, "r").setup == "echo mine"


def test_lines_of_a_file_of_variables(tmp_path: Path) -> None:
    text = "A=1\n\n# B=2\n  export C = 'x y' \nD=\"#\"\nE=a=b\nF=\nG='\nH\nI=$HOME\n"
    (tmp_path / "values").write_text(text)
    assert read_environment_file(tmp_path / "values", {"H": "of the shell"}) == {
        "A": "1", "C": "x y", "D": "#", "E": "a=b", "F": "", "G": "'", "H": "of the shell", "I": "$HOME",
    }  # fmt: skip


def test_env_overrides_a_file_and_a_file_the_header(tpuctl: Tpuctl, node: str, bucket: Bucket) -> None:
    text = HEADER.replace('"v3-8"\n', '"v3-8"\n# env = { A = "header", B = "header", C = "header" }\n')
    Path("values").write_text("A=file\nB=file\n")
    stored = [word for name in "ABC" for word in ("--store-env", name)]
    assert submit(tpuctl, "--env-file", "values", "--env", "A=env", *stored, text=text).code == 0
    assert record(bucket).environment == {"A": "env", "B": "file", "C": "header"}


def test_storing_a_variable_that_is_not_given_is_refused(tpuctl: Tpuctl, node: str, bucket: Bucket) -> None:
    result = submit(tpuctl, "--env", "A=1", "--store-env", "B")
    assert (result.code, bucket.objects("")) == (2, [])
    assert "--store-env B stores the value of a variable that the script does not get" in result.err


def test_a_value_with_nul_is_refused(tpuctl: Tpuctl, node: str) -> None:
    text = HEADER.replace('"v3-8"\n', '"v3-8"\n# env = { KEY = "a\\u0000b" }\n')
    result = submit(tpuctl, text=text)
    assert result.code == 2
    assert "The value of KEY holds a NUL character" in result.err


def test_why_a_run_did_not_start_is_recorded_without_values(
    tpuctl: Tpuctl, node: str, bucket: Bucket, simulator: RunningSimulator
) -> None:
    """A service or a host may quote what it was sent."""
    fault = grpc_fault("storage.objects.create", 7, "no right for hunter2-value", resource="*/attempt.json")
    simulator.faults.add(fault)
    assert submit(tpuctl, "--env", "KEY=hunter2-value").code == 3
    evidence = bucket.read("runs/r1/verdict.json").decode()
    assert "no right for ***" in evidence


def test_credentials_in_an_included_folder_are_refused_and_named(
    tpuctl: Tpuctl, node: str, bucket: Bucket
) -> None:
    Path("conf").mkdir()
    Path("conf/rates.txt").write_text("0.1\n")
    Path("conf/.env").write_text("A=hunter2\n")
    result = submit(tpuctl, "--include", "conf")
    assert (result.code, bucket.objects("")) == (2, [])
    assert "conf/.env holds credentials, and would be stored in the bucket with its folder." in result.err
    assert "--include conf/.env" in result.err


def test_credentials_in_an_imported_package_are_refused(tpuctl: Tpuctl, node: str) -> None:
    Path("pack").mkdir()
    Path("pack/__init__.py").write_text("")
    Path("pack/deploy.pem").write_text(private_key())
    result = submit(tpuctl, text=HEADER + "import pack\n")
    assert result.code == 2
    assert "pack/deploy.pem holds a private key" in result.err


def test_a_credential_that_is_named_itself_is_sent_with_a_warning(tpuctl: Tpuctl, node: str) -> None:
    Path(".env").write_text("A=hunter2\n")
    result = submit(tpuctl, "--include", ".env")
    assert result.code == 0, result.err
    assert "Warning: .env holds credentials, and is stored in the bucket." in result.err


def test_tokens_in_code_are_named_by_file_and_line(tpuctl: Tpuctl, node: str) -> None:
    token = TOKENS["a Hugging Face token"][0]
    Path("model.py").write_text(
        f"A = 1\nB = '{token}'\n" + "".join(f"P{n}_SECRET = 'x{n}y{n}x{n}y{n}'\n" for n in range(4))
    )
    result = submit(tpuctl, text=HEADER + "import model\n")
    assert result.code == 0, result.err
    (line,) = [line for line in result.err.splitlines() if line.startswith("Warning:")]
    assert "model.py, line 2, which looks like a Hugging Face token; model.py, line 3, which" in line
    assert " and 2 more. Pass secrets" in line
    assert token not in result.err


def test_a_line_of_the_diff_is_left_out_and_named(
    tpuctl: Tpuctl, node: str, bucket: Bucket, project: Path
) -> None:
    result = tpuctl("submit", "job.py", "--name", "r1")
    assert result.code == 0, result.err
    git_record = record(bucket).git
    assert git_record
    assert "-[left out: looks like an API key]\n" in git_record.diff
    lines = project.read_text().count("\n")
    assert f"the recorded diff leaves out job.py, line {lines + 1}: it looks like an API key" in result.err


@pytest.mark.parametrize("job", ["digits.py", "resnet.py", "bert.py"])
def test_jobs_of_this_repository_have_no_warning(tpuctl: Tpuctl, node: str, job: str) -> None:
    from tests.paths import ROOT

    result = tpuctl(
        "submit", str(ROOT / "jobs" / job), "--dry-run", "--accelerator", "v3-8", "--", "--epochs", "3"
    )
    assert "Warning" not in result.err
