"""Helpers of the chapter on speed: waiting times, operators, synchronizations, recompilations.

Sources: https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html and, for
the operations that synchronize, `test_sync_warning` in PyTorch's test/test_torch.py.
"""

from __future__ import annotations

import linecache
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.forward import uncompiled

_TORCH, _HERE = os.path.dirname(torch.__file__) + os.sep, os.path.normcase(__file__)


# ---------------------------------------------------------------- time


def _callable(name: str, given: Any) -> None:
    if not callable(given):
        raise TypeError(f"{name} must be something to call, got {type(given).__name__}")


def shares(
    loader: Iterable[Any], step: Callable[[Any], Any], batches: int = 50
) -> dict[str, float]:
    """Return which fractions of the time a loop waits for its next batch, and runs its step.

    The clock is read after an accelerator, if there is one, has synchronized, which removes the
    overlap of the two: use it for measuring and not for training. The first batch is a warm-up,
    which starts workers and libraries.

    Args:
        loader: any iterable of batches.
        step: called with each batch as the loader returns it; it moves it to its device itself.
        batches: maximum number of measured batches.

    Returns:
        `"data"` and `"step"`, which sum to 1.

    Raises:
        TypeError: `batches` is not an integer, `step` is not callable, or `loader` is no iterable.
        ValueError: `batches` is less than 1, or the loader has fewer than two batches.
    """
    if isinstance(batches, bool) or not isinstance(batches, Integral):
        raise TypeError(f"batches must be an integer, got {batches!r}")
    if batches < 1:
        raise ValueError(f"batches must be at least 1, got {batches}")
    _callable("step", step)
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise TypeError(f"loader must be an iterable of batches, got {type(loader).__name__}")
    wait = torch.accelerator.synchronize if torch.accelerator.is_available() else lambda: None
    durations, counted, nothing = {"data": 0.0, "step": 0.0}, -1, object()
    iterator = iter(loader)
    while counted < batches:
        requested = time.perf_counter()
        if (batch := next(iterator, nothing)) is nothing:
            break
        received = time.perf_counter()
        step(batch)
        wait()
        if counted >= 0:
            durations["data"] += received - requested
            durations["step"] += time.perf_counter() - received
        counted += 1
    if counted < 1:
        raise ValueError("expected a loader of at least two batches: the first is a warm-up")
    total = sum(durations.values()) or 1.0
    return {name: seconds / total for name, seconds in durations.items()}


# ---------------------------------------------------------------- operators


def _name(function: Any) -> str:
    """Return the name of an operator, including higher-order operators such as `torch.cond`."""
    return str(getattr(function, "overloadpacket", function))


class _Operators(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.namespace != "profiler":  # a record_function range is no operator
            self.counts[_name(function)] += 1
        return function(*args, **(kwargs or {}))


def operators(function: Callable[[], Any]) -> Counter[str]:
    """Run `function` and return how often each operator of PyTorch runs, such as `{"aten.add": 2}`.

    Views are counted, although they launch no CUDA kernel, and so is the backward pass. A compiled
    function is counted as if it were not compiled. `torch.cond` and similar operators count as one
    with all operators inside, and so does `flex_attention`.

    Raises:
        TypeError: `function` is not callable.
    """
    _callable("function", function)
    with uncompiled(), _Operators() as counting:
        function()
    return counting.counts


# ---------------------------------------------------------------- waits


class Wait(NamedTuple):
    """Line of code at which Python would synchronize with a GPU, and the call in it."""

    line: str
    call: str


_MAKERS = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}
_GENERATED = "<string>", "<eval_with_key>", "<frozen "  # code without a line to show
_READS = {"cpu", "numpy", "tolist", "__repr__", "__array__", "__contains__"}
_WAITS = {
    "aten._local_scalar_dense",
    "aten.nonzero",
    "aten.masked_select",
    "aten.equal",
    "aten.allclose",
    "aten.bincount",
    "aten._unique2",
    "aten.unique_dim",
    "aten.unique_consecutive",
    "aten._to_sparse",  # the number of entries is a shape
    "aten._to_sparse_csr",
    "aten._coalesce",
    "aten.linalg_matrix_exp",  # its norm selects the approximation
    "aten._linalg_check_errors",
    "aten._linalg_svd",  # these check for errors inside the operator
    "aten._linalg_eigh",
    "aten.linalg_eig",
    "aten.linalg_pinv",
    "cond",
    "while_loop",
}
# Operators that read the values of a tensor argument, by the overload that has one.
_BY_OVERLOAD = {
    "aten.normal": {"Tensor_Tensor", "float_Tensor"},  # the standard deviation must not be negative
    "aten.linspace": {"Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"},
    "aten.logspace": {"Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"},
}
# Modules of torch/optim that read values of user tensors, not only their own step counts.
_READERS = {"lbfgs.py", "lr_scheduler.py", "swa_utils.py"}


