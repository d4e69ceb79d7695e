"""Helpers of the chapter "Save checkpoints and resume from them".

Source: "Serialization semantics", https://pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import random
import sys
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import Tensor, nn

from helpers import child
from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PREFIXES = ("module.", "_orig_mod.")


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read or loaded; the message says why."""


# ---------------------------------------------------------------- writing and reading


def save_checkpoint(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `state` to `path`, which holds the old or the new checkpoint at any time, never a half.

    The new file is written beside the old one as `<path>.tmp`, forced to the disk, and renamed
    over it. If that fails, the temporary file is removed; only after a kill it stays, and the next
    save overwrites it. One process at a time may write to a path. A missing folder is made.

    Raises:
        CheckpointError: `load_checkpoint` would refuse to read `state` back, because something in
            it is neither a tensor nor plain Python.
        OSError: it could not be written, for example because the disk is full.

    Source: `man 2 rename`, `man 2 fsync`.
    """
    path = Path(os.path.realpath(path))  # a link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        if refused := _foreign(temporary):
            raise CheckpointError(
                f"not saved: torch.load would refuse {', '.join(refused)}; store tensors and plain "
                "Python values, such as float(x), vars(args) and str(path)"
            )
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, RuntimeError) and (cause := _os_error(error)):
            raise OSError(cause.errno, cause.strerror, str(path)) from error
        raise
    if hasattr(os, "O_DIRECTORY"):  # the new name must reach the disk too; not on Windows
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load_checkpoint(
    path: str | os.PathLike[str], map_location: Any = "cpu", verify: bool = True
) -> Any:
    """Read a checkpoint, tensors and plain Python values only, and say clearly what is wrong.

    Args:
        path: the file.
        map_location: where its tensors go, as in `torch.load`.
        verify: compare the file with the checksums in it, which `torch.load` does not. Switch it
            off for files written after `torch.serialization.set_crc32_options(False)`.

    Raises:
        FileNotFoundError: there is no such file; the message names the files that are there.
        CheckpointError: the file is empty, cut off, damaged, or no checkpoint, or it holds objects
            that only executing code could restore.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint {path.name} in {path.parent}: {_neighbours(path)}")
    size = path.stat().st_size
    if not zipfile.is_zipfile(path):  # or older than PyTorch 1.6, which torch.load still reads
        try:
            return torch.load(path, map_location=map_location, weights_only=True)
        except Exception as error:
            what = "is empty" if size == 0 else f"is cut off or no checkpoint ({size} bytes)"
            raise CheckpointError(f"{path.name} {what}") from error
    if what := _wrong(path, verify):
        raise CheckpointError(f"{path.name} {what}")
    try:
        return torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        names = ", ".join(_foreign(path)) or "what its pickle names"
        raise CheckpointError(
            f"{path.name} wants to import {names}; only executing code could restore that"
        ) from error


def _foreign(path: Path) -> list[str]:
    """What the file wants to import beyond what `weights_only=True` allows."""
    return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))


def _os_error(error: BaseException) -> OSError | None:
    """The operating system's error behind PyTorch's own, if there is one."""
    before: BaseException | None = error
    while before is not None and not isinstance(before, OSError):
        before = before.__cause__ or before.__context__
    return before


def _neighbours(path: Path) -> str:
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return "the folder does not exist"
    names = sorted(p.name for p in path.parent.iterdir() if p.is_file())
    return f"there is {', '.join(names[:5])}{', …' * (len(names) > 5)}" if names else "it is empty"


def _wrong(path: Path, verify: bool) -> str | None:
    """What is wrong with a zip archive as a checkpoint, if anything."""
    try:
        with zipfile.ZipFile(path) as archive:
            if not any(name.endswith("/data.pkl") for name in archive.namelist()):
                return "holds no checkpoint: torch.save did not finish it, or never wrote it"
            record = archive.testzip() if verify else None
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        return f"is damaged: {error}"
    return f"is damaged: the checksum of {record} does not fit" if record else None


