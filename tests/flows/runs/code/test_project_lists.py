"""What a project's own files list: which of them count, what they may say, and what they may not decide."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import project_lists
from tpuctl.flows.runs.code.programs import installs_of_command
from tpuctl.flows.runs.code.project_lists import ProjectLists, find, read
from tpuctl.host.worker.requirements import normalized
from tpuctl.job_header import Header

PYPROJECT = """
[project]
name = "Mine"
requires-python = ">=3.11"
dependencies = ["jax", "numpy>=1.26"]
[project.optional-dependencies]
train = ["optax"]
Data_Tools = ["grain"]
all = ["mine[train,data-tools]", "rich"]
[dependency-groups]
base = ["pytest"]
dev = ["ruff", {include-group = "base"}]
"""
LOCK = """
version = 1
[[package]]
name = "mine"
version = "0.1"
source = { editable = "." }
[[package]]
name = "jax"
version = "0.7.1"
source = { registry = "https://pypi.org/simple" }
[[package]]
name = "numpy"
version = "2.2.0"
source = { registry = "https://pypi.org/simple" }
resolution-markers = ["python_full_version < '3.12'"]
[[package]]
name = "numpy"
version = "2.3.0"
source = { registry = "https://pypi.org/simple" }
resolution-markers = ["python_full_version >= '3.12'", "sys_platform == 'win32'"]
"""
GIT = """
[[package]]
name = "optax"
version = "0.1"
source = { git = "https://github.com/x/optax?rev=main#0123abc" }
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(folder: Path, **files: str) -> None:
    """Write files; `__` in a name is a dot."""
    for name, text in files.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name.replace("__", ".")).write_text(text)


class TestPyproject:
    def test_its_dependencies_and_its_python(self, project: Path) -> None:
        write(project, pyproject__toml=PYPROJECT, requirements__txt="other")
        lists = read(project)
        assert lists.requirements == ("jax", "numpy>=1.26")
        assert (lists.provenance, lists.requires_python) == ("pyproject.toml", ">=3.11")

    def test_extras_and_groups_also_those_of_others(self, project: Path) -> None:
        write(project, pyproject__toml=PYPROJECT)
        lists = read(project, ["all"], ["dev"])
        assert lists.requirements == ("jax", "numpy>=1.26", "rich", "grain", "optax", "ruff", "pytest")
        assert lists.provenance == "pyproject.toml, extra all, group dev"
        assert read(project, ["data-tools"]).requirements[2:] == ("grain",)

    @pytest.mark.parametrize(
        ("extras", "groups", "words"), [(["x"], [], "has no extra 'x'"), ([], ["x"], "has no group 'x'")]
    )
    def test_one_that_is_not_there(
        self, project: Path, extras: list[str], groups: list[str], words: str
    ) -> None:
        write(project, pyproject__toml=PYPROJECT)
        with pytest.raises(UsageError, match=words):
            read(project, extras, groups)

    def test_those_that_name_each_other_end(self, project: Path) -> None:
        text = '[project]\nname = "m"\ndependencies = []\n[project.optional-dependencies]\n'
        text += 'a = ["m[b]"]\nb = ["m[a]"]'
        write(project, pyproject__toml=text)
        assert read(project, ["a"]).requirements == ()

    def test_a_table_of_tools_alone_lists_nothing(self, project: Path) -> None:
        write(project, pyproject__toml="[tool.ruff]\nline-length = 100\n", requirements__txt="optax")
        assert read(project).provenance == "requirements.txt"

    @pytest.mark.parametrize(
        "text",
        ["[project", "[project]\ndependencies = 1", "[project]\ndependencies = ['--pre']",
         "[project]\ndependencies = ['x @ file:///etc/passwd']"],
    )  # fmt: skip
    def test_what_cannot_be_read_names_the_file(self, project: Path, text: str) -> None:
        write(project, pyproject__toml=text)
        with pytest.raises(UsageError, match=r"pyproject\.toml"):
            read(project)


def test_a_notebook_that_installs_its_own_project_gets_that_and_its_extras(project: Path) -> None:
    """A release of the index would hide the project's code."""
    write(project, pyproject__toml=PYPROJECT)
    header = Header(dependencies=("mine[train]", "ipython"))
    lists = find(project, project, header)
    assert lists.applied(header).dependencies == ("jax", "numpy>=1.26", "optax", "ipython")
    assert any(name.endswith("/mine.pth") for name in lists.editables)


