"""What two processes try out for the chapter "Train on several GPUs", one fact each.

torchrun starts it, one process per GPU, or on the CPU where there is none:

    torchrun --standalone --nproc-per-node=2 -m helpers.ddp_worker FOLDER

Source: "Getting Started with Distributed Data Parallel",
https://pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

from __future__ import annotations

import faulthandler
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

from helpers.ddp_train import data, start, train

SECONDS = 90  # a process that lives longer ends itself


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


def only_rank_0() -> str:
    """Rank 0 alone asks for a sum over all processes, which may take two seconds."""
    group = dist.new_group(timeout=timedelta(seconds=2))
    if dist.get_rank() == 0:
        return raises(lambda: dist.all_reduce(torch.ones(1), group=group))
    return "nothing"


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
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    torch.save(results, Path(folder, f"rank{dist.get_rank()}.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
