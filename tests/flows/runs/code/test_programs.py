"""Which project travels with a program: miniatures of the shapes that research repositories have."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import bundles, programs
from tpuctl.flows.runs.code.programs import Program
from tpuctl.host.worker.records import COMMAND, MODULE

PYPROJECT = '[project]\nname = "pkg"\n[tool.tpuctl]\nframework = "jax"\nenv = { A = "1", B = "1" }\n'
SOURCE_LAYOUT = {"pyproject.toml": PYPROJECT, "src/pkg/__init__.py": "", "src/pkg/train.py": ""}
BESIDE = {
    "pyproject.toml": "",
    "pkg/__init__.py": "",
    "scripts/train.py": "from pkg import x\n",
    "run.sh": "",
}
HYDRA = {
    "pyproject.toml": "",
    "train.py": "import hydra\n",
    "conf/config.yaml": "",
    "conf/model/big.yaml": "",
}
LINTED = {
    "setup.py": "", "pkg/__init__.py": "", "examples/pyproject.toml": "[tool.ruff]\nline-length = 80\n",
    "examples/train.py": "import pkg\n", "examples/setup.cfg": "[flake8]\n",
}  # fmt: skip
MONOREPO = {
    ".git/HEAD": "ref: refs/heads/main\n", ".git/objects/info/x": "",
    "one/pyproject.toml": "", "one/one/train.py": "import two\n", "two/setup.py": "",
    "two/two/__init__.py": "",
}  # fmt: skip


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def git(folder: Path, *words: str) -> None:
    own = ("-c", "user.name=Ada", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True, timeout=60)


def found(here: Path, script: str, kind: str = "", root: Path | None = None) -> Program:
    return programs.find(script, kind, root, here)


def sent(program: Program, *include: Path, words: tuple[str, ...] = ()) -> set[str]:
    return {name for name, _ in bundles.pack(program, include, words=words).files()}


class TestProject:
    @pytest.mark.parametrize(
        ("files", "here", "script", "kind", "name", "directory"),
        [
            (SOURCE_LAYOUT, ".", "pkg.train", MODULE, "pkg.train", ""),
            (SOURCE_LAYOUT, "src", "pkg.train", MODULE, "pkg.train", "src"),
            (BESIDE, ".", "scripts/train.py", "", "scripts/train.py", ""),
            (BESIDE, "scripts", "train.py", "", "scripts/train.py", "scripts"),
            (BESIDE, ".", "run.sh", "", "run.sh", ""),
            (HYDRA, ".", "train.py", "", "train.py", ""),
            (LINTED, "examples", "train.py", "", "examples/train.py", "examples"),
            (MONOREPO, ".", "one/one/train.py", "", "one/one/train.py", ""),
            (BESIDE, ".", "python", COMMAND, "python", ""),
        ],
    )
    def test_travels_whole_and_runs_where_the_user_stands(
        self, place: Path, files: dict[str, str], here: str, script: str, kind: str, name: str, directory: str
    ) -> None:
        program = found(write(place, files) / here, script, kind)
        assert (program.script, program.root, program.directory) == (name, place, directory)
        assert sent(program) == {file for file in files if not file.startswith(".git/")}

    def test_of_a_script_below_is_the_nearest_above_it(self, place: Path) -> None:
        write(place, MONOREPO)
        assert found(place / "one/one", "train.py").root == place / "one"
        assert found(place.parent, "place/one/one/train.py").root == place / "one"
        assert found(place / "one/one", "train.py", root=place).root == place

    def test_that_is_named_has_the_script(self, place: Path) -> None:
        write(place, MONOREPO)
        with pytest.raises(UsageError, match="is outside of the project"):
            found(place, "one/one/train.py", root=place / "two")
        with pytest.raises(UsageError, match="There is no folder"):
            found(place, "one/one/train.py", root=place / "three")

    def test_is_never_the_home_folder(self, home: Path) -> None:
        write(home, {"train.py": "import model\n", "model.py": "", ".git/HEAD": "", "private.txt": ""})
        assert sent(found(home, "train.py")) == {"train.py", "model.py"}
        with pytest.raises(UsageError, match="is no project: it holds your home"):
            found(home, "train.py", root=home.parent)

    def test_without_marks_a_script_travels_with_what_it_imports(self, place: Path) -> None:
        write(place, {"train.py": "import model\n", "model.py": "", "other.py": ""})
        assert sent(found(place.parent, "place/train.py")) == {"train.py", "model.py"}

    def test_without_marks_a_module_travels_with_its_package(self, place: Path) -> None:
        write(
            place, {"pkg/__init__.py": "", "pkg/train.py": "import shared\n", "shared.py": "", "other.py": ""}
        )
        assert sent(found(place, "pkg.train", MODULE)) == {"pkg/__init__.py", "pkg/train.py", "shared.py"}

    def test_has_its_submodules_by_their_own_rules(self, place: Path, tmp_path: Path) -> None:
        part = write(tmp_path / "part", {"code.py": "", "kept.txt": "", ".gitignore": "*.log\n", "a.log": ""})
        write(
            place,
            {"train.py": "", ".gitignore": "*.txt\nout/\n", "out/big": "", "named.txt": "", "b.txt": ""},
        )
        for folder in (part, place):
            git(folder, "init", "-q")
            git(folder, "add", "-A")
        git(part, "add", "-f", "kept.txt")
        git(part, "commit", "-qm", "all")
        git(place, "add", "-f", "named.txt")
        git(place, "submodule", "add", "-q", str(part), "part")
        git(place, "commit", "-qm", "all")
        write(place, {"part/new.log": "", "part/new.txt": "", "new.py": "", "new.txt": ""})
        files = {"train.py", ".gitignore", ".gitmodules", "named.txt", "new.py"}
        own = {"part/code.py", "part/kept.txt", "part/.gitignore", "part/new.txt"}
        assert sent(found(place, "train.py")) == files | own
        git(place, "submodule", "deinit", "-f", "part")
        assert bundles.pack(found(place, "train.py")).notes == (
            "Nothing is in the submodule part: git submodule update --init",
        )
        write(place, {"made/x": "", "deleted/x": ""})
        git(place, "add", "deleted")
        git(place, "rm", "-q", "--cached", ".gitmodules")
        git(place, "commit", "-qm", "without names")
        for folder in ("made", "deleted"):
            (place / folder / "x").unlink()
        (place / ".gitmodules").unlink()
        assert bundles.pack(found(place, "train.py")).notes == (
            "Nothing is in the submodule part: git submodule update --init",
        )

    @pytest.mark.parametrize("path", ["n" * 300, "a\0b", "/etc"])
    def test_a_submodule_that_no_folder_can_be_is_none(self, place: Path, path: str) -> None:
        write(place, {"train.py": "", ".gitmodules": f'[submodule "x"]\n\tpath = {path}\n'})
        assert bundles.pack(found(place, "train.py")).notes == ()


class TestWhatStays:
    def test_is_what_holds_secrets_or_leads_elsewhere_by_name(self, place: Path) -> None:
        key = "-----BEGIN " + "PRIVATE KEY-----"
        write(place, {**HYDRA, ".env": "A=1", "deep/key.json": key, "venv/pyvenv.cfg": "", "venv/x.py": ""})
        write(
            place, {"r1/run.json": "", "r1/attempts/1": "", ".tpuctlignore": "train2.py\n", "train2.py": ""}
        )
        (place / "data").symlink_to("/var")
        program = found(place, "train.py")
        assert sent(program) == {*HYDRA, ".tpuctlignore"}
        assert bundles.pack(program).notes == (
            "Not sent, as such files hold credentials: .env, deep/key.json. Pass secrets by --secret.",
            "Not sent, as a link leads out of the project: data.",
        )
        assert ".env" in sent(program, place / ".env")

    @pytest.mark.parametrize(("rules", "is_told"), [(".gitignore", True), (".tpuctlignore", False)])
    def test_is_told_of_credentials_that_git_ignores(self, place: Path, rules: str, is_told: bool) -> None:
        write(place, {**HYDRA, ".env": "A=1", "keys/id_rsa": "", rules: ".env\nid_rsa\n"})
        note = "Not sent, as such files hold credentials: .env, keys/id_rsa. Pass secrets by --secret."
        assert bundles.pack(found(place, "train.py")).notes == ((note,) if is_told else ())

    def test_is_told_where_git_ignores_data_that_the_program_names(self, place: Path) -> None:
        write(
            place,
            {".git/HEAD": "ref: refs/heads/main\n", ".git/objects/info/x": "", ".gitignore": "*.bin\nout\n"},
        )
        write(place, {"data/char/train.bin": "", "data/web/train.bin": "", "b.bin": "", "out/val.bin": ""})
        write(place, {"train.py": 'data = open(f"data/{name}/train.bin")\nsave("val.bin", "out")\n'})
        program, note = (
            found(place, "train.py"),
            "Not sent, as .gitignore names it, though train.py does, too:",
        )
        way = "If the run reads it: --include data/{}/train.bin"
        assert bundles.pack(program).notes == (
            f"{note} data/char/train.bin, data/web/train.bin. {way.format('char')}",
        )
        included = bundles.pack(program, [place / "data/char/train.bin"])
        assert included.notes == (f"{note} data/web/train.bin. {way.format('web')}",)

    def test_is_sent_where_the_command_line_names_it(self, place: Path) -> None:
        write(
            place, {**HYDRA, ".gitignore": "*.npz\nbig/\n", "a.npz": "", "b.npz": "", "big/x": "", ".env": ""}
        )
        program, outside = found(place, "train.py"), place.parent / "file"
        outside.write_text("")
        words = ("--data=a.npz", "big", ".env", "../file", "--x", "no.npz", "/dev/null", "conf")
        assert sent(program, words=words) - {*HYDRA, ".gitignore"} == {"a.npz"}
        assert bundles.pack(program, words=words).notes[:3] == (
            "big is named, and is not sent. If the run reads it: --include big",
            ".env is named, and holds credentials: it is not sent.",
            f"../file is named, and is outside of {place}: it is not sent.",
        )

    def test_is_neither_the_program_nor_a_generated_module_of_a_package(self, place: Path) -> None:
        own = {"local/a.py": "import b\n", "local/b.py": "", "local/c.py": "", "pkg/__init__.py": ""}
        ignored = "local/\n_version.py\n"
        write(
            place,
            {**own, "pkg/_version.py": "", "conf/_version.py": "", ".gitignore": ignored, "setup.py": ""},
        )
        kept = {"pkg/__init__.py", "pkg/_version.py", ".gitignore", "setup.py"}
        assert sent(found(place, "setup.py")) == kept
        assert sent(found(place, "local/a.py")) == {*kept, "local/a.py", "local/b.py"}

    def test_of_a_folder_that_is_included_is_said(self, place: Path) -> None:
        write(place, {"train.py": "", "data/meta.json": "", "data/train.bin": "", ".gitignore": "*.bin\n"})
        assert bundles.pack(found(place, "train.py"), [place / "data"]).notes == (
            "Not sent, as .gitignore names it: data/train.bin. Name it too: --include data/train.bin",
        )

    def test_of_a_projects_folder_that_is_included_is_by_rules_of_tpuctl_alone(self, place: Path) -> None:
        write(place, {"pyproject.toml": "", "train.py": "", ".gitignore": "*.bin\nraw/\n"})
        write(place, {"data/a.bin": "", "data/raw/b.txt": "", "data/c.bin": "", "other.bin": ""})
        write(place, {"data/.tpuctlignore": "c.*\n"})
        code = bundles.pack(found(place, "train.py"), [place / "data"])
        assert {"data/a.bin", "data/raw/b.txt"} == {name for name, _ in code.files()} - sent(
            found(place, "train.py")
        )
        assert not code.notes


class TestSettings:
    def test_of_the_project_give_way_to_the_header(self, place: Path) -> None:
        write(place, SOURCE_LAYOUT)
        header = programs.header_of(found(place, "pkg.train", MODULE))
        file = "pyproject.toml"
        assert (header.tpuctl.framework, header.origins) == (
            "jax", {"framework": file, "env": file, "env.A": file, "env.B": file},
        )  # fmt: skip
        below = programs.header_of(
            found(place, "pkg.train", MODULE), {"framework": "tensorflow", "setup": "make"}
        )
        assert (below.tpuctl.framework, below.tpuctl.setup) == ("jax", "make")
        assert below.origins == {**header.origins, "setup": "tpuctl.toml"}
        with pytest.raises(UsageError, match=r"The table \[run\] of tpuctl\.toml is wrong: .*framwork"):
            programs.header_of(found(place, "pkg.train", MODULE), {"framwork": "jax"})
        text = "# /// script\n# [tool.tpuctl]\n# framework = 'pytorch'\n# env = { B = '2' }\n# ///\n"
        (place / "src/pkg/train.py").write_text(text)
        header = programs.header_of(found(place, "pkg.train", MODULE))
        assert (header.tpuctl.framework, header.tpuctl.env) == ("pytorch", {"A": "1", "B": "2"})

    def test_that_are_wrong_are_refused_by_name(self, place: Path) -> None:
        write(place, {"pyproject.toml": "[tool.tpuctl]\nframwork = 1\n", "a.py": ""})
        with pytest.raises(UsageError, match=r"pyproject\.toml is wrong: .*framwork"):
            programs.header_of(found(place, "a.py"))


@pytest.mark.parametrize(
    ("script", "kind", "message", "hint"),
    [
        ("pkg.trian", MODULE, "There is no module pkg.trian", "pkg/trian.py"),
        ("scripts/train.py", MODULE, "is not the name of a module", "-m scripts.train"),
        ("pkg", "", "pkg is a folder", "-m pkg"),
        ("python train.py", "", "There is no file", "tpuctl submit -- python train.py"),
        ("scripts.train", "", "There is no file", "tpuctl submit -m scripts.train"),
    ],
)
def test_what_is_not_there_is_refused_with_the_way(
    place: Path, script: str, kind: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        found(write(place, BESIDE), script, kind)
    assert hint in refused.value.hint


class TestNotebook:
    def test_runs_in_its_folder_and_needs_what_its_cells_install(self, place: Path) -> None:
        cells = [
            "%pip install -q optax 'flax>=0.8'\n!pip install -r x.txt",
            "%%bash\nls",
            "import model\n!ls",
        ]
        code = [{"cell_type": "code", "source": [cell]} for cell in cells]
        notebook = json.dumps({"cells": code, "metadata": {}})
        write(place, {"deep/a.ipynb": notebook, "deep/model.py": "", "deep/other.py": ""})
        lone = found(place, "deep/a.ipynb")
        assert (sent(lone), lone.directory) == ({"a.ipynb", "model.py"}, "")
        write(place, {"setup.py": ""})
        program = found(place, "deep/a.ipynb")
        assert (program.script, program.directory) == ("deep/a.ipynb", "deep")
        assert programs.header_of(program).dependencies == ("optax", "flax>=0.8", "ipython")

    @pytest.mark.parametrize(
        "text",
        [
            "{}",
            "print(1)",
            '{"cells": [{"cell_type": "code"}], "metadata": {}}',
            "[]",
            '{"cells": 1}',
            '{"cells": [{"cell_type": "code", "source": "\\ud800"}], "metadata": {}}',
        ],
    )
    def test_that_is_none_is_refused(self, place: Path, text: str) -> None:
        write(place, {"a.ipynb": text})
        with pytest.raises(UsageError, match="is no notebook of version 4"):
            programs.header_of(found(place, "a.ipynb"))
