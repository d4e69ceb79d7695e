"""Execute a notebook in its own kernel."""

from __future__ import annotations

import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells, tags
from bookbuild.source.checkout import BookError

if TYPE_CHECKING:
    from nbclient import NotebookClient

TIMEOUT = 120  # limit of a cell's run time, in seconds
MAX_OUTPUT = 200_000  # limit of a cell's output, in characters: a longer page is unreadable
KERNEL_ENV = {
    "PYTHONHASHSEED": "0",  # makes the iteration order of sets reproducible
    "OMP_NUM_THREADS": "1",  # fixes the order of sums; kernels do not compete for cores
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "TORCH_LOGS": "-torch.utils.cpp_extension",  # it logs a warning if nvcc exists without a GPU
    "JUPYTER_PREFER_ENV_PATH": "1",  # use this environment's kernel, not one in the home folder
}


class Interrupted(BookError):
    """Raised when a run was interrupted with Ctrl+C."""


def use_cuda() -> bool:
    """Return True if notebooks use a GPU: `BOOK_CUDA` is `0` (no), `1` (yes) or unset (if any).

    Raises:
        BookError: `BOOK_CUDA=1` and there is no GPU, or `BOOK_CUDA` has an invalid value.
    """
    mode = os.environ.get("BOOK_CUDA", "auto")
    if mode not in ("auto", "0", "1"):
        raise BookError(f"BOOK_CUDA must be 0, 1 or unset, got {mode!r}")
    cuda = mode != "0" and driver_sees_gpu()
    if mode == "1" and not cuda:
        raise BookError("BOOK_CUDA=1, but the NVIDIA driver reports no GPU")
    return cuda


def driver_sees_gpu() -> bool:
    """Return True if the NVIDIA driver reports a GPU; does not import torch."""
    import ctypes

    try:
        cuda = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return False
    return count.value > 0


def prepare_kernels() -> bool:
    """Set the environment variables that kernels inherit; return True if they use a GPU.

    With `BOOK_WARNINGS=error`, kernels raise deprecation warnings as errors.

    Raises:
        BookError: `BOOK_CUDA` or `BOOK_WARNINGS` has an invalid value, or `BOOK_CUDA=1` without
            a GPU.
    """
    cuda = use_cuda()
    os.environ.update(KERNEL_ENV)
    if not cuda:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    mode = os.environ.get("BOOK_WARNINGS", "default")
    if mode not in ("default", "error"):
        raise BookError(f"BOOK_WARNINGS must be default, error or unset, got {mode!r}")
    if mode == "error":
        os.environ["PYTHONSTARTUP"] = str(Path(__file__).with_name("warnings_as_errors.py"))
    return cuda


def execute(nb: NotebookNode, folder: Path, where: str) -> NotebookNode:
    """Run a notebook in `folder` with its own kernel.

    Raises:
        BookError: a cell raised, timed out or killed its kernel, or did not raise although it
            is tagged `raises-exception`; the message names chapter, cell and exception.
        Interrupted: the run was interrupted with Ctrl+C.
    """
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    log = logging.getLogger(__name__)  # nbclient's log repeats the exceptions below
    log.addHandler(logging.NullHandler())
    log.propagate = False
    current = {}
    client = NotebookClient(
        nb,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        log=log,
        on_cell_start=lambda cell, cell_index: current.update(cell=cell),
    )
    try:
        _run(client)
    except KeyboardInterrupt:
        cell = f"::{current['cell'].id}" if current else ""
        raise Interrupted(f"{where}{cell}: interrupted") from None
    except NoSuchKernel:
        raise BookError("there is no Jupyter kernel: `pip install ipykernel`") from None
    except CellExecutionError as error:
        message = " ".join(f"{error.ename}: {error.evalue}".split())
        raise BookError(f"{where}::{current['cell'].id}: {message}") from None
    except CellTimeoutError:
        raise BookError(f"{where}::{current['cell'].id}: ran longer than {TIMEOUT} s") from None
    except DeadKernelError:
        raise BookError(f"{where}::{current['cell'].id}: the kernel died") from None
    except RuntimeError as error:
        raise BookError(f"{where}: the kernel did not start: {error}") from None
    _check_outputs(nb, where)
    return nb


def _run(client: NotebookClient) -> None:
    """Run a notebook in a thread: Ctrl+C raises here instead of being handled by nbclient."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(client.execute, stdout=DEVNULL, stderr=DEVNULL)
        try:
            done.result()
        except KeyboardInterrupt:
            if client.km.has_kernel:
                os.kill(client.km.provisioner.pid, signal.SIGKILL)
            wait([done])
            raise


def _check_outputs(nb: NotebookNode, where: str) -> None:
    """Raise if a cell exceeds `MAX_OUTPUT` or, tagged `raises-exception`, does not raise."""
    for cell in code_cells(nb):
        if (size := len(str(cell.outputs))) > MAX_OUTPUT:
            raise BookError(
                f"{where}::{cell.id}: prints {size:,} characters, at most {MAX_OUTPUT:,}"
            )
        raised = any(o.output_type == "error" for o in cell.outputs)
        if "raises-exception" in tags(cell) and not raised:
            raise BookError(f"{where}::{cell.id}: tagged raises-exception, but nothing was raised")
