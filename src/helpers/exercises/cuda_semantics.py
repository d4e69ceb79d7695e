"""Checkers of the exercises of the chapter on devices."""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import close, in_two_modes, instance, kind, leaves, unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _moves_in_place() -> Iterator[None]:
    """Let a module's `.to("meta")` keep its parameter objects, as a move to a GPU does."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _normalize_draw() -> tuple[Tensor, Tensor, Tensor]:
    channels = random.randint(1, 5)
    return torch.randn(channels), torch.rand(channels) + 0.5, torch.randn(3, channels)


def _normalize_make(f, mean, std):
    module = f(mean.clone(), std.clone())
    return instance("an nn.Module", module, nn.Module)


def _normalize_value(f):
    for dtype in (torch.float32, torch.float64):
        mean, std, x = (t.to(dtype) / 3 for t in _normalize_draw())
        module = _normalize_make(f, mean, std)
        for mode in (False, True):
            got = module.train(mode)(x)
            close(got, (x - mean) / std, f"the value is not (x - mean) / std in {dtype}")
    learns = module(x.requires_grad_()).requires_grad
    assert learns, "no gradient reaches x: a layer before this one would not learn"


def _normalize_frozen(f):
    parameters = dict(_normalize_make(f, *_normalize_draw()[:2]).named_parameters())
    names = [name for name, p in parameters.items() if p.requires_grad]
    assert not names, f"an optimizer would train {' and '.join(names)}"
    assert not parameters, (
        f"{' and '.join(parameters)} are parameters, which requires_grad_(True) would train: "
        "register buffers"
    )


def _normalize_follows(f):
    mean, std, x = _normalize_draw()
    module = _normalize_make(f, mean, std).to("meta")
    left = [n for n, v in vars(module).items() if isinstance(v, Tensor) and not v.is_meta]
    assert not left, f"after .to('meta') {' and '.join(left)} did not move"
    try:
        out = module(x.to("meta"))
    except RuntimeError as error:
        raise AssertionError(f"after .to('meta') the forward pass fails: {error}") from None
    assert out.is_meta, "after .to('meta') the result is not on meta"
    assert [*module.buffers()], "nothing of it moves: register both constants as buffers"
    dtype = _normalize_make(f, mean, std).double()(x.double()).dtype
    assert dtype == torch.float64, f"after .double() the result is {dtype}"


def _normalize_saved(f):
    mean, std, x = _normalize_draw()
    module, other = _normalize_make(f, mean, std), _normalize_make(f, mean + 1, std + 1)
    assert module.state_dict(), "the state_dict must contain both constants; it is empty"
    other.load_state_dict(module.state_dict())
    assert torch.allclose(other(x), module(x)), (
        "loading the state_dict did not restore the constants"
    )


def check_normalize(answer: Callable[[Tensor, Tensor], nn.Module]) -> Verdict:
    """Check `answer(mean, std)`: a module that computes `(x - mean) / std`.

    `mean` and `std` have shape (channels,), `x` has (batch, channels), in one floating dtype. Both
    constants follow the module to another device and dtype, are saved with it, and are not trained.
    """
    return verdict(
        answer, [_normalize_value, _normalize_frozen, _normalize_follows, _normalize_saved]
    )


Pair = namedtuple("Pair", "image label")


def _nested(rng: random.Random, depth: int) -> Any:
    """Return a random batch: tensors and other values in nested containers."""
    form = rng.choice(["dict", "list", "tuple", "pair"]) if depth else "leaf"
    if form == "leaf":
        return rng.choice(
            [torch.rand(2), torch.arange(3), torch.zeros(1, device="meta"), "a name", 7, None]
        )
    parts = [_nested(rng, depth - rng.randint(1, depth)) for _ in range(2)]
    if form == "dict":
        return {"x": parts[0], "y": parts[1]}
    return Pair(*parts) if form == "pair" else {"list": list, "tuple": tuple}[form](parts)


def _reaches(got: Tensor, batch: Tensor) -> bool:
    """Return whether the graph of `got` leads to the leaf `batch`."""
    nodes = [got.grad_fn]
    while nodes:
        node = nodes.pop()
        if getattr(node, "variable", None) is batch:
            return True
        nodes += [before for before, _ in getattr(node, "next_functions", ())]
    return got is batch


def _compare(got: Any, batch: Any, device: torch.device, path: str = "batch") -> None:
    """Raise AssertionError at the first place where `got` is not `batch` on `device`."""
    assert type(got) is type(batch), f"{path}: expected {type(batch).__name__}, got {kind(got)}"
    if isinstance(batch, Tensor):
        assert got.device == device, f"{path}: the tensor is not on the device"
        assert got.dtype == batch.dtype and got.shape == batch.shape, (
            f"{path}: dtype or shape changed"
        )
        assert got is batch or batch.device != device, (
            f"{path}: was copied although it was there already"
        )
        assert got.requires_grad == batch.requires_grad and (
            not batch.requires_grad or _reaches(got, batch)
        ), f"{path}: no gradient reaches the tensor"
    elif isinstance(batch, PackedSequence):
        assert got.data.device == device, f"{path}: the packed sequence is not on the device"
        assert got.data.dtype == batch.data.dtype and got.data.shape == batch.data.shape, (
            f"{path}: dtype or shape changed"
        )
        assert got.batch_sizes.tolist() == batch.batch_sizes.tolist(), (
            f"{path}: the lengths of the packed sequence changed"
        )
        assert got.batch_sizes.device.type == "cpu", f"{path}: batch_sizes must stay on the CPU"
        assert (got.sorted_indices is None) == (batch.sorted_indices is None), (
            f"{path}: the packed sequence lost the order of its rows"
        )
        assert got.data is batch.data or batch.data.device != device, (
            f"{path}: was copied although it was there already"
        )
        for name in ("sorted_indices", "unsorted_indices"):
            order, right = getattr(got, name), getattr(batch, name)
            assert right is None or order.device == device, (
                f"{path}: {name} of the packed sequence is not on the device"
            )
            assert right is None or right.device != device or torch.equal(order, right), (
                f"{path}: {name} of the packed sequence changed"
            )
    elif isinstance(batch, Mapping):
        assert not isinstance(batch, defaultdict) or (
            got.default_factory is batch.default_factory
        ), f"{path}: the defaultdict lost its default"
        assert list(got) == list(batch), f"{path}: expected the keys {list(batch)}"
        for key in batch:
            _compare(got[key], batch[key], device, f"{path}[{key!r}]")
    elif isinstance(batch, (list, tuple)):
        assert len(got) == len(batch), f"{path}: expected {len(batch)} items, got {len(got)}"
        for number, (mine, theirs) in enumerate(zip(got, batch, strict=True)):
            _compare(mine, theirs, device, f"{path}[{number}]")
    else:
        assert got is batch, f"{path}: {batch!r} is not a tensor and must not change"


def check_to_device(answer: Callable[[Any, torch.device], Any]) -> Verdict:
    """Check `answer(batch, device)`: the batch with its tensors on `device`, at any depth.

    A batch is a tensor, a packed sequence, or a dict, list, tuple or named tuple of batches, or
    anything else, which is passed through. Containers keep their type; a tensor that is there
    already is not copied.
    """
    meta, cpu = torch.device("meta"), torch.device("cpu")
    answer = leaves(answer, "the caller's batch")

    def simple(f):
        for batch in (
            torch.rand(2),
            torch.rand(2, requires_grad=True),
            {"image": torch.rand(2), "name": "a.png"},
            [torch.rand(2).double(), [torch.arange(3), None]],
            (torch.rand(2), 7),
            Pair(torch.rand(2), torch.tensor(1)),
            OrderedDict(b=torch.rand(2), a=7),
            defaultdict(list, x=torch.rand(2)),
            [pack_sequence([torch.rand(3), torch.rand(2)])],
            [pack_sequence([torch.rand(2), torch.rand(3)], enforce_sorted=False)],
            [],
            {},
        ):
            _compare(f(batch, meta), batch, meta)

    def untouched(f):
        batch = {"x": [torch.rand(2)], "encoder": nn.Linear(1, 1)}
        f(batch, meta)
        assert batch["encoder"].weight.device == cpu, "a module of the caller's was moved"

    def nothing_to_do(f):
        for batch in (
            torch.rand(2),
            [torch.rand(2).double(), {"y": torch.rand(2).half()}],
            pack_sequence([torch.rand(n) for n in (2, 1, 3)], enforce_sorted=False),
        ):
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
    lambda p, lr: torch.optim.Adam(p, lr=lr, amsgrad=True),
    lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
)


class _Scaled(nn.Sequential):
    """Model with its own parameter and buffer, besides those of its layers."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)
        self.factor = nn.Parameter(torch.tensor(1.0))  # without dimensions
        self.register_buffer("shift", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale * self.factor + self.shift


def _move_train(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).pow(2).sum().backward()
    optimizer.step()


def _move_running(make) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = in_two_modes(_Scaled(nn.Linear(3, 4), nn.Linear(4, 1)))
    body, head = list(model[0].parameters()), [model.scale, model.factor, *model[1].parameters()]
    optimizer = make([{"params": [*body]}, {"params": head, "lr": 0.01}], lr=0.05)
    for _ in range(3):
        _move_train(model, optimizer, torch.randn(5, 3))
    return model, optimizer


def _move_state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    values = [v for s in optimizer.state.values() for k, v in s.items() if k != "step"]
    return [v for v in values if isinstance(v, Tensor)]


def _move_counted(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(s["step"]) for s in optimizer.state.values() if "step" in s]


def _move_options(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]


def _move_go_on(model, optimizer, x):
    try:
        _move_train(model, optimizer, x)
    except RuntimeError as error:
        raise AssertionError(f"the next training step fails: {error}") from None


def _move_dtype(f):
    for make, dtype in product(_OPTIMIZERS, (torch.float64, torch.bfloat16)):
        model, optimizer = _move_running(make)
        before = [v.clone() for v in _move_state(optimizer)]
        weights, steps = [p.detach().clone() for p in model.parameters()], _move_counted(optimizer)
        settings = _move_options(optimizer)
        with unchanged("values gradients objects", model=model):
            f(model, optimizer, dtype)
        held = [p for group in optimizer.param_groups for p in group["params"]]
        parameters = list(model.parameters())
        assert sorted(map(id, held)) == sorted(map(id, parameters)), (
            "the optimizer refers to other parameters than the model"
        )
        assert all(t.dtype == dtype for t in (*parameters, model.shift)), "the model did not move"
        assert all(
            torch.equal(old.to(dtype), new) for old, new in zip(weights, parameters, strict=True)
        ), "the weights of the model changed"
        assert _move_options(optimizer) == settings, "the optimizer's settings changed"
        after = _move_state(optimizer)
        assert len(after) == len(before), "the optimizer's moments are missing"
        for old, new in zip(before, after, strict=True):
            assert torch.equal(old.to(dtype), new.to(dtype)), "the moments changed"
            assert new.dtype == dtype, f"the state of {type(optimizer).__name__} stayed {new.dtype}"
        assert _move_counted(optimizer) == steps, "the optimizer's step count changed"
        _move_go_on(model, optimizer, torch.randn(5, 3).to(dtype))


def _move_device(f):
    for make in _OPTIMIZERS:
        model, optimizer = _move_running(make)
        with _moves_in_place():
            f(model, optimizer, "meta")
        assert all(t.is_meta for t in (*model.parameters(), model.shift)), "the model did not move"
        assert all(v.is_meta for v in _move_state(optimizer)), (
            f"the state of {type(optimizer).__name__} stayed on the old device"
        )
        steps = [s["step"] for s in optimizer.state.values() if "step" in s]
        assert not any(isinstance(v, Tensor) and v.is_meta for v in steps), (
            "the step count moved too: leave it on the CPU, where reading it does not synchronize"
        )
        _move_go_on(model, optimizer, torch.randn(5, 3, device="meta"))


def check_move(
    answer: Callable[[nn.Module, torch.optim.Optimizer, torch.dtype | str], object],
) -> Verdict:
    """Check `answer(model, optimizer, target)`: convert both in the middle of a training run.

    The optimizer has made some steps. `target` is a dtype or a device; moves keep the parameters'
    identity, even to meta. The next step must run, with the moments that the optimizer had.
    """
    return verdict(answer, [_move_dtype, _move_device])
