"""What two processes try out for the chapter on training in many processes, one fact each.

torchrun starts it, one process per GPU, or on the CPU where there is none:

    torchrun --standalone --nproc-per-node=2 -m helpers.ddp_worker FOLDER

Source: "Getting Started with Distributed Data Parallel",
https://pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from helpers import distributed
from helpers.ddp_train import data, start, train

SECONDS = 180  # a process that lives longer ends itself


def child_environment() -> dict[str, str]:
    """Variables that keep the talk between processes on this machine."""
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}


def network(seed: int = 0) -> nn.Linear:
    """A linear layer 3 to 1 whose first weights depend on `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(3, 1)


def samples() -> tuple[Tensor, Tensor]:
    """All 16 samples: `x` (16, 3) and `y` (16, 1), float32."""
    return data().tensors


def trained(device: torch.device) -> dict[str, Tensor]:
    """The weights after the training of `ddp_train`."""
    model = network()
    train(model, device)
    return {name: value.cpu() for name, value in model.state_dict().items()}


def weighted_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean squared error for shards of any size: DDP's average becomes the full-batch gradient."""
    total = torch.tensor(float(target.numel()), device=target.device)
    dist.all_reduce(total)
    loss = F.mse_loss(prediction, target, reduction="sum")
    return loss * dist.get_world_size() / total


def first_weights() -> dict[str, Tensor]:
    """The weights of a model that each process seeds differently, before and after wrapping."""
    model = network(seed=dist.get_rank())
    before = model.weight.detach().clone()
    DDP(model)
    return {"before": before, "after": model.weight.detach().clone()}


def gradient(sizes: list[int], weighted: bool = False) -> Tensor:
    """The gradient each process holds when process `r` gets `sizes[r]` of the samples."""
    rank = dist.get_rank()
    mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    x, y = (tensor[mine] for tensor in samples())
    model = DDP(network())
    (weighted_loss if weighted else F.mse_loss)(model(x), y).backward()
    return model.module.weight.grad


def batch_norm() -> dict[str, Tensor]:
    """The running mean of a BatchNorm layer after one and after two forward passes.

    Process `r` sees inputs of mean about `10 * r`; `mine` is the mean of its own inputs.
    """
    x = samples()[0] + 10.0 * dist.get_rank()
    model = DDP(nn.BatchNorm1d(3))
    means = {"mine": x.mean(0)}
    for key in ("first", "second"):
        model(x)
        means[key] = model.module.running_mean.clone()
    return means


def thawed(again: bool = False) -> Tensor:
    """The weight after three steps with a layer that was frozen when DDP wrapped the model.

    With `again` the model is wrapped once more after the layer was made trainable.
    """
    model = network()
    model.weight.requires_grad_(False)
    parallel = DDP(model)
    model.weight.requires_grad_(True)
    if again:
        parallel = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mine = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
    x, y = (tensor[mine] for tensor in samples())
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(parallel(x), y).backward()
        optimizer.step()
    return model.weight.detach().clone()


def count_syncs(parallel: DDP) -> list[int]:
    """From now on the list grows by one whenever `parallel` averages gradients."""
    seen: list[int] = []

    def hook(group, bucket):
        seen.append(bucket.index())
        return allreduce_hook(group, bucket)

    parallel.register_comm_hook(None, hook)
    return seen


def accumulated(quiet: bool) -> tuple[Tensor, int]:
    """The gradient of two small batches of 4 per process, and how often it was averaged."""
    parallel = DDP(network())
    syncs = count_syncs(parallel)
    mine = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
    parts = list(zip(*(tensor[mine].split(4) for tensor in samples()), strict=True))
    for number, (x, y) in enumerate(parts):
        last = number == len(parts) - 1
        with nullcontext() if last or not quiet else parallel.no_sync():
            (F.mse_loss(parallel(x), y) / len(parts)).backward()
    return parallel.module.weight.grad, len(syncs)


def raises(function: Callable[[], object]) -> str:
    """The type of what `function` raises, or `"nothing"`."""
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def impatient(seconds: float) -> dist.ProcessGroup:
    """A group whose calls wait so long; to meet in the first place it has all the time."""
    group = dist.new_group()
    # `set_timeout` is newer than the oldest PyTorch of the book.
    limit = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout
    limit(timedelta(seconds=seconds), group)
    return group


def only_rank_0() -> str:
    """Rank 0 alone asks for a sum over all processes, which may take two seconds."""
    group = impatient(seconds=2)
    if dist.get_rank() == 0:
        return raises(lambda: dist.all_reduce(torch.ones(1), group=group))
    return "nothing"


def said(function: Callable[[], object]) -> str:
    """What `function` complains about, or `"nothing"`."""
    try:
        function()
    except Exception as error:
        return str(error)
    return "nothing"


def swapped() -> tuple[float, float]:
    """Both ranks add up a loss and an accuracy, but not in the same order."""
    loss, accuracy = torch.tensor(1.0), torch.tensor(100.0)
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
        dist.all_reduce(accuracy)
    else:
        dist.all_reduce(accuracy)
        dist.all_reduce(loss)
    return loss.item(), accuracy.item()


def detailed() -> dist.ProcessGroup:
    """A group that compares the calls of its ranks, as `TORCH_DISTRIBUTED_DEBUG=DETAIL` does."""
    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(timeout=timedelta(seconds=60))
    dist.set_debug_level(before)
    return group


def other_shape() -> str:
    """Rank 0 adds up two numbers and rank 1 three, in a group that compares."""
    group = detailed()
    return said(lambda: dist.all_reduce(torch.ones(2 + dist.get_rank()), group=group))


def other_call() -> str:
    """Rank 0 adds up, rank 1 distributes, in a group that compares."""
    group, x = detailed(), torch.ones(1)
    if dist.get_rank() == 0:
        return said(lambda: dist.all_reduce(x, group=group))
    return said(lambda: dist.broadcast(x, src=0, group=group))


def unnoticed() -> dict[str, list[float]]:
    """What does not fit and raises nothing: two numbers sent to three places, float and integer."""
    rank = dist.get_rank()
    places = torch.full((2 + rank,), 1.0 + rank)
    dist.broadcast(places, src=0)
    mixed = torch.ones(1, dtype=torch.int32 if rank else torch.float32)
    dist.all_reduce(mixed)
    return {"other shape": places.tolist(), "other dtype": mixed.tolist()}


def missing() -> str:
    """Rank 0 alone comes to a barrier that says who is missing."""
    group = dist.new_group()
    if dist.get_rank() == 0:
        wait = timedelta(seconds=1)
        return said(lambda: dist.monitored_barrier(group=group, timeout=wait))
    return "nothing"


def uneven() -> int:
    """Two batches on rank 0 and three on rank 1, under `Join`: how many this rank trained on."""
    from torch.distributed.algorithms.join import Join

    parallel, seen = DDP(network()), 0
    with Join([parallel]):
        for x in torch.ones(2 + dist.get_rank(), 4, 3):
            parallel(x).mean().backward()
            seen += 1
    return seen


def objects() -> dict[str, object]:
    """A name that rank 0 chose, for all; lists of different lengths, from all."""
    name = distributed.from_rank_zero(lambda: f"run of rank {dist.get_rank()}")
    parts: list = [None] * dist.get_world_size()
    dist.all_gather_object(parts, ["cat", "dog"] if dist.get_rank() == 0 else ["cow"])
    return {"name": name, "parts": parts}


def in_turn(folder: str) -> int:
    """How many processes had to write the file that rank 0 writes first."""
    path, wrote = Path(folder, "download"), 0
    with distributed.rank_zero_first():
        if not path.exists():
            path.write_text("data")
            wrote = 1
    return wrote


def noise(add_rank: bool) -> Tensor:
    """What this rank draws for its augmentations, with one seed everywhere or one per rank."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0 + dist.get_rank() if add_rank else 0)
        return torch.rand(3)


def metric() -> dict[str, float]:
    """The mean of 6 losses on rank 0 and 2 on rank 1: of all, and as the mean of the means."""
    values = torch.zeros(6) if dist.get_rank() == 0 else torch.ones(2)
    means = values.mean()
    dist.all_reduce(means)
    return {
        "mean of means": means.item() / dist.get_world_size(),
        "mean": distributed.mean_over_ranks(values.sum().item(), len(values)),
    }


def around() -> dict[str, object]:
    """Which parameters part after a step through the wrapper, and through the model inside."""
    mine = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
    x, y = (tensor[mine] for tensor in samples())
    found = {}
    for key in ("parallel", "parallel.module"):
        parallel = DDP(network())
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        called = parallel if key == "parallel" else parallel.module
        F.mse_loss(called(x), y).backward()
        optimizer.step()
        found[key] = distributed.parted(parallel.module)
    return found


def together() -> dict[str, object]:
    """What the helpers of a group find where the ranks agree, differ, or fail."""
    rank, model = dist.get_rank(), nn.BatchNorm1d(2)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    found: dict[str, object] = {"equal": distributed.parted(model)}
    if rank:
        model.running_mean += 1
        model.bias.data[1] = float("inf")
    found["parted"] = distributed.parted(model)
    found["other model"] = said(lambda: distributed.parted(nn.Linear(2, 2 + rank)))
    kinds = (torch.float64, torch.float32)
    found["other dtype"] = said(lambda: distributed.parted(nn.Linear(2, 2, dtype=kinds[rank])))
    found["type"] = raises(lambda: distributed.from_rank_zero(lambda: lambda: 1))
    found["cannot travel"] = said(lambda: distributed.from_rank_zero(lambda: lambda: 1))
    found["rank 0 fails"] = said(lambda: distributed.from_rank_zero(lambda: 1 / 0))
    found["no sample on rank 0"] = distributed.mean_over_ranks(5.0 * rank, rank)
    return found


def blocks() -> nn.Sequential:
    """Linear 4 to 6, ReLU, linear 6 to 1; the same first weights everywhere."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))


def batch() -> tuple[Tensor, Tensor]:
    """`x` (16, 4) and `y` (16, 1), float32, the same everywhere."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 4, generator=generator)
    return x, torch.randn(16, 1, generator=generator)


def sharded(device: torch.device, early: bool = False) -> dict[str, object]:
    """Three steps under `fully_shard`: what a rank holds, and the whole model afterwards.

    With `early` the optimizer is built before the model is sharded.
    """
    # A second's worth of imports, which a spawned process does not need.
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = blocks().to(device)
    first = torch.optim.Adam(model.parameters(), lr=0.1)
    for block in (model[0], model[2]):
        fully_shard(block)
    fully_shard(model)
    optimizer = first if early else torch.optim.Adam(model.parameters(), lr=0.1)
    mine = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
    x, y = (tensor[mine].to(device) for tensor in batch())
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weight = model[0].weight
    return {
        "shards": {name: tuple(p.to_local().shape) for name, p in model.named_parameters()},
        "state": tuple(optimizer.state[weight]["exp_avg"].to_local().shape) if not early else None,
        "saved": type(model.state_dict()["0.weight"]).__name__,
        "whole": get_model_state_dict(model, options=options),
    }


def main(folder: str) -> None:
    """Run everything and leave the results in `folder`, one file per process."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    device = start()
    results = {
        "trained": trained(device),
        "first weights": first_weights(),
        "8 + 8": gradient([8, 8]),
        "12 + 4": gradient([12, 4]),
        "12 + 4, weighted": gradient([12, 4], weighted=True),
        "batch norm": batch_norm(),
        "thawed": thawed(),
        "thawed, wrapped again": thawed(again=True),
        "accumulated": accumulated(quiet=False),
        "accumulated, no_sync": accumulated(quiet=True),
        "only rank 0": only_rank_0(),
        "swapped": swapped(),
        "other shape": other_shape(),
        "other call": other_call(),
        "unnoticed": unnoticed(),
        "missing": missing(),
        "uneven": uneven(),
        "objects": objects(),
        "wrote": in_turn(folder),
        "one seed": noise(add_rank=False),
        "a seed per rank": noise(add_rank=True),
        "metric": metric(),
        "around": around(),
        "together": together(),
        "sharded": sharded(device),
        "sharded, early": sharded(device, early=True),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    torch.save(results, Path(folder, f"rank{dist.get_rank()}.pt"))
    dist.barrier()
    dist.destroy_process_group()


def spawned(rank: int, world: int, folder: str) -> None:
    """A process of `torch.multiprocessing.spawn`: meets the others through a file, and reports.

    Writes the sum of all ranks to a file of `folder`.
    """
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    os.environ.update(child_environment())
    meet = Path(folder, "meet").resolve().as_uri()
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
    total = torch.tensor(float(rank))
    dist.all_reduce(total)
    Path(folder, f"rank{rank}").write_text(f"{total.item():g}")
    dist.barrier()
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1])
