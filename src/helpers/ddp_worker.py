"""The script of the chapter "Train on several GPUs": what each process does.

torchrun starts it, one process per GPU, or on the CPU where there is none:

    torchrun --standalone --nproc-per-node=2 -m helpers.ddp_worker FOLDER

`train` is a whole training run to copy from. The functions below it each try out one fact.

Source: "Getting Started with Distributed Data Parallel",
https://pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SECONDS = 90  # a process that lives longer ends itself


def data() -> tuple[Tensor, Tensor]:
    """The same 16 samples in every process: `x` (16, 3) and `y` (16, 1), float32."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 3, generator=generator)
    return x, torch.randn(16, 1, generator=generator)


def network(seed: int = 0) -> nn.Linear:
    """A linear layer 3 to 1 whose first weights depend on `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(3, 1)


def start() -> torch.device:
    """Meet the other processes; returns the device of this one."""
    local = int(os.environ["LOCAL_RANK"])  # torchrun sets it
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    return torch.device("cuda", local)


def train(device: torch.device, path: Path, epochs: int = 2) -> None:
    """What every process runs, each with its own shard."""
    dataset = TensorDataset(*data())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = DDP(network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.mse_loss(model(x.to(device)), y.to(device)).backward()
            optimizer.step()

    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), path)
    dist.barrier()  # nobody reads the file before it is whole


# ---------------------------------------------------------------- one fact each


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
    x, y = (tensor[mine] for tensor in data())
    model = DDP(network())
    (weighted_loss if weighted else F.mse_loss)(model(x), y).backward()
    return model.module.weight.grad


def batch_norm() -> dict[str, Tensor]:
    """The running mean of a BatchNorm layer after one and after two forward passes.

    Process `r` sees inputs of mean about `10 * r`; `mine` is the mean of its own inputs.
    """
    x = data()[0] + 10.0 * dist.get_rank()
    model = DDP(nn.BatchNorm1d(3))
    means = {"mine": x.mean(0)}
    for key in ("first", "second"):
        model(x)
        means[key] = model.module.running_mean.clone()
    return means


def main(folder: str) -> None:
    """Run everything and leave the results in `folder`, one file per process."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    device = start()
    path = Path(folder, "model.pt")
    train(device, path)
    results = {
        "trained": torch.load(path, map_location="cpu"),
        "first weights": first_weights(),
        "8 + 8": gradient([8, 8]),
        "12 + 4": gradient([12, 4]),
        "12 + 4, weighted": gradient([12, 4], weighted=True),
        "batch norm": batch_norm(),
    }
    torch.save(results, Path(folder, f"rank{dist.get_rank()}.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
