"""Helpers of the chapter "Train on several GPUs".

DataParallel's four steps by hand, on the CPU; a stand-in that runs its real `forward` with them;
two processes under torchrun.

Sources: `torch.nn.DataParallel`, https://pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
and torchrun, https://pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import child
from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ---------------------------------------------------------------- the four steps


def scatter(inputs: Any, replicas: int, dim: int = 0) -> list[Any]:
    """Split every tensor in `inputs` into at most `replicas` chunks along `dim`.

    Tuples, lists and dicts are split member by member; anything else goes to every replica.
    Like `torch.nn.parallel.scatter`, which also moves the chunks to their devices.

    Returns:
        One item per chunk, of the same structure as `inputs`. `torch.chunk` may make fewer
        chunks than asked for.

    Raises:
        ValueError: `replicas` is smaller than 1.
    """
    if replicas < 1:
        raise ValueError(f"replicas must be at least 1, got {replicas}")
    if isinstance(inputs, Tensor):
        return list(inputs.chunk(replicas, dim))
    if isinstance(inputs, dict) and inputs:
        columns = [scatter(value, replicas, dim) for value in inputs.values()]
        return [dict(zip(inputs, row, strict=True)) for row in zip(*columns, strict=False)]
    if isinstance(inputs, (tuple, list)) and inputs:
        columns = [scatter(value, replicas, dim) for value in inputs]
        return [type(inputs)(row) for row in zip(*columns, strict=False)]
    return [inputs] * replicas


def replicate(module: nn.Module, replicas: int) -> list[nn.Module]:
    """Copy a module `replicas` times, so that gradients of the copies add up in the original.

    The weights of a copy are not leaves: each is made from the original's parameter, and a
    backward pass runs through to it. Replica 0 shares the original's memory, as
    `torch.nn.DataParallel` guarantees for `device_ids[0]`; the others hold copies.

    Raises:
        ValueError: `replicas` is smaller than 1.
    """
    if replicas < 1:
        raise ValueError(f"replicas must be at least 1, got {replicas}")
    modules = list(module.modules())
    return [_replica(modules, first=number == 0) for number in range(replicas)]


def _replica(modules: list[nn.Module], first: bool) -> nn.Module:
    copies = {original: original._replicate_for_data_parallel() for original in modules}
    made: dict[Tensor, Tensor] = {}  # tied weights stay tied

    def copy(tensor: Tensor) -> Tensor:
        if tensor not in made:
            made[tensor] = tensor.view_as(tensor) if first else tensor.clone()
        return made[tensor]

    for original, replica in copies.items():
        for name, inner in original._modules.items():
            replica._modules[name] = None if inner is None else copies[inner]
        for name, parameter in original._parameters.items():
            # A plain attribute: nn.Module registers leaves only.
            setattr(replica, name, None if parameter is None else copy(parameter))
        for name, buffer in original._buffers.items():
            replica._buffers[name] = None if buffer is None else copy(buffer)
    return copies[modules[0]]


def gather(outputs: Sequence[Any], dim: int = 0) -> Any:
    """Join the replicas' outputs along `dim`; scalars become a vector with one entry each.

    Tuples, lists and dicts are joined member by member. Like `torch.nn.parallel.gather`, which
    also moves everything to the output device, and warns about scalars.

    Raises:
        ValueError: `outputs` is empty.
    """
    if not outputs:
        raise ValueError("gather needs at least one output, got none")
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.stack(list(outputs)) if first.dim() == 0 else torch.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return {key: gather([out[key] for out in outputs], dim) for key in first}
    return type(first)(gather(row, dim) for row in zip(*outputs, strict=True))


class StandIn(nn.DataParallel):
    """A `DataParallel` whose GPUs are played by another device, so that it runs anywhere.

    `forward` is that of `torch.nn.DataParallel`; its four steps are the functions above.

    Args:
        module: the module to replicate.
        replicas: how many GPUs to play.
        device: `"cpu"`, to compare numbers, or `"meta"`, to see what has to be where.
        dim: the batch dimension.
    """

    def __init__(
        self, module: nn.Module, replicas: int = 2, device: str = "cpu", dim: int = 0
    ) -> None:
        nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = list(range(replicas)), 0
        self.src_device_obj = torch.device(device)

    def scatter(self, inputs, kwargs, device_ids):  # noqa: D102
        def move(item: Any) -> Any:
            if isinstance(item, Tensor):
                return item.to(self.src_device_obj)
            if isinstance(item, dict):
                return {key: move(value) for key, value in item.items()}
            return type(item)(map(move, item)) if isinstance(item, (tuple, list)) else item

        shards = scatter((move(inputs), move(kwargs)), len(device_ids), self.dim)
        return tuple(i for i, _ in shards), tuple(k for _, k in shards)

    def replicate(self, module, device_ids):  # noqa: D102
        return replicate(module, len(device_ids))

    def parallel_apply(self, replicas, inputs, kwargs):  # noqa: D102
        return [r(*i, **k) for r, i, k in zip(replicas, inputs, kwargs, strict=True)]

    def gather(self, outputs, output_device):  # noqa: D102
        return gather(outputs, self.dim)


@contextmanager
def no_gpus() -> Iterator[None]:
    """Inside, PyTorch reports that there is no CUDA device, whatever the machine has."""
    with mock.patch("torch.cuda.is_available", return_value=False):
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Inside, this process is a group of one, so that DistributedDataParallel works in a notebook.

    Raises:
        ValueError: the process belongs to a group already.
    """
    import torch.distributed as dist

    hook = sys.excepthook  # which init_process_group replaces for good
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


