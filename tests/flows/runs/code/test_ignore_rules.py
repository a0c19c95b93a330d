"""What .gitignore and .tpuctlignore leave out, side by side with git itself."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from tests.hostile.test_patterns import MOST, growth
from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.code.project_files import IgnoreRules, _linear

TREE = (
    "train.py",
    "notes.txt",
    "venv/lib/x.py",
    ".env",
    "data/raw/a.npy",
    "data/b.npy",
    "build/x",
    "deep/build/x",
    "deep/er/keep.log",
    "deep/er/drop.log",
    "#odd",
    "a b.txt",
    "tail ",
    "weights[1].bin",
    "docs/build",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    write(folder, *TREE)
    return folder


def write(folder: Path, *names: str, text: str = "x = 1\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def rules(folder: Path, text: str, kind: str = ".gitignore") -> None:
    write(folder, kind, text=text)


def packed(folder: Path, *include: str) -> set[str]:
    bundle = bundles.pack(lone(folder / "train.py"), [folder / name for name in include or (".",)])
    return {name for name, _ in bundle.files() if not name.endswith("ignore")}


@pytest.mark.parametrize(
    "text",
    [
        "venv\n.env\n",
        "/build/\n",
        "build/\n",
        "*.log\n!keep.log\n",
        "data/\n!data/b.npy\n",
        "data/*\n!data/b.npy\n",
        "\\#odd\n",
        "a b.txt\ntail \n",
        "tail\\ \n",
        "deep/**/drop.log\n",
        "**/raw\n",
        "weights[[]1].bin\n",
        "\n# no rule\n",
        "weights\\[1\\].bin\n",
        "docs/build/\n",
        "d*\n",
        "/*\n!/train.py\n",
        "\ufeff*.txt\n",
        "notes.txt\r\n",
    ],
)
def test_the_rules_are_gits(project: Path, text: str) -> None:
    rules(project, text)
    git = ["git", "-c", "core.excludesFile=/dev/null"]
    subprocess.run([*git, "init", "-q"], cwd=project, check=True)
    answer = subprocess.run(
        [*git, "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=project,
        capture_output=True,
        check=True,
    ).stdout.decode()
    expected = {name for name in answer.split("\0") if name and not name.endswith("ignore")}
    assert packed(project) == expected | {"train.py"}


def test_rules_of_lower_folders_decide_first(project: Path) -> None:
    rules(project, "*.log\n")
    rules(project / "deep", "!keep.log\n")
    assert {name for name in packed(project) if name.endswith(".log")} == {"deep/er/keep.log"}


def test_rules_of_the_work_tree_around_the_folder_count(project: Path) -> None:
    rules(project.parent, "project/data/\nvenv/\n")
    assert "data/b.npy" in packed(project)
    subprocess.run(["git", "init", "-q"], cwd=project.parent, check=True)
    assert not [name for name in packed(project) if name.startswith(("data/", "venv/"))]


def test_a_venv_and_an_env_file_that_git_ignores_do_not_travel(project: Path) -> None:
    """Without the rule .env is refused as a file with credentials."""
    rules(project, "venv/\n.env\n")
    assert not packed(project) & {"venv/lib/x.py", ".env"}


def test_own_rules_come_on_top(project: Path) -> None:
    rules(project, "data/\n*.log\n")
    rules(project, "!data/\nnotes.txt\n", ".tpuctlignore")
    assert "data/b.npy" in packed(project)
    assert not packed(project) & {"notes.txt", "deep/er/keep.log"}


def test_what_is_named_is_meant(project: Path) -> None:
    rules(project, "*.npy\n*.log\n")
    assert packed(project, "data/b.npy") == {"train.py", "data/b.npy"}


@pytest.mark.parametrize("kind", [".gitignore", ".tpuctlignore"])
@pytest.mark.parametrize("include", ["data", "data/raw"])
def test_a_folder_that_is_named_travels_whole_though_it_is_left_out_elsewhere(
    project: Path, kind: str, include: str
) -> None:
    rules(project, "data/\n*.log\n", kind)
    expected = {"data/raw/a.npy"} | ({"data/b.npy"} if include == "data" else set())
    assert packed(project, include) == {"train.py", *expected}
    assert packed(project, "deep") == {"train.py", "deep/build/x"}


def test_generated_modules_of_a_package_travel_and_its_other_ignored_files_do_not(project: Path) -> None:
    write(project, "train.py", text="import pkg\n")
    write(project, "pkg/__init__.py", "pkg/_version.py", "pkg/cache.bin", "pkg/private.py")
    rules(project, "_version.py\n*.bin\n")
    rules(project, "private.py\n", ".tpuctlignore")
    bundle = bundles.pack(lone(project / "train.py"))
    assert {name for name, _ in bundle.files()} == {"train.py", "pkg/__init__.py", "pkg/_version.py"}


def test_a_file_of_rules_that_is_a_link_counts_no_more_than_in_git(project: Path) -> None:
    write(project.parent, "rules", text="*.npy\n")
    (project / ".tpuctlignore").symlink_to("../rules")
    assert not IgnoreRules(project).is_ignored(Path("data/b.npy"), is_folder=False)


def test_rules_without_end_are_refused(project: Path) -> None:
    rules(project, "x\n" * 600_000)
    with pytest.raises(UsageError, match=r"\.gitignore is larger than 1 MiB"):
        IgnoreRules(project).is_ignored(Path("data/b.npy"), is_folder=False)
    rules(project, "# a comment\n\n" * 5001 + "x\n" * 5001)
    with pytest.raises(UsageError, match=r"\.gitignore has more than 5000 rules"):
        packed(project)


def expressions(rule: str) -> list[re.Pattern[str]]:
    """Return what pathspec makes of a rule; nothing of what is none."""
    try:
        return [pattern.regex for pattern in GitIgnoreSpec.from_lines([rule]).patterns if pattern.regex]
    except ValueError:
        return []


@pytest.mark.parametrize(
    ("rule", "shape"), [("*a*a*a*a*a*a*b", ("x/", "a", "!")), ("x/*-*[!b]*-*.[a-z]?", ("x/", "-", "!"))]
)
def test_no_rule_takes_a_time_that_explodes_with_its_stars(rule: str, shape: tuple[str, str, str]) -> None:
    """A rule of twelve stars and a name of sixty characters did not come to an end."""
    (usual,) = expressions(rule)
    assert growth(usual, False, shape) > MOST
    assert growth(_linear(usual), False, shape) <= MOST


def test_rules_match_what_they_match_by_trying_each_place() -> None:
    generator = random.Random(7)
    pieces = ("*", "a", "b", "?", "/", "[ab]", "[!a]", "**/", "\\*")
    for _ in range(3000):
        rule = "".join(generator.choices(pieces, k=generator.randrange(1, 9)))
        for usual in expressions(rule):
            quick, usual = _linear(usual), re.compile(usual.pattern.replace("[^a]", "[^/a]"))
            for _ in range(20):
                parts = ["".join(generator.choices("ab*", k=generator.randrange(1, 6))) for _ in range(3)]
                path = "/".join(parts) + generator.choice(("", "/"))
                expected, actual = usual.match(path), quick.match(path)
                assert (expected is None) == (actual is None), (rule, path)
                assert not expected or expected.groupdict() == actual.groupdict(), (rule, path)


def test_rules_of_very_many_folders_are_refused(project: Path) -> None:
    rules(project, "a/**/b/**/c/**/d\n")
    assert "data/b.npy" in packed(project)
    rules(project, "**/a/**/b/**/c/**/d/**/e\n")
    with pytest.raises(UsageError, match=r"\.gitignore has a wrong pattern: it has '\*\*' more than 3 times"):
        packed(project)
