"""Train on all GPUs of a machine or in several CPU processes: a complete script to copy.

torchrun --standalone --nproc-per-node=2 -m helpers.ddp_train model.pt
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def data() -> TensorDataset:
    """Return 16 samples, the same in every process: `x` (16, 3) and `y` (16, 1), float32."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 3, generator=generator)
    return TensorDataset(x, torch.randn(16, 1, generator=generator))


def start() -> torch.device:
    """Initialize the process group, and return the device of this process."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def train(model: nn.Module, device: torch.device, epochs: int = 2) -> None:
    """Train `model` with DDP; each process uses its own shard of the samples."""
    dataset = data()
    sampler = DistributedSampler(dataset)  # shuffles by default
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    parallel = DDP(model.to(device))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.mse_loss(parallel(x.to(device)), y.to(device)).backward()
            optimizer.step()


@record  # torchrun's report then shows the exception
def main(path: str) -> None:
    """Train, and save the model without the DDP wrapper to `path` from rank 0."""
    device = start()
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    train(model, device)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()  # no rank may read the file before it is complete
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
