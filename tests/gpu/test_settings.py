"""Test the effects of the chapters' settings on a GPU: the directions in the performance table.

Chapters: `performance`, `mixed_precision`, `attention`, `flex_attention`, `data_loading`,
`learning_rate`. The factors are a third or less of those measured on an H100.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import gpu_settings
import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BENCHMARK = Path(gpu_settings.__file__)
modern = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0),
    reason="TF32, bfloat16 and flash attention need an Ampere GPU or a newer one",
)


@modern
@pytest.mark.usefixtures("card")
def test_half_precision_and_channels_last_speed_up_convolutions():
    times = gpu_settings.precision(batch=64)  # with 32 images, launch time dominates on an H200
    assert times["TF32"] < times["float32"] / 1.2
    assert times["bfloat16"] < times["float32"] / 1.5
    assert times["bfloat16, channels_last"] < times["float32"] / 1.5


@pytest.mark.usefixtures("card")
def test_foreach_and_fused_speed_up_the_optimizer():
    times = gpu_settings.optimizer()
    assert times["default"] < times["foreach=False"] / 2
    assert times["fused=True"] < times["foreach=False"] / 2


@pytest.mark.usefixtures("card")
def test_copies_from_pinned_memory_are_faster():
    speeds = gpu_settings.copies()
    assert speeds["pinned"] > 1.2 * speeds["pageable"]


@modern
@pytest.mark.usefixtures("card")
def test_flash_attention_takes_less_memory_and_time():
    costs = gpu_settings.attention()
    (time, peak), (fast, small) = costs["MATH"], costs["FLASH_ATTENTION"]
    assert fast < time / 3 and small < peak / 10


@modern
@pytest.mark.usefixtures("card")
def test_flex_attention_is_faster_than_a_window_mask():
    times = gpu_settings.window()
    assert times["flex_attention"] < times["attn_mask"]


@pytest.mark.usefixtures("card")
def test_checkpointing_takes_time_and_saves_memory():
    costs = gpu_settings.checkpointing()
    (time, peak), (slow, small) = costs["all activations"], costs["checkpoints"]
    assert time < slow < 1.7 * time and small < peak / 1.5


@modern
@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    ("dtype", "masked", "reason"),
    [
        (torch.float16, False, ""),
        (torch.float32, False, "to all be of dtype"),
        (torch.float16, True, "does not support non-null attn_mask"),
    ],
)
def test_flash_attention_requires_half_precision_and_no_mask(card, dtype, masked, reason):
    x = torch.randn(1, 2, 128, 64, device=card, dtype=dtype)
    mask = torch.ones(128, 128, device=card, dtype=torch.bool) if masked else None
    with warnings.catch_warnings(record=True) as caught, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        warnings.simplefilter("always")
        if not reason:
            assert F.scaled_dot_product_attention(x, x, x).dtype == dtype
            return
        with pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
    assert any(reason in str(warning.message) for warning in caught)


def test_fused_step_keeps_the_version_counter(card):
    weight = torch.ones(3, device=card, requires_grad=True)
    square = weight * weight
    weight.grad = torch.ones(3, device=card)
    torch.optim.SGD([weight], lr=0.1, fused=True).step()
    assert weight._version == 0
    square.sum().backward()  # raises no error, but uses the new weights


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a GPU")
def test_benchmark_without_a_gpu_fails_with_a_message():
    done = subprocess.run([sys.executable, BENCHMARK], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "no GPU: PyTorch finds no CUDA device\n"
