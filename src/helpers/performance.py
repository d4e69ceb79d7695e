"""Helpers of the chapter "Make it faster": who waits for whom, what runs, what is compiled.

Sources: https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html and, for
what waits and what does not, `test_sync_warning` in PyTorch's test/test_torch.py.
"""

from __future__ import annotations

import linecache
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_TORCH, _HERE = os.path.dirname(torch.__file__) + os.sep, os.path.normcase(__file__)


# ---------------------------------------------------------------- time


def _callable(name: str, given: Any) -> None:
    if not callable(given):
        raise TypeError(f"{name} must be something to call, got {type(given).__name__}")


def shares(
    loader: Iterable[Any], step: Callable[[Any], Any], batches: int = 50
) -> dict[str, float]:
    """Which shares of the time a loop waits for its next batch, and spends on the step.

    The clock is read when an accelerator, if there is one, has finished its queue. That costs the
    overlap of the two, so measure with it and train without. The first batch only warms up: it
    starts workers and libraries.

    Args:
        loader: anything that gives batches.
        step: called with each batch as the loader gives it; it moves it to its device itself.
        batches: how many are measured at most.

    Returns:
        `"data"` and `"step"`, which add up to 1.

    Raises:
        TypeError: `batches` is no integer, or `step` cannot be called.
        ValueError: `batches` is less than 1, or the loader has fewer than two batches.
    """
    if isinstance(batches, bool) or not isinstance(batches, int):
        raise TypeError(f"batches must be an integer, got {batches!r}")
    if batches < 1:
        raise ValueError(f"batches must be at least 1, got {batches}")
    _callable("step", step)
    wait = torch.accelerator.synchronize if torch.accelerator.is_available() else lambda: None
    spent, counted, nothing = {"data": 0.0, "step": 0.0}, -1, object()
    iterator = iter(loader)
    while counted < batches:
        asked = time.perf_counter()
        if (batch := next(iterator, nothing)) is nothing:
            break
        got = time.perf_counter()
        step(batch)
        wait()
        if counted >= 0:
            spent["data"] += got - asked
            spent["step"] += time.perf_counter() - got
        counted += 1
    if counted < 1:
        raise ValueError("shares needs a loader with at least two batches: the first warms up")
    total = sum(spent.values()) or 1.0
    return {name: seconds / total for name, seconds in spent.items()}


# ---------------------------------------------------------------- operators


def _name(function: Any) -> str:
    """Of an operator, or of one that takes functions, such as `torch.cond`."""
    return str(getattr(function, "overloadpacket", function))


def _uncompiled() -> AbstractContextManager[Any]:
    """Nothing is compiled within a dispatch mode, and `fullgraph=True` makes that an error.

    `flex_attention` compiles itself so where its caller does not.
    """
    compilers = {"torch._dynamo", "torch.nn.attention.flex_attention"}
    if compilers & sys.modules.keys():  # importing them takes longer than most functions
        return torch.compiler.set_stance("force_eager")
    return nullcontext()


class _Operators(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.namespace != "profiler":  # the name of a range
            self.found[_name(function)] += 1
        return function(*args, **(kwargs or {}))


def operators(function: Callable[[], Any]) -> Counter[str]:
    """How often each operator of PyTorch runs in `function`, such as `{"aten.add": 2}`.

    Views count, although they launch nothing on a GPU, and so does the backward pass. A compiled
    function is counted as if it were not compiled, because `torch.compile` steps aside here; what
    lies inside `torch.cond` and its like is one operator, and so is `flex_attention`.

    Raises:
        TypeError: `function` cannot be called.
    """
    _callable("function", function)
    with _uncompiled(), _Operators() as counting:
        function()
    return counting.found


# ---------------------------------------------------------------- waits


class Wait(NamedTuple):
    """A place where Python would wait for a GPU: the line of code, and what it calls."""

    line: str
    call: str


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
    "aten._linalg_check_errors",
    "cond",
    "while_loop",
}
# What stands in torch/optim and reads numbers of the reader's, not its own counts of steps.
_READERS = {"lbfgs.py", "lr_scheduler.py", "swa_utils.py"}


class _Notes:
    """What both modes share: the waits so far, and the call of the reader's that is running."""

    def __init__(self) -> None:
        self.found: list[Wait] = []
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
                    return  # counts steps on the CPU, whatever the device
            if os.path.normcase(path) != _HERE and not path.startswith((_TORCH, *_GENERATED)):
                break
            frame = frame.f_back
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame else ""
        self.found.append(Wait(line.strip(), self.calling[0] if self.calling else call))


