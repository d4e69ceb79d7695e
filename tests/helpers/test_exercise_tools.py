"""Test the checkers' tools: accepted values, rejected values, and sentences."""

import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.exercises import verdict
from helpers.exercises.tools import (
    _SETTINGS,
    a_float,
    a_tensor,
    an_int,
    close,
    in_dtypes,
    instance,
    ints,
    learns,
    leaves,
    random_state_kept,
    tensors,
    unchanged,
)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "expected a tensor, got None"),
        (1.5, "expected a tensor, got float"),
        (np.float64(1.5), "expected a tensor, got float64"),
        (np.ones(2), "expected a tensor, got ndarray"),
        ((torch.ones(2),), "expected a tensor, got tuple"),
        (torch.ones(2, 1), r"expected shape \(2,\), got \(2, 1\)"),
        (torch.ones(2).half(), "expected torch.float32, got torch.float16"),
    ],
)
def test_tensor_check_rejects_other_types_shapes_and_dtypes(value, says):
    with pytest.raises(AssertionError, match=says):
        a_tensor(value, (2,), torch.float32)
    with pytest.raises(AssertionError, match=f"x: {says}"):
        a_tensor(value, (2,), torch.float32, "x")


def test_tensor_check_returns_the_tensor():
    x = torch.ones(2)
    assert a_tensor(x) is x and a_tensor(x, x.shape, x.dtype) is x
    assert tensors((x, x), 2, "two") == (x, x)
    for pair in (x, (x,), (x, 1)):
        with pytest.raises(AssertionError, match="two"):
            tensors(pair, 2, "two")


@pytest.mark.parametrize(
    ("tool", "right", "wrong"),
    [
        (a_float, [1.5, np.float64(1.5), np.float32(1.5)], [1, True, "1", None, torch.ones(())]),
        (an_int, [3, np.int64(3), np.uint8(3)], [3.0, True, np.bool_(True), torch.tensor(3)]),
        (ints, [[], [3], [np.int64(3)]], [None, 3, (3,), [3.0], [True], [torch.tensor(3)]]),
    ],
)
def test_number_checks_accept_python_and_numpy_numbers(tool, right, wrong):
    for value in right:
        assert tool(value) == value
    for value in wrong:
        with pytest.raises(AssertionError, match="expected a"):
            tool(value)


def test_instance_rejects_other_types():
    assert instance("a dict", {}, dict) == {}
    with pytest.raises(AssertionError, match="expected a dict, got list"):
        instance("a dict", [], dict)


def test_close_reports_the_first_difference():
    right = torch.tensor([[1.0, torch.nan], [2.0, 3.0]])
    close(right.clone(), right)
    got = right.clone()
    got[1] = 5
    with pytest.raises(AssertionError, match=r"^y at \[1, 0\] is 5, not 2$"):
        close(got, right, name="y")
    with pytest.raises(AssertionError, match="^wrong$"):
        close(got, right, "wrong")
    with pytest.raises(AssertionError, match="expected torch.float32, got torch.float64"):
        close(right.double(), right)


def test_close_is_stricter_for_float64():
    close(torch.ones(2) + 1e-6, torch.ones(2))
    with pytest.raises(AssertionError, match="wrong"):
        close(torch.ones(2).double() + 1e-6, torch.ones(2).double(), "wrong")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x, n: n * x, None),
        (lambda x, n: (n * x).clone(), None),
        (lambda x, n: n * x + 1e-6, "with float64 inputs the result is wrong, or digits are lost"),
        (lambda x, n: n * x.float(), "with float64 inputs: expected torch.float64, got"),
        (lambda x, n: (n * x.float()).to(x.dtype), "with float64 inputs the result is wrong"),
        (lambda x, n: x * torch.tensor([2.0] * 3), "with bfloat16 inputs: expected torch.bfloat16"),
        (lambda x, n: x.T, "with float64 inputs: expected shape"),
        (lambda x, n: x @ torch.ones(3), "with float64 inputs it fails: "),
        (lambda x, n: n * x.view(-1).view(x.shape), "with float64 inputs it fails: view size"),
        (lambda x, n: (x, x), "with float64 inputs"),
    ],
)
def test_in_dtypes_requires_a_correct_answer_in_each_dtype(answer, says):
    def ask():
        in_dtypes(answer, lambda x, n: n * x, torch.randn(2, 3), 2)

    if says is None:
        return ask()
    with pytest.raises(AssertionError, match=says):
        ask()


def test_in_dtypes_applies_tolerance_to_values_only():
    x = torch.randn(3)
    in_dtypes(lambda x: x + 0.005, lambda x: x, x, near=0.01)
    with pytest.raises(AssertionError, match="float64"):
        in_dtypes(Tensor.float, lambda x: x, x, near=0.01)
    in_dtypes(Tensor.double, lambda x: x, x, wider=True)
    with pytest.raises(AssertionError, match="float64"):
        in_dtypes(Tensor.float, lambda x: x, x, wider=True)


def test_learns_requires_a_gradient_for_each_input():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    assert learns(2 * x, x, "none")[0].tolist() == [2, 2]
    for loss in (x.detach(), 2 * x):
        with pytest.raises(AssertionError, match="none"):
            learns(loss, [x, y], "none")


def network():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
    model[0].weight.grad = torch.ones(2, 2)
    return model


