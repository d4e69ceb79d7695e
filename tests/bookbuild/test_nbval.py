"""The strict comparison as `make test` runs it: what must fail fails, what may differ passes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookbuild.notebooks import clean, write

BOOK = Path(__file__).parents[2] / "book"


def stored(source, text, **metadata):
    outputs = (
        [new_output("execute_result", {"text/plain": text}, execution_count=1)] if text else []
    )
    return new_code_cell(source, id=f"c{abs(hash(source))}", outputs=outputs, metadata=metadata)


@pytest.fixture
def validate(tmp_path):
    def run(*cells, cuda="0", unrun=(), record="validated"):
        folder = tmp_path / "book"
        (folder / "en").mkdir(parents=True, exist_ok=True)
        for name in ("conftest.py", "nbval.cfg", "pytest.ini"):
            shutil.copy(BOOK / name, folder)
        nb = clean(new_notebook(cells=list(cells)))
        for n in unrun:
            nb.cells[n].execution_count = None
        write(nb, folder / "en/sample.ipynb")
        record = f"--record-{record}"
        command = [sys.executable, "-m", "pytest", "-n0", "-rsx", record, str(folder)]
        env = os.environ | {"BOOK_CUDA": cuda, "NO_COLOR": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        path = folder / f"{record.removeprefix('--record-')}.json"
        return done, json.loads(path.read_text()) if path.exists() else None

    return run


def test_what_may_differ_between_machines_passes(validate):
    bold = stored("raise ValueError('\\x1b[1mbold\\x1b[0m')", "", tags=["raises-exception"])
    bold.outputs = [new_output("error", ename="ValueError", evalue="bold", traceback=[])]
    done, validated = validate(
        bold,
        stored("1 + 1", "2"),
        stored("object()", "<object at 0x7f0000000000>"),
        stored(
            "class T:\n    def __repr__(self):\n        return 'tensor([1.], grad_fn=<X>)'\nT()",
            "tensor([1.], device='cuda:0',\n       grad_fn=<X>)",
        ),
        stored("print('unseen')", "", tags=["gpu"]),
    )
    assert done.returncode == 0, done.stdout
    assert "needs a GPU; its stored output is kept" in done.stdout
    assert "[1/1] en/sample" in done.stdout
    assert set(validated["en/sample"]["cpu"]) == {"date", "torch", "seconds"}


DIFFERENT = [
    stored("1 + 2", "2"),
    stored("None", "2"),
    stored("'cpu'", "'cuda'"),
    stored("1", "", tags=["raises-exception"]),
    stored("[1.234]", "[1.235]"),
    stored("1 / 0", ""),
]


def test_what_differs_fails_and_so_does_what_never_ran(validate):
    done, validated = validate(stored("2", "2"), *DIFFERENT, stored("3", ""), unrun=[7])
    assert done.returncode == 1
    assert f"{len(DIFFERENT)} failed, 1 passed, 1 error" in done.stdout
    assert "was never run: run `book update`" in done.stdout
    assert validated == {"en/sample": {}}


def test_a_missing_gpu_is_an_error_on_a_gpu_runner(validate):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done, _ = validate(stored("1", "1"), cuda="1")
    assert done.returncode == 4 and "reports no GPU" in done.stdout + done.stderr


def test_under_another_pytorch_only_new_differences_fail(validate):
    import torch

    reworded = stored("raise ValueError('new')", "", tags=["raises-exception"])
    reworded.outputs = [new_output("error", ename="ValueError", evalue="old", traceback=[])]
    cells = [stored("1", "2"), stored("3", "3"), reworded]
    done, versions = validate(*cells, record="versions")
    assert done.returncode == 1 and "2 failed, 1 passed" in done.stdout
    (entry,) = versions.values()
    assert torch.__version__.startswith(list(versions)[0])
    assert entry["chapters"] == ["sample"]
    assert entry["differs"] == {"sample": {cells[0].id: "", cells[2].id: "ValueError: new"}}
    done, again = validate(*cells, record="versions")
    assert done.returncode == 0 and "1 passed, 2 xfailed" in done.stdout
    assert again == versions
    changed = stored("raise ValueError('newer')", "", tags=["raises-exception"])
    changed.id, changed.outputs = reworded.id, reworded.outputs
    done, _ = validate(*cells[:2], changed, record="versions")
    assert done.returncode == 1 and "1 failed, 1 passed, 1 xfailed" in done.stdout
    done, _ = validate(*cells, record="versions")  # as before, so it is new again
    assert done.returncode == 1 and "1 failed, 1 passed, 1 xfailed" in done.stdout
    done, _ = validate(*cells, stored("4", "5"), record="versions")
    assert done.returncode == 1 and "1 failed, 1 passed, 2 xfailed" in done.stdout
    done, healed = validate(cells[1], record="versions")
    assert done.returncode == 0 and list(healed.values())[0]["differs"] == {}


def test_without_torchvision_what_needs_it_is_left_out(validate, monkeypatch, tmp_path):
    # a module that says it is not there, found before the real one
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'torchvision' else found(n, *a)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done, versions = validate(stored("'torchvision'", "other"), record="versions")
    assert done.returncode == 5 and list(versions.values())[0]["chapters"] == []  # nothing left
    done, _ = validate(stored("'torchvision'", "other"))
    assert done.returncode == 1, "only a run for the versions may leave something out"


FIGURE = """\
class Figure:
    def __repr__(self):
        return "<figure: step · loss>"
    def _repr_html_(self):
        return '<figure class="book-figure" lang="en"><svg>\\n1.25</svg></figure>'
Figure()"""


@pytest.mark.parametrize(("label", "passes"), [("loss", True), ("accuracy", False)])
def test_figures_may_be_drawn_a_hair_beside_but_not_with_other_labels(validate, label, passes):
    cell = stored(FIGURE, f"<figure: step · {label}>")
    html = '<figure class="book-figure" lang="zh"><svg>\n1.24</svg></figure>'
    cell.outputs[0].data["text/html"] = html
    done, _ = validate(cell)
    assert (done.returncode == 0) == passes, done.stdout
