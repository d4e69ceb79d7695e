"""Compare the device errors of fake tensors and stand-ins with those of a GPU.

Chapters: `cuda_semantics`, `data_parallel`, and `mixed_precision` for `binary_cross_entropy`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import pytest
import torch
from card_worker import device_of_a_tensor_when_hidden_late, in_fresh_process
from torch import nn
from torch.nn import functional as F
from torch.torch_version import TorchVersion
from torch.utils.data import DataLoader

from helpers import cuda_semantics, mixed_precision
from helpers.fake import fake_tensors

SAME_DEVICE = "Expected all tensors to be on the same device"
ELSEWHERE = SAME_DEVICE + r", but got {} is on cpu, different from other tensors on cuda:0 "
AT_LEAST_TWO = SAME_DEVICE + ", but found at least two devices, (cuda:0 and cpu|cpu and cuda:0)!"
# In PyTorch 2.11 fake tensors raise another message, and a convolution across devices succeeds.
FAKE_OF_2_11 = "Unhandled FakeTensor Device Propagation for aten"
IN_2_11 = TorchVersion(torch.__version__) < "2.13"
built_for_cuda = pytest.mark.skipif(
    torch.version.cuda is None, reason="fake CUDA tensors need a PyTorch that is built for CUDA"
)


class Case(NamedTuple):
    """Code that raises on the GPU and on fake tensors."""

    run: Callable[[], object]
    error: type[Exception]
    card: str  # pattern at the beginning of the GPU's message
    fake: str  # pattern at the beginning of the message of a fake tensor


def linear():
    nn.Linear(2, 2).to("cuda")(torch.zeros(1, 2))


def add():
    return torch.ones(2, device="cuda") + torch.ones(2)


def cross_entropy():
    labels = torch.zeros(4, dtype=torch.int64)
    F.cross_entropy(torch.zeros(4, 10, device="cuda"), labels)


def loss_weights():
    scores, labels = torch.zeros(2, 3, device="cuda"), torch.zeros(2, dtype=int, device="cuda")
    nn.CrossEntropyLoss(weight=torch.ones(3))(scores, labels)


def embedding():
    nn.Embedding(3, 2).to("cuda")(torch.zeros(2, dtype=torch.int64))


def cat():
    torch.cat([torch.zeros(2, device="cuda"), torch.zeros(2)])


def convolution():
    F.conv2d(torch.zeros(1, 1, 4, 4, device="cuda"), torch.zeros(1, 1, 3, 3))


def hidden_state():
    state = (torch.zeros(1, 1, 4), torch.zeros(1, 1, 4))
    nn.LSTM(3, 4).to("cuda")(torch.zeros(2, 1, 3, device="cuda"), state)


class Scaled(nn.Module):
    """Store a constant as a plain attribute, which `to` does not move."""

    def __init__(self):
        super().__init__()
        self.scale = torch.ones(2)

    def forward(self, x):
        return x * self.scale


def plain_attribute():
    Scaled().to("cuda")(torch.zeros(1, 2, device="cuda"))


def moved_after_the_first_step():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    for device in ("cpu", "cuda"):
        model.to(device)
        optimizer.zero_grad()
        model(torch.ones(1, 2, device=device)).sum().backward()
        optimizer.step()


def numpy():
    torch.zeros(2, device="cuda").numpy()


def not_a_leaf():
    torch.optim.SGD([torch.randn(2, requires_grad=True).to("cuda")], lr=0.1)


def unsafe_loss():
    with torch.no_grad(), mixed_precision.autocast_without_device("cuda", torch.float16):
        x, w = torch.ones(4, 8, device="cuda"), torch.ones(8, 1, device="cuda")
        F.binary_cross_entropy((x @ w).sigmoid(), torch.ones(4, 1, device="cuda"))


CASES = {
    case.run.__name__: case
    for case in (
        Case(linear, RuntimeError, ELSEWHERE.format("mat1") + ".*wrapper_CUDA_addmm", AT_LEAST_TWO),
        Case(add, RuntimeError, AT_LEAST_TWO, AT_LEAST_TWO),
        Case(cross_entropy, RuntimeError, ELSEWHERE.format("target"), AT_LEAST_TWO),
        Case(loss_weights, RuntimeError, ELSEWHERE.format("weight"), AT_LEAST_TWO),
        Case(embedding, RuntimeError, ELSEWHERE.format("index"), AT_LEAST_TWO),
        Case(cat, RuntimeError, SAME_DEVICE, AT_LEAST_TWO),
        Case(
            convolution,
            RuntimeError,
            r"Input type \(torch\.cuda\.FloatTensor\) and weight type \(torch\.FloatTensor\) "
            "should be the same",
            ELSEWHERE.format("weight").strip(),
        ),
        Case(
            hidden_state,
            RuntimeError,
            "Input and hidden tensors are not at the same device, found input tensor at cuda:0 "
            "and hidden tensor at cpu",
            "Input and hidden tensors are not at the same device, found input tensor at cuda:0 "
            "and hidden tensor at cpu",
        ),
        Case(plain_attribute, RuntimeError, AT_LEAST_TWO, AT_LEAST_TWO),
        Case(moved_after_the_first_step, RuntimeError, SAME_DEVICE, AT_LEAST_TWO),
        Case(numpy, TypeError, *["can't convert cuda:0 device type tensor to numpy"] * 2),
        Case(not_a_leaf, ValueError, *["can't optimize a non-leaf Tensor"] * 2),
        Case(unsafe_loss, RuntimeError, *[".*binary_cross_entropy.* are unsafe to autocast"] * 2),
    )
}


def check(case, where, pattern):
    with pytest.raises(case.error, match=rf"\A{pattern}") as raised, where():
        case.run()
    assert type(raised.value) is case.error


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("card")
def test_gpu_raises_the_quoted_errors(name):
    check(CASES[name], nullcontext, CASES[name].card)


@built_for_cuda
@pytest.mark.parametrize("name", CASES)
def test_fake_tensors_raise_the_same_type_of_error(name):
    case = CASES[name]
    if IN_2_11 and name == "convolution":
        pytest.skip("PyTorch 2.11 raises nothing here")
    old = IN_2_11 and case.fake == AT_LEAST_TWO
    check(case, fake_tensors, FAKE_OF_2_11 if old else case.fake)


def mixes():
    """Return the results of operations on tensors of two devices."""
    x, cpu = torch.ones(4, 3, device="cuda"), torch.tensor([0, 2])
    return [x * torch.tensor(2.0), x[cpu], x.index_fill(0, cpu.to("cuda"), 0.0)]


def test_fake_tensors_allow_the_device_mixes_of_a_gpu(card):
    real = [(y.shape, y.device) for y in mixes()]
    with fake_tensors():
        assert real == [(y.shape, y.device) for y in mixes()]
    assert {device for _, device in real} == {card}


# ---------------------------------------------------------------- a training step


def step(model, optimizer, images, labels):
    """Run a training step that does not move the labels."""
    model.to("cuda")
    scores = model(images.to("cuda"))
    loss = F.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def fixed(model, optimizer, images, labels):
    """Run the step with the labels moved, too."""
    return step(model, optimizer, images, labels.to("cuda"))


def arguments():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters())
    return model, optimizer, torch.randn(4, 8, 8), torch.zeros(4, dtype=torch.int64)


@built_for_cuda
def test_rehearse_reports_the_failing_line():
    assert cuda_semantics.rehearse(step, *arguments()).line == (
        "loss = F.cross_entropy(scores, labels)"
    )
    assert cuda_semantics.rehearse(fixed, *arguments()).passed


@pytest.mark.usefixtures("card")
def test_gpu_fails_in_the_line_of_the_rehearsal():
    rehearsal = cuda_semantics.rehearse(step, *arguments())
    with pytest.raises(RuntimeError, match=SAME_DEVICE) as raised:
        step(*arguments())
    lines = [str(entry.statement).strip() for entry in raised.traceback]
    assert rehearsal.line in lines
    assert isinstance(fixed(*arguments()), float)


# ---------------------------------------------------------------- moving models and tensors


def test_to_keeps_parameters_and_load_state_dict_moves_the_state(card):
    model = nn.Linear(2, 1)
    weight = model.weight
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    gradient = weight.grad.clone()
    assert model.to(card) is model and model.weight is weight and weight.device == card
    assert torch.equal(weight.grad.cpu(), gradient)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    devices = {name: value.device.type for name, value in optimizer.state[weight].items()}
    assert devices == {"step": "cpu", "exp_avg": "cuda", "exp_avg_sq": "cuda"}


def test_to_the_same_device_returns_the_tensor_itself(card):
    x = torch.ones(2, device=card)
    assert x.to(card) is x and x.to("cuda") is x and x.cuda() is x
    assert x.to(card, copy=True) is not x
    assert x.device == torch.device("cuda:0") != torch.device("cuda")


def test_default_device_applies_to_the_sampler_generator(card):
    message = "Expected a 'cuda' device type for generator but found 'cpu'"
    with card, pytest.raises(RuntimeError, match=message):
        list(DataLoader(range(4), shuffle=True))
    with card, torch.device("cpu"):
        assert sorted(int(batch) for batch in DataLoader(range(4), shuffle=True)) == [0, 1, 2, 3]


@pytest.mark.usefixtures("card")
def test_hiding_cards_after_cuda_has_started_has_no_effect():
    assert in_fresh_process(device_of_a_tensor_when_hidden_late) == "cuda:0"


# ---------------------------------------------------------------- DataParallel on one GPU


def test_data_parallel_on_one_gpu_calls_the_model_itself(card):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    wrapped = nn.DataParallel(model, device_ids=[0])
    x, target = torch.randn(64, 256), torch.randn(64, 10)
    assert model[0].weight.device == card  # with a single id, wrapping moves the model
    assert wrapped(x).device == card  # the call moves the batch
    assert torch.equal(wrapped(x), model(x.to(card)))
    assert next(iter(wrapped.state_dict())) == "module.0.weight"
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        F.mse_loss(wrapped(x), target)


@pytest.mark.usefixtures("card")
def test_data_parallel_requires_the_model_on_the_first_gpu():
    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one card")
    wrapped = nn.DataParallel(nn.Linear(2, 1))
    message = r"module must have its parameters and buffers on device cuda:0 \(device_ids\[0\]\)"
    with pytest.raises(RuntimeError, match=message):
        wrapped(torch.ones(4, 2))
    assert wrapped.to("cuda")(torch.ones(4, 2)).device == torch.device("cuda:0")
