"""Test TF32 and the dtypes of autocast on a GPU.

Chapters: `mixed_precision`, `reproducibility`.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers import mixed_precision
from helpers.mixed_precision import HALVES, result_types
from helpers.reproducibility import to_tf32

# ---------------------------------------------------------------- autocast

# the operations of the chapter, and others that its text names
OPERATIONS = {
    "linear": lambda h: F.linear(h.float(), h.float()),
    "relu": F.relu,
    "mean": torch.mean,
    "sum": torch.sum,
    "softmax": lambda h: h.softmax(-1),
    "layer_norm": lambda h: F.layer_norm(h, (4,)),
    "square": torch.square,
    "sqrt": torch.sqrt,
    "mse_loss": lambda h: F.mse_loss(h, h),
    "bfloat16 + float32": lambda h: h + h.float(),
    "matmul": lambda h: h.float() @ h.float(),
    "conv1d": lambda h: F.conv1d(h[None].float(), h[:, :, None].float()),
    "exp": torch.exp,
    "pow": lambda h: h.pow(2),
    "log": torch.log,
    "var": torch.var,
    "group_norm": lambda h: F.group_norm(h, 2),
    "cross_entropy": lambda h: F.cross_entropy(h, h.new_zeros(4, dtype=torch.int64)),
    "normalize": F.normalize,
    "scatter_add": lambda h: h.float().scatter_add(0, torch.zeros_like(h).long(), h),
    "binary_cross_entropy": lambda h: F.binary_cross_entropy(h, h),
}


def real_types(dtype):
    """Return the result dtypes on the GPU, as `result_types` does with fake tensors."""
    types = {}
    for name, operation in OPERATIONS.items():
        h = torch.rand(4, 4, device="cuda").to(dtype)
        with torch.no_grad(), torch.autocast("cuda", dtype):
            try:
                types[name] = str(operation(h).dtype).removeprefix("torch.")
            except RuntimeError as error:
                if "unsafe to autocast" not in str(error):
                    raise
                types[name] = "refused"
    return types


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("dtype", HALVES)
def test_gpu_result_dtypes_match_fake_tensors(dtype):
    if dtype is torch.bfloat16 and not torch.cuda.is_bf16_supported():
        pytest.skip("this card does not support bfloat16")
    assert real_types(dtype) == result_types(OPERATIONS, "cuda", dtype)


@pytest.mark.skipif(torch.version.cuda is None, reason="a PyTorch built without CUDA")
@pytest.mark.parametrize("dtype", HALVES)
def test_fake_result_dtypes_match_the_chapter(dtype):
    half = str(dtype).removeprefix("torch.")
    types = result_types(OPERATIONS, "cuda", dtype)
    wide = {name for name, kind in types.items() if kind == "float32"}
    assert types["linear"] == types["matmul"] == types["conv1d"] == types["mean"] == half
    assert {"sum", "exp", "pow", "softmax", "layer_norm", "group_norm", "normalize"} <= wide
    assert types["binary_cross_entropy"] == "refused" and "scatter_add" in wide
    assert {"mean", "var", "relu", "sqrt"}.isdisjoint(wide)


def train_step(device, dtype, scale=2.0**16):
    """Return the dtypes of weights, logits and gradients, and whether the step was skipped."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device, init_scale=scale, enabled=dtype is torch.float16)
    x, y = torch.randn(64, 32, device=device), torch.zeros(64, dtype=torch.int64, device=device)
    before = model[0].weight.detach().clone()
    with torch.autocast(device, dtype):
        scores = model(x)
        loss = F.cross_entropy(scores, y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    kinds = tuple(t.dtype for t in (model[0].weight, scores, model[0].weight.grad))
    return kinds, torch.equal(before, model[0].weight)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_weights_and_gradients_stay_float32(device, dtype, request):
    if device == "cuda":
        request.getfixturevalue("card")
    assert train_step(device, dtype) == ((torch.float32, dtype, torch.float32), False)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_too_large_scale_skips_the_step(device, request):
    if device == "cuda":
        request.getfixturevalue("card")
    assert train_step(device, torch.float16, scale=2.0**40)[1]


@pytest.mark.usefixtures("card")
def test_bfloat16_in_hardware_matches_the_gpu():
    capability = torch.cuda.get_device_capability()
    supported = torch.cuda.is_bf16_supported(including_emulation=False)
    assert mixed_precision.bfloat16_in_hardware(capability) == supported


# ---------------------------------------------------------------- TF32


@pytest.fixture
def switches():
    """Restore the TF32 settings after the test."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.fixture
def tf32_card(card):
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this card has no TF32")
    return card


def error(function, x, y):
    """Return the relative error of a float32 result against float64."""
    exact = function(x.double(), y.double())
    return ((function(x, y) - exact).norm() / exact.norm()).item()


EXACT, ROUNDED = 1e-5, 1e-4  # errors: float32 < EXACT, ROUNDED < TF32 < 1e-3


def test_matmul_is_exact_and_conv2d_rounds_by_default(tf32_card, switches):
    torch.manual_seed(0)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.cudnn.allow_tf32
    a, b = torch.randn(2, 2048, 2048, device=tf32_card)
    images = torch.randn(8, 256, 56, 56, device=tf32_card)
    kernels = torch.randn(256, 256, 3, 3, device=tf32_card)
    assert error(torch.matmul, a, b) < EXACT
    assert ROUNDED < error(F.conv2d, images, kernels) < 1e-3
    torch.set_float32_matmul_precision("high")
    assert torch.backends.cuda.matmul.allow_tf32
    assert ROUNDED < error(torch.matmul, a, b) < 1e-3
    torch.backends.cudnn.allow_tf32 = False
    assert error(F.conv2d, images, kernels) < EXACT


def test_tf32_keeps_ten_bits_of_mantissa(tf32_card, switches):
    torch.manual_seed(0)
    x = torch.rand(2048, 2048, device=tf32_card) + 1
    torch.set_float32_matmul_precision("high")
    rounded = x @ torch.eye(2048, device=tf32_card)  # each sum has one nonzero product
    assert torch.equal(rounded, to_tf32(rounded))
    assert 2**-12 < ((rounded - x) / x).abs().max() < 2**-10


def test_to_tf32_reproduces_the_expected_error():
    """Round on the CPU: the error of the product is in the range expected of a GPU."""
    torch.manual_seed(0)
    a, b = torch.randn(2, 256, 256)
    assert error(torch.matmul, a, b) < EXACT

    def rounded(x, y):
        return x @ y if x.dtype == torch.float64 else to_tf32(x) @ to_tf32(y)

    assert ROUNDED < error(rounded, a, b) < 1e-3
