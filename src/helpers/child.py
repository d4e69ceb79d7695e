"""Call a function of the helpers, or run a program, in a new process.

The child has its own CUDA context and global settings, and an error that corrupts its context
does not affect the parent.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SECONDS = 300


def call(
    function: Callable[..., Any], *arguments: Any, env: Mapping[str, str] | None = None
) -> Any:
    """Call a function of an importable module in a new process and return what it returns.

    Args:
        function: the function; the child imports it by module and name.
        arguments: JSON-serializable values.
        env: environment variables to add or replace.

    Returns:
        The result after a JSON round trip: tuples are lists, keys are strings.

    Raises:
        TypeError: `function` cannot be called.
        RuntimeError: the process failed (the message has its last line) or exceeded `SECONDS`.
    """
    code = "import sys; from helpers import child; child._answer(*sys.argv[1:])"
    if not callable(function):
        raise TypeError(f"function must be a function, got {type(function).__name__}")
    name = function.__name__
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, function.__module__, name, json.dumps(arguments)],
            env={**environment(), **(env or {})},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name} was not done after {SECONDS} s in a child process") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{name} failed in a child process: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def run(program: str, folder: str | os.PathLike[str]) -> str:
    """Run Python code in a new process; return the last line of its output, or of its error.

    Args:
        program: the code.
        folder: the working directory.

    Returns:
        The line without the spaces around it; empty if nothing was printed.

    Raises:
        TypeError: `folder` is not a path.
        subprocess.TimeoutExpired: the program exceeded `SECONDS`.
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=os.fspath(folder), env=environment(), capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    return lines[-1].strip() if lines else ""


def environment() -> dict[str, str]:
    """Return this process's environment variables, for a child that imports the same `helpers`."""
    source = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def _answer(module: str, function: str, arguments: str) -> None:
    result = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    print(json.dumps(result), flush=True)
    sys.stderr.flush()
    # After an error on the device, the normal shutdown of CUDA can abort the process.
    os._exit(0)
