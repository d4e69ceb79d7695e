"""Test fake tensors: device errors without a GPU, and operations that need values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from helpers.fake import NoNumberError, fake_copy, fake_tensors

pytestmark = pytest.mark.skipif(torch.version.cuda is None, reason="a PyTorch built without CUDA")


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:1"])
def test_fake_module_moves_in_place_but_a_tensor_does_not(device):
    with fake_tensors():
        net, x = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), torch.randn(4, 3)
        weight = net[0].weight
        assert net.to(device) is net and net[0].weight is weight
        assert weight.device.type == net[1].running_mean.device.type == device.split(":")[0]
        x.to(device)
        with pytest.raises(RuntimeError, match="same device"):
            net(x)
        assert net(x.to(device)).device == weight.device


def test_device_mismatch_raises_the_error_of_torch():
    message = "Expected all tensors to be on the same device, but found at least two devices"
    with pytest.raises(RuntimeError, match=message) as caught, fake_tensors():
        torch.ones(2, device="cuda") + torch.ones(2)
    assert type(caught.value) is RuntimeError


def test_allowed_device_mixes_pass():
    with fake_tensors():
        x = torch.ones(4, 3, device="cuda")
        assert (x * torch.tensor(2.0)).device.type == "cuda"
        assert x[torch.tensor([0, 2])].shape == (2, 3)


def test_module_conversion_moves_gradients():
    with fake_tensors():
        net = nn.LSTM(3, 4).cuda().half().float()
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        net.cpu()
        assert {p.grad.device.type for p in net.parameters()} == {"cpu"}


def test_training_step_runs_on_a_fake_gpu():
    with fake_tensors():
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("cuda")
        optimizer, total = torch.optim.Adam(net.parameters()), 0.0
        for _ in range(2):
            loss = nn.functional.cross_entropy(
                net(torch.randn(8, 3, device="cuda")), torch.zeros(8, dtype=int, device="cuda")
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        assert optimizer.state[net[0].weight]["exp_avg"].device.type == "cuda"
        assert f"{round(total / 2, 3):.3f}" == "nan"


def test_backward_on_a_fake_gpu_accumulates_and_follows_the_graph():
    with fake_tensors():
        used, unused = nn.Linear(2, 1).cuda(), nn.Linear(2, 1).cuda()
        used(torch.ones(1, 2).cuda()).sum().backward()
        first = used.weight.grad
        used(torch.ones(1, 2).cuda()).sum().backward()
        assert used.weight.grad is not first and unused.weight.grad is None
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(1, device="cuda").backward()
        with pytest.raises(RuntimeError, match="only for scalar outputs"):
            used(torch.ones(3, 2).cuda()).backward()


def test_numpy_requires_cpu_and_detach():
    with fake_tensors():
        x = torch.ones(2, 3, device="cuda", requires_grad=True)
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            x.numpy()
        with pytest.raises(RuntimeError, match="requires grad"):
            x.cpu().numpy()
        array = x.detach().cpu().numpy()
    assert array.shape == (2, 3) and array.dtype == np.float32


@pytest.mark.parametrize(
    "decide",
    [
        lambda x: bool(x.sum() > 2),
        lambda x: x.sum().item() > 2,
        lambda x: (x.sum().item() + 1) * 2 > 2,
        lambda x: x[x > 0],
        lambda x: max(x.tolist()),
        lambda x: range(x.sum().item()),
        lambda x: int(x.sum()),
        lambda x: torch.zeros(int(x.sum().item())),
    ],
)
def test_code_that_requires_a_value_raises(decide):
    with pytest.raises(NoNumberError, match="needs the value of a tensor"), fake_tensors():
        decide(torch.ones(3, device="cuda"))


def test_fake_copy_keeps_object_identities():
    net = nn.Linear(2, 1)
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.ones(1, 2)
    with fake_tensors():
        copied, same, batch = fake_copy((net, optimizer, {"x": x}))
        assert same.param_groups[0]["params"][0] is copied.weight
        copied.to("cuda")
        with pytest.raises(RuntimeError, match="same device"):
            copied(batch["x"])
    assert net.weight.device.type == "cpu" and net(x).isfinite().all()


def test_fake_tensors_restores_torch_afterwards():
    with fake_tensors():
        pass
    assert torch.ones(2).sum().item() == 2 and not math.isnan(torch.ones(1).item())
    assert torch.utils.weakref.__name__ == "weakref"


def test_real_tensor_from_outside_raises():
    net = nn.Linear(2, 1)
    with pytest.raises(AssertionError, match="convert all Tensors to FakeTensors"), fake_tensors():
        net.to("cuda")
    assert net.weight.device.type == "cpu"


def test_fake_copy_requires_fake_tensors_mode():
    with pytest.raises(RuntimeError, match="inside `with fake_tensors"):
        fake_copy(torch.ones(1))


@pytest.mark.parametrize("value", [torch.tensor(3), torch.tensor(2.5), torch.tensor(math.nan)])
def test_fake_copy_supports_scalar_tensors(value):
    with fake_tensors():
        copied = fake_copy({"value": value})["value"]
        assert copied.shape == () and copied.dtype == value.dtype
        assert str(copied.item()) == "nan"
        with pytest.raises(NoNumberError):
            bool(copied)
