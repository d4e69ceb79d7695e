"""How much the settings of the chapters change on this machine's GPU: milliseconds, GB/s and MiB.

Each time is the median of several runs between two events on the GPU, after a warm-up. A table for
one card is in the chapter on performance; `tests/gpu/test_settings.py` compares the directions.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint_sequential

CUDA = torch.device("cuda")
MIB = 2**20
CAST = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def milliseconds(run: Callable[[], object], times: int = 10) -> float:
    """Return the median time of `run` on the GPU, after half as many runs as a warm-up."""
    for _ in range(times // 2):
        run()
    seen = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        seen.append(begin.elapsed_time(end))
    return statistics.median(seen)


def with_peak(run: Callable[[], object]) -> tuple[float, float]:
    """Return milliseconds of `run`, and the peak of the memory that it adds, in MiB."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    time = milliseconds(run, times=6)
    return time, (torch.cuda.max_memory_allocated() - before) / MIB


@contextmanager
def tf32(enabled: bool) -> Iterator[None]:
    """Allow TF32 in float32 products and convolutions, or forbid it in both."""
    kinds = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [kind.fp32_precision for kind in kinds]
    for kind in kinds:
        kind.fp32_precision = "tf32" if enabled else "ieee"
    try:
        yield
    finally:
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision


def training(batch: int, memory_format: torch.memory_format) -> Callable[[str], None]:
    """Return a training step of ResNet-50 that takes the name of a precision."""
    net = torchvision.models.resnet50().to(CUDA, memory_format=memory_format)
    images = torch.randn(batch, 3, 224, 224, device=CUDA).to(memory_format=memory_format)
    labels = torch.randint(1000, (batch,), device=CUDA)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)

    def step(name: str) -> None:
        optimizer.zero_grad()
        with tf32(name == "TF32"):
            with torch.autocast("cuda", CAST.get(name), enabled=name in CAST):
                loss = F.cross_entropy(net(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return step


def precision(batch: int = 64) -> dict[str, float]:
    """Return the time of a training step of ResNet-50 by precision and memory format."""
    times = {}
    for memory_format in (torch.contiguous_format, torch.channels_last):
        step = training(batch, memory_format)
        suffix = ", channels_last" if memory_format == torch.channels_last else ""
        for name in ("float32", "TF32", *CAST):
            times[name + suffix] = milliseconds(functools.partial(step, name), times=8)
    return times


def optimizer(parameters: int = 300) -> dict[str, float]:
    """Return the time of `AdamW.step()` for parameters of 256 x 256, by implementation."""
    times = {}
    ways = {"foreach=False": {"foreach": False}, "default": {}, "fused=True": {"fused": True}}
    for name, options in ways.items():
        weights = [nn.Parameter(torch.randn(256, 256, device=CUDA)) for _ in range(parameters)]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        times[name] = milliseconds(torch.optim.AdamW(weights, **options).step)
    return times


def copies(size: int = 256 * MIB) -> dict[str, float]:
    """Return the speed of copies to the GPU in GB/s, from pageable and from pinned memory."""
    speeds = {}
    for name in ("pageable", "pinned"):
        source = torch.ones(size, dtype=torch.uint8, pin_memory=name == "pinned")
        time = milliseconds(lambda source=source: source.to(CUDA, non_blocking=True))
        speeds[name] = size / time / 1e6
    return speeds


def vocabulary() -> dict[str, float]:
    """Return the time of the logits of 4096 tokens in bfloat16, by the size of the vocabulary."""
    tokens = torch.randn(4096, 768, device=CUDA, dtype=torch.bfloat16)
    heads = {n: torch.randn(n, 768, device=CUDA, dtype=torch.bfloat16) for n in (50257, 50304)}
    return {str(n): milliseconds(lambda w=w: F.linear(tokens, w)) for n, w in heads.items()}


def _queries() -> Tensor:
    size = (4, 16, 4096, 64)
    return torch.randn(size, device=CUDA, dtype=torch.bfloat16, requires_grad=True)


def _causal(q: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def attention() -> dict[str, tuple[float, float]]:
    """Return time and added peak of causal attention, forward and backward, by kernel."""
    q, costs = _queries(), {}
    for kernel in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(kernel):
            costs[kernel.name] = with_peak(lambda: _causal(q).sum().backward())
    return costs


def window(width: int = 256) -> dict[str, float]:
    """Return the time of attention to the last `width` tokens, forward and backward."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (i - j < width)

    q, length = _queries(), 4096
    blocks = create_block_mask(near, None, None, length, length, device=CUDA)
    back = torch.arange(length, device=CUDA)[:, None] - torch.arange(length, device=CUDA)
    mask, compiled = (back >= 0) & (back < width), torch.compile(flex_attention)
    attend = F.scaled_dot_product_attention
    return {
        "attn_mask": milliseconds(lambda: attend(q, q, q, attn_mask=mask).sum().backward()),
        "flex_attention": milliseconds(
            lambda: compiled(q, q, q, block_mask=blocks).sum().backward()
        ),
    }


def checkpointing() -> dict[str, tuple[float, float]]:
    """Return time and added peak of eight layers of a Transformer, forward and backward."""
    layers = (nn.TransformerEncoderLayer(768, 12, dropout=0.0, batch_first=True) for _ in range(8))
    net = nn.Sequential(*layers).to(CUDA)
    x = torch.randn(16, 512, 768, device=CUDA)

    def checkpointed() -> Tensor:
        return checkpoint_sequential(net, 8, x, use_reentrant=False)

    ways = {"all activations": lambda: net(x), "checkpoints": checkpointed}
    return {
        name: with_peak(lambda out=out: out().square().mean().backward())
        for name, out in ways.items()
    }


def items(steps: int = 200) -> dict[str, float]:
    """Return the time of steps of a small network, whose loss is read each time or at the end."""
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).to(CUDA)
    x, sgd = torch.randn(32, 64, device=CUDA), torch.optim.SGD(net.parameters(), lr=0.01)

    def epoch(read: Callable[[Tensor], object]) -> None:
        for _ in range(steps):
            loss = net(x).square().mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            read(loss)

    ways = {"loss.item()": Tensor.item, "loss.detach()": Tensor.detach}
    return {name: milliseconds(lambda read=read: epoch(read), 4) for name, read in ways.items()}


def processors() -> dict[str, tuple[float, float]]:
    """Return the times of a training step on the CPU and on the GPU, for two batch sizes."""
    times = {}
    for batch in (32, 65536):
        pair = []
        for device in (torch.device("cpu"), CUDA):
            net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).to(device)
            x, sgd = torch.randn(batch, 64, device=device), torch.optim.SGD(net.parameters())

            def step(net: nn.Module = net, x: Tensor = x, sgd: torch.optim.SGD = sgd) -> None:
                sgd.zero_grad()
                net(x).square().mean().backward()
                sgd.step()

            pair.append(milliseconds(step, times=40))
        times[f"{batch} rows"] = tuple(pair)
    return times


MEASUREMENTS = (
    precision, optimizer, copies, vocabulary, attention, window, checkpointing, items, processors,
)  # fmt: skip


def main() -> int:
    """Print a table for each measurement; 1 on a machine without a GPU."""
    if not torch.cuda.is_available():
        print("no GPU: PyTorch finds no CUDA device")
        return 1
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for measure in MEASUREMENTS:
        print((measure.__doc__ or "").splitlines()[0].removeprefix("Return "))
        for name, value in measure().items():
            print(
                f"  {name:24}",
                *(f"{x:10.2f}" for x in (value if isinstance(value, tuple) else (value,))),
            )
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
