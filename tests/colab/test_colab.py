"""Test notebooks as on Colab: an empty folder, with PyTorch but without the book's helpers.

A new environment uses the installed libraries, and `helpers` is installed from the repository and
the commit in the setup cell: here a local clone, by `git+file://`. It is installed once; each
chapter then runs separately.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bookbuild.notebooks import setup_cell
from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.files import read, write
from bookbuild.source.checkout import Book
from bookbuild.source.texts import SETUP

pytestmark = pytest.mark.rest

BOOK = Book.find(Path(__file__))
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
nb = nbformat.read("chapter.ipynb", 4)
NotebookClient(nb, timeout=300, kernel_name="python3").execute()
nbformat.write(nb, "done.ipynb")
"""


def call(*command, cwd=None, env=None):
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout.strip()


def clean_environment():
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """Commit the files that pip requires to a new repository; return its address and the commit.

    A later commit removes the helpers, so only the commit of the page works.
    """
    root = tmp_path_factory.mktemp("repository")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(BOOK.root / name, root)
    shutil.copytree(BOOK.root / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    call("git", "init", "-q", "-b", "main", cwd=root)
    git = ("git", "-c", "user.name=Book", "-c", "user.email=book@localhost")
    call("git", "add", "-A", cwd=root)
    call(*git, "commit", "-qm", "The book", cwd=root)
    commit = call("git", "rev-parse", "HEAD", cwd=root)
    call("git", "rm", "-qr", "src/helpers", cwd=root)
    call(*git, "commit", "-qm", "Helpers are gone", cwd=root)
    return root.as_uri(), commit


def fresh(root):
    """Create an environment with the libraries of this one, without helpers; return its Python."""
    call(sys.executable, "-m", "venv", "--without-pip", str(root))
    executable = root / "bin/python"
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(call(str(executable), "-c", query))
    # A directory named in a .pth file is searched, but its own .pth files (helpers') are not read.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    call(str(executable), "-c", "import importlib.util as u; assert not u.find_spec('helpers')")
    return executable


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    return fresh(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="session")
def python(repository, tmp_path_factory):
    """Return the Python of an environment in which the setup cell has installed the helpers."""
    executable = fresh(tmp_path_factory.mktemp("environment"))
    cell, folder = setup_cell.source(*repository), tmp_path_factory.mktemp("empty")
    assert call(str(executable), "-c", cell, cwd=folder, env=clean_environment()) == ""
    return executable


def test_setup_cell_installs_the_commit_of_the_page(python, repository):
    code = (
        "import helpers, importlib.metadata as m; print(helpers.__file__);"
        "print(m.distribution('executable-pytorch-notes').read_text('direct_url.json'))"
    )
    file, origin = call(str(python), "-c", code, env=clean_environment()).splitlines()
    assert Path(file).is_relative_to(python.parents[1])
    assert json.loads(origin)["vcs_info"]["commit_id"] == repository[1]


def test_installed_helpers_match_the_checkout(python):
    """Compare all files, data included."""
    code = "import helpers; print(helpers.__path__[0])"
    installed = Path(call(str(python), "-c", code, env=clean_environment()))

    def files(folder):
        every = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in every}

    assert files(installed) == files(BOOK.root / "src/helpers")


def test_wheel_works_without_dependencies(tmp_path, repository):
    """Install only the wheel: `helpers.explain` works without PyTorch, and no module is missing."""
    root = Path(unquote(urlsplit(repository[0]).path))
    source, wheels, target = (tmp_path / name for name in ("source", "wheels", "target"))
    call("git", "-C", str(root), "worktree", "add", "-q", str(source), repository[1])
    pip = (sys.executable, "-m", "pip")
    call(*pip, "wheel", "-q", "--no-deps", "-w", str(wheels), str(source))
    (wheel,) = wheels.iterdir()
    version = tomllib.loads((BOOK.root / "pyproject.toml").read_text("utf8"))["project"]["version"]
    assert wheel.name == f"executable_pytorch_notes-{version}-py3-none-any.whl"
    call(*pip, "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from helpers.explain import explain;"
        "print(explain('RuntimeError: grad can be implicitly created only for scalar outputs'))"
    )
    message = call(sys.executable, "-I", "-S", "-c", code, str(target), cwd=tmp_path)
    assert "loss.mean().backward()" in message
    names = {p.stem for p in (BOOK.root / "src/helpers").glob("*.py")}
    assert names <= {p.stem for p in (target / "helpers").glob("*.py")}


# The tests of the notebooks run all chapters; BOOK_COLAB=all runs them here, too.
CHAPTERS = ["detach"]


@pytest.mark.parametrize(
    "name", BOOK.chapters if os.environ.get("BOOK_COLAB") == "all" else CHAPTERS
)
def test_chapter_runs_alone(name, python, repository, tmp_path):
    nb = read(BOOK.notebook("en", name))
    nb.cells[[c.id for c in nb.cells].index(SETUP)].source = setup_cell.source(*repository)
    for cell in code_cells(nb):
        cell.outputs = []
    write(nb, tmp_path / "chapter.ipynb")
    env = clean_environment()
    env |= {"JUPYTER_DATA_DIR": str(tmp_path / "jupyter"), "JUPYTER_PREFER_ENV_PATH": "1"}
    call(str(python), "-c", EXECUTE, cwd=tmp_path, env=env)
    cells = code_cells(read(tmp_path / "done.ipynb"))
    assert cells[0].outputs == [], "the setup cell printed an output"
    for cell in cells:
        if "solution" in cell.metadata.get("tags", []):
            assert "✓" in str(cell.outputs), cell.id


def last_line(python, cell, folder):
    done = subprocess.run([str(python), "-c", cell], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_setup_cell_without_helpers_raises_with_advice(bare, tmp_path):
    message = last_line(bare, setup_cell.source(), tmp_path)
    assert message.startswith("RuntimeError: the book's package helpers is missing: open this")
    assert "_config" not in message and "pip install" in message


@pytest.mark.parametrize("own", ["helpers.py", "helpers/mine.py", "helpers/__init__.py"])
def test_setup_cell_reports_a_package_that_shadows_helpers(own, bare, python, tmp_path):
    """Report a reader's own `helpers` beside the notebook, with and without ours installed."""
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).write_text("raise SystemExit('it was imported')\n")
    package = own == "helpers/mine.py"  # an installed package precedes a folder without __init__.py
    for executable in (bare,) if package else (bare, python):
        message = last_line(executable, setup_cell.source(), tmp_path)
        assert "hides the book's helpers: rename it, restart the kernel" in message
        assert ("a folder called helpers" if package else str(tmp_path / own)) in message


def test_setup_cell_fits_a_page_and_contains_the_commit_once():
    stamped = setup_cell.source("https://github.com/owner/executable-pytorch-notes", "f" * 40)
    for cell in (setup_cell.source(), stamped):
        assert max(map(len, cell.splitlines())) <= 79
        compile(cell, "setup", "exec")
    assert stamped.count("f" * 40) == 1 and "git+" not in setup_cell.source()
