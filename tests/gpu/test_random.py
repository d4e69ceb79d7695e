"""Test random streams and reproducibility on a GPU.

Chapter: `reproducibility`.
"""

from __future__ import annotations

import pytest
import torch
from card_worker import convolution_gradients, cublas_without_variable, in_fresh_process, index_sums

RUNS = 20


def state(device):
    return torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()


def seeded(device, count=4):
    torch.manual_seed(0)
    return torch.randn(count, device=device)


@pytest.mark.usefixtures("card")
def test_seed_starts_independent_cpu_and_gpu_streams():
    first = seeded("cuda")
    assert torch.equal(seeded("cuda"), first)
    assert not torch.allclose(seeded("cpu"), first.cpu())
    before = {device: state(device) for device in ("cpu", "cuda")}
    torch.rand(1)
    assert torch.equal(state("cuda"), before["cuda"])
    before["cpu"] = state("cpu")
    torch.rand(1, device="cuda")
    assert torch.equal(state("cpu"), before["cpu"])
    assert not torch.equal(state("cuda"), before["cuda"])


@pytest.mark.usefixtures("card")
def test_restored_rng_state_repeats_the_numbers():
    before = torch.cuda.get_rng_state_all()
    drawn = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state_all(before)
    assert torch.equal(torch.rand(3, device="cuda"), drawn)
    with torch.random.fork_rng():
        inside = torch.rand(3, device="cuda")
    assert torch.equal(torch.rand(3, device="cuda"), inside)


@pytest.mark.usefixtures("card")
def test_convolutions_repeat_with_deterministic_and_without_benchmark():
    assert in_fresh_process(convolution_gradients, "cuda", RUNS) == 1


@pytest.mark.usefixtures("card")
def test_deterministic_algorithms_repeat_index_add():
    assert in_fresh_process(index_sums, "cuda", RUNS, CUBLAS_WORKSPACE_CONFIG=":4096:8") == 1


@pytest.mark.usefixtures("card")
def test_deterministic_matmul_requires_no_cublas_variable(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert in_fresh_process(cublas_without_variable, "cuda") == "no error"


def test_worker_functions_run_on_the_cpu():
    deterministic = torch.are_deterministic_algorithms_enabled()
    assert convolution_gradients("cpu", 3) == index_sums("cpu", 3) == 1
    assert cublas_without_variable("cpu") == "no error"
    assert torch.are_deterministic_algorithms_enabled() == deterministic


def test_index_sums_counts_different_results(monkeypatch):
    add = torch.Tensor.index_add_
    monkeypatch.setattr(
        torch.Tensor, "index_add_", lambda self, *rest: add(self, *rest).add_(torch.rand(1))
    )
    assert index_sums("cpu", 3) == 3