class TestNearerList:
    """A requirements.txt beside a script of a package's repository."""

    @pytest.fixture
    def examples(self, project: Path) -> Path:
        write(project, pyproject__toml=PYPROJECT, uv__lock=LOCK, environment__yml="")
        write(project / "examples/x", requirements__txt="mine\njax==0.4.20\nclu\n")
        return project / "examples/x"

    def test_counts_before_the_list_of_the_package_and_hides_none_of_it(
        self, project: Path, examples: Path
    ) -> None:
        lists = find(examples, project, Header())
        assert lists.requirements == ("jax==0.4.20", "clu", "numpy>=1.26")
        assert lists.provenance == "requirements.txt and pyproject.toml, versions of uv.lock"
        assert (lists.pins, lists.requires_python) == ({}, ">=3.11")
        assert any(name.endswith("/mine.pth") for name in lists.editables)

    def test_is_all_where_it_is_a_package_or_there_is_none(self, project: Path, examples: Path) -> None:
        write(examples, setup__py="setup(name='x')")
        assert find(examples, project, Header()).requirements == ("mine", "jax==0.4.20", "clu")
        (project / "pyproject.toml").unlink()
        (examples / "setup.py").unlink()
        assert find(examples, project, Header()).provenance == "requirements.txt"


def test_versions_of_a_set_up_command_count_before_lists(project: Path) -> None:
    """Hosts install lists first, and what a set-up command installs then does not hide that."""
    lists = ProjectLists(pins={"jax": "0.7.1", "numpy": "2.2.0"})
    header = Header(dependencies=("jax[k8s]>=0.7", "optax ; python_version>'3.9'", "optax ; os_name=='x'"))
    command = "apt-get install -y x && python3 -m pip install -q jax==0.4.20 rich\npip install 'chex<1'; make"
    header, lists = lists.overruled(header, installs_of_command(command))
    assert header.dependencies == ("jax[k8s]==0.4.20", *header.dependencies[1:])
    assert len(header.dependencies) == 3
    assert (lists.pins, lists.constraints) == ({"numpy": "2.2.0"}, ("chex<1",))
    assert lists.notes == (
        "Hosts install jax==0.4.20, chex<1, as the set-up command says, whatever is listed.",
    )


@pytest.mark.parametrize("command", ["", "make", "pip install -r more.txt rich", "pip install jax"])
def test_a_set_up_command_without_versions_changes_no_list(project: Path, command: str) -> None:
    header = Header(dependencies=("jax>=0.7",))
    assert ProjectLists().overruled(header, installs_of_command(command)) == (header, ProjectLists())


class TestUvLock:
    def test_its_versions_hold(self, project: Path) -> None:
        write(project, pyproject__toml=PYPROJECT, uv__lock=LOCK)
        lists = read(project)
        assert lists.pins == {"jax": "0.7.1"}
        assert lists.constraints == (
            "numpy==2.2.0 ; (python_full_version < '3.12')",
            "numpy==2.3.0 ; (python_full_version >= '3.12') or (sys_platform == 'win32')",
        )
        assert lists.provenance == "pyproject.toml, versions of uv.lock"
        assert lists.notes[0].startswith("The hashes in uv.lock are not checked")

    def test_what_is_of_a_repository_has_its_commit(self, project: Path) -> None:
        write(project, pyproject__toml=PYPROJECT, uv__lock=LOCK + GIT)
        assert read(project, ["train"]).requirements[2] == "optax @ git+https://github.com/x/optax@0123abc"

    def test_what_is_a_folder_of_the_project_is_installed_from_it(self, project: Path) -> None:
        sources = '[tool.uv.sources]\nnumpy = { path = "../numpy" }\njax = { workspace = true }\n'
        more = '[tool.uv.workspace]\nmembers = ["libs/*"]\n'
        write(project, pyproject__toml=PYPROJECT + sources + more)
        write(project / "libs/jax", pyproject__toml='[project]\nname = "jax"\ndependencies = ["einops"]\n')
        lists = read(project)
        assert lists.requirements == ("einops",)
        assert lists.editables[".tpuctl/jax.pth"] == b"libs/jax\n"
        assert lists.notes == (
            "Hosts do not install '../numpy' of pyproject.toml: it is no folder of the project.",
        )


