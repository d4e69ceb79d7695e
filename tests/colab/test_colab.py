"""As on Colab: one notebook in an empty folder, PyTorch there, the book's helpers not.

A fresh environment sees the installed libraries, and `helpers` has to come from the repository that
the setup cell names: here a local one, by `git+file://`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from bookbuild.notebooks import Book, code_cells, read, write

BOOK = Book.find(Path(__file__))
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
nb = nbformat.read("chapter.ipynb", 4)
NotebookClient(nb, timeout=300, kernel_name="python3", skip_cells_with_tag="gpu").execute()
nbformat.write(nb, "done.ipynb")
"""


def call(*command, cwd=None, env=None):
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """What pip needs of this checkout, as it is now, in a repository of its own."""
    root = tmp_path_factory.mktemp("repository")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(BOOK.root / name, root)
    shutil.copytree(BOOK.root / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    call("git", "init", "-q", "-b", "main", cwd=root)
    call("git", "add", "-A", cwd=root)
    who = ("-c", "user.name=Book", "-c", "user.email=book@localhost")
    call("git", *who, "commit", "-qm", "The book", cwd=root)
    return root.as_uri()


@pytest.fixture
def python(tmp_path_factory):
    """A fresh environment that has the libraries of this one, and no helpers."""
    root = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", str(root))
    executable = root / "bin/python"
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(call(str(executable), "-c", query).strip())
    # A directory named in a .pth file is searched, but its own .pth files (helpers') are not read.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    call(str(executable), "-c", "import importlib.util as u; assert not u.find_spec('helpers')")
    return executable


@pytest.mark.parametrize("name", BOOK.chapters)
def test_a_chapter_alone(name, python, repository, tmp_path, monkeypatch):
    monkeypatch.setenv("BOOK_REPOSITORY_URL", repository)
    nb = read(BOOK.path("en", name))
    nb.cells[[c.id for c in nb.cells].index("setup")].source = Book(BOOK.root).setup
    for cell in code_cells(nb):
        cell.outputs = []
    write(nb, tmp_path / "chapter.ipynb")
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"JUPYTER_DATA_DIR": str(tmp_path / "jupyter"), "JUPYTER_PREFER_ENV_PATH": "1"}
    call(str(python), "-c", EXECUTE, cwd=tmp_path, env=env)
    cells = code_cells(read(tmp_path / "done.ipynb"))
    assert cells[0].outputs == [], "the setup cell speaks where it should be silent"
    for cell in cells:
        if "solution" in cell.metadata.get("tags", []):
            assert "✓" in str(cell.outputs), cell.id


def test_without_a_repository_one_sentence_says_what_to_set(python, tmp_path, monkeypatch):
    monkeypatch.delenv("BOOK_REPOSITORY_URL", raising=False)
    book = Book(BOOK.root)
    book.config["repository"] = {"url": ""}
    done = subprocess.run(
        [str(python), "-S", "-c", book.setup], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "helpers is not installed: set repository.url in _config.yml" in done.stderr
