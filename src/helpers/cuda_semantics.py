"""Helpers of the chapter "Move models and tensors between devices".

Sources: CUDA semantics, https://pytorch.org/docs/stable/notes/cuda.html, and `Module._apply` in
`torch/nn/modules/module.py`.

A machine without a GPU has two stand-ins for a move. The meta device is a second device, good for
tensors; a dtype conversion goes through the same code of `Module._apply` as a move to a GPU and,
unlike a move to meta, keeps the parameters' identity.
"""

from __future__ import annotations

import os
import random
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from helpers import child
from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure


def where(tensor: Tensor) -> str:
    """Dtype and kind of device in words, such as `"float32, cpu"`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}, {tensor.device.type}"


def unregistered(module: nn.Module) -> list[str]:
    """Names of the tensors and modules below `module` that its moves do not reach.

    They are plain attributes, or sit in lists, tuples and dicts, instead of being parameters,
    buffers or submodules. Looks into containers one level deep.
    """
    registry = ("_parameters", "_buffers", "_modules")
    found = []
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name in registry:
                continue
            entries = {"": value}
            if isinstance(value, Mapping):
                entries = {f"[{key!r}]": v for key, v in value.items()}
            elif isinstance(value, (list, tuple)):
                entries = {f"[{number}]": v for number, v in enumerate(value)}
            full = f"{path}.{name}" if path else name
            found += [full + k for k, v in entries.items() if isinstance(v, (Tensor, nn.Module))]
    return found


# ---------------------------------------------------------------- a queue for a GPU


class ToyGPU:
    """A GPU as Python sees it: a launch returns at once, the work is done later and in order.

    Time is counted in steps. A launch costs Python one step, its work takes as many as you say.
    Nothing is really done before Python waits, which the rules of CUDA allow.

    Args:
        blocking: wait after every launch, as with `CUDA_LAUNCH_BLOCKING=1`.
    """

    def __init__(self, blocking: bool = False) -> None:
        self.blocking = blocking
        self.clock = 0
        """Python's time, in steps."""
        self.launches: list[tuple[int, int, int]] = []
        """Of each launch: when Python had made it, when the work began, when it ended."""
        self._tasks: list[Callable[[], object]] = []

    def launch(self, work: int, task: Callable[[], object] | None = None) -> None:
        """Put `work` steps into the queue; `task`, if there is one, runs when they are done.

        Raises:
            ValueError: `work` is not positive.
        """
        if work < 1:
            raise ValueError(f"work must be at least 1 step, got {work}")
        self.clock += 1
        begin = max(self.clock, self.free)
        self.launches.append((self.clock, begin, begin + work))
        if task is not None:
            self._tasks.append(task)
        if self.blocking:
            self.synchronize()

    @property
    def free(self) -> int:
        """When the work that is in the queue will be done."""
        return self.launches[-1][2] if self.launches else 0

    def synchronize(self) -> None:
        """Wait until the queue is empty; what goes wrong in a task is raised here."""
        self.clock = max(self.clock, self.free)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task()


def draw_timeline(gpu: ToyGPU, readings: Mapping[str, int]) -> Figure:
    """Draw Python's launches above the GPU's work, and a line for each reading of the clock.

    Args:
        gpu: what was launched.
        readings: label of a reading -> step at which the clock was read.

    Raises:
        ValueError: nothing was launched.
    """
    import matplotlib.pyplot as plt

    if not gpu.launches:
        raise ValueError("draw_timeline needs a GPU with at least one launch, got none")
    figure, axis = plt.subplots(figsize=(8, 2.2))
    for number, (made, begin, end) in enumerate(gpu.launches, 1):
        axis.broken_barh([(made - 1, 1)], (1.1, 0.8), color="#cfe8ff", edgecolor="#777")
        axis.broken_barh([(begin, end - begin)], (0, 0.8), color="#f5d9b0", edgecolor="#777")
        axis.text((begin + end) / 2, 0.4, str(number), ha="center", va="center", color="#222")
    for label, step in readings.items():
        axis.axvline(step, color="#b02a30", linestyle="--")
        side = "right" if step > gpu.free / 2 else "left"
        axis.annotate(
            label, (step, 2.05), ha=side, va="bottom", color="#b02a30", annotation_clip=False
        )
    axis.set(yticks=[0.4, 1.5], yticklabels=["GPU", "Python"], xlabel="time in steps")
    axis.set(xlim=(0, gpu.free * 1.02), ylim=(-0.1, 2))
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- CUDA_VISIBLE_DEVICES


