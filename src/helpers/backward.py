"""Helpers of the chapter on backward: find the line or the module that produced a wrong gradient.

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from helpers.forward import copied_buffers, tensors_in, uncompiled


def blame(function: Callable[[], Any]) -> dict[str, str] | None:
    """Run `function` in anomaly mode and return the forward line whose backward pass failed.

    `function` must run both the forward and the backward pass: anomaly mode records only the
    operations that run while it is on. It slows every operation down, so use it for debugging only.
    Anomaly mode checks the results of the backward pass alone. If the forward pass produced the
    nan, it reports the last operation, so check first that the loss is finite, and use `first_nan`
    if it is not.

    Returns:
        None if the backward pass succeeded, else `error` (the first sentence of the message),
        `operation` (the graph node that failed) and `line` (the code that recorded this node in the
        forward pass, outside of torch). For an in-place error this is the line whose saved tensor
        was overwritten; the line that overwrote it ran later.

    Raises:
        Exception: the exception of `function`, if it did not come from a backward pass.

    Source: https://pytorch.org/docs/stable/autograd.html#anomaly-detection
    """
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


def first_nan(model: nn.Module, *inputs: Any, **named: Any) -> dict[str, Any] | None:
    """Run `model(*inputs, **named)` and return the module in which the first nan appears.

    Forward hooks check the inputs and the output of each module, in nested tuples, lists, mappings
    and dataclasses, for tensors of every dtype and layout. A compiled model runs eagerly, because
    compiled code skips the hooks. Buffers such as BatchNorm's running statistics are restored; the
    training mode, the device and the gradient mode are not changed. A function that is called
    between two modules belongs to the module whose `forward` calls it.

    Returns:
        None if there was no nan, else `module` (its name, "" for the model itself), `type` (its
        class), `at` and `nan_weights` (the names of its parameters and buffers that contain a nan).
        `at` is "output" if the module's inputs had no nan and its output has one. It is "input" if
        its input has a nan that no earlier module returned: either the code between the modules
        produced it or, if `module` is "", it was in the data.

    Raises:
        TypeError: `model` contains a scripted module, which does not support hooks.
        Exception: the exception of the model, if it failed before a nan appeared.
    """
    if scripted := [n for n, m in model.named_modules() if isinstance(m, torch.jit.ScriptModule)]:
        raise TypeError(
            f"expected modules that accept hooks, got a scripted one at {scripted[0]!r}: "
            "pass the model as it was before torch.jit.script"
        )
    first: dict[str, Any] = {}

    def check(name: str, module: nn.Module, at: str, value: Any) -> None:
        if not first and _has_nan(value):
            own = [*module.named_parameters(), *module.named_buffers()]
            weights = [weight for weight, tensor in own if _has_nan(tensor)]
            first.update(module=name, type=type(module).__name__, at=at, nan_weights=weights)

    def watch(name: str, module: nn.Module) -> Iterator[Any]:
        yield module.register_forward_pre_hook(
            lambda m, args, kwargs: check(name, m, "input", (args, kwargs)), with_kwargs=True
        )
        yield module.register_forward_hook(lambda m, args, out: check(name, m, "output", out))

    handles = [h for name, module in model.named_modules() for h in watch(name, module)]
    try:
        with copied_buffers(model), uncompiled():
            model(*inputs, **named)
    except Exception:
        if not first:
            raise
    finally:
        for handle in handles:
            handle.remove()
    return first or None


def _has_nan(value: Any) -> bool:
    """Return True if a tensor in nested containers contains a nan."""
    return any(map(_is_nan, tensors_in(value)))


def _is_nan(tensor: Tensor) -> bool:
    if nn.parameter.is_lazy(tensor):  # no values yet
        return False
    if tensor.layout is torch._mkldnn:
        tensor = tensor.to_dense()
    elif tensor.is_nested:
        tensor = tensor.values()
    elif tensor.layout is not torch.strided:
        tensor = (tensor.coalesce() if tensor.is_sparse else tensor).values()
    return bool((tensor != tensor).any())
