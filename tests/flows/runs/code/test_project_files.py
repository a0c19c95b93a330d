"""The files of a script's folder through links: those that stay in it travel, others are refused by name."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import bundles, project_files
from tpuctl.flows.runs.code.bundles import check_bundle
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.code.project_files import ProjectFiles
from tpuctl.flows.runs.code.work_tree import git_state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script with a package, and a private file outside of its folder."""
    (tmp_path / "project/pkg").mkdir(parents=True)
    (tmp_path / "project/train.py").write_text("import pkg\n")
    (tmp_path / "project/pkg/__init__.py").write_text("")
    (tmp_path / "project/shared.txt").write_text("shared")
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key").write_text("PRIVATE KEY")
    return tmp_path / "project"


def pack(folder: Path, *include: str) -> dict[str, str]:
    """Return names and contents of what is packed."""
    bundle = bundles.pack(lone(folder / "train.py"), [folder / name for name in include])
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        assert all(member.isreg() for member in archive)
    return {name: data.decode() for name, data in bundle.files()}


def add(project: ProjectFiles, file: Path) -> None:
    """Add a file to an archive in memory."""
    with tarfile.open(fileobj=io.BytesIO(), mode="w") as archive:
        project.add(archive, file.name, file)


class TestLinkThatLeaves:
    @pytest.mark.parametrize("place", ["pkg/data.txt", "pkg/deep/data.txt", "pkg/data"])
    @pytest.mark.parametrize(
        "target", ["../../private/key", "/private/key", "../../private", "../../nothing", "/"]
    )
    def test_is_refused_in_a_package(self, folder: Path, place: str, target: str) -> None:
        link = folder / place
        link.parent.mkdir(exist_ok=True)
        to = Path(f"{folder.parent}{target}") if target == "/private/key" else Path(target)
        if "deep" in place and target.startswith(".."):
            to = Path("..") / target
        link.symlink_to(to)
        end = Path(os.path.realpath(link))
        with pytest.raises(UsageError) as refused:
            pack(folder)
        expected = f"{link} is a symbolic link to {end}, which is outside the script's folder {folder}."
        assert refused.value.message == expected
        assert refused.value.facts == {"link": str(link), "target": str(end)}

    @pytest.mark.parametrize("include", ["data", "."])
    def test_is_refused_in_what_is_included(self, folder: Path, include: str) -> None:
        (folder / "data").mkdir()
        (folder / "data/x").symlink_to(folder.parent / "private/key")
        with pytest.raises(UsageError, match=f"data/x is a symbolic link to {folder.parent}/private/key"):
            pack(folder, include)

    def test_is_refused_where_it_is_included_itself(self, folder: Path) -> None:
        (folder / "key").symlink_to("../private/key")
        with pytest.raises(UsageError, match="key is a symbolic link to"):
            pack(folder, "key")

    def test_is_refused_as_the_script(self, folder: Path) -> None:
        (folder / "train.py").unlink()
        (folder / "train.py").symlink_to("../private/key")
        with pytest.raises(UsageError, match=r"train\.py is a symbolic link to .*/private/key"):
            pack(folder)

    def test_is_refused_as_a_module(self, folder: Path) -> None:
        (folder.parent / "private/other.py").write_text("")
        (folder / "other.py").symlink_to("../private/other.py")
        (folder / "train.py").write_text("import other\n")
        with pytest.raises(UsageError, match=r"other\.py is a symbolic link to"):
            pack(folder)

    def test_is_refused_at_the_end_of_a_chain(self, folder: Path) -> None:
        (folder / "pkg/a").symlink_to("b")
        (folder / "pkg/b").symlink_to("../c")
        (folder / "c").symlink_to(folder.parent / "private")
        with pytest.raises(UsageError, match=r"pkg/a is a symbolic link to .*/private, which"):
            pack(folder)

    def test_is_refused_in_a_folder_that_a_link_leads_to(self, folder: Path) -> None:
        (folder / "more").mkdir()
        (folder / "pkg/more").symlink_to("../more")
        (folder / "more/key").symlink_to("../../private/key")
        with pytest.raises(UsageError, match="more/key is a symbolic link to"):
            pack(folder)

    def test_is_refused_into_a_folder_whose_name_begins_alike(self, folder: Path) -> None:
        (folder.parent / "project-2").mkdir()
        (folder.parent / "project-2/x").write_text("")
        (folder / "pkg/x").symlink_to("../../project-2/x")
        with pytest.raises(UsageError, match="outside the script's folder"):
            pack(folder)

    def test_is_refused_into_the_work_tree_around_the_folder(self, folder: Path) -> None:
        """A project that was unpacked into another must not read that one's files."""
        (folder.parent / ".git").mkdir()
        (folder / "pkg/x").symlink_to("../../private/key")
        with pytest.raises(UsageError, match="outside the script's folder"):
            pack(folder)


