"""Helpers of the chapter on backward: find the line or the module that broke a gradient.

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn


def blame(function: Callable[[], Any]) -> dict[str, str] | None:
    """Run `function` in anomaly mode and name the line whose backward failed.

    `function` must do the forward and the backward pass: anomaly mode remembers only what was
    recorded while it was on. It is slow; use it to find a bug and then take it away. It looks at
    the results of backward passes alone, so check first that the loss is finite: where the
    forward pass makes a nan, the last operation gets the blame. `first_nan` finds that one.

    Returns:
        None if nothing failed, else `error` (the first sentence), `operation` (the node that
        failed) and `line`: the line of code that made this node in the forward pass, outside of
        torch itself. For an in-place error that is the victim: the line that overwrote its saved
        tensor comes after it.

    Raises:
        Exception: `function` failed in another way than in a backward pass.

    Source: https://pytorch.org/docs/stable/autograd.html#anomaly-detection
    """
    told: list[str] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def listen(message: Warning | str, *where: Any, **more: Any) -> None:
            if str(message).startswith("Error detected in"):
                told.append(str(message))
            else:
                show(message, *where, **more)

        warnings.showwarning = listen
        warnings.filterwarnings("always", "Error detected in")
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        with torch.autograd.detect_anomaly():
            try:
                function()
            except RuntimeError as error:
                for text in told:
                    if found := _forward_line(text):
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


def first_nan(model: nn.Module, *inputs: Any, **named: Any) -> dict[str, Any] | None:
    """Run `model(*inputs, **named)` and name the module where the first nan appears.

    What goes into each module and comes out of it is looked at while the model runs. Tensors of
    every dtype are found in tuples, lists, dictionaries and dataclasses, however deeply nested.
    Buffers such as BatchNorm's running statistics are left as they were; the mode, the device
    and the gradient mode are the caller's. A function between two modules belongs to the module
    whose `forward` calls it.

    Returns:
        None if no nan was seen, else `module` (its name, "" for the model itself), `type` (its
        class), `at` and `nan_weights` (the names of its parameters and buffers that hold one).
        `at` is "output" if the module received none and returned one. It is "input" if the
        module received one that no module before it had returned: then it was made between the
        modules or, where `module` is "", came with the data.

    Raises:
        Exception: the model itself failed before a nan appeared.
    """
    found: dict[str, Any] = {}

    def look(name: str, module: nn.Module, at: str, value: Any) -> None:
        if not found and _has_nan(value):
            own = [*module.named_parameters(), *module.named_buffers()]
            spoilt = [weight for weight, tensor in own if _has_nan(tensor)]
            found.update(module=name, type=type(module).__name__, at=at, nan_weights=spoilt)

    def watch(name: str, module: nn.Module) -> Iterator[Any]:
        yield module.register_forward_pre_hook(
            lambda m, args, kwargs: look(name, m, "input", (args, kwargs)), with_kwargs=True
        )
        yield module.register_forward_hook(lambda m, args, out: look(name, m, "output", out))

    handles = [h for name, module in model.named_modules() for h in watch(name, module)]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        torch.func.functional_call(model, buffers, inputs, named)
    except Exception:
        if not found:
            raise
    finally:
        for handle in handles:
            handle.remove()
    return found or None


def _has_nan(value: Any) -> bool:
    """Whether a nan is in the tensors of nested tuples, lists, mappings and dataclasses."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided:  # sparse or jagged
            value = (value.coalesce() if value.is_sparse else value).values()
        return bool((value != value).any())
    if is_dataclass(value) and not isinstance(value, type):
        return any(_has_nan(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(_has_nan(item) for item in value)
