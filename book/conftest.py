"""Configure nbval for the notebooks: the environment of the kernels, and records of a run.

Under another PyTorch than the pinned one, `--record-versions` writes the cells with other outputs
to `versions.json`. A cell that is listed there with the same error is expected to differ; any other
difference fails.
"""

from __future__ import annotations

import datetime
import json
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.execution import prepare_kernels
from bookbuild.notebooks.forked_kernels import fork_kernels
from bookbuild.source.checkout import BookError, write_text

FOLDER = Path(__file__).parent
CUDA = pytest.StashKey[bool]()


def pytest_addoption(parser):
    parser.addoption(
        "--record-validated",
        action="store_true",
        help="write what passed to book/validated.json, which the status page shows",
    )
    parser.addoption(
        "--record-versions",
        action="store_true",
        help="list the cells that differ under this PyTorch in book/versions.json",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    try:
        config.stash[CUDA] = prepare_kernels()
    except BookError as error:
        raise pytest.UsageError(str(error)) from None
    config.option.nbval_sanitize_with = FOLDER / "nbval.cfg"
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notebooks(config))
        # Matplotlib's first import on a machine lists the fonts, and warns if that takes long.
        import_module("matplotlib.font_manager")


def pytest_ignore_collect(collection_path, config):
    """Ignore chapters that require torchvision if it is not installed.

    Not every PyTorch has a torchvision.
    """
    versions = config.getoption("--record-versions")
    if collection_path.suffix == ".ipynb" and versions and find_spec("torchvision") is None:
        helpers = FOLDER.parent / "src" / "helpers" / f"{collection_path.stem}.py"
        files = [path for path in (collection_path, helpers) if path.exists()]
        return any("torchvision" in path.read_text("utf8") for path in files) or None
    return None


def is_cell(item) -> bool:
    return type(item).__name__ == "IPyNbCell"


def pytest_collection_finish(session):
    """Fork kernels if more than two notebooks import PyTorch."""
    paths = {item.path for item in session.items if is_cell(item)}
    if sum("import torch" in path.read_text("utf8") for path in paths) > 2:
        fork_kernels()


def pytest_runtest_setup(item):
    # nbval compares no outputs of a cell without an execution count, so the cell would always pass
    if is_cell(item) and item.cell.execution_count is None and item.cell.source.strip():
        pytest.fail(f"cell {item.cell.id} was never run: run `book update`", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if is_cell(item):
        report.notebook = f"{item.path.parent.name}/{item.path.stem}"
        report.cells = len(code_cells(item.parent.nb))
        if report.failed:
            raised = (o for o in item.test_outputs or () if o["output_type"] == "error")
            report.differs = [item.cell.id, *(f"{o['ename']}: {o['evalue']}" for o in raised)]
            if item.config.getoption("--record-versions"):
                known = read_json("versions.json").get(here(item.config), {}).get("differs", {})
                if known.get(item.path.stem, {}).get(item.cell.id) == "".join(report.differs[1:]):
                    report.outcome, report.wasxfail = "skipped", "known to differ"
    return report


def here(config):
    """Return the version of PyTorch that the notebooks use, such as `2.11.0` or `2.11.0+gpu`."""
    return version("torch").partition("+")[0] + ("+gpu" if config.stash[CUDA] else "")


def card_name():
    import torch

    return torch.cuda.get_device_name()


def read_json(name):
    path = FOLDER / name
    return json.loads(path.read_text("utf8")) if path.exists() else {}


def write_json(name, content):
    write_text(FOLDER / name, json.dumps(content, indent=1, sort_keys=True) + "\n")


class Notebooks:
    """Report each completed notebook, and record the results; used only by xdist's main process."""

    def __init__(self, config):
        self.config = config
        self.seconds: dict[str, float] = {}
        self.left: dict[str, int] = {}
        self.failed: set[str] = set()
        self.differs: dict[str, dict[str, str]] = {}
        self.done: list[str] = []
        self.total: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        self.total |= {i.partition("::")[0] for i in ids}

    def pytest_collection_modifyitems(self, items):
        self.total |= {str(item.path) for item in items}

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if not (name := getattr(report, "notebook", None)):
            return
        self.seconds[name] = self.seconds.get(name, 0) + report.duration
        if report.failed:
            self.failed.add(name)
        if hasattr(report, "differs"):
            cell, *raised = report.differs
            self.differs.setdefault(name.partition("/")[2], {})[cell] = "".join(raised)
        if report.when == "teardown":
            self.left[name] = self.left.get(name, report.cells) - 1
            if self.left[name] == 0:
                self.finish(name)

    def finish(self, name):
        self.done.append(name)
        result = "FAILED" if name in self.failed else "passed"
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        terminal.ensure_newline()
        terminal.write_line(
            f"[{len(self.done)}/{len(self.total)}] {name}: {self.seconds[name]:.0f} s, {result}"
        )

    def pytest_sessionfinish(self, session):
        """Write the records that the options select."""
        if self.config.getoption("--record-versions"):
            self.record_versions()
        if self.config.getoption("--record-validated"):
            self.record_validated()

    def record_versions(self):
        """Write the date of each chapter's run, and the differing cells with their errors."""
        known = read_json("versions.json")
        before = known.get(here(self.config), {"chapters": {}, "differs": {}})
        ran = {name.partition("/")[2] for name in self.done}
        others = {name: cells for name, cells in before["differs"].items() if name not in ran}
        known[here(self.config)] = {
            "chapters": before["chapters"] | dict.fromkeys(ran, datetime.date.today().isoformat()),
            "differs": others | self.differs,
        }
        write_json("versions.json", known)

    def record_validated(self):
        """Write date, version, GPU and seconds of each notebook whose cells all passed."""
        known = read_json("validated.json")
        device, card = ("gpu", {"card": card_name()}) if self.config.stash[CUDA] else ("cpu", {})
        for name in self.seconds:
            entry = known.setdefault(name, {})
            entry.pop(device, None)
            if name in self.done and name not in self.failed:
                entry[device] = {
                    "date": datetime.date.today().isoformat(),
                    "torch": version("torch").partition("+")[0],
                    "seconds": round(self.seconds[name]),
                    **card,
                }
        write_json("validated.json", known)