class TestLinkThatStays:
    @pytest.mark.parametrize("target", ["../shared.txt", "{folder}/shared.txt", "../pkg/../shared.txt"])
    def test_travels_as_its_content(self, folder: Path, target: str) -> None:
        (folder / "pkg/x.txt").symlink_to(target.format(folder=folder))
        assert pack(folder)["pkg/x.txt"] == "shared"

    def test_to_a_folder_travels_as_its_files(self, folder: Path) -> None:
        (folder / "more/deep").mkdir(parents=True)
        (folder / "more/deep/x.txt").write_text("x")
        (folder / "pkg/link").symlink_to("../more")
        assert pack(folder)["pkg/link/deep/x.txt"] == "x"

    def test_may_be_the_script_or_the_folder_above_it(self, folder: Path) -> None:
        (folder / "v2.py").write_text("import pkg  # 2\n")
        (folder / "latest.py").symlink_to("v2.py")
        (folder.parent / "alias").symlink_to("project")
        bundle = bundles.pack(lone(folder.parent / "alias/latest.py"))
        assert bundle.script == "latest.py"
        assert dict(bundle.files())["latest.py"] == b"import pkg  # 2\n"

    def test_that_leads_round_is_read_once(self, folder: Path) -> None:
        (folder / "pkg/self").symlink_to(".")
        (folder / "pkg/up").symlink_to("..")
        (folder / "pkg/loop").symlink_to("loop")
        names = pack(folder)
        assert "pkg/__init__.py" in names
        assert not [name for name in names if "loop" in name or "self" in name]

    @pytest.mark.parametrize("target", ["nothing", "ada@host.4711"])
    def test_to_nothing_is_left_out(self, folder: Path, target: str) -> None:
        (folder / "pkg/.#x").symlink_to(target)
        assert sorted(pack(folder)) == ["pkg/__init__.py", "train.py"]

    def test_into_a_folder_that_never_travels_is_left_out(self, folder: Path) -> None:
        """`.git/config` may hold a password."""
        (folder / ".git").mkdir()
        (folder / ".git/config").write_text("password")
        (folder / "pkg/x").symlink_to("../.git/config")
        (folder / "pkg/git").symlink_to("../.git")
        assert sorted(pack(folder)) == ["pkg/__init__.py", "train.py"]

    def test_many_that_unfold_without_end_are_refused(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(project_files, "MOST_FILES", 1000)
        for level in range(8):
            (folder / f"level{level}").mkdir()
            for number in range(8):
                (folder / f"level{level}/{number}").symlink_to(f"../level{level + 1}")
        (folder / "level8").mkdir()
        with pytest.raises(UsageError, match="holds too much: 1,000 files"):
            pack(folder, "level0")


@pytest.mark.parametrize(("files", "is_refused"), [(8, False), (9, True)])
def test_a_folder_of_more_files_than_a_project_has_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, files: int, is_refused: bool
) -> None:
    """The folder and the script count, too."""
    monkeypatch.setattr(project_files, "MOST_FILES", 10)
    (folder / "train.py").write_text("")
    (folder / "many").mkdir()
    for number in range(files):
        (folder / f"many/{number}").touch()
    if is_refused:
        with pytest.raises(UsageError, match="holds too much: 10 files, 100 folders deep, are the most"):
            pack(folder, "many")
    else:
        assert len(pack(folder, "many")) == files + 1


@pytest.mark.parametrize(("folders", "is_refused"), [(3, False), (4, True)])
def test_a_folder_that_is_deeper_than_a_project_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, folders: int, is_refused: bool
) -> None:
    monkeypatch.setattr(project_files, "MOST_DEPTH", 3)
    names = [str(number) for number in range(folders)]
    folder.joinpath(*names).mkdir(parents=True)
    folder.joinpath(*names, "x").touch()
    if is_refused:
        with pytest.raises(UsageError, match="holds too much: 50,000 files, 3 folders deep, are the most"):
            pack(folder, "0")
    else:
        assert "/".join([*names, "x"]) in pack(folder, "0")


def test_a_folder_below_one_that_is_left_out_travels(tmp_path: Path) -> None:
    (tmp_path / ".venv/data").mkdir(parents=True)
    (tmp_path / ".venv/train.py").write_text("")
    (tmp_path / ".venv/data/x").write_text("x")
    assert sorted(pack(tmp_path / ".venv", "data")) == ["data/x", "train.py"]