def load_weights(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """`model.load_state_dict(weights)` that looks first and loads all or nothing.

    Raises:
        CheckpointError: names or shapes do not fit. The message lists each of them and what would
            help; the model is as it was. PyTorch's own error comes after it has copied what fits.
    """
    own = model.state_dict()
    missing = [name for name in own if name not in weights]
    unexpected = [name for name in weights if name not in own]
    shapes = [
        f"{name} is {_shape(weights[name])}, the model has {_shape(own[name])}"
        for name in own
        if name in weights and _shape(weights[name]) != _shape(own[name])
    ]
    if not missing and not unexpected and not shapes:
        model.load_state_dict(weights)
        return
    found = [("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)]
    lines = [f"{what}: {', '.join(names)}" for what, names in found if names]
    raise CheckpointError("; ".join(["nothing was loaded", *lines, *_advice(own, weights)]))


def _shape(value: Any) -> Any:
    """A tensor's shape as a tuple, or the name of another thing's type."""
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def _advice(own: Mapping[str, Any], weights: Mapping[str, Any]) -> list[str]:
    for prefix in PREFIXES:
        if weights and all(name.startswith(prefix) for name in weights):
            return [f"every name begins with {prefix!r}: strip it"]
    inside = [k for k, v in weights.items() if isinstance(v, Mapping) and set(v) & set(own)]
    return [f"this is a whole checkpoint: pass its entry {inside[0]!r}"] if inside else []


# ---------------------------------------------------------------- machines and projects


def save_as_from_gpu(value: Any, path: str | os.PathLike[str], device: str = "cuda:0") -> None:
    """`torch.save` on any machine, as if every tensor had been on the GPU `device`."""
    with mock.patch.object(torch.serialization, "location_tag", lambda storage: device):
        torch.save(value, path)


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """Inside, PyTorch finds no GPU, whatever the machine has."""
    with mock.patch.object(torch.cuda, "is_available", lambda: False):
        yield


def import_text(name: str, source: str) -> types.ModuleType:
    """A module made from `source`, as if it had been imported from a file `<name>.py`."""
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    sys.modules[name] = module
    return module


# ---------------------------------------------------------------- resuming


def rng_state() -> dict[str, Any]:
    """The states of all global random generators, of types that `weights_only=True` loads.

    Python's, NumPy's, PyTorch's, and one of each GPU. Generators of your own are not in it.
    """
    import numpy as np

    name, keys, *rest = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(keys.astype("int64")), *rest],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put back what `rng_state` returned; call it last, so that nothing draws after it.

    GPU states are put back as far as there are GPUs.

    Raises:
        TypeError: a state is not on the CPU, as after `torch.load(map_location="cuda")`.
    """
    import numpy as np

    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype("uint32"), *rest))
    torch.set_rng_state(state["torch"])
    for index, one in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(one, index)


class Run:
    """A small training run in which everything counts that a resume must bring back.

    16 samples in 4 shuffled batches an epoch; noise from NumPy on the inputs, dropout in the
    model; AdamW, a learning rate halved every second epoch, and a gradient scaler.

    Attributes:
        model, optimizer, scheduler, scaler: as in any training script.
        generator: the generator that shuffles.
        epoch: the next one to train.
        weights: after each step, all weights as one float32 tensor of shape (37,).
    """

    def __init__(self, seed: int = 0) -> None:
        import numpy as np

        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.2), nn.Linear(6, 1), nn.Flatten(0))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
        self.generator = torch.Generator().manual_seed(seed)
        x = torch.randn(16, 3)
        self.loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x, x.sum(1)),
            batch_size=4,
            shuffle=True,
            generator=self.generator,
        )
        self.epoch = 0
        self.weights: list[Tensor] = []

    def train(self, until: int) -> Run:
        """Train from `epoch` on, until `until` epochs are done; returns itself."""
        import numpy as np

        while self.epoch < until:
            for x, y in self.loader:
                noise = np.random.standard_normal(x.shape).astype("float32")
                x = x + 0.1 * torch.from_numpy(noise)
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x), y)
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
                flat = nn.utils.parameters_to_vector(self.model.parameters())
                self.weights.append(flat.detach().clone())
            self.scheduler.step()
            self.epoch += 1
        return self


def differences(a: Any, b: Any) -> list[str]:
    """The keys under which two checkpoints differ, compared bit for bit and as deep as they go.

    A key that only one of them has is among them.
    """
    return [key for key in {**a, **b} if key not in a or key not in b or not _same(a[key], b[key])]


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b or (a != a and b != b)


def _bits(x: Tensor) -> Tensor:
    return x.detach().cpu().contiguous().flatten().view(torch.uint8)


def draw_distances(distances: Mapping[str, list[float]], start: int) -> Figure:
    """Draw, on a log scale, how far each resumed run is from the uninterrupted one.

    Args:
        distances: for each label, the largest difference of a weight after each step from
            `start` on; zeros are drawn on the bottom line.
        start: the step at which the runs were resumed.

    Raises:
        ValueError: `distances` is empty.
    """
    import matplotlib.pyplot as plt

    if not distances:
        raise ValueError("draw_distances needs at least one run, got none")
    figure, axis = plt.subplots(figsize=(7, 3))
    floor = 1e-5
    colors = ["#c2410c", "#0a6b7d", "#7c3aed", "#555555", "#111111"]
    for number, (label, values) in enumerate(distances.items()):
        steps = range(start + 1, start + 1 + len(values))
        axis.plot(
            steps,
            [max(v, floor) for v in values],
            color=colors[number % len(colors)],
            linestyle=["-", "--", "-.", ":", "-"][number % 5],
            marker="osD^v"[number % 5],
            markersize=4,
            label=label,
        )
    axis.set(yscale="log", xlabel="step", ylabel="largest difference of a weight")
    axis.set_yticks([1e-4, 1e-3, 1e-2, 1e-1], ["0.0001", "0.001", "0.01", "0.1"])
    axis.set_ylim(floor * 0.7, 1)
    axis.text(start + 0.6, floor * 1.6, "exactly 0", fontsize=8, color="#555")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(title="left out", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- accidents

ACCIDENTS = (
    "torch.save, disk full",
    "torch.save, killed",
    "save_checkpoint, disk full",
    "save_checkpoint, killed",
)


def accidents(folder: str | os.PathLike[str]) -> dict[str, tuple[str, str]]:
    """Overwrite a checkpoint four times and let each attempt end in the middle of the file.

    Once with `torch.save` and once with `save_checkpoint` the disk is full, and once each the
    process is killed. The operating system does both: a limit on the size of a file
    (`RLIMIT_FSIZE`) refuses the write that crosses it, or ends the process with a signal. A child
    process does it, in about the time that importing PyTorch takes.

    Returns:
        For each of `ACCIDENTS` how the attempt ended (`"error"`, `"killed"` or `"no error"`), and
        what `<folder>/<accident>.pt` holds then (`"old"`, `"new"` or `"unreadable"`).

    Raises:
        OSError: the operating system has no such limit (Windows).
        RuntimeError: the child failed.
    """
    if not hasattr(os, "fork"):
        raise OSError("accidents needs a Unix system: it limits the size of a file")
    outcomes = child.call(_accidents, os.fspath(folder))
    return {name: tuple(outcome) for name, outcome in outcomes.items()}


def _accidents(folder: str) -> dict[str, tuple[str, str]]:
    """The child of `accidents`: forks once for each, and says what became of it."""
    outcomes = {}
    for name in ACCIDENTS:
        path = Path(folder) / f"{name}.pt"
        torch.save({"epoch": 1, "weight": torch.zeros(1000)}, path)
        save = torch.save if name.startswith("torch.save") else save_checkpoint
        pid = os.fork()
        if pid == 0:
            _one_accident(save, path, kill=name.endswith("killed"))
        _, status = os.waitpid(pid, 0)
        failed = "error" if os.waitstatus_to_exitcode(status) == 1 else "no error"
        outcomes[name] = ("killed" if os.WIFSIGNALED(status) else failed, _epoch(path))
    return outcomes


def _one_accident(save: Callable[[Any, Path], None], path: Path, kill: bool) -> None:
    """Save 4 MB where there is room for 1 MB, and end this process."""
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kill else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))
    code = 3
    try:
        save({"epoch": 2, "weight": torch.zeros(10**6)}, path)
        code = 0
    except (OSError, RuntimeError):
        code = 1
    finally:
        os._exit(code)


def _epoch(path: Path) -> str:
    try:
        return {1: "old", 2: "new"}[load_checkpoint(path)["epoch"]]
    except CheckpointError:
        return "unreadable"


# ---------------------------------------------------------------- exercises


def check_load_matching(answer: Callable[[nn.Module, dict[str, Tensor]], list[str]]) -> Verdict:
    """Check `answer(model, saved)`: loads the entries that fit in name and shape.

    It returns the sorted names of the model's entries that it left alone, and raises `ValueError`
    if nothing fits. Entries of `saved` that the model lacks are ignored.
    """

    def case():
        sizes = torch.randperm(5)[:2] + 2
        model, other = (
            nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, int(n))) for n in sizes
        )
        return model, other.state_dict() | {"extra.weight": torch.randn(2)}

    def call(f, model, saved):
        try:
            return f(model, saved)
        except RuntimeError as error:
            first = str(error).partition("\n")[0].partition(" for ")[0]
            raise AssertionError(f"your code raised RuntimeError: {first}") from error

    def loads(f):
        model, saved = case()
        call(f, model, saved)
        own = model.state_dict()
        for name in own:
            if own[name].shape == saved[name].shape:
                assert torch.equal(own[name], saved[name]), f"{name} fits and was not loaded"

    def leaves(f):
        model, saved = case()
        before = copy.deepcopy(model.state_dict())
        names = sorted(n for n in before if before[n].shape != saved[n].shape)
        del saved["0.bias"]
        got = call(f, model, saved)
        assert isinstance(got, list), f"expected a list of names, got {type(got).__name__}"
        assert got == sorted([*names, "0.bias"]), "the list does not name what was left alone"
        for name in got:
            assert torch.equal(model.state_dict()[name], before[name]), f"{name} was changed"

    def refuses(f):
        model, saved = case()
        try:
            call(f, model, {f"module.{name}": value for name, value in saved.items()})
        except ValueError:
            return
        raise AssertionError("nothing fitted and no ValueError was raised")

    return verdict(answer, [loads, leaves, refuses])


def check_continue(
    answer: Callable[[torch.optim.Optimizer, dict[str, Any], float], None],
) -> Verdict:
    """Check `answer(optimizer, saved, lr)`: the saved state, but the learning rate `lr`.

    Every group gets `lr` and keeps the rest of its saved settings; `saved` stays as it is when
    training goes on.
    """

    def case():
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        groups = [
            {"params": layer.parameters(), "lr": 0.1 / (n + 1)} for n, layer in enumerate(model)
        ]
        old = torch.optim.AdamW(groups, weight_decay=0.3)
        model(torch.randn(4, 2)).square().mean().backward()
        old.step()
        new = torch.optim.AdamW([{"params": layer.parameters()} for layer in model])
        return new, copy.deepcopy(old.state_dict()), 0.001 + float(torch.rand(())) / 100

    def rate(f):
        new, saved, lr = case()
        f(new, saved, lr)
        got = [group["lr"] for group in new.param_groups]
        assert got != [0.1, 0.05], "the learning rates are the saved ones"
        assert got == [lr, lr], "not every group has the new learning rate"

    def rest(f):
        new, saved, lr = case()
        expected = copy.deepcopy(saved)
        f(new, saved, lr)
        got = new.state_dict()
        assert got["state"], "the optimizer has no state: load the saved one"
        assert _same(got["state"], expected["state"]), "the state is not the saved one"
        for group in got["param_groups"]:
            assert group["weight_decay"] == 0.3, "the other settings are not the saved ones"

    def untouched(f):
        new, saved, lr = case()
        before = copy.deepcopy(saved)
        f(new, saved, lr)
        for p in new.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        new.step()
        assert _same(saved, before), "saved changed: the optimizer goes on with its very tensors"

    return verdict(answer, [rate, rest, untouched])


def check_plain(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Verdict:
    """Check `answer(state)`: a copy that `weights_only=True` loads, with equal values.

    NumPy numbers become Python's, arrays become tensors, a `Namespace` becomes a dict, a `Path`
    a string, in dicts and lists of any depth. Tensors and plain values stay.
    """
    import argparse

    import numpy as np

    def case():
        x, n = float(torch.rand(())), int(torch.randint(1, 9, ()))
        array = np.arange(n) * x
        args = argparse.Namespace(lr=np.float32(0.5), out=Path("runs") / str(n))
        state = {
            "weight": torch.randn(n),
            "best": np.float64(x),
            "history": [np.int64(n), x, {"deep": array}],
            "done": np.bool_(n > 4),
            "args": args,
            "name": "run",
        }
        expected = {
            "weight": state["weight"],
            "best": x,
            "history": [n, x, {"deep": torch.from_numpy(array)}],
            "done": n > 4,
            "args": {"lr": 0.5, "out": str(Path("runs") / str(n))},
            "name": "run",
        }
        return state, expected

    def loads(f):
        state, expected = case()
        got = f(state)
        assert isinstance(got, dict), f"expected a dict, got {type(got).__name__}"
        for key in expected:
            assert key in got, f"the entry {key!r} is gone"
            file = io.BytesIO()
            torch.save(got[key], file)
            file.seek(0)
            try:
                torch.load(file, weights_only=True)
            except pickle.UnpicklingError as error:
                raise AssertionError(f"torch.load refuses the entry {key!r}") from error

    def values(f):
        state, expected = case()
        wrong = differences(f(state), expected)
        assert not wrong, f"the entry {wrong[0]!r} has another value or type than expected"

    def original(f):
        state, _ = case()
        f(state)
        kept = isinstance(state["best"], np.float64) and isinstance(state["history"][0], np.int64)
        assert kept and isinstance(state["args"], argparse.Namespace), "the state was changed"

    return verdict(answer, [loads, values, original])
