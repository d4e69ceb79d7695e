"""Execute the English notebooks and store their outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from nbformat import NotebookNode

from bookbuild.notebooks import Book, BookError, clean, code_cells, read, tags, write

TIMEOUT = 120  # seconds a cell may take
KERNEL_ENV = {
    "PYTHONHASHSEED": "0",  # sets print in one order
    "OMP_NUM_THREADS": "1",  # one way to split a sum, and no two kernels fighting over cores
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel, not one in the home folder
}


def use_cuda() -> bool:
    """Whether notebooks may use a GPU: `BOOK_CUDA` is `0` (never), `1` (must) or unset (if any).

    Raises:
        BookError: `BOOK_CUDA=1` and there is no GPU, or `BOOK_CUDA` is something else.
    """
    mode = os.environ.get("BOOK_CUDA", "auto")
    if mode not in ("auto", "0", "1"):
        raise BookError(f"BOOK_CUDA must be 0, 1 or unset, got {mode!r}")
    found = mode != "0" and driver_sees_gpu()
    if mode == "1" and not found:
        raise BookError("BOOK_CUDA=1, but the NVIDIA driver reports no GPU")
    return found


def driver_sees_gpu() -> bool:
    """Ask libcuda itself: milliseconds, where importing torch would cost seconds."""
    import ctypes

    try:
        cuda = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return False
    return count.value > 0


def prepare_kernels(cuda: bool) -> None:
    """Set the environment that kernels inherit; `BOOK_WARNINGS=error` makes deprecations errors.

    Raises:
        BookError: `BOOK_WARNINGS` is something else.
    """
    os.environ.update(KERNEL_ENV)
    if not cuda:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    mode = os.environ.get("BOOK_WARNINGS", "default")
    if mode not in ("default", "error"):
        raise BookError(f"BOOK_WARNINGS must be default, error or unset, got {mode!r}")
    if mode == "error":
        os.environ["PYTHONSTARTUP"] = str(Path(__file__).with_name("warnings_as_errors.py"))


def execute(nb: NotebookNode, folder: Path, where: str, cuda: bool) -> NotebookNode:
    """Run a notebook in `folder` with a kernel of its own.

    Raises:
        BookError: a cell raised, ran out of time, killed its kernel, or did not raise although it
            is tagged `raises-exception`; the message names chapter, cell and exception.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    current = {}
    client = NotebookClient(
        nb,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        skip_cells_with_tag="" if cuda else "gpu",
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        on_cell_start=lambda cell, cell_index: current.update(cell=cell),
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise BookError(f"{where}::{current['cell'].id}: {error.ename}: {error.evalue}") from None
    except CellTimeoutError:
        raise BookError(f"{where}::{current['cell'].id}: ran longer than {TIMEOUT} s") from None
    except DeadKernelError:
        raise BookError(f"{where}::{current['cell'].id}: the kernel died") from None
    for cell in code_cells(nb):
        raised = any(o.output_type == "error" for o in cell.outputs)
        if "raises-exception" in tags(cell) and not raised and cell.execution_count is not None:
            raise BookError(f"{where}::{cell.id}: tagged raises-exception, but nothing was raised")
    return nb


def run(book: Book, names: Iterable[str] = (), echo=print) -> None:
    """Execute chapters, stamp their setup cell and store the cleaned outputs.

    Raises:
        BookError: see `execute`; that chapter's file stays as it was.
    """
    cuda = use_cuda()
    prepare_kernels(cuda)
    chosen = book.choose(list(names))
    for n, name in enumerate(chosen, 1):
        path = book.path("en", name)
        nb, begun = read(path), time.perf_counter()
        for cell in code_cells(nb):
            if cell.id == "setup":
                cell.source = book.setup
        execute(nb, path.parent, f"en/{name}", cuda)
        changed = write(clean(nb), path)
        seconds = time.perf_counter() - begun
        echo(
            f"[{n}/{len(chosen)}] {name}: {seconds:.1f} s, {'changed' if changed else 'unchanged'}"
        )