class TestRequirements:
    def test_files_that_it_includes_and_constraints(self, project: Path) -> None:
        write(
            project,
            requirements__txt="# mine\nflax  # of Google\n-r deep/more.txt\n-c held.txt\n-e .\n"
            "git+https://github.com/x/y@v1#egg=y\n-e git+https://github.com/x/Ed.git\n"
            "git+https://github.com/x/CommonLoopUtils\n",
            held__txt="numpy<2\n",
        )
        write(project / "deep", more__txt="optax\\\n>=0.2\n--requirement=../requirements.txt\n")
        lists = read(project)
        assert lists.requirements == (
            "flax", "optax >=0.2", "y @ git+https://github.com/x/y@v1", "git+https://github.com/x/Ed.git",
            "git+https://github.com/x/CommonLoopUtils",
        )  # fmt: skip
        assert lists.constraints == ("numpy<2",)
        assert lists.notes == ()

    def test_a_folder_is_the_project_itself_or_a_package_in_it(self, project: Path) -> None:
        write(project, requirements__txt="-e .[train]\n./lib\n-e git+https://x.org/y#egg=y\n-e ../other\n")
        write(project, setup__py="setup(name='Mine', extras_require={'train': ['optax']})")
        write(
            project / "lib",
            setup__cfg="[metadata]\nname = lib\n[options]\ninstall_requires =\n  clu\n  tqdm\n",
        )
        write(project.parent / "other", setup__py="setup(name='other')")
        lists = read(project)
        assert lists.requirements == ("clu", "tqdm", "y @ git+https://x.org/y")
        assert {name for name in lists.editables if name.endswith(".pth")} == {
            ".tpuctl/mine.pth", ".tpuctl/lib.pth",
        }  # fmt: skip
        assert lists.notes == (
            "Hosts do not install '../other' of requirements.txt: it is no folder of the project.",
        )

    def test_an_environment_of_conda_is_refused_with_the_way(self, project: Path) -> None:
        write(project, environment__yml="dependencies: [jax]")
        with pytest.raises(UsageError, match=r"environment\.yml is for conda") as caught:
            read(project)
        assert "requirements.txt" in caught.value.hint
        write(project, requirements__txt="jax")
        assert read(project).requirements == ("jax",)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("--trusted-host x", r"requirements\.txt, line 1: hosts do not know the option --trusted-host"),
            ("-r ../secret.txt", "is outside of the project"), ("-r link.txt", "is outside of the project"),
            ("-r none.txt", "cannot be read: No such file"), ("./wheel.whl", "is not a requirement"),
            ("--find-links ./wheels", "is a folder of this machine"),
            ("-r a\0b", "is not a text file"), ("#" * (17 << 20), "cannot be read: File too large"),
        ],
    )  # fmt: skip
    def test_what_it_may_not_say(self, project: Path, text: str, words: str) -> None:
        write(project.parent, secret__txt="flax")
        (project / "link.txt").symlink_to(project.parent / "secret.txt")
        write(project, requirements__txt=text)
        with pytest.raises(UsageError, match=words):
            read(project)


@pytest.mark.parametrize("python", ["--x", "\\u001b[2J", ">=3." + "9" * 5000])
def test_a_python_that_none_is_is_refused_before_anything_is_sent(project: Path, python: str) -> None:
    write(project, pyproject__toml=PYPROJECT.replace(">=3.11", python))
    with pytest.raises(UsageError, match=r"pyproject\.toml: requires-python is '") as refused:
        read(project)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "url", ["ssh://git@host/x", "https://host/x?a#--upload-pack=touch", "https://host/x#\\u001b"]
)
def test_a_commit_that_no_host_may_fetch_is_refused(project: Path, url: str) -> None:
    git = f'[[package]]\nname = "numpy"\nversion = "1"\nsource = {{ git = "{url}" }}\n'
    write(project, pyproject__toml=PYPROJECT, uv__lock=git)
    with pytest.raises(UsageError, match=r"uv\.lock: 'numpy @ git.*' is not a requirement"):
        read(project)