class TestSpecialFile:
    @pytest.fixture(params=["pipe", "socket"])
    def special(self, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(folder / "pkg")
        if request.param == "pipe":
            os.mkfifo("special.py")
        else:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind("special.py")
        return folder / "pkg/special.py"

    def test_is_left_out_of_a_folder_and_not_waited_for(self, folder: Path, special: Path) -> None:
        (folder / "pkg/link.py").symlink_to("special.py")
        assert sorted(pack(folder)) == ["pkg/__init__.py", "train.py"]

    def test_is_refused_where_it_is_named(self, folder: Path, special: Path) -> None:
        with pytest.raises(UsageError, match="is neither a file nor a folder"):
            pack(folder, "pkg/special.py")

    def test_that_takes_the_place_of_a_file_is_not_waited_for(self, folder: Path) -> None:
        project = ProjectFiles(folder)
        (folder / "shared.txt").unlink()
        os.mkfifo(folder / "shared.txt")
        with pytest.raises(UsageError, match=r"shared\.txt cannot be read"):
            add(project, folder / "shared.txt")

    @pytest.mark.parametrize("place", ["shared.txt", "pkg"])
    def test_a_link_that_takes_the_place_of_a_file_is_not_followed(self, folder: Path, place: str) -> None:
        project = ProjectFiles(folder)
        files = dict(project.below(folder))
        (folder / place).rename(folder / "old")
        (folder.parent / "private/__init__.py").write_text("PRIVATE")
        (folder / place).symlink_to(folder.parent / ("private/key" if place != "pkg" else "private"))
        file = files["shared.txt" if place != "pkg" else "pkg/__init__.py"]
        with pytest.raises(UsageError, match="cannot be read"):
            add(project, file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_named(folder: Path) -> None:
    (folder / "shared.txt").chmod(0)
    with pytest.raises(UsageError, match=r"shared\.txt cannot be read: Permission denied"):
        pack(folder, "shared.txt")


def test_a_file_that_changes_during_every_try_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time between two looks at one open file cannot be hit from outside, so they are made to differ."""
    look = os.fstat
    monkeypatch.setattr(os, "fstat", lambda descriptor: (os.utime(descriptor), look(descriptor))[1])
    with pytest.raises(UsageError, match=r"shared\.txt changes while it is read"):
        add(ProjectFiles(folder), folder / "shared.txt")


def test_code_that_is_too_large_is_refused_with_its_largest_files(folder: Path) -> None:
    for name, size in {"small": 1, "a.npy": 12_000_000, "b.npy": 30_000_000, "c.npy": 20_000_000}.items():
        (folder / name).write_bytes(bytes(size))
    with pytest.raises(UsageError) as refused:
        bundles.pack(lone(folder / "train.py"), [folder], limit=50_000_000)
    assert refused.value.message == (
        "The script's files are 62 MB, and 50 MB are the most. "
        "The largest: b.npy (30 MB), c.npy (20 MB), a.npy (12 MB)."
    )
    assert "--code-limit 63" in refused.value.hint
    assert bundles.pack(lone(folder / "train.py"), [folder], limit=63_000_000).count == 7


def test_a_big_file_that_changes_while_it_is_packed_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "big").write_bytes(bytes(9_000_000))
    look = os.fstat
    monkeypatch.setattr(os, "fstat", lambda descriptor: (os.utime(descriptor), look(descriptor))[1])
    with pytest.raises(UsageError, match=r"big changes while it is read"):
        add(ProjectFiles(folder), folder / "big")


def test_big_files_are_packed_and_read_in_flat_memory(folder: Path) -> None:
    part = os.urandom(1_000_000)
    with (folder / "big").open("wb") as stream:
        for _ in range(120):
            stream.write(part)
    tracemalloc.start()
    try:
        bundle = bundles.pack(lone(folder / "train.py"), [folder / "big"])
        check_bundle(bundle, (), folder)
        assert sum(len(chunk) for chunk in bundle.chunks()) == bundle.content.size
        assert git_state(folder, bundle).git is None
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bundle.files_size == 120_000_000 + len("import pkg\n")
    assert most < 40_000_000


def test_a_linked_key_reaches_neither_the_bucket_nor_the_bundle(
    folder: Path, tpuctl: Callable[..., CommandResult], bucket: Bucket, node: str
) -> None:
    (folder / "pkg/data.txt").symlink_to("../../private/key")
    result = tpuctl("submit", str(folder / "train.py"))
    assert result.code == 2
    assert "pkg/data.txt is a symbolic link to" in result.err
    assert bucket.objects("") == []


def test_a_name_in_a_hint_is_one_word_of_a_shell(folder: Path) -> None:
    """Users copy it; a project from elsewhere names its files."""
    (folder / "$(reboot)").mkdir()
    (folder / "$(reboot)/id_rsa").write_text(
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n"
    )
    with pytest.raises(UsageError) as refused:
        check_bundle(bundles.pack(lone(folder / "train.py"), [folder / "$(reboot)"]), (), folder)
    assert refused.value.hint.endswith("--include '$(reboot)/id_rsa'")
