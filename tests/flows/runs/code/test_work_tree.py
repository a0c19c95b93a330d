"""Commit and diff of a run's code, read by real git; a hostile repository executes and reveals nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuctl.flows.runs.code import bundles, repository, work_tree
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.code.project_files import ProjectFiles
from tpuctl.flows.runs.code.work_tree import GitState, git_state

Git = Callable[..., str]


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Git:
    """Run git in a folder, as a user with an own configuration."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / ".gitconfig").write_text(
        '[user]\nname = Ada\nemail = ada@example.com\n[protocol "file"]\nallow = always\n'
    )

    def run(folder: Path, *arguments: str) -> str:
        process = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=60
        )
        return process.stdout.strip()

    return run


@pytest.fixture(params=["sha1", "sha256"])
def project(request: pytest.FixtureRequest, git: Git, tmp_path: Path) -> Path:
    """A work tree with one commit: a script in a folder, a module, and a file beside them."""
    folder = tmp_path / "project"
    (folder / "jobs").mkdir(parents=True)
    (folder / "jobs/train.py").write_text("import model\nRATE = 1\n")
    (folder / "jobs/model.py").write_text("SIZE = 1\n")
    (folder / "prod.env").write_text("PASSWORD=1\n")
    git(folder, "init", "-q", f"--object-format={request.param}")
    return commit(git, folder)


def commit(git: Git, folder: Path) -> Path:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")
    return folder


def state(project: Path) -> GitState:
    return git_state(project / "jobs", bundles.pack(lone(project / "jobs/train.py")))


def assert_nothing_of_another(project: Path) -> None:
    """The state says why it is not recorded."""
    result = state(project)
    assert result.git is None
    assert result.note


def recorded(project: Path) -> tuple[str, str]:
    """Return commit and diff."""
    result = state(project)
    assert result.git, result.note
    assert not result.note
    return result.git.commit, result.git.diff


def test_commit_and_diff_are_those_of_git_for_the_files_that_travel(project: Path, git: Git) -> None:
    head = git(project, "rev-parse", "HEAD")
    assert recorded(project) == (head, "")
    (project / "jobs/model.py").write_text("SIZE = 2\n")
    (project / "jobs/new.py").write_text("")
    (project / "jobs/train.py").write_text("import model, new\nRATE = 1\n")
    (project / "prod.env").write_text("PASSWORD=2\n")
    expected = git(project, "diff", "HEAD", "--", "jobs")
    assert recorded(project) == (head, expected + "\n")
    assert "SIZE = 2" in expected


def test_packed_references_and_objects_are_read(project: Path, git: Git) -> None:
    git(project, "gc", "-q")
    assert not list((project / ".git/refs/heads").iterdir())
    (project / "jobs/model.py").write_text("SIZE = 2\n")
    assert recorded(project)[0] == git(project, "rev-parse", "HEAD")


def test_a_detached_head_is_read(project: Path, git: Git) -> None:
    git(project, "checkout", "-q", "--detach")
    assert recorded(project)[0] == git(project, "rev-parse", "HEAD")