def visible_devices(value: str, installed: int) -> dict[str, int]:
    """Which GPU each name means under `CUDA_VISIBLE_DEVICES=value`.

    PyTorch's own reader of the variable does the work. Names count from 0 in the order of the
    list, and the list ends at the first number that no GPU has
    (https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html).

    Args:
        value: numbers separated by commas; UUIDs are not read here.
        installed: how many GPUs the machine has.

    Returns:
        Names such as `"cuda:0"` -> number of the GPU in the machine.

    Raises:
        ValueError: `installed` is negative, or `value` names devices by UUID.
    """
    from unittest.mock import patch

    if installed < 0:
        raise ValueError(f"installed must not be negative, got {installed}")
    with (
        patch.dict(os.environ, CUDA_VISIBLE_DEVICES=value),
        patch.object(torch.version, "hip", None),
    ):
        numbers = torch.cuda._parse_visible_devices()
    if any(isinstance(number, str) for number in numbers):
        raise ValueError(f"value must be numbers separated by commas, got {value!r}")
    seen: dict[str, int] = {}
    for position, number in enumerate(numbers):
        if number >= installed:
            break
        seen[f"cuda:{position}"] = int(number)
    return seen


def devices_seen(hide: str) -> int:
    """How many GPUs a new process counts that sets `CUDA_VISIBLE_DEVICES=""` by itself.

    Args:
        hide: "before CUDA starts" (after `import torch`) or "after CUDA starts".

    Raises:
        ValueError: another value of `hide`.
        RuntimeError: the process failed; "after CUDA starts" needs a GPU.
    """
    moments = ("before CUDA starts", "after CUDA starts")
    if hide not in moments:
        raise ValueError(f"hide must be one of {', '.join(map(repr, moments))}, got {hide!r}")
    return child.call(_count_devices, hide == moments[1])


def _count_devices(started: bool) -> int:
    if started:
        torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return torch.cuda.device_count()


# ---------------------------------------------------------------- exercises


