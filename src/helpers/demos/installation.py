"""Broken installations for the chapter on installation, made in a folder or by a patch."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from helpers import child


@contextmanager
def cpu_build() -> Iterator[None]:
    """Make this PyTorch report a build without CUDA; a GPU that is in use stays in use."""
    originals = {
        name: getattr(torch._C, name) for name in dir(torch._C) if "_cuda_getDeviceC" in name
    }
    with patch.object(torch.version, "cuda", None):
        for name in originals:
            delattr(torch._C, name)
        try:
            yield
        finally:
            for name, value in originals.items():
                setattr(torch._C, name, value)


def report_beside(name: str, *options: str) -> str:
    """Return the line of the installation report that names the file `name`, or the error.

    `options` are those of Python, such as `"-P"`.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).touch()
        done = subprocess.run(
            [sys.executable, *options, "-m", "helpers.installation"],
            cwd=folder, env=child.environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    if done.returncode:
        return done.stderr.splitlines()[-1]
    return next((line for line in done.stdout.splitlines() if name in line), "nothing")


def beside(name: str, code: str) -> str:
    """Run `code` in a folder with an empty file `name`; return the last line, up to a bracket.

    Text in brackets is a path or, in newer versions of Python, a suggestion.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        last = child.run(f"import sys; sys.path[0] = ''\n{code}", folder)
    return re.split(r" \(", last or "nothing")[0]
