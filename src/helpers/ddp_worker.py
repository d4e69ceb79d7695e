"""Run the experiments of the chapter on distributed training in two processes.

torchrun starts them, one process per GPU, or on the CPU if there is none:

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

SECONDS = 180  # time limit of a process, in seconds


def child_environment() -> dict[str, str]:
    """Return the environment variables that keep the communication on this machine."""
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}


def network(seed: int = 0) -> nn.Linear:
    """Return a linear layer 3 to 1 whose initial weights depend on `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(3, 1)


def samples() -> tuple[Tensor, Tensor]:
    """Return all 16 samples: `x` (16, 3) and `y` (16, 1), float32."""
    return data().tensors


def trained(device: torch.device) -> dict[str, Tensor]:
    """Return the weights after the training of `ddp_train`."""
    model = network()
    train(model, device)
    return {name: value.cpu() for name, value in model.state_dict().items()}


def weighted_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """Return a loss whose average over the ranks gives the full-batch gradient, for any shards."""
    total = torch.tensor(float(target.numel()), device=target.device)
    dist.all_reduce(total)
    loss = F.mse_loss(prediction, target, reduction="sum")
    return loss * dist.get_world_size() / total


def first_weights() -> dict[str, Tensor]:
    """Return the weights before and after DDP wraps a model that each rank seeds differently.

    `other dtype` is the weight after wrapping a float16 model on rank 0, a bfloat16 one on rank 1.
    """
    rank = dist.get_rank()
    model, other = network(seed=rank), network().to((torch.float16, torch.bfloat16)[rank])
    before = model.weight.detach().clone()
    DDP(model)
    DDP(other)
    after = model.weight.detach().clone()
    return {"before": before, "after": after, "other dtype": other.weight.detach().float()}


def gradient(sizes: list[int], weighted: bool = False) -> Tensor:
    """Return this rank's gradient after DDP averaging if rank `r` gets `sizes[r]` samples."""
    rank = dist.get_rank()
    mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    x, y = (tensor[mine] for tensor in samples())
    model = DDP(network())
    (weighted_loss if weighted else F.mse_loss)(model(x), y).backward()
    return model.module.weight.grad


def batch_norm() -> dict[str, Tensor]:
    """Return the running mean of a BatchNorm layer after each of four forward passes.

    The third pass runs under `no_grad`. Rank `r` gets inputs with mean about `10 * r`; `mine` is
    the mean of this rank's inputs.
    """
    x = samples()[0] + 10.0 * dist.get_rank()
    model = DDP(nn.BatchNorm1d(3))
    means = {"mine": x.mean(0)}
    for key in ("first", "second", "under no_grad", "after no_grad"):
        with torch.set_grad_enabled(key != "under no_grad"):
            model(x)
        means[key] = model.module.running_mean.clone()
    return means


def unfrozen(again: bool = False) -> Tensor:
    """Return the weight after three steps of a layer that was frozen when DDP wrapped the model.

    With `again`, the model is wrapped a second time after the layer was made trainable.
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
    """Return a list that grows by one each time `parallel` averages gradients."""
    buckets: list[int] = []

    def hook(group, bucket):
        buckets.append(bucket.index())
        return allreduce_hook(group, bucket)

    parallel.register_comm_hook(None, hook)
    return buckets


def accumulated(quiet: bool) -> tuple[Tensor, int]:
    """Return the gradient of two micro-batches of 4 per rank, and the number of averagings."""
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
    """Return the name of the exception that `function` raises, or `"nothing"`."""
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def group_with_timeout(seconds: float) -> dist.ProcessGroup:
    """Return a group whose collective calls time out after `seconds`."""
    group = dist.new_group()
    # `set_timeout` is newer than the oldest PyTorch of the book.
    limit = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout
    limit(timedelta(seconds=seconds), group)
    return group


def only_rank_0() -> str:
    """Call all_reduce on rank 0 alone, with a timeout of two seconds, and return its exception."""
    group = group_with_timeout(seconds=2)
    if dist.get_rank() == 0:
        return raises(lambda: dist.all_reduce(torch.ones(1), group=group))
    return "nothing"


def error_message(function: Callable[[], object]) -> str:
    """Return the message of the exception that `function` raises, or `"nothing"`."""
    try:
        function()
    except Exception as error:
        return str(error)
    return "nothing"


def swapped() -> tuple[float, float]:
    """Sum a loss and an accuracy over both ranks, in a different order on each rank."""
    loss, accuracy = torch.tensor(1.0), torch.tensor(100.0)
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
        dist.all_reduce(accuracy)
    else:
        dist.all_reduce(accuracy)
        dist.all_reduce(loss)
    return loss.item(), accuracy.item()


def detailed() -> dist.ProcessGroup:
    """Return a group that checks collective calls as with TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(timeout=timedelta(seconds=60))
    dist.set_debug_level(before)
    return group


def other_shape() -> str:
    """Sum two numbers on rank 0 and three on rank 1 in a checking group; return the error."""
    group = detailed()
    return error_message(lambda: dist.all_reduce(torch.ones(2 + dist.get_rank()), group=group))


def other_call() -> str:
    """Call all_reduce on rank 0 and broadcast on rank 1 in a checking group; return the error."""
    group, x = detailed(), torch.ones(1)
    if dist.get_rank() == 0:
        return error_message(lambda: dist.all_reduce(x, group=group))
    return error_message(lambda: dist.broadcast(x, src=0, group=group))


def unnoticed() -> dict[str, list[float]]:
    """Return the results of calls with different shapes or dtypes that raise no error."""
    rank = dist.get_rank()
    places = torch.full((2 + rank,), 1.0 + rank)
    dist.broadcast(places, src=0)
    mixed = torch.ones(1, dtype=torch.int32 if rank else torch.float32)
    dist.all_reduce(mixed)
    return {"other shape": places.tolist(), "other dtype": mixed.tolist()}


def missing() -> str:
    """Enter a monitored barrier on rank 0 only; return the error, which names rank 1."""
    group = dist.new_group()
    if dist.get_rank() == 0:
        wait = timedelta(seconds=1)
        return error_message(lambda: dist.monitored_barrier(group=group, timeout=wait))
    return "nothing"


def uneven() -> int:
    """Train on two batches on rank 0 and three on rank 1 under `Join`; return this rank's count."""
    from torch.distributed.algorithms.join import Join

    parallel, batches = DDP(network()), 0
    with Join([parallel]):
        for x in torch.ones(2 + dist.get_rank(), 4, 3):
            parallel(x).mean().backward()
            batches += 1
    return batches


def objects() -> dict[str, object]:
    """Return a name broadcast by rank 0, and lists of different lengths gathered from all ranks."""
    name = distributed.from_rank_zero(lambda: f"run of rank {dist.get_rank()}")
    parts: list = [None] * dist.get_world_size()
    dist.all_gather_object(parts, ["cat", "dog"] if dist.get_rank() == 0 else ["cow"])
    return {"name": name, "parts": parts}


def in_turn(folder: str) -> int:
    """Return 1 if this rank had to write the file that rank 0 writes first, else 0."""
    path, wrote = Path(folder, "download"), 0
    with distributed.rank_zero_first():
        if not path.exists():
            path.write_text("data")
            wrote = 1
    return wrote


def noise(add_rank: bool) -> Tensor:
    """Return the random numbers of this rank, with one seed for all ranks or one per rank."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0 + dist.get_rank() if add_rank else 0)
        return torch.rand(3)


def metric() -> dict[str, float]:
    """Return the mean of all losses (6 on rank 0, 2 on rank 1), and the mean of both means."""
    values = torch.zeros(6) if dist.get_rank() == 0 else torch.ones(2)
    means = values.mean()
    dist.all_reduce(means)
    return {
        "mean of means": means.item() / dist.get_world_size(),
        "mean": distributed.mean_over_ranks(values.sum().item(), len(values)),
    }


def around() -> dict[str, object]:
    """Return the parameters that differ between ranks after a step with the wrapper or `module`."""
    mine = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
    x, y = (tensor[mine] for tensor in samples())
    diverged = {}
    for key in ("parallel", "parallel.module"):
        parallel = DDP(network())
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        entry = parallel if key == "parallel" else parallel.module
        F.mse_loss(entry(x), y).backward()
        optimizer.step()
        diverged[key] = distributed.differences(parallel.module)
    return diverged


def two_losses() -> dict[str, object]:
    """Return the parameters that differ between ranks after two losses, by order of passes."""
    mine = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
    first, second = ([tensor[mine][part::2] for tensor in samples()] for part in range(2))

    def loss(parallel: DDP, part: list[Tensor]) -> Tensor:
        return F.mse_loss(parallel(part[0]), part[1])

    def at_the_end(parallel: DDP) -> None:
        for one in [loss(parallel, part) for part in (first, second)]:
            one.backward()

    def in_turns(parallel: DDP) -> None:
        for part in (first, second):
            loss(parallel, part).backward()

    def of_the_sum(parallel: DDP) -> None:
        (loss(parallel, first) + loss(parallel, second)).backward()

    diverged = {}
    for order in (at_the_end, in_turns, of_the_sum):
        parallel = DDP(network())
        order(parallel)
        torch.optim.SGD(parallel.parameters(), lr=0.1).step()
        diverged[order.__name__.replace("_", " ")] = distributed.differences(parallel.module)
    return diverged


def gathered() -> dict[str, bool]:
    """Return for each gathering method whether a contrastive loss has the one-process gradient.

    `"Gather"` and `"own part"` compute the loss of the rank's own rows; `"own part, all rows"`
    computes the loss of all rows, multiplied by the number of ranks.
    """
    rank, world, x = dist.get_rank(), dist.get_world_size(), samples()[0]
    size, every = len(x) // world, torch.arange(len(x))
    mine = slice(rank * size, rank * size + size)

    def embed() -> nn.Linear:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Linear(3, 3)

    plain = embed()
    F.cross_entropy(plain(x) @ plain(x).T, every).backward()
    equal = {}
    for way in ("Gather", "own part", "own part, all rows"):
        parallel = DDP(embed())
        own = parallel(x[mine])
        if way == "Gather":
            parts = list(distributed.Gather.apply(own))
        else:
            parts = [torch.empty_like(own) for _ in range(world)]
            dist.all_gather(parts, own.detach())
            parts[rank] = own
        rows = torch.cat(parts)
        if way == "own part, all rows":
            loss = world * F.cross_entropy(rows @ rows.T, every)
        else:
            loss = F.cross_entropy(own @ rows.T, every[mine])
        loss.backward()
        equal[way] = torch.allclose(parallel.module.weight.grad, plain.weight.grad, atol=1e-5)
    return equal


def group_results() -> dict[str, object]:
    """Return the results of the `distributed` helpers if the ranks agree, differ or fail."""
    rank, model = dist.get_rank(), nn.BatchNorm1d(2)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    results: dict[str, object] = {"equal": distributed.differences(model)}
    if rank:
        model.running_mean += 1
        model.bias.data[1] = float("inf")
    results["differences"] = distributed.differences(model)
    results["other model"] = error_message(lambda: distributed.differences(nn.Linear(2, 2 + rank)))
    kinds = (torch.float64, torch.float32)
    results["other dtype"] = error_message(
        lambda: distributed.differences(nn.Linear(2, 2, dtype=kinds[rank]))
    )
    results["type"] = raises(lambda: distributed.from_rank_zero(lambda: lambda: 1))
    results["cannot travel"] = error_message(lambda: distributed.from_rank_zero(lambda: lambda: 1))
    results["rank 0 fails"] = error_message(lambda: distributed.from_rank_zero(lambda: 1 / 0))
    results["no sample on rank 0"] = distributed.mean_over_ranks(5.0 * rank, rank)
    return results


def blocks() -> nn.Sequential:
    """Return the layers 4 to 6, ReLU, 6 to 1, with the same initial weights on each rank."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))


def batch() -> tuple[Tensor, Tensor]:
    """Return `x` (16, 4) and `y` (16, 1), float32, the same on each rank."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 4, generator=generator)
    return x, torch.randn(16, 1, generator=generator)


def sharded(device: torch.device, early: bool = False) -> dict[str, object]:
    """Train three steps with `fully_shard`; return this rank's shards and the full state dict.

    With `early`, the optimizer is built before the model is sharded.
    """
    # slow imports that a spawned process does not need
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


def unequal_shards(device: torch.device) -> dict[str, object]:
    """Shard a layer with different weights on each rank, then load a state dict from rank 0.

    `own` is a bool per row of the sharded weight: True if the row has this rank's values.
    """
    # slow imports that a spawned process does not need
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(dist.get_rank())
        layer = nn.Linear(4, 4, bias=False).to(device)
    mine = layer.weight.detach().clone()
    fully_shard(layer)
    own = (layer.weight.full_tensor() == mine).all(1).tolist()

    state = {"weight": torch.full((4, 4), 7.0)} if dist.get_rank() == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(layer, state, options=options)
    return {"own": own, "loaded from rank 0": bool((layer.weight.full_tensor() == 7).all())}


def main(folder: str) -> None:
    """Run all experiments and write their results to `folder`, one file per rank."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    device = start()
    results = {
        "trained": trained(device),
        "first weights": first_weights(),
        "8 + 8": gradient([8, 8]),
        "12 + 4": gradient([12, 4]),
        "12 + 4, weighted": gradient([12, 4], weighted=True),
        "batch norm": batch_norm(),
        "thawed": unfrozen(),
        "thawed, wrapped again": unfrozen(again=True),
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
        "two losses": two_losses(),
        "gathered": gathered(),
        "together": group_results(),
        "sharded": sharded(device),
        "sharded, early": sharded(device, early=True),
        "patchwork": unequal_shards(device),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    torch.save(results, Path(folder, f"rank{dist.get_rank()}.pt"))
    dist.barrier()
    dist.destroy_process_group()


def spawned(rank: int, world: int, folder: str) -> None:
    """Join a group through a file in `folder`; entry point for `torch.multiprocessing.spawn`.

    Writes the sum of all ranks to a file in `folder`.
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