CHANGES = {
    "values": lambda m: m[0].weight.data.add_(1),
    "buffers": lambda m: m[1].running_mean.add_(1),
    "modes": lambda m: m[2].eval(),
    "requires_grad": lambda m: m[0].bias.requires_grad_(False),
    "cleared": lambda m: m.zero_grad(),
    "gradients": lambda m: m[0].weight.grad.add_(1),
    "objects": lambda m: setattr(m[0], "bias", nn.Parameter(m[0].bias.detach().clone())),
    "settings": lambda m: setattr(m[2], "p", 0.1),
    "hooks": lambda m: m[0].register_forward_hook(lambda *_: None),
    "attributes": lambda m: setattr(m[2], "forward", m[2].forward),
    "names": lambda m: m.append(nn.ReLU()),
    "dtype": lambda m: m.double(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_unchanged_detects_a_changed_module(change):
    model = network()
    with unchanged(model=model):
        pass
    with pytest.raises(AssertionError, match="model"), unchanged(model=model):
        CHANGES[change](model)
    model = network()
    if change not in ("buffers", "cleared", "dtype", "names"):
        with unchanged(change, model=model):
            CHANGES[change](model)


def test_leaves_detects_changed_arguments():
    for make, change in (
        (lambda: torch.ones(2), lambda x: x.add_(1)),
        (lambda: torch.ones(2), lambda x: x.requires_grad_()),
        (lambda: np.ones(2), lambda x: x.__iadd__(1)),
        (lambda: [torch.ones(2)], lambda x: x[0].zero_()),
        (lambda: [1, 2], lambda x: x.append(3)),
        (lambda: {"a": {"b": torch.ones(2)}}, lambda x: x["a"]["b"].zero_()),
        (lambda: {"a": 1, "b": 2}, lambda x: x.update(a=3)),
        (lambda: {"a": 1}, lambda x: x.update(c=3)),
    ):
        assert leaves(lambda x: 7, "x")(make()) == 7
        with pytest.raises(AssertionError, match="x"):
            leaves(change, "x")(make())
        leaves(change, "")(make())


def test_unchanged_accepts_nan_and_meta_tensors():
    with unchanged(x=[torch.full((2,), torch.nan), torch.ones(2, device="meta")]):
        pass


def test_unchanged_propagates_other_errors():
    x = torch.ones(2)
    with pytest.raises(ZeroDivisionError), unchanged(x=x):
        x.add_(1)
        raise ZeroDivisionError
    with pytest.raises(AssertionError), unchanged(x=x), suppress(ZeroDivisionError):
        x.add_(1)
        raise ZeroDivisionError


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), lambda: np.random.rand(1)])
def test_random_state_kept_detects_a_used_generator(draw):
    with random_state_kept():
        torch.rand(1, generator=torch.Generator())
    says = pytest.raises(AssertionError, match="the stream of .* is not where it was")
    with says, random_state_kept():
        draw()


def test_verdict_restores_the_grad_mode_and_reports_its_change():
    seen = []

    def off(answer):
        seen.append(torch.is_grad_enabled())
        torch.set_grad_enabled(False)
        assert answer, "something that follows from it"

    for answer in (True, False):
        assert "gradients stay switched off" in verdict(answer, [off]).message
        assert torch.is_grad_enabled()
    with torch.no_grad():
        assert verdict(1, [lambda answer: seen.append(torch.is_grad_enabled())]).passed
        assert not torch.is_grad_enabled()
    assert seen == [True] * 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda: torch.set_default_dtype(torch.float64), "default dtype"),
        (lambda: torch.autograd.set_detect_anomaly(True), "anomaly mode"),
        (lambda: torch.use_deterministic_algorithms(True), "use_deterministic_algorithms"),
        (
            lambda: torch.use_deterministic_algorithms(True, warn_only=True),
            "use_deterministic_algorithms",
        ),
        (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "set_num_threads"),
        (lambda: torch.set_float32_matmul_precision("medium"), "matmul_precision"),
        (lambda: torch.set_default_device("meta"), "set_default_device"),
        (lambda: torch.set_autocast_enabled("cpu", True), "autocast"),
        (lambda: torch.set_autocast_dtype("cpu", torch.float16), "autocast"),
        (lambda: setattr(torch.backends.cudnn, "benchmark", True), "cudnn"),
        (lambda: setattr(torch.backends.cudnn, "deterministic", True), "cudnn"),
        (lambda: torch.backends.cuda.enable_math_sdp(False), "sdpa_kernel"),
        (lambda: np.seterr(all="raise"), "numpy.seterr"),
        (lambda: warnings.simplefilter("ignore", FutureWarning), "warning filter"),
        (lambda: warnings.resetwarnings(), "warning filter"),
    ],
)
def test_verdict_restores_each_setting_and_reports_its_change(change, says):
    def settings():
        return [read() for _, read, _ in _SETTINGS]

    before, filters = settings(), warnings.filters[:]
    for right in (True, False):

        def changed(answer, right=right):
            change()
            assert right, "something that follows from it"

        assert says in verdict(1, [changed]).message
        assert settings() == before and warnings.filters == filters


def test_verdict_accepts_the_warning_filters_of_an_import():
    def imported(answer):
        warnings.filterwarnings("default", category=DeprecationWarning, module="package")
        warnings.simplefilter("always", np.exceptions.RankWarning)

    with warnings.catch_warnings():
        assert verdict(1, [imported]).passed


def test_verdict_restores_the_random_state_and_reports_a_seed():
    def seeded(answer):
        torch.manual_seed(0)
        assert answer, "something that follows from it"

    for answer in (True, False):
        torch.manual_seed(0)  # the answer sets the same seed
        assert "random state of torch was changed" in verdict(answer, [seeded]).message
        state = torch.get_rng_state()
        torch.manual_seed(0)
        torch.randint(2**60, ())  # `verdict` draws the seed of its one test
        assert torch.equal(torch.get_rng_state(), state)
    assert verdict(True, [lambda answer: torch.rand(1)]).passed