class _Calls(TorchFunctionMode):
    """Sees what the reader wrote."""

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
            or (function in (torch.tensor, torch.as_tensor) and _collects(args, kwargs))
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
    """Sees what PyTorch runs."""

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
            or (name in ("aten._to_copy", "aten.copy_") and _leaves(name, args, kwargs))
        ):
            self.notes.note(name)
        return function(*args, **kwargs)


def _collects(args: Any, kwargs: Any) -> bool:
    """Whether `torch.tensor` gets a list with tensors in it, whose numbers it reads one by one."""
    data = args[0] if args else kwargs.get("data")
    return isinstance(data, list | tuple) and any(isinstance(x, Tensor) for x in tree_leaves(data))


def _masks(index: Any) -> list[Tensor]:
    parts = index if isinstance(index, list | tuple) else [index]
    return [p for p in parts if isinstance(p, Tensor) and p.dtype in (torch.bool, torch.uint8)]


def _differs_on_cpu(name: str, args: Any, kwargs: Any) -> bool:
    """Whether a call looks at numbers on the CPU that it leaves alone on a GPU."""
    if name == "one_hot":
        return (args[1] if len(args) > 1 else kwargs.get("num_classes", -1)) != -1
    if name == "__setitem__" and not isinstance(args[2], Tensor):
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        tensors = [p for p in parts if isinstance(p, Tensor) and p.dim()]
        return len(tensors) == 1 and bool(_masks(tensors))  # a masked fill
    return False


def _leaves(name: str, args: Any, kwargs: Any) -> bool:
    """Whether a copy leads from another device to the CPU, and is waited for."""
    if kwargs.get("non_blocking") or (name == "aten.copy_" and len(args) > 2 and args[2]):
        return False
    source = args[1] if name == "aten.copy_" else args[0]
    target = args[0].device if name == "aten.copy_" else kwargs.get("device") or source.device
    return source.device.type != "cpu" and torch.device(target).type == "cpu"


def waits(function: Callable[[], Any]) -> list[Wait]:
    """The places in `function` where Python would wait for a GPU, in order; it runs as it stands.

    No GPU is needed: each tensor counts as one on a GPU, wherever it is. Seen are `item()` and what
    calls it (`float`, `if`, `max`), `tolist()`, `cpu()`, `numpy()`, `print`, `nonzero`, `unique`,
    `equal`, boolean masks as an index, `torch.tensor` of a list of tensors, `multinomial` without
    replacement, checks of `torch.linalg`, also those in a backward pass. A compiled function is
    judged as if it were not compiled, because `torch.compile` steps aside here.

    Not seen: copies to the GPU, `to("cpu")` where tensors are on the CPU already, `synchronize()`,
    and what only the implementation for a GPU does. Not counted: optimizers other than LBFGS,
    because they keep their step counts on the CPU. On a GPU compare with
    `torch.cuda.set_sync_debug_mode("warn")`.

    Raises:
        TypeError: `function` cannot be called.
    """
    _callable("function", function)
    notes = _Notes()
    with _uncompiled(), _Runs(notes), _Calls(notes):
        function()
    return notes.found


# ---------------------------------------------------------------- compilations


class Counting:
    """A backend for `torch.compile` that compiles nothing and keeps the graphs it gets.

    `torch.compile(model, backend=counting)` runs the graphs as they are; `len(counting)` says how
    many there have been: one for each compilation of each part between graph breaks.
    """

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __len__(self) -> int:
        return len(self.graphs)

    def __call__(
        self, graph: torch.fx.GraphModule, inputs: Any, **options: Any
    ) -> Callable[..., Any]:
        """Keep the graph, and give back what runs it; `mode` and `options` change nothing."""
        self.graphs.append(graph)
        return graph.forward


def recompiles(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Why a compiled function would be compiled again for these arguments; None if it would not.

    The reasons are those of PyTorch, a line for each graph that does not fit. Where the function
    would not be compiled, it runs; so does one that was never given to `torch.compile`, and one
    that has reached `recompile_limit`. For a compiled function that was never called the answer is
    "nothing is compiled yet".

    Source: https://docs.pytorch.org/docs/stable/generated/torch.compiler.set_stance.html

    Raises:
        TypeError: `function` cannot be called.
    """
    _callable("function", function)
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            function(*args, **kwargs)
    except RuntimeError as error:
        said, found, reasons = str(error).partition("guard failure(s):")
        if "fail_on_recompile" not in said:
            raise
        if not found:
            return "nothing is compiled yet"
        return "\n".join(line.strip(" -") for line in reasons.splitlines() if line.strip())
    return None