@contextmanager
def _moves_in_place() -> Iterator[None]:
    """Let a module's `.to("meta")` keep its parameter objects, as a move to a GPU does."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def check_normalize(answer: Callable[[Tensor, Tensor], nn.Module]) -> Verdict:
    """Check `answer(mean, std)`: a module that computes `(x - mean) / std`.

    `mean` and `std` are float32 of shape (channels,), `x` is (batch, channels). Both constants
    follow the module to another device and dtype, are saved with it, and are not trained.
    """

    def draw() -> tuple[Tensor, Tensor, Tensor]:
        channels = random.randint(1, 5)
        return torch.randn(channels), torch.rand(channels) + 0.5, torch.randn(3, channels)

    def make(f, mean, std):
        module = f(mean.clone(), std.clone())
        kind = type(module).__name__
        assert isinstance(module, nn.Module), f"expected an nn.Module, got {kind}"
        return module

    def value(f):
        mean, std, x = draw()
        out = make(f, mean, std)(x)
        assert isinstance(out, Tensor), f"expected a tensor, got {type(out).__name__}"
        assert torch.allclose(out, (x - mean) / std), "the value is not (x - mean) / std"

    def frozen(f):
        names = [name for name, p in make(f, *draw()[:2]).named_parameters() if p.requires_grad]
        assert not names, f"an optimizer would train {' and '.join(names)}"

    def follows(f):
        mean, std, x = draw()
        module = make(f, mean, std).to("meta")
        left = [n for n, v in vars(module).items() if isinstance(v, Tensor) and not v.is_meta]
        assert not left, f"after .to('meta') {' and '.join(left)} stayed behind"
        try:
            out = module(x.to("meta"))
        except RuntimeError as error:
            raise AssertionError(f"after .to('meta') the forward pass fails: {error}") from None
        assert out.is_meta, "after .to('meta') the result is not on meta"
        dtype = make(f, mean, std).double()(x.double()).dtype
        assert dtype == torch.float64, f"after .double() the result is {dtype}"

    def saved(f):
        mean, std, x = draw()
        module, other = make(f, mean, std), make(f, mean + 1, std + 1)
        assert len(module.state_dict()) == 2, (
            f"the state_dict should hold both constants, it has {list(module.state_dict())}"
        )
        other.load_state_dict(module.state_dict())
        assert torch.allclose(other(x), module(x)), "loading the state_dict did not bring them back"

    return verdict(answer, [value, frozen, follows, saved])


Pair = namedtuple("Pair", "image label")


def _nested(rng: random.Random, depth: int) -> Any:
    """A random batch: tensors and other values in dicts, lists, tuples and named tuples."""
    kind = rng.choice(["dict", "list", "tuple", "pair"]) if depth else "leaf"
    if kind == "leaf":
        return rng.choice(
            [torch.rand(2), torch.arange(3), torch.zeros(1, device="meta"), "a name", 7, None]
        )
    parts = [_nested(rng, depth - rng.randint(1, depth)) for _ in range(2)]
    if kind == "dict":
        return {"x": parts[0], "y": parts[1]}
    return Pair(*parts) if kind == "pair" else {"list": list, "tuple": tuple}[kind](parts)


def _compare(got: Any, batch: Any, device: torch.device, path: str = "batch") -> None:
    """Raise AssertionError at the first place where `got` is not `batch` on `device`."""
    assert type(got) is type(batch), (
        f"{path}: expected {type(batch).__name__}, got {type(got).__name__}"
    )
    if isinstance(batch, Tensor):
        assert got.device == device, f"{path}: the tensor is not on the device"
        assert got.dtype == batch.dtype and got.shape == batch.shape, (
            f"{path}: dtype or shape changed"
        )
        assert got is batch or batch.device != device, (
            f"{path}: was copied although it was there already"
        )
    elif isinstance(batch, Mapping):
        assert list(got) == list(batch), f"{path}: expected the keys {list(batch)}"
        for key in batch:
            _compare(got[key], batch[key], device, f"{path}[{key!r}]")
    elif isinstance(batch, (list, tuple)):
        assert len(got) == len(batch), f"{path}: expected {len(batch)} items, got {len(got)}"
        for number, (mine, theirs) in enumerate(zip(got, batch, strict=True)):
            _compare(mine, theirs, device, f"{path}[{number}]")
    else:
        assert got is batch, f"{path}: {batch!r} is no tensor and should be left alone"


def check_to_device(answer: Callable[[Any, torch.device], Any]) -> Verdict:
    """Check `answer(batch, device)`: the batch with every tensor in it on `device`.

    A batch is a tensor, or a dict, list, tuple or named tuple of batches, or anything else, which
    is passed through. Containers keep their type; a tensor that is there already is not copied.
    """
    meta, cpu = torch.device("meta"), torch.device("cpu")

    def simple(f):
        for batch in (
            torch.rand(2),
            {"image": torch.rand(2), "name": "a.png"},
            [torch.rand(2), [torch.arange(3), None]],
            (torch.rand(2), 7),
            Pair(torch.rand(2), torch.tensor(1)),
        ):
            _compare(f(batch, meta), batch, meta)

    def untouched(f):
        batch = {"x": [torch.rand(2)]}
        f(batch, meta)
        assert batch["x"][0].device == cpu, "the caller's batch was changed"

    def nothing_to_do(f):
        batch = [torch.rand(2), {"y": torch.arange(2)}]
        _compare(f(batch, cpu), batch, cpu)

    def nested(f):
        rng = random.Random()
        for _ in range(30):
            batch = _nested(rng, 3)
            _compare(f(batch, meta), batch, meta)

    return verdict(answer, [simple, untouched, nothing_to_do, nested])


_OPTIMIZERS: Sequence[Callable[..., torch.optim.Optimizer]] = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adagrad,
    lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
)


def check_move(
    answer: Callable[[nn.Module, torch.optim.Optimizer, torch.dtype | str], object],
) -> Verdict:
    """Check `answer(model, optimizer, target)`: convert both in the middle of a training run.

    The optimizer has made some steps. `target` is a dtype or a device; moves keep the parameters'
    identity, also to meta. The next step must run, with the moments that the optimizer had.
    """

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()

    def running(make) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        optimizer = make(model.parameters(), lr=0.05)
        for _ in range(3):
            train(model, optimizer, torch.randn(5, 3))
        return model, optimizer

    def state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
        values = [v for s in optimizer.state.values() for k, v in s.items() if k != "step"]
        return [v for v in values if isinstance(v, Tensor)]

    def go_on(model, optimizer, x):
        try:
            train(model, optimizer, x)
        except RuntimeError as error:
            raise AssertionError(f"the next training step fails: {error}") from None

    def dtype(f):
        for make in _OPTIMIZERS:
            model, optimizer = running(make)
            before = [v.clone() for v in state(optimizer)]
            f(model, optimizer, torch.float64)
            held = [p for group in optimizer.param_groups for p in group["params"]]
            parameters = list(model.parameters())
            assert all(p.dtype == torch.float64 for p in parameters), "the model did not move"
            assert len(held) == len(parameters) and all(
                a is b for a, b in zip(held, parameters, strict=True)
            ), "the optimizer holds other parameters than the model"
            after = state(optimizer)
            assert len(after) == len(before), "the optimizer forgot its moments"
            for old, new in zip(before, after, strict=True):
                assert torch.equal(old.double(), new.double()), "the moments changed"
                assert new.dtype == torch.float64, (
                    f"the state of {type(optimizer).__name__} stayed {new.dtype}"
                )
            go_on(model, optimizer, torch.randn(5, 3).double())

    def device(f):
        for make in _OPTIMIZERS:
            model, optimizer = running(make)
            with _moves_in_place():
                f(model, optimizer, "meta")
            assert all(p.is_meta for p in model.parameters()), "the model did not move"
            assert all(v.is_meta for v in state(optimizer)), (
                f"the state of {type(optimizer).__name__} stayed on the old device"
            )
            steps = [s["step"] for s in optimizer.state.values() if "step" in s]
            assert not any(isinstance(v, Tensor) and v.is_meta for v in steps), (
                "the step counter moved too: it belongs on the CPU, where reading it costs nothing"
            )
            go_on(model, optimizer, torch.randn(5, 3, device="meta"))

    return verdict(answer, [dtype, device])