class _Notes:
    """State shared by both modes: the synchronizations so far, and the running calls."""

    def __init__(self) -> None:
        self.waits: list[Wait] = []
        self.calling: list[str] = []
        self.silent = 0

    def note(self, call: str) -> None:
        if self.silent:
            return
        frame, optimizer = sys._getframe(1), None
        while frame is not None:
            path = frame.f_code.co_filename
            if optimizer is None and path.startswith(os.path.join(_TORCH, "optim")):
                optimizer = os.path.basename(path)
                if optimizer not in _READERS:
                    return  # its step counts are on the CPU, whatever the device
            if os.path.normcase(path) != _HERE and not path.startswith((_TORCH, *_GENERATED)):
                break
            frame = frame.f_back
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame else ""
        self.waits.append(Wait(line.strip(), self.calling[0] if self.calling else call))


class _Calls(TorchFunctionMode):
    """Mode that records the torch functions called by user code."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self.notes = notes

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, notes = kwargs or {}, self.notes
        name = getattr(function, "__name__", str(function))
        reads = (
            (name in _READS and getattr(Tensor, name, None) is function)
            or (function is Tensor.__format__ and args[0].dim() > 0)
            or (function in _MAKERS and _collects(args, kwargs, function is Tensor.new_tensor))
        )
        quiet = reads or _differs_on_cpu(name, args, kwargs)
        notes.calling.append(name)
        if reads or (name == "one_hot" and not quiet):
            notes.note(name)
        notes.silent += quiet or name == "one_hot"
        try:
            return function(*args, **kwargs)
        finally:
            notes.silent -= quiet or name == "one_hot"
            notes.calling.pop()


class _Runs(TorchDispatchMode):
    """Mode that records the operators that PyTorch dispatches."""

    supports_higher_order_operators = True

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self.notes = notes

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, _name(function)
        if (
            name in _WAITS
            or (name in ("aten.index", "aten.index_put_", "aten.index_put") and _masks(args[1]))
            or (function is torch.ops.aten.repeat_interleave.Tensor and not kwargs)
            or (name == "aten.multinomial" and not (len(args) > 2 and args[2]))
            or (name in _BY_OVERLOAD and function._overloadname in _BY_OVERLOAD[name])
            or (name in ("aten._to_copy", "aten.copy_") and _leaves(name, args, kwargs))
        ):
            self.notes.note(name)
        return function(*args, **kwargs)


def _collects(args: Any, kwargs: Any, method: bool) -> bool:
    """Return True if `torch.tensor` gets a list of tensors, whose values it reads one by one.

    `method` is True for `new_tensor`, whose first argument is the tensor itself.
    """
    data = args[method] if len(args) > method else kwargs.get("data", kwargs.get("obj"))
    return isinstance(data, list | tuple) and any(isinstance(x, Tensor) for x in tree_leaves(data))


def _masks(index: Any) -> list[Tensor]:
    parts = index if isinstance(index, list | tuple) else [index]
    return [p for p in parts if isinstance(p, Tensor) and p.dtype in (torch.bool, torch.uint8)]


def _differs_on_cpu(name: str, args: Any, kwargs: Any) -> bool:
    """Return True if a call reads values on the CPU that it does not read on a GPU."""
    if name == "one_hot":
        return (args[1] if len(args) > 1 else kwargs.get("num_classes", -1)) != -1
    if name == "__setitem__" and not isinstance(args[2], Tensor):
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        tensors = [p for p in parts if isinstance(p, Tensor) and p.dim()]
        return len(tensors) == 1 and bool(_masks(tensors))  # a masked fill
    return False


def _leaves(name: str, args: Any, kwargs: Any) -> bool:
    """Return True if a copy goes from another device to the CPU and synchronizes."""
    if kwargs.get("non_blocking") or (name == "aten.copy_" and len(args) > 2 and args[2]):
        return False
    source = args[1] if name == "aten.copy_" else args[0]
    target = args[0].device if name == "aten.copy_" else kwargs.get("device") or source.device
    return source.device.type != "cpu" and torch.device(target).type == "cpu"


def waits(function: Callable[[], Any]) -> list[Wait]:
    """Run `function` and return the lines at which Python would synchronize with a GPU, in order.

    No GPU is needed: every tensor counts as one on a GPU. Detected are `item()` and its callers
    (`float`, `if`, `max`), `tolist()`, `cpu()`, `numpy()`, `print`, `nonzero`, `unique`, `equal`,
    boolean masks as an index, `torch.tensor` of a list of tensors, `multinomial` without
    replacement, conversions to sparse tensors, and `torch.linalg` functions that check for errors,
    also in a backward pass. A compiled function is judged as if it were not compiled.

    Not detected: copies to the GPU, `to("cpu")` if tensors are on the CPU already, `torch.save`,
    the constructor `torch.Tensor` with a list of tensors, `synchronize()`, and synchronizations of
    the GPU implementation alone. Optimizers other than LBFGS are ignored, because their step counts
    are on the CPU. On a GPU compare with `torch.cuda.set_sync_debug_mode("warn")`.

    Raises:
        TypeError: `function` is not callable.
    """
    _callable("function", function)
    notes = _Notes()
    with uncompiled(), _Runs(notes), _Calls(notes):
        function()
    return notes.waits


# ---------------------------------------------------------------- compilations


class Counting:
    """Backend for `torch.compile` that compiles nothing and stores the graphs that it receives.

    `torch.compile(model, backend=counting)` runs the graphs eagerly; `len(counting)` is their
    number: one for each compilation of each part between graph breaks.

    Raises:
        TypeError: the class itself was passed as the backend.
    """

    def __init__(self, *inputs: Any) -> None:
        if inputs:
            raise TypeError("expected an instance as the backend, Counting(), got the class")
        self.graphs: list[torch.fx.GraphModule] = []

    def __len__(self) -> int:
        return len(self.graphs)

    def __call__(
        self, graph: torch.fx.GraphModule, inputs: Any, **options: Any
    ) -> Callable[..., Any]:
        """Store the graph, and return a function that runs it; `mode` and `options` are ignored."""
        self.graphs.append(graph)
        return graph.forward


def recompiles(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Return why a compiled function would be compiled again for these arguments, or None.

    The reasons are those of PyTorch, one line for each graph that does not match. If nothing would
    be compiled, the function runs; so does a function that is not compiled, and one that has
    reached `recompile_limit`. For a compiled function that was never called the result is "nothing
    is compiled yet".

    Source: https://docs.pytorch.org/docs/stable/generated/torch.compiler.set_stance.html

    Raises:
        TypeError: `function` is not callable.
    """
    _callable("function", function)
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            function(*args, **kwargs)
    except RuntimeError as error:
        message, separator, reasons = str(error).partition("guard failure(s):")
        if "fail_on_recompile" not in message:
            raise
        if not separator:
            return "nothing is compiled yet"
        return "\n".join(line.strip(" -") for line in reasons.splitlines() if line.strip())
    return None