# ---------------------------------------------------------------- figures


def draw_processes() -> Figure:
    """DataParallel and DistributedDataParallel side by side: who holds what, what travels."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    for axis, title in ((left, "DataParallel"), (right, "DistributedDataParallel")):
        axis.set_title(title, fontsize=11)
        axis.axis("off")
        axis.set(xlim=(0, 10), ylim=(0, 10))
    _area(left, 0.2, 9.6, "one process, one thread per GPU")
    _box(left, 5, 7.2, "GPU 0: model, optimizer")
    for x, gpu in ((2.5, 0), (7.5, 1)):
        _box(left, x, 3.6, f"GPU {gpu}: replica, shard")
        _arrow(left, (0.5 * x + 2.5, 6.4), (x, 4.4), "<->")
    _note(left, "every step: weights and shards out,\noutputs and gradients back")
    for x, rank in ((2.5, 0), (7.5, 1)):
        _area(right, x - 2.3, 4.6, f"process {rank}")
        _box(right, x, 7.2, "its own shard")
        _arrow(right, (x, 6.4), (x, 4.7), "->")
        _box(right, x, 3.6, f"GPU {rank}: model,\noptimizer")
    _arrow(right, (3.9, 3.6), (6.1, 3.6), "<->")
    _note(right, "every step: the gradients are averaged,\nthe buffers of rank 0 are copied")
    figure.tight_layout()
    return figure


def _area(axis: Any, x: float, width: float, title: str) -> None:
    from matplotlib.patches import Rectangle

    style = {"facecolor": "#f4f4f4", "edgecolor": "#777", "linestyle": "--"}
    axis.add_patch(Rectangle((x, 2.2), width, 7.6, **style))
    axis.text(x + width / 2, 9.1, title, ha="center", va="center", fontsize=9, color="#222")


def _box(axis: Any, x: float, y: float, text: str) -> None:
    style = {"boxstyle": "round,pad=0.4", "facecolor": "#cfe8ff", "edgecolor": "#777"}
    axis.text(x, y, text, ha="center", va="center", fontsize=8.5, color="#222", bbox=style)


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], style: str) -> None:
    arrow = {"arrowstyle": style, "color": "#b35900", "linewidth": 1.5}
    axis.annotate("", xy=end, xytext=start, arrowprops=arrow)


def _note(axis: Any, text: str) -> None:
    axis.text(5, 0.9, text, ha="center", va="center", fontsize=9)


# ---------------------------------------------------------------- processes


def launch(timeout: float = 100) -> list[dict[str, Any]]:
    """Run `helpers.ddp_worker` in two processes on the CPU; what each found, in order of rank.

    Args:
        timeout: seconds until both are ended and the run counts as failed.

    Raises:
        RuntimeError: a process failed or the time ran out; the message ends with what they said.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        worker = ["-m", "helpers.ddp_worker", folder]
        _torchrun([["--standalone", "--nproc-per-node=2", *worker]], folder, timeout)
        return [torch.load(Path(folder, f"rank{rank}.pt")) for rank in range(2)]


_NAMES = ("GROUP_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE")
_REPORT = (
    "import json, os, sys; "
    "open(os.path.join(sys.argv[1], os.environ['RANK'] + '.json'), 'w')"
    ".write(json.dumps({name: int(os.environ[name]) for name in sys.argv[2:]}))"
)


