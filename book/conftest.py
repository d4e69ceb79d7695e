"""How nbval runs the book: the `gpu` tag, one environment for all kernels, and what a run proved."""

from __future__ import annotations

import datetime
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from bookbuild.notebooks import BookError, tags, write_text
from bookbuild.run import prepare_kernels, use_cuda

FOLDER = Path(__file__).parent
CUDA = pytest.StashKey[bool]()
seconds: dict[str, float] = {}
failed: set[str] = set()


def pytest_addoption(parser):
    parser.addoption(
        "--record-validated",
        action="store_true",
        help="write what passed to book/validated.json, which the status page shows",
    )


def pytest_configure(config):
    try:
        cuda = use_cuda()
    except BookError as error:
        raise pytest.UsageError(str(error)) from None
    prepare_kernels(cuda)
    config.stash[CUDA] = cuda


def is_cell(item) -> bool:
    return type(item).__name__ == "IPyNbCell"


def pytest_itemcollected(item):
    if is_cell(item) and "gpu" in tags(item.cell) and not item.config.stash[CUDA]:
        item.add_marker(pytest.mark.skip(reason="needs a GPU; its stored output is kept"))


def pytest_runtest_setup(item):
    # nbval compares nothing for a cell without an execution count: it would pass whatever it prints.
    never_run = is_cell(item) and item.cell.execution_count is None and item.cell.source.strip()
    if never_run and not item.get_closest_marker("skip"):
        pytest.fail(f"cell {item.cell.id} was never run: run `book run`", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if is_cell(item):
        path = Path(item.parent.path)
        report.chapter = f"{path.parent.name}/{path.stem}"
    return report


def pytest_runtest_logreport(report):
    if chapter := getattr(report, "chapter", None):
        seconds[chapter] = seconds.get(chapter, 0) + report.duration
        if report.failed:
            failed.add(chapter)


def pytest_sessionfinish(session):
    """Keep date, versions and seconds of each notebook all of whose cells passed."""
    config = session.config
    if hasattr(config, "workerinput") or not config.getoption("--record-validated"):
        return
    path = FOLDER / "validated.json"
    known = json.loads(path.read_text("utf8")) if path.exists() else {}
    device = "gpu" if config.stash[CUDA] else "cpu"
    for chapter, duration in seconds.items():
        entry = known.setdefault(chapter, {})
        entry.pop(device, None)
        if chapter not in failed:
            entry[device] = {
                "date": datetime.date.today().isoformat(),
                "torch": version("torch").partition("+")[0],
                "seconds": round(duration),
            }
    write_text(path, json.dumps(known, indent=1, sort_keys=True) + "\n")
