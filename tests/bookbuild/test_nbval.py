"""Test the comparison of outputs in `make test`: which differences fail and which pass."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookbuild.notebooks.cleaning import clean
from bookbuild.notebooks.files import write

BOOK = Path(__file__).parents[2] / "book"


def stored(source, text, **metadata):
    outputs = (
        [new_output("execute_result", {"text/plain": text}, execution_count=1)] if text else []
    )
    return new_code_cell(source, id=f"c{abs(hash(source))}", outputs=outputs, metadata=metadata)


FIGURE = """\
class Figure:
    def __repr__(self):
        return "<figure: step · loss>"
    def _repr_html_(self):
        return '<figure class="book-figure" lang="en"><svg>\\n1.25</svg></figure>'
Figure()"""


def drawing(label):
    """Return a cell with a slightly different figure in the other language, and with `label`."""
    cell = stored(FIGURE, f"<figure: step · {label}>")
    html = '<figure class="book-figure" lang="zh"><svg>\n1.24</svg></figure>'
    cell.outputs[0].data["text/html"] = html
    return cell


@pytest.fixture
def validate(tmp_path):
    """Return a function that validates notebooks and returns the process and its record."""
    folder = tmp_path / "book"
    (folder / "en").mkdir(parents=True)
    for name in ("conftest.py", "nbval.cfg", "pytest.ini"):
        shutil.copy(BOOK / name, folder)

    def run(cuda="0", unrun=(), record="validated", **notebooks):
        for path in folder.glob("en/*"):
            path.unlink()
        for name, cells in notebooks.items():
            nb = clean(new_notebook(cells=cells))
            for cell in nb.cells:
                if cell.id in unrun:
                    cell.execution_count = None
            write(nb, folder / f"en/{name}.ipynb")
        command = [sys.executable, "-m", "pytest", "-n0", "-rA", f"--record-{record}", str(folder)]
        env = os.environ | {"BOOK_CUDA": cuda, "NO_COLOR": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        path = folder / f"{record}.json"
        return done, json.loads(path.read_text()) if path.exists() else None

    return run


def outcomes(done) -> dict[str, list[str]]:
    """Return the outcomes of the cells of each notebook, sorted."""
    found = {}
    for line in re.findall(r"^([A-Z]+) book/en/(\w+)\.ipynb::Cell", done.stdout, re.M):
        found.setdefault(line[1], []).append(line[0])
    return {name: sorted(kinds) for name, kinds in found.items()}


def test_only_differences_between_machines_are_ignored(validate):
    bold = stored("raise ValueError('\\x1b[1mbold\\x1b[0m')", "", tags=["raises-exception"])
    bold.outputs = [new_output("error", ename="ValueError", evalue="bold", traceback=[])]
    may = [
        bold,
        stored("1 + 1", "2"),
        stored("object()", "<object at 0x7f0000000000>"),
        stored(
            "class T:\n    def __repr__(self):\n        return 'tensor([1.], grad_fn=<X>)'\nT()",
            "tensor([1.], device='cuda:0',\n       grad_fn=<X>)",
        ),
        drawing("loss"),
    ]
    never = stored("3", "")
    done, validated = validate(
        may=may, differ=[stored("2", "2"), *DIFFERENT, never], unrun=[never.id]
    )
    assert done.returncode == 1
    assert outcomes(done) == {
        "may": ["PASSED"] * 5,
        "differ": ["ERROR"] + ["FAILED"] * len(DIFFERENT) + ["PASSED"],
    }
    assert re.search(r"\[\d/2\] en/may: \d+ s, passed", done.stdout)
    assert "was never run: run `book update`" in done.stdout
    assert set(validated["en/may"]["cpu"]) == {"date", "torch", "seconds"}
    assert validated["en/differ"] == {}


DIFFERENT = [
    stored("1 + 2", "2"),
    stored("None", "2"),
    stored("'cpu'", "'cuda'"),
    stored("1", "", tags=["raises-exception"]),
    stored("[1.234]", "[1.235]"),
    stored("1 / 0", ""),
    drawing("accuracy"),
]


def test_missing_gpu_fails_on_a_gpu_runner(validate):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done, _ = validate(cuda="1", sample=[stored("1", "1")])
    assert done.returncode == 4 and "reports no GPU" in done.stdout + done.stderr


def test_other_pytorch_version_fails_only_on_new_differences(validate):
    import torch

    reworded = stored("raise ValueError('new')", "", tags=["raises-exception"])
    reworded.outputs = [new_output("error", ename="ValueError", evalue="old", traceback=[])]
    changed = stored("raise ValueError('newer')", "", tags=["raises-exception"])
    changed.id, changed.outputs = reworded.id, reworded.outputs
    cells = [stored("1", "2"), stored("3", "3"), reworded]
    names = ("same", "worse", "longer", "healed")
    done, versions = validate(record="versions", **dict.fromkeys(names, cells))
    assert done.returncode == 1
    assert outcomes(done) == dict.fromkeys(names, ["FAILED", "FAILED", "PASSED"])
    (entry,) = versions.values()
    assert torch.__version__.startswith(list(versions)[0])
    assert list(entry["chapters"]) == sorted(names)
    differs = {cells[0].id: "", cells[2].id: "ValueError: new"}
    assert entry["differs"] == dict.fromkeys(names, differs)
    done, versions = validate(
        record="versions",
        same=cells,
        worse=[*cells[:2], changed],
        longer=[*cells, stored("4", "5")],
        healed=[cells[1]],
    )
    assert done.returncode == 1
    assert outcomes(done) == {
        "same": ["PASSED", "XFAIL", "XFAIL"],
        "worse": ["FAILED", "PASSED", "XFAIL"],
        "longer": ["FAILED", "PASSED", "XFAIL", "XFAIL"],
        "healed": ["PASSED"],
    }
    (entry,) = versions.values()
    assert entry["differs"]["same"] == differs and "healed" not in entry["differs"]
    done, again = validate(record="versions", same=cells, worse=cells)
    assert outcomes(done) == {
        "same": ["PASSED", "XFAIL", "XFAIL"],
        "worse": ["FAILED", "PASSED", "XFAIL"],  # the last record has another error
    }
    done, last = validate(record="versions", same=cells)
    assert done.returncode == 0 and again == last


def test_version_run_skips_torchvision_cells_without_torchvision(validate, monkeypatch, tmp_path):
    # `sitecustomize`, imported at startup, makes `find_spec` return None for torchvision
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'torchvision' else found(n, *a)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    needs = [stored("'torchvision'", "other")]
    done, versions = validate(record="versions", sample=needs)
    assert done.returncode == 5 and list(versions.values())[0]["chapters"] == {}  # no cells
    done, _ = validate(sample=needs)
    assert done.returncode == 1, "only `--record-versions` may skip cells"


def test_output_patterns_run_in_linear_time():
    """Limit the time: a pattern that looks back to the last space would take seconds here."""
    lines = (BOOK / "nbval.cfg").read_text().splitlines()
    patterns = [re.compile(line[7:]) for line in lines if line.startswith("regex: ")]
    assert len(patterns) > 10
    begun = time.process_time()
    for pattern in patterns:
        pattern.sub("", "x" * 50_000)
    assert time.process_time() - begun < 1
