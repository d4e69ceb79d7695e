"""Helpers of the chapter on backward: find the line or the module that produced a wrong gradient.

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

from helpers import checks


def blame(function: Callable[[], Any]) -> dict[str, str] | None:
    """Run `function` in anomaly mode and return the forward line whose backward pass failed.

    `function` must run both the forward and the backward pass: anomaly mode records only the
    operations that run while it is on. It slows every operation down, so use it for debugging only.
    Anomaly mode checks the results of the backward pass alone. If the forward pass produced the
    nan, it reports the last operation, so check first that the loss is finite.

    Returns:
        None if the backward pass succeeded, else `error` (the first sentence of the message),
        `operation` (the graph node that failed) and `line` (the code that recorded this node in the
        forward pass, outside of torch). For an in-place error this is the line whose saved tensor
        was overwritten; the line that overwrote it ran later.

    Raises:
        TypeError: `function` cannot be called.
        Exception: the exception of `function`, if it did not come from a backward pass.

    Source: https://pytorch.org/docs/stable/autograd.html#anomaly-detection
    """
    checks.function("function", function)
    reports: list[str] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def collect(message: Warning | str, *where: Any, **more: Any) -> None:
            if str(message).startswith("Error detected in"):
                reports.append(str(message))
            else:
                show(message, *where, **more)

        warnings.showwarning = collect
        warnings.filterwarnings("always", "Error detected in")
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        with torch.autograd.detect_anomaly():
            try:
                function()
            except Exception as error:
                for report in reports:
                    if location := _forward_line(report):
                        sentence = re.split(r"[.:] |\.$", str(error).strip())[0]
                        return {"error": sentence, **location}
                raise
    return None


def _forward_line(text: str) -> dict[str, str] | None:
    """Return the node and the innermost line outside of torch from the warning of anomaly mode."""
    node = re.match(r"Error detected in (\w+)\. Traceback of forward call", text)
    if node is None:
        return None
    inside = os.path.dirname(torch.__file__) + os.sep
    frames = re.findall(r'^  File "(.+)", line \d+, in .+\n    (.+)$', text, re.M)
    lines = [line for path, line in frames if not path.startswith(inside)]
    return {"operation": node[1], "line": lines[-1].strip() if lines else "?"}
