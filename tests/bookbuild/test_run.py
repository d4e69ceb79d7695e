"""Running notebooks in real kernels: outputs are stored, and a failure names chapter and cell."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell

from bookbuild import run as running
from bookbuild.notebooks import BookError, code_cells, read
from bookbuild.run import run, use_cuda


@pytest.fixture(autouse=True)
def keep_environment(monkeypatch):
    for name in (*running.KERNEL_ENV, "CUDA_VISIBLE_DEVICES", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("BOOK_CUDA", "0")


def test_run_stores_what_the_code_prints_and_is_idempotent(book, edit):
    def change(nb):
        nb.cells[2].outputs, nb.cells[2].source = [], "import os; print(6 * 7)\nassert True\nnot 0"
        nb.cells[1].source = "stale"

    edit("en", "adding", change)
    said = []
    run(book, ["adding"], echo=said.append)
    path = book.path("en", "adding")
    first = path.read_bytes()
    cells = code_cells(read(path))
    assert cells[0].source == book.setup
    assert cells[1].outputs[0].text == "42\n"
    assert cells[1].outputs[1].data["text/plain"] == "True"
    run(book, ["adding"], echo=said.append)
    assert path.read_bytes() == first
    assert [line.split(", ")[1] for line in said] == ["changed", "unchanged"]


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("[][3]", r"en/adding::adding-numbers: IndexError: list index out of range"),
        ("import os; os._exit(1)", r"en/adding::adding-numbers: the kernel died"),
        ("import time; time.sleep(60)", r"en/adding::adding-numbers: ran longer than 1 s"),
    ],
)
def test_a_failure_leaves_the_file_and_names_the_cell(book, edit, monkeypatch, source, what):
    if "sleep" in source:
        monkeypatch.setattr(running, "TIMEOUT", 1)
    edit("en", "adding", lambda nb: nb.cells[2].update(source=source))
    before = book.path("en", "adding").read_bytes()
    with pytest.raises(BookError, match=what):
        run(book, ["adding"], echo=lambda line: None)
    assert book.path("en", "adding").read_bytes() == before


def test_a_cell_that_should_raise_and_does_not(book, edit):
    edit("en", "failing", lambda nb: nb.cells[2].update(source="1 / 1"))
    with pytest.raises(BookError, match="failing::failing-error: tagged raises-exception, but"):
        run(book, ["failing"], echo=lambda line: None)


def test_a_gpu_cell_keeps_its_output_without_a_gpu(book, edit):
    def change(nb):
        gpu = new_code_cell("1 / 0", id="adding-gpu", metadata={"tags": ["gpu"]})
        nb.cells.append(gpu)

    edit("en", "adding", change)
    run(book, ["adding"], echo=lambda line: None)
    cell = read(book.path("en", "adding")).cells[-1]
    assert cell.outputs == [] and cell.execution_count is None


@pytest.mark.parametrize(
    ("mode", "gpu", "answer"), [("0", True, False), ("auto", True, True), ("auto", False, False)]
)
def test_which_device_is_used(monkeypatch, mode, gpu, answer):
    monkeypatch.setenv("BOOK_CUDA", mode)
    monkeypatch.setattr(running, "driver_sees_gpu", lambda: gpu)
    assert use_cuda() is answer


@pytest.mark.parametrize(("mode", "what"), [("1", "reports no GPU"), ("yes", "must be 0, 1")])
def test_a_missing_gpu_is_an_error_where_one_is_wanted(monkeypatch, mode, what):
    monkeypatch.setenv("BOOK_CUDA", mode)
    monkeypatch.setattr(running, "driver_sees_gpu", lambda: False)
    with pytest.raises(BookError, match=what):
        use_cuda()


OLD = "import warnings\nwarnings.warn({!r}, {})"


@pytest.mark.parametrize(
    ("source", "raises"),
    [
        (OLD.format("gone in 3.0", "DeprecationWarning"), "DeprecationWarning: gone in 3.0"),
        (OLD.format("gone in 3.0", "FutureWarning"), "FutureWarning: gone in 3.0"),
        (OLD.format("cell: f() is deprecated", "UserWarning"), "UserWarning: cell: f"),
        (OLD.format("a warning like any other", "UserWarning"), None),
        ("import warnings\nwith warnings.catch_warnings(record=True) as caught:\n"
         "    warnings.simplefilter('always')\n    warnings.warn('old', DeprecationWarning)\n"
         "assert len(caught) == 1", None),
        ("assert 'category' not in dir()", None),
    ],
)  # fmt: skip
def test_deprecations_can_be_made_errors(book, edit, monkeypatch, source, raises):
    edit("en", "adding", lambda nb: nb.cells[2].update(source=source))
    monkeypatch.setenv("BOOK_WARNINGS", "error")
    if raises:
        with pytest.raises(BookError, match=f"adding::adding-numbers: {raises}"):
            run(book, ["adding"], echo=lambda line: None)
        monkeypatch.setenv("BOOK_WARNINGS", "default")
        monkeypatch.setenv("PYTHONSTARTUP", "")
    run(book, ["adding"], echo=lambda line: None)


def test_a_misspelt_choice_of_warnings_is_refused(monkeypatch):
    monkeypatch.setenv("BOOK_WARNINGS", "errors")
    with pytest.raises(BookError, match="must be default, error or unset, got 'errors'"):
        running.prepare_kernels(False)