def test_a_linked_work_tree_is_read(project: Path, git: Git, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", str(tmp_path / "second"))
    (tmp_path / "second/jobs/model.py").write_text("SIZE = 3\n")
    head, diff = recorded(tmp_path / "second")
    assert head == git(project, "rev-parse", "HEAD")
    assert "+SIZE = 3" in diff


def test_a_submodule_is_read(project: Path, git: Git, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q", f"--object-format={git(project, 'rev-parse', '--show-object-format')}")
    git(outer, "submodule", "--quiet", "add", str(project), "inner")
    (outer / "inner/jobs/model.py").write_text("SIZE = 3\n")
    head, diff = recorded(outer / "inner")
    assert head == git(project, "rev-parse", "HEAD")
    assert "+SIZE = 3" in diff


def test_names_that_git_quotes_and_bytes_that_are_no_text_are_compared(project: Path, git: Git) -> None:
    names = ['a"b\\c.txt', "größe.txt", "tab\t.txt", " x.txt", "a -> b.txt"]
    for name in names:
        (project / "jobs" / name).write_bytes(b"1\n")
    commit(git, project)
    for name in names:
        (project / "jobs" / name).write_bytes(b"\xff2\n")
    script = project / "jobs/train.py"
    result = git_state(project / "jobs", bundles.pack(lone(script), [project / "jobs"]))
    assert result.git, result.note
    assert result.git.diff.count("diff --git") == len(names)


def test_line_ends_of_another_system_are_no_change(project: Path) -> None:
    (project / "jobs/model.py").write_bytes(b"SIZE = 1\r\n")
    assert recorded(project)[1] == ""


class TestNothing:
    def test_is_recorded_outside_of_a_work_tree(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("")
        assert git_state(tmp_path, bundles.pack(lone(tmp_path / "train.py"))) == GitState(None)

    def test_is_recorded_before_the_first_commit(self, git: Git, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("")
        git(tmp_path, "init", "-q")
        assert git_state(tmp_path, bundles.pack(lone(tmp_path / "train.py"))) == GitState(None)

    def test_is_recorded_without_git_and_a_note_says_so(
        self, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert (
            state(project).note == f"The git commit of {project}/jobs is not recorded: git is not installed."
        )

    def test_is_recorded_of_a_damaged_repository(self, project: Path) -> None:
        shutil.rmtree(project / ".git/objects")
        (project / ".git/objects").mkdir()
        assert state(project).note.endswith("not recorded: git cannot read the commit.")

    def test_is_recorded_when_git_takes_too_long(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(repository, "TIMEOUT", 0.0)
        assert state(project).note.endswith("git took longer than 0 s.")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    def test_is_recorded_of_another_users_repository_unless_it_is_declared_safe(
        self, project: Path, git: Git
    ) -> None:
        os.chown(project, 65534, 65534)
        assert state(project).note.endswith(f"{project} belongs to another user.")
        git(project.parent, "config", "--global", "safe.directory", str(project))
        assert recorded(project)[0]


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that the attacker's program makes when it runs."""
    return tmp_path / "executed"


@pytest.fixture
def hostile(project: Path, git: Git, tmp_path: Path, mark: Path) -> Path:
    """A project whose repository names programs wherever git can name one."""
    program = tmp_path / "attack"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    (project / ".gitattributes").write_text("*.py diff=evil filter=evil merge=evil\n")
    commit(git, project)
    for key in (
        "core.fsmonitor", "core.hooksPath", "core.pager", "core.sshCommand", "core.editor",
        "core.alternateRefsCommand", "core.askPass", "core.gitProxy", "diff.external", "diff.evil.command",
        "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process",
        "merge.evil.driver", "credential.helper", "uploadpack.packObjectsHook", "gpg.program", "alias.diff",
    ):  # fmt: skip
        git(project, "config", key, str(program))
    (project / "more.config").write_text(f"[core]\nfsmonitor = {program}\n[diff]\nexternal = {program}\n")
    git(project, "config", "include.path", "../more.config")
    for hook in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-auto-gc"):
        shutil.copy(program, project / ".git/hooks" / hook)
    (project / "jobs/model.py").write_text("SIZE = 2\n")
    return project


class TestAttack:
    def test_no_program_that_a_repository_names_is_executed(self, hostile: Path, mark: Path) -> None:
        head, diff = recorded(hostile)
        assert head
        assert "+SIZE = 2" in diff
        assert not mark.exists()

    @pytest.mark.parametrize("command", ["status", "diff"])
    def test_git_itself_would_execute_one(self, hostile: Path, mark: Path, command: str) -> None:
        """So that the test above can fail."""
        subprocess.run(["git", command], cwd=hostile, capture_output=True, timeout=60, check=False)
        assert mark.exists()

    def test_a_program_called_git_in_the_project_is_not_executed(
        self, project: Path, monkeypatch: pytest.MonkeyPatch, mark: Path
    ) -> None:
        (project / "git").write_text(f"#!/bin/sh\ntouch {mark}\n")
        (project / "git").chmod(0o755)
        monkeypatch.chdir(project)
        monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
        assert recorded(project)
        assert not mark.exists()

    def test_the_variables_of_git_change_nothing(
        self, project: Path, monkeypatch: pytest.MonkeyPatch, mark: Path
    ) -> None:
        monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {mark}; :")
        monkeypatch.setenv("GIT_DIR", str(project.parent))
        (project / "jobs/model.py").write_text("SIZE = 2\n")
        assert "+SIZE = 2" in recorded(project)[1]
        assert not mark.exists()

    @pytest.fixture
    def private(self, project: Path, git: Git) -> Path:
        """Another repository of the user, with a file that has the same path."""
        folder = project.parent / "private"
        shutil.copytree(project, folder)
        (folder / "jobs/model.py").write_text("KEY = 'secret'\n")
        return commit(git, folder)

    def test_a_git_file_does_not_reveal_another_repository(self, project: Path, private: Path) -> None:
        shutil.rmtree(project / ".git")
        (project / ".git").write_text(f"gitdir: {private}/.git\n")
        assert_nothing_of_another(project)

    def test_a_false_work_tree_does_not_reveal_another_repository(self, project: Path, private: Path) -> None:
        (project / "tree").mkdir()
        (project / "tree/commondir").write_text(f"{private}/.git\n")
        (project / "tree/gitdir").write_text("../.git\n")
        (project / "tree/HEAD").write_text((private / ".git/HEAD").read_text())
        shutil.rmtree(project / ".git")
        (project / ".git").write_text("gitdir: tree\n")
        assert_nothing_of_another(project)

    def test_a_git_file_does_not_reveal_another_work_tree(
        self, project: Path, private: Path, git: Git
    ) -> None:
        git(private, "worktree", "add", "-q", str(private.parent / "second"))
        shutil.rmtree(project / ".git")
        (project / ".git").write_text(f"gitdir: {private}/.git/worktrees/second\n")
        assert_nothing_of_another(project)

    def test_a_linked_repository_does_not_reveal_another(self, project: Path, private: Path) -> None:
        shutil.rmtree(project / ".git")
        (project / ".git").symlink_to(private / ".git")
        assert_nothing_of_another(project)

    @pytest.mark.parametrize("part", ["HEAD", "objects", "refs", "objects/pack"])
    def test_a_link_in_the_repository_does_not_reveal_another(
        self, project: Path, private: Path, git: Git, part: str
    ) -> None:
        head = (private / ".git/HEAD").read_text()
        if part != "refs":
            git(private, "gc", "-q")
            head = git(private, "rev-parse", "HEAD")
        (project / ".git/HEAD").write_text(head)
        place = project / ".git" / part
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        place.symlink_to(private / ".git" / part)
        assert_nothing_of_another(project)

    def test_borrowed_objects_do_not_reveal_another_repository(
        self, project: Path, private: Path, git: Git
    ) -> None:
        (project / ".git/HEAD").write_text(git(private, "rev-parse", "HEAD"))
        (project / ".git/objects/info/alternates").write_text(f"{private}/.git/objects\n")
        assert_nothing_of_another(project)

    def test_a_submodule_of_another_folder_does_not_reveal_it(
        self, project: Path, private: Path, git: Git
    ) -> None:
        git(private, "config", "core.worktree", str(private))
        shutil.rmtree(project / ".git")
        (project / ".git").write_text(f"gitdir: {private}/.git\n")
        assert_nothing_of_another(project)

    @pytest.mark.parametrize(
        "text", ["ref: ../../etc/passwd", "ref: refs/../../x", "ref: refs/a\0b", "", "x" * 99]
    )
    def test_a_head_that_is_no_reference_is_named(self, project: Path, text: str) -> None:
        (project / ".git/HEAD").write_text(text)
        assert state(project).note.endswith("the format of its references is not known.")

    def test_references_that_name_each_other_end(self, project: Path) -> None:
        (project / ".git/refs/heads/loop").write_text("ref: refs/heads/loop\n")
        (project / ".git/HEAD").write_text("ref: refs/heads/loop\n")
        assert state(project).note.endswith("the format of its references is not known.")

    @pytest.mark.parametrize(
        "text", ["gitdir: a\0b", "gitdir: ", "nonsense", "gitdir: .", "gitdir: /", "a" * 100_000]
    )
    def test_a_git_file_that_names_nothing_is_named(self, project: Path, text: str) -> None:
        shutil.rmtree(project / ".git")
        (project / ".git").write_text(text)
        assert "is not recorded" in state(project).note
        assert len(state(project).note) < 1000

    def test_a_pipe_in_a_repository_is_not_waited_for(self, project: Path) -> None:
        (project / ".git/refs/heads/pipe").mkdir()
        os.mkfifo(project / ".git/refs/heads/pipe/x")
        (project / ".git/HEAD").write_text("ref: refs/heads/pipe/x\n")
        assert state(project).note.endswith("cannot be read safely.")

    @pytest.mark.parametrize("name", ["info/commit-graph", "pack/multi-pack-index", "ab/" + "0" * 38])
    def test_a_pipe_among_the_objects_is_not_waited_for(self, project: Path, name: str) -> None:
        pipe = project / ".git/objects" / name
        pipe.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pipe)
        assert state(project).note.endswith(f"{pipe} is no file.")

    def test_a_tree_that_unfolds_without_end_is_not_unfolded(self, project: Path, git: Git) -> None:
        """Ten folders in each of ten folders, ten deep, are ten small objects."""
        self.plant_trees(project, git, 10)
        assert recorded(project)[1] == ""

    def test_a_tree_that_unfolds_without_end_is_not_listed(self, project: Path, git: Git) -> None:
        """git is asked for the files of the commit where a rule leaves one out."""
        self.plant_trees(project, git, 7)
        (project / ".gitignore").write_text("*.log\n")
        (project / "a.log").write_text("")
        tracemalloc.start()
        try:
            names = dict(ProjectFiles(project).whole())
            assert tracemalloc.get_traced_memory()[1] < 80_000_000
        finally:
            tracemalloc.stop()
        assert ".gitignore" in names
        assert "a.log" not in names

    def plant_trees(self, project: Path, git: Git, depth: int) -> None:
        tree = git(project, "rev-parse", "HEAD:jobs")
        for _ in range(depth):
            entries = "".join(f"040000 tree {tree}\t{number}\n" for number in range(10))
            tree = subprocess.run(
                ["git", "mktree"], cwd=project, input=entries, capture_output=True, text=True, check=True
            ).stdout.strip()
        (project / ".git/HEAD").write_text(git(project, "commit-tree", "-m", "bomb", tree))

    def test_small_objects_that_unfold_to_long_texts_do_not_fill_the_memory(
        self, project: Path, git: Git, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All are one object of a few bytes, and each is four megabytes of the difference."""
        monkeypatch.setattr(work_tree, "MOST_DIFFERING", 10_000_000)
        modules = [project / f"jobs/m{number}.py" for number in range(24)]
        for module in modules:
            module.write_text(("#" + "a" * 99_998 + "\n") * 40)
        commit(git, project)
        for module in modules:
            module.write_text("1\n")
        code = bundles.pack(lone(project / "jobs/train.py"), [project / "jobs"])
        tracemalloc.start()
        try:
            result = git_state(project / "jobs", code)
            assert tracemalloc.get_traced_memory()[1] < 80_000_000
        finally:
            tracemalloc.stop()
        assert result.git, result.note
        assert result.git.diff.startswith("diff --git a/jobs/m0.py")