class TestLargeLists:
    """A project from elsewhere may list very much."""

    def test_extras_and_groups_may_include_each_other_at_any_depth(self, project: Path) -> None:
        chain = "".join(f'a{number} = [{{include-group = "a{number + 1}"}}]\n' for number in range(2000))
        extras = "".join(f'a{number} = ["mine[a{number + 1}]"]\n' for number in range(2000))
        text = PYPROJECT.replace(
            "[dependency-groups]\n", f'{extras}a2000 = ["x"]\n[dependency-groups]\n{chain}'
        )
        write(project, pyproject__toml=f'{text}a2000 = ["y"]\n')
        assert read(project, ["a0"], ["a0"]).requirements[2:] == ("x", "y")

    def test_names_are_looked_up_and_not_compared(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each name is normalized a few times, however many others are listed."""
        calls = Counter[str]()

        def count(name: str) -> str:
            calls[name] += 1
            return normalized(name)

        monkeypatch.setattr(project_lists, "normalized", count)
        names = [f"p{number}" for number in range(50)]
        sources = "".join(f"q{name} = {{workspace = true}}\n" for name in names)
        own = "".join(f"{name} = []\n" for name in names)
        write(
            project,
            pyproject__toml=f'[project]\nname = "mine"\ndependencies = {names}\n'
            f"[project.optional-dependencies]\n{own}all = {[f'mine[{name}]' for name in names]}\n"
            f"[tool.uv.sources]\n{sources}",
        )
        read(project, ["all"])
        assert max(calls[name] for name in (*names, *(f"q{name}" for name in names))) < 10


WORKSPACE = """
[project]
name = "mine"
dependencies = ["member"]
[tool.uv.sources]
member = {{ workspace = true }}
[tool.uv.workspace]
members = {patterns}
"""


class TestFolders:
    """A project from elsewhere may name any folder."""

    @pytest.mark.parametrize("pattern", ["/", "../*", "../**", "out/*", "**/../../*", "**x", "\\u0000"])
    def test_no_pattern_of_a_workspace_leads_out_of_the_project(self, project: Path, pattern: str) -> None:
        write(project.parent / "member", pyproject__toml="no TOML")
        (project / "out").symlink_to(project.parent)
        write(project, pyproject__toml=WORKSPACE.format(patterns=f'["{pattern}"]'))
        assert read(project).notes == (
            "Hosts do not install 'member' of pyproject.toml: it is no folder of the project.",
        )

    def test_a_pattern_looks_into_each_folder_once(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deep = project.joinpath(*["a"] * 30)
        write(deep / "x", pyproject__toml='[project]\nname = "member"\ndependencies = ["einops"]\n')
        for name in ("b", "c"):
            (deep / name).symlink_to(project)
        listed = Counter[str]()

        def count(folder: Path) -> list[str]:
            listed[str(folder)] += 1
            return names(folder)

        names = os.listdir
        monkeypatch.setattr(os, "listdir", count)
        write(project, pyproject__toml=WORKSPACE.format(patterns='["**/**/**/**/**/**/x"]'))
        assert read(project).requirements == ("einops",)
        assert max(listed.values()) <= 7

    def test_packages_that_require_each_other_in_a_row_are_refused_at_a_depth(self, project: Path) -> None:
        for number in range(200):
            text = f'[project]\nname = "p{number}"\ndependencies = ["../p{number + 1}"]\n'
            write(project / f"p{number}", pyproject__toml=text)
        write(project, requirements__txt="./p0")
        with pytest.raises(UsageError, match="p50 is required through more than 50 packages"):
            read(project)

    @pytest.mark.parametrize(
        "files",
        [
            {"pyproject__toml": PYPROJECT + "[tool.setuptools]\npackage-dir = 5\n"},
            {"pyproject__toml": PYPROJECT + "[tool.setuptools.dynamic.dependencies]\nfile = 5\n"},
            {"pyproject__toml": PYPROJECT + "[tool.hatch.metadata.hooks.requirements_txt]\nfiles = 5\n"},
            {"pyproject__toml": PYPROJECT + "[tool.uv.workspace]\nmembers = 5\n"},
            {"pyproject__toml": PYPROJECT.replace("jax", "./\\u0000")},
            {"requirements__txt": "--hash=sha256:aa"}, {"requirements__txt": "x\n\x0c"},
            {"requirements__txt": f"-r {'x' * 300}"},
        ],
    )  # fmt: skip
    def test_what_no_project_has_is_refused(self, project: Path, files: dict[str, str]) -> None:
        write(project, **files)
        with pytest.raises(UsageError):
            read(project)

    def test_a_name_that_is_too_long_for_a_file_is_none(self, project: Path) -> None:
        long = "x" * 300
        packages = f'[tool.setuptools.package-dir]\n"" = "{long}"\n'
        write(project, pyproject__toml=f'[project]\nname = "{long}"\ndependencies = ["./{long}"]\n{packages}')
        assert read(project).requirements == ()


class TestIndexes:
    """Where packages come from is the user's word, never the project's."""

    URL = "https://download.pytorch.org/whl/cpu"
    FILES = (
        {"requirements__txt": f"torch\n--extra-index-url {URL}\n"},
        {"requirements__txt": f"torch\n-f {URL}\n"},
        {"requirements__txt": f"torch\n-i {URL}\n"},
        {"pyproject__toml": f'{PYPROJECT}[[tool.uv.index]]\nname = "t"\nurl = "{URL}"\n'},
        {"pyproject__toml": PYPROJECT, "uv__lock": LOCK.replace("https://pypi.org/simple", URL)},
    )

    @pytest.mark.parametrize("files", FILES)
    def test_one_besides_pypi_is_refused_with_what_would_be_trusted(
        self, project: Path, files: dict[str, str]
    ) -> None:
        write(project, **files)
        with pytest.raises(UsageError, match=f"takes packages from {self.URL}, besides PyPI") as refused:
            read(project)
        assert refused.value.hint.endswith(f"If you trust that: --allow-index {self.URL}")
        (source,) = read(project, allowed=[f"{self.URL}/"]).sources
        assert source.partition(" ")[2] == self.URL
        assert read(project, allowed=None).sources == (), "hosts ask no index: they have wheels"

    @pytest.mark.parametrize("url", ["http://x/simple", "https://me:secret@x/simple", "https://x/s --pre"])
    def test_one_that_no_host_may_ask_is_refused_even_then(self, project: Path, url: str) -> None:
        write(project, requirements__txt=f"torch\n--extra-index-url {url}\n")
        with pytest.raises(UsageError, match="no https:// URL, or one with a password") as refused:
            read(project, allowed=[url])
        assert "secret" not in str(refused.value)

    @pytest.mark.parametrize(
        ("page", "is_known"),
        [
            ("jax-releases/jax_cuda_releases.html", True), ("libtpu-releases/index.html", True),
            ("mine/jax_releases.html", False), ("jax-releases/../mine/x.html", False),
            ("jax-releases/", False),
        ],
    )  # fmt: skip
    def test_a_page_of_googles_for_its_frameworks_needs_no_word(
        self, project: Path, page: str, is_known: bool
    ) -> None:
        write(project, requirements__txt=f"jax\n-f https://storage.googleapis.com/{page}\n")
        if is_known:
            assert read(project).sources == (f"--find-links https://storage.googleapis.com/{page}",)
        else:
            with pytest.raises(UsageError, match="besides PyPI"):
                read(project)

    def test_pypi_itself_needs_no_word(self, project: Path) -> None:
        write(project, requirements__txt="torch\n-i https://pypi.org/simple/\n")
        assert read(project).sources == ()


class TestWhichCounts:
    def script(self, project: Path, name: str = "scripts/train.py") -> Path:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("print(1)\n")
        return path

    def test_the_nearest_folder_up_to_the_projects_root(self, project: Path) -> None:
        script = self.script(project)
        write(project.parent, requirements__txt="outside")
        write(project, pyproject__toml=PYPROJECT)
        assert find(script.parent, project, Header()).provenance == "pyproject.toml"
        write(script.parent, requirements__txt="near")
        assert find(script.parent, project, Header()).requirements == ("near", "jax", "numpy>=1.26")

    def test_without_a_root_that_of_the_script_alone(self, project: Path) -> None:
        script = self.script(project)
        write(project, requirements__txt="above")
        assert find(script.parent, script.parent, Header()) == ProjectLists()

    def test_never_your_home_nor_what_is_above_it(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(project, pyproject__toml=PYPROJECT)
        monkeypatch.setenv("HOME", str(project))
        assert find(project, project, Header()) == ProjectLists()
        assert find(self.script(project).parent, project, Header()) == ProjectLists()

    @pytest.mark.parametrize(
        "header", [Header(lists_dependencies=True), Header(dependencies=("x",), lists_dependencies=True)]
    )
    def test_a_header_that_lists_its_own_comes_first(self, project: Path, header: Header) -> None:
        write(project, pyproject__toml=PYPROJECT)
        script = self.script(project)
        assert find(script.parent, project, header).applied(header) == header
        with pytest.raises(UsageError, match="no extra or group"):
            find(script.parent, project, header, ["train"])

    def test_the_script_gets_the_projects_python_unless_it_asks_for_one(self, project: Path) -> None:
        lists = ProjectLists(("jax",), "pyproject.toml", ">=3.11")
        assert lists.applied(Header()).requires_python == ">=3.11"
        assert lists.applied(Header(requires_python=">=3.12")).requires_python == ">=3.12"
        assert lists.applied(Header()).dependencies == ("jax",)
