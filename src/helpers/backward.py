"""Helpers of the chapter "Run backward and check the gradient".

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch


def blame(function: Callable[[], Any]) -> dict[str, str] | None:
    """Run `function` in anomaly mode and name the line whose backward failed.

    `function` must do the forward and the backward pass: anomaly mode remembers only what was
    recorded while it was on. It is slow; use it to find a bug and then take it away.

    Returns:
        None if nothing failed, else `error` (the first sentence), `operation` (the node that
        failed) and `line`: the line of code that made this node in the forward pass, outside of
        torch itself. For an in-place error that is the victim: the line that overwrote its saved
        tensor comes after it.

    Raises:
        Exception: `function` failed in another way than in a backward pass.

    Source: https://pytorch.org/docs/stable/autograd.html#anomaly-detection
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly():
            try:
                function()
            except RuntimeError as error:
                for warning in caught:
                    if found := _forward_line(str(warning.message)):
                        sentence = re.split(r"[.:] |\.$", str(error).strip())[0]
                        return {"error": sentence, **found}
                raise
    return None


def _forward_line(text: str) -> dict[str, str] | None:
    """The node and the last line outside of torch in anomaly mode's warning."""
    node = re.match(r"Error detected in (\w+)\. Traceback of forward call", text)
    if node is None:
        return None
    inside = os.path.dirname(torch.__file__) + os.sep
    frames = re.findall(r'^  File "(.+)", line \d+, in .+\n    (.+)$', text, re.M)
    lines = [line for path, line in frames if not path.startswith(inside)]
    return {"operation": node[1], "line": lines[-1].strip() if lines else "?"}