def two_machines(timeout: float = 100) -> list[dict[str, int]]:
    """What torchrun tells each process when two machines start two processes each.

    Both machines are played by this one: two torchruns that meet at a port of the loopback.

    Returns:
        GROUP_RANK (the machine), RANK, LOCAL_RANK and WORLD_SIZE of each process, by RANK.

    Raises:
        RuntimeError: a process failed or the time ran out; the message ends with what they said.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [
            *("--nnodes=2", "--nproc-per-node=2"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}"),
            *("--no-python", sys.executable, "-c", _REPORT, folder, *_NAMES),
        ]
        _torchrun([command, command], folder, timeout)
        files = sorted(Path(folder).glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(path.read_text()) for path in files]


def _torchrun(commands: list[list[str]], folder: str, timeout: float) -> None:
    """Run torchrun once per command, all at a time, and wait until all have ended well."""
    logs = [Path(folder, f"torchrun{number}.log") for number in range(len(commands))]
    runs: list[subprocess.Popen] = []
    begun = time.monotonic()
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("w") as out:
                runs.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "torch.distributed.run"]
                        + ["--local-addr=127.0.0.1", *command],
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        env=_environment(folder),
                    )
                )
        try:
            failed = any(
                run.wait(max(0.1, timeout - (time.monotonic() - begun))) != 0 for run in runs
            )
            what = "a process failed"
        except subprocess.TimeoutExpired:
            failed, what = True, f"not done after {timeout:g} s"
    finally:
        for run in runs:
            _end(run)
    if failed:
        said = "\n".join(log.read_text(errors="replace").strip()[-8000:] for log in logs)
        raise RuntimeError(f"torchrun: {what}\n{said}")


def _environment(folder: str) -> dict[str, str]:
    """This process's environment for a torchrun on the CPU that stays on this machine.

    What torchrun writes and forgets goes to `folder`.
    """
    own = ("PET_", "TORCHELASTIC_", "MASTER_")
    inherited = child.environment().items()
    env = {k: v for k, v in inherited if not k.startswith(own) and k not in _NAMES}
    env |= {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": folder,
        "TEMP": folder,
    }
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if loopback:
        env["GLOO_SOCKET_IFNAME"] = loopback[0]
    return env


def _end(run: subprocess.Popen) -> None:
    """End a torchrun: asked politely it ends its processes too, which a kill would orphan."""
    if run.poll() is None:
        run.terminate()
        try:
            run.wait(15)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()


def global_batches(epochs: int = 2) -> list[list[int]]:
    """The samples that the two processes of `ddp_worker.train` see together, step by step."""
    from torch.utils.data import DistributedSampler

    from helpers.ddp_worker import data

    steps = []
    for epoch in range(epochs):
        orders = []
        for rank in range(2):
            sampler = DistributedSampler(data()[0], num_replicas=2, rank=rank)
            sampler.set_epoch(epoch)
            orders.append(list(sampler))
        steps += [[*a, *b] for a, b in zip(*(_batches(order, 4) for order in orders), strict=True)]
    return steps


def _batches(order: list[int], size: int) -> list[list[int]]:
    return [order[start : start + size] for start in range(0, len(order), size)]


# ---------------------------------------------------------------- exercises

Shards = list[tuple[Tensor, Tensor]]


def _shards(sizes: Sequence[int]) -> Shards:
    return [(torch.randn(n, 3), torch.randn(n, 2)) for n in sizes]


def _uneven() -> list[int]:
    """Two to five sizes from 1 to 6, not all the same."""
    sizes = torch.randint(1, 7, (int(torch.randint(2, 6, ())),)).tolist()
    return [*sizes, sizes[0] + 1]


def check_shard_gradients(
    answer: Callable[[nn.Module, Shards], Sequence[Tensor]],
) -> Verdict:
    """Check `answer(model, shards)`: the full-batch gradients, from one shard at a time.

    `shards` are pairs `x` (n, 3), `y` (n, 2), float32, of sizes that differ; the answer is the
    gradient of the mean squared error over all samples for each parameter of the model, in order.
    """

    def compare(f: Any, shards: Shards, what: str) -> None:
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        x, y = (torch.cat(column) for column in zip(*shards, strict=True))
        right = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
        seen: list[int] = []
        handle = model.register_forward_hook(lambda m, args, out: seen.append(len(args[0])))
        got = f(model, shards)
        handle.remove()
        assert isinstance(got, (list, tuple)), f"expected a list, got {type(got).__name__}"
        shapes = [tuple(p.shape) for p in right]
        found = [tuple(g.shape) for g in got]
        assert found == shapes, f"expected gradients of shapes {shapes}, got {found}"
        assert not seen or max(seen) <= max(len(a) for a, _ in shards), (
            "the shards were joined for the forward pass; a replica sees one of them"
        )
        factors = [(g * r).sum() / (r * r).sum() for g, r in zip(got, right, strict=True)]
        if all(torch.allclose(g, r, atol=1e-5) for g, r in zip(got, right, strict=True)):
            return
        factor = torch.stack(factors).mean().item()
        scaled = all(
            torch.allclose(g, factor * r, rtol=1e-3, atol=1e-5)
            for g, r in zip(got, right, strict=True)
        )
        assert not scaled, f"with {what}, the gradients are {factor:.2f} times too large"
        raise AssertionError(f"with {what}, these are not the gradients of the full batch")

    def equal(f: Any) -> None:
        compare(f, _shards([4, 4]), "two shards of 4 samples")

    def uneven(f: Any) -> None:
        for _ in range(3):
            sizes = _uneven()
            compare(f, _shards(sizes), f"shards of {' + '.join(map(str, sizes))} samples")

    return verdict(answer, [equal, uneven])


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def check_load(answer: Callable[[nn.Module, Mapping[str, Tensor]], Any]) -> Verdict:
    """Check `answer(model, checkpoint)`: loads a state_dict whatever wrapper wrote it.

    Prefixes `module.` and `_orig_mod.` come in any order; a checkpoint that lacks an entry, or
    has one too many, must raise an error that names it; the checkpoint itself stays as it was.
    """
    prefixes = ("", "module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod.")

    def saved(prefix: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        source = _network()
        with torch.no_grad():
            for p in source.parameters():
                p.add_(torch.randn_like(p))
        plain = {key: value.clone() for key, value in source.state_dict().items()}
        return plain, {prefix + key: value for key, value in plain.items()}

    def loads(f: Any) -> None:
        for prefix in prefixes:
            plain, checkpoint = saved(prefix)
            keys, model = list(checkpoint), _network()
            what = f"with the prefix {prefix!r}" if prefix else "without a prefix"
            try:
                f(model, checkpoint)
            except (RuntimeError, KeyError) as error:
                line = str(error).strip().splitlines()[-1].strip()
                raise AssertionError(f"a checkpoint {what} does not load: {line}") from None
            for key, value in model.state_dict().items():
                assert torch.equal(value, plain[key]), (
                    f"a checkpoint {what} was accepted, but {key} did not change"
                )
            assert list(checkpoint) == keys, f"the checkpoint {what} was changed; copy it first"

    def complains(f: Any) -> None:
        for prefix in prefixes:
            for key, lacks in (("2.bias", True), ("head.weight", False)):
                _, checkpoint = saved(prefix)
                if lacks:
                    del checkpoint[prefix + key]
                else:
                    checkpoint[prefix + key] = torch.zeros(1)
                fault = f"a checkpoint that {'lacks' if lacks else 'has the stranger'} {key}"
                try:
                    f(_network(), checkpoint)
                except Exception as error:
                    assert key in str(error), (
                        f"the error for {fault} does not name it: {type(error).__name__}: {error}"
                    )
                else:
                    raise AssertionError(f"{fault} was loaded without a word")

    return verdict(answer, [loads, complains])


def check_partition(answer: Callable[[int, int, int, int], Sequence[int]]) -> Verdict:
    """Check `answer(n, rank, world, epoch)`: which of `n` samples a process sees in an epoch.

    All processes together must see every sample once, in an order that each epoch draws anew,
    and none may get two samples more than another.
    """

    def cases() -> Iterator[tuple[int, int, int]]:
        for world in (1, 2, 3, 4):
            yield int(torch.randint(20, 40, ())), world, int(torch.randint(0, 5, ()))
        yield 21, 2, 0

    def shares(f: Any, n: int, world: int, epoch: int) -> list[list[int]]:
        found = []
        for rank in range(world):
            torch.manual_seed(int(torch.randint(0, 10**6, ())) + rank)  # as other processes would
            found.append([int(index) for index in f(n, rank, world, epoch)])
        return found

    def once(f: Any) -> None:
        for n, world, epoch in cases():
            got = shares(f, n, world, epoch)
            every = sorted(index for share in got for index in share)
            where = f"{n} samples on {world} process{'es' * (world > 1)}"
            strangers = [index for index in every if not 0 <= index < n]
            assert not strangers, f"{where}: {strangers[0]} is not an index from 0 to {n - 1}"
            twice = sorted({a for a, b in zip(every, every[1:], strict=False) if a == b})
            assert not twice, f"{where}: sample {twice[0]} is seen twice"
            missing = sorted(set(range(n)) - set(every))
            assert not missing, f"{where}: sample {missing[0]} is never seen"
            sizes = [len(share) for share in got]
            assert max(sizes) - min(sizes) <= 1, f"{where}: uneven shares {sizes}"

    def agrees(f: Any) -> None:
        assert shares(f, 30, 2, 3) == shares(f, 30, 2, 3), (
            "the same epoch gives another order the second time: a restart would not match"
        )

    def fresh(f: Any) -> None:
        first = shares(f, 30, 2, 0)
        assert first[0] != sorted(first[0]), "the order is not shuffled"
        assert shares(f, 30, 2, 1) != first, "epochs 0 and 1 have the same order"
        assert set(shares(f, 30, 2, 1)[0]) != set(first[0]), (
            "a process sees the same samples in every epoch; only their order changes"
        )

    return verdict(answer, [once, agrees, fresh])
