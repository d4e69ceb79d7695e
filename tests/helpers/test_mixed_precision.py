"""Test autocast's dtypes, ranges of dtypes, the scaled step, and the checkers."""

from __future__ import annotations

import copy
import re
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import mixed_precision as mixed
from helpers.demos import mixed_precision as demos
from helpers.exercises import mixed_precision as exercises
from helpers.fake import fake_tensors

HALVES = (torch.float16, torch.bfloat16)


# ---------------------------------------------------------------- dtypes under autocast

OPERATIONS = {
    "linear": lambda h: F.linear(h.float(), h.float()),
    "relu": torch.relu,
    "softmax": lambda h: h.softmax(-1),
    "sum": torch.sum,
    "mean": torch.mean,
    "layer_norm": lambda h: F.layer_norm(h, (4,)),
    "mse": lambda h: F.mse_loss(h, h),
    "promote": lambda h: h + h.float(),
}


@pytest.mark.parametrize("dtype", HALVES)
def test_result_types_match_real_tensors_on_cpu(dtype):
    found = mixed.result_types(OPERATIONS, "cpu", dtype)
    with torch.autocast("cpu", dtype=dtype):
        for name, operation in OPERATIONS.items():
            real = operation(torch.rand(4, 4).to(dtype)).dtype
            assert str(real) == f"torch.{found[name]}"


ONE, LABELS = torch.ones(4), torch.tensor([0, 1, 2, 3])
# Arguments of torch.nn's losses; the losses not listed take two tensors of the same shape.
TAKE = {
    "NLLLoss": lambda a: (a, LABELS),
    "CrossEntropyLoss": lambda a: (a, LABELS),
    "MultiMarginLoss": lambda a: (a, LABELS),
    "LinearCrossEntropyLoss": lambda a: (a, LABELS),
    "MultiLabelMarginLoss": lambda a: (a, LABELS.expand(4, 4)),
    "GaussianNLLLoss": lambda a: (a, a, a),
    "CosineEmbeddingLoss": lambda a: (a, a, ONE),
    "MarginRankingLoss": lambda a: (a[0], a[1], ONE),
    "TripletMarginLoss": lambda a: (a, a + 1, a),
    "TripletMarginWithDistanceLoss": lambda a: (a, a + 1, a),
    "CTCLoss": lambda a: (a[:, None], LABELS[None, 1:3], torch.tensor([4]), torch.tensor([2])),
}


@pytest.mark.filterwarnings("ignore")  # deprecated ones, a wide target
@pytest.mark.parametrize("dtype", HALVES)
def test_most_losses_run_in_float32_under_autocast(dtype):
    kinds = {name: getattr(nn.modules.loss, name) for name in nn.modules.loss.__all__}
    del kinds["NLLLoss2d"]  # the old name of NLLLoss
    found = {}
    for name, kind in kinds.items():
        loss = kind(4, 4) if name == "LinearCrossEntropyLoss" else kind()
        with torch.autocast("cpu", dtype=dtype):
            found[name] = loss(*TAKE.get(name, lambda a: (a, a))(torch.rand(4, 4).to(dtype))).dtype
    other = {name: kind for name, kind in found.items() if kind != torch.float32}
    assert len(found) > 20 and other == dict.fromkeys(
        ("GaussianNLLLoss", "MultiLabelSoftMarginLoss", "TripletMarginWithDistanceLoss"), dtype
    )


@pytest.mark.parametrize("dtype", HALVES)
def test_result_types_for_cuda_match_the_documented_lists(dtype):
    half = str(dtype).removeprefix("torch.")
    assert mixed.result_types(OPERATIONS, "cuda", dtype) == {
        "linear": half,
        "relu": half,
        "softmax": "float32",
        "sum": "float32",
        "mean": half,
        "layer_norm": "float32",
        "mse": "float32",
        "promote": "float32",
    }
    refused = {"bce": lambda h: F.binary_cross_entropy(h, h)}
    assert mixed.result_types(refused, "cuda", dtype) == {"bce": "refused"}
    assert mixed.result_types(refused, "cpu", dtype) == {"bce": "float32"}
    with pytest.raises(ValueError, match=r"float16 or torch.bfloat16, got torch.float32"):
        mixed.result_types({}, "cpu", torch.float32)
    with pytest.raises(RuntimeError, match="reduction dim"):
        mixed.result_types({"broken": lambda h: h @ torch.ones(3, 3)}, "cpu", dtype)


def test_cuda_claims_of_the_chapter_hold():
    found = mixed.result_types(
        {
            "exp": torch.exp,
            "pow": lambda h: h.pow(2),
            "group_norm": lambda h: F.group_norm(h, 2),
            "var": torch.var,
            "log": torch.log,
        },
        "cuda",
        torch.float16,
    )
    assert found.pop("var") == "float16" and set(found.values()) == {"float32"}


def test_autocast_without_device_restores_the_state():
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    with (
        pytest.raises(ZeroDivisionError),
        fake_tensors(),
        mixed.autocast_without_device("cuda", torch.bfloat16),
    ):
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.bfloat16
        _ = 1 / 0
    assert (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")) == before
    with pytest.raises(ValueError, match=r"float16 or torch.bfloat16"):
        mixed.autocast_without_device("cuda", torch.float64).__enter__()


@pytest.mark.parametrize("device", ["cuda:0", torch.device("cuda"), "gpu", "meta", None])
def test_autocast_without_device_rejects_device_indices(device):
    with pytest.raises(ValueError, match="one of cpu, cuda, mps, xpu, without a number"):
        mixed.autocast_without_device(device, torch.float16).__enter__()
    with pytest.raises(ValueError, match="without a number"):
        mixed.result_types({}, device, torch.float16)


@pytest.mark.parametrize("device", ["cpu", "cuda", "xpu"])
def test_result_types_supports_devices_missing_in_the_build(device):
    """Every build lacks support for at least one of these devices."""
    found = mixed.result_types(OPERATIONS, device, torch.float16)
    assert found["linear"] == "float16" and found["mse"] == "float32"
    assert found["softmax"] == ("float16" if device == "cpu" else "float32")


@pytest.mark.parametrize(
    "operation", [lambda h: h.max(0), lambda h: None, lambda h: h.sum().item()]
)
def test_result_types_requires_operations_that_return_tensors(operation):
    with pytest.raises(TypeError, match="mine must return a tensor, got"):
        mixed.result_types({"mine": operation}, "cpu", torch.float16)


def test_autocast_without_device_clears_cached_weights():
    layer, x = nn.Linear(3, 3), torch.ones(1, 3)
    with mixed.autocast_without_device("cpu", torch.bfloat16):
        old = layer(x)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert old.any() and not layer(x).any()


@pytest.mark.parametrize("dtype", HALVES)
def test_in_float32_casts_arguments_and_disables_autocast(dtype):
    seen = []

    @mixed.in_float32
    def product(a, b, *, others):
        """Its own words."""
        seen.append((torch.is_autocast_enabled("cpu"), a.dtype, others["c"][0].dtype))
        return a @ b

    a, ids = torch.ones(2, 2, dtype=dtype), torch.zeros(2, dtype=torch.long)
    with torch.autocast("cpu", dtype=dtype):
        assert product(a, a, others={"c": [ids]}).dtype == torch.float32
        assert torch.is_autocast_enabled("cpu")
    assert seen == [(False, torch.float32, torch.int64)]
    assert product.__doc__ == "Its own words."
    double = torch.ones(2, 2, dtype=torch.float64)
    assert product(double, double, others={"c": [ids]}).dtype == torch.float64

    @mixed.in_float32
    def fails(a):
        raise KeyError

    with torch.autocast("cpu", dtype=dtype):
        with pytest.raises(KeyError):
            fails(a)
        assert torch.is_autocast_enabled("cpu")
    x = a.clone().requires_grad_()
    product(x, a, others={"c": [ids]}).sum().backward()
    assert x.grad.dtype == dtype


def test_in_float32_disables_autocast_on_every_device():
    off = mixed.in_float32(lambda *_: [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")])
    with (
        torch.autocast("cpu", torch.bfloat16),
        mixed.autocast_without_device("cuda", torch.bfloat16),
    ):
        for arguments in ((), (torch.ones(1),), (np.ones(2),), (torch.ones(2, device="meta"),)):
            assert off(*arguments) == [False, False]
        assert torch.is_autocast_enabled("cpu") and torch.is_autocast_enabled("cuda")


def test_in_float32_rejects_generators_and_coroutines():
    def rows(x):
        yield from x

    async def later(x):
        return x

    async def later_rows(x):
        yield x

    for function in (rows, later, later_rows):
        with pytest.raises(TypeError, match="got a generator or a coroutine"):
            mixed.in_float32(function)
    with pytest.raises(TypeError, match="needs a function, got int"):
        mixed.in_float32(3)


# ---------------------------------------------------------------- ranges of dtypes


@pytest.mark.parametrize("capability", [8.0, "8.0", "80", None, (8,), (8, 0, 0), (8.0, 0.0)])
def test_bfloat16_in_hardware_requires_a_pair(capability):
    assert mixed.bfloat16_in_hardware([8, 6])
    with pytest.raises(ValueError, match="must be a pair such as"):
        mixed.bfloat16_in_hardware(capability)


@pytest.mark.parametrize(
    ("number", "has"), [((7, 0), False), ((7, 5), False), ((8, 0), True), ((10, 0), True)]
)
def test_bfloat16_in_hardware_matches_is_bf16_supported(number, has, monkeypatch):
    assert mixed.bfloat16_in_hardware(number) == has
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: type("P", (), {"major": number[0]})
    )
    if torch.version.hip is None:
        assert torch.cuda.is_bf16_supported(including_emulation=False) == has


# ---------------------------------------------------------------- the scaled step


def parts(seed=0):
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([None, 0.1, 100.0]), st.booleans())
def test_scaled_step_matches_a_plain_step(seed, max_norm, enabled):
    model, optimizer = parts(seed)
    plain, own = copy.deepcopy(model), None
    own = torch.optim.SGD(plain.parameters(), lr=0.1)
    x = torch.randn(4, 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=enabled)
    scaler.scale(model(x).square().mean()).backward()
    assert mixed.scaled_step(scaler, optimizer, max_norm)
    plain(x).square().mean().backward()
    if max_norm:
        nn.utils.clip_grad_norm_(plain.parameters(), max_norm)
    own.step()
    assert torch.allclose(model.weight, plain.weight, atol=1e-6)


def test_scaled_step_returns_whether_the_step_ran():
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    before = model.weight.detach().clone()
    scaler.scale(model(torch.ones(1, 3)).sum() * torch.inf).backward()
    assert not mixed.scaled_step(scaler, optimizer, max_norm=1.0)
    assert torch.equal(model.weight, before) and scaler.get_scale() == 128
    growing = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=1)
    optimizer.zero_grad()
    growing.scale(model(torch.ones(1, 3)).sum()).backward()
    assert mixed.scaled_step(growing, optimizer) and growing.get_scale() == 512


def test_scaled_step_clips_two_optimizers_by_one_norm():
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizers = [torch.optim.SGD([p], lr=1.0) for p in (a, b)]
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scaler.scale((3 * a + 4 * b).sum()).backward()
    assert mixed.scaled_step(scaler, iter(optimizers), max_norm=1.0)
    assert torch.allclose(torch.cat([a, b]), torch.tensor([0.4, 0.2]), atol=1e-4)


OPTIMIZER = parts()[1]


@pytest.mark.parametrize(
    ("optimizers", "norm", "says"),
    [
        ([], None, "at least one"),
        (OPTIMIZER, 0.0, "above 0"),
        (OPTIMIZER, float("nan"), "above 0, got nan"),
        ([OPTIMIZER, OPTIMIZER], None, "expected each optimizer once"),
        ([1], None, "several, got int"),
        ({"a": OPTIMIZER}, None, "several, got str"),
        (None, None, "several, got None"),
    ],
)
def test_scaled_step_rejects_invalid_arguments(optimizers, norm, says):
    with pytest.raises((ValueError, TypeError), match=says):
        mixed.scaled_step(torch.amp.GradScaler("cpu"), optimizers, norm)
    with pytest.raises(TypeError, match="must be a torch.amp.GradScaler, got NoneType"):
        mixed.scaled_step(None, OPTIMIZER)


def test_scaled_step_skips_infinite_gradients_when_fused():
    """The fused step() runs even with infinite gradients, and skips the update itself."""
    for factor in (1.0, torch.inf):
        w = nn.Parameter(torch.ones(1))
        optimizer = torch.optim.Adam([w], lr=0.1, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        scaler.scale(w.sum() * factor).backward()
        assert mixed.scaled_step(scaler, optimizer, max_norm=1.0) == (factor == 1)
        assert (w.item() == 1) == (factor != 1)


# ---------------------------------------------------------------- exercise 1


def stepper(*calls):
    def answer(model, x, y, optimizer, scaler, max_norm):
        loss = F.mse_loss(model(x), y)
        clip = nn.utils.clip_grad_norm_

        def rescale():
            clip(model.parameters(), 1e-3)
            for p in model.parameters():
                p.grad *= max_norm / 1e-3

        do = {
            "zero": optimizer.zero_grad,
            "backward": lambda: scaler.scale(loss).backward(),
            "plain backward": loss.backward,
            "unscale": lambda: scaler.unscale_(optimizer),
            "clip": lambda: clip(model.parameters(), max_norm),
            "value": lambda: nn.utils.clip_grad_value_(model.parameters(), max_norm),
            "rescale": rescale,  # to max_norm, even where the norm is smaller
            "step": lambda: scaler.step(optimizer),
            "own step": optimizer.step,
            "update": scaler.update,
        }
        for call in calls:
            do[call]()

    return answer


RIGHT = ["zero", "backward", "unscale", "clip", "step", "update"]


def without(call):
    return [c for c in RIGHT if c != call]


def other(*, step=None, scale=None, after=None):
    """Return the right step with one change."""

    def answer(model, x, y, optimizer, scaler, max_norm):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        own = scale is not None
        if not own:
            scaler.unscale_(optimizer)
        factor = scale(scaler) if own else 1.0
        nn.utils.clip_grad_norm_(model.parameters(), max_norm * factor)
        (step or scaler.step)(optimizer)
        scaler.update()
        if after:
            after(model, x, y, scaler)

    return answer


def with_a_known_rate(optimizer):
    for p in optimizer.param_groups[0]["params"]:
        if p.grad.isfinite().all():
            p.data -= 0.1 * p.grad


def skipped_by_the_loss(model, x, y, optimizer, scaler, max_norm):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if not loss.isfinite():
        return scaler.update(scaler.get_scale() / 2)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    scaler.update()


def by_the_helper(model, x, y, optimizer, scaler, max_norm):
    loss = F.mse_loss(model(x), y)
    model.zero_grad()
    scaler.scale(loss).backward()
    return mixed.scaled_step(scaler, optimizer, max_norm)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (other(), None),
        (by_the_helper, None),
        (other(scale=lambda scaler: scaler.get_scale()), None),
        (other(scale=lambda scaler: 1024.0), "differs from that of SGD|not clipped"),
        (other(step=with_a_known_rate), "differs from that of SGD|not clipped"),
        (other(after=lambda m, x, y, s: s.update(s.get_scale() / 2)), "scale changed"),
        (other(after=lambda m, x, y, s: m.eval()), "came in training mode and was left in another"),
        (other(after=lambda m, x, y, s: x.zero_()), "the batch was changed"),
        (other(after=lambda m, x, y, s: torch.manual_seed(0)), "random state of torch"),
        (skipped_by_the_loss, "infinite gradients reached"),
        (
            lambda *given: [by_the_helper(*given), given[3].param_groups[0].update(lr=1.0)],
            "group 0 of optimizer was changed",
        ),
    ],
)
def test_check_scaled_step_judges_other_answers(answer, says):
    for seed in range(8):
        torch.manual_seed(seed)
        verdict = exercises.check_scaled_step(answer)
        assert verdict.passed == (says is None), (seed, verdict)
        assert says is None or re.search(says, verdict.message), (seed, verdict)


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (RIGHT, None),
        (
            ["backward", "unscale", "clip", "step", "update", "zero"],
            "gradients of an earlier step were not cleared",
        ),
        (without("unscale"), "call unscale_ before clipping"),
        (["zero", "backward", "clip", "unscale", "step", "update"], "call unscale_ before"),
        (without("clip"), "the gradients were not clipped"),
        (without("zero"), "gradients of an earlier step were not cleared"),
        (without("update"), "call scaler.update()"),
        (without("backward"), "did not use scaler.scale"),
        (without("step"), "the weights were not updated"),
        (["zero", "backward", "unscale", "clip", "own step", "update"], "infinite gradients"),
        (["zero", "plain backward", "clip", "own step"], "infinite gradients reached"),
        (["zero", "backward", "unscale", "value", "step", "update"], "differs from that of SGD"),
        (["zero", "backward", "unscale", "rescale", "step", "update"], "differs from that of SGD"),
    ],
)
def test_check_scaled_step_judges_each_order_of_calls(calls, says):
    for seed in range(8):
        torch.manual_seed(seed)
        expect(exercises.check_scaled_step(stepper(*calls)), says)


# ---------------------------------------------------------------- exercise 2


def right_rms(x):
    return (x.float().norm(dim=-1, keepdim=True) / x.shape[-1] ** 0.5).to(x.dtype)


def by_norm(x):
    return (x.double().norm(dim=-1, keepdim=True) / x.shape[-1] ** 0.5).to(x.dtype)


def by_largest(x):
    largest = x.abs().amax(-1, keepdim=True)
    return (largest * (x / largest).square().mean(-1, keepdim=True).sqrt()).to(x.dtype)


def decorated(x):
    return (
        mixed.in_float32(lambda x: x.norm(dim=-1, keepdim=True))(x)
        .div(x.shape[-1] ** 0.5)
        .to(x.dtype)
    )


def without_autocast_only(x):
    with torch.autocast("cpu", enabled=False):
        return x.square().mean(-1, keepdim=True).sqrt()


def with_eps(x):
    return (x.float().square().mean(-1, keepdim=True) + 1e-5).sqrt().to(x.dtype)


def unreliable_product(x):
    wide = x.float()
    return ((wide.unsqueeze(-2) @ wide.unsqueeze(-1)).squeeze(-1) / x.shape[-1]).sqrt().to(x.dtype)


def in_place(x):
    result = right_rms(x)
    if not x.requires_grad:
        x.zero_()
    return result


def seeded(x):
    torch.manual_seed(0)
    return right_rms(x)


def with_a_tiny_eps(x):
    return (x.double().square().mean(-1, keepdim=True) + 1e-20).sqrt().to(x.dtype)


def leaves_autocast_off(x):
    torch.set_autocast_enabled("cpu", False)
    return right_rms(x)


def cut(where):
    return lambda x: right_rms(x).detach() if where(x) else right_rms(x)


def of_its_largest(x):
    wide = x.float()
    largest = wide.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    return (largest * (wide / largest).square().mean(-1, keepdim=True).sqrt()).to(x.dtype)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (right_rms, None),
        (of_its_largest, "the gradient of a row of zeros is not finite"),
        (
            lambda x: ((x.double() ** 2).sum(-1, True) / x.size(-1)).sqrt().type_as(x),
            "the gradient of a row of zeros is not finite",
        ),
        (
            lambda x: (
                torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
                .div(x.shape[-1] ** 0.5)
                .to(x.dtype)
            ),
            None,
        ),
        (in_place, "x was changed"),
        (seeded, "random state of torch"),
        (with_a_tiny_eps, "rows of zeros|small float32"),
        (leaves_autocast_off, "autocast was not restored"),
        (cut(lambda x: torch.is_autocast_enabled("cpu")), "has no gradient"),
        (cut(lambda x: x.dtype != torch.float16), "has no gradient"),
        (lambda x: right_rms(x) if x.dim() > 1 else None, "expected a tensor, got None"),
        (by_norm, None),
        (decorated, None),
        (lambda x: x.square().mean(-1, keepdim=True).sqrt(), "300 in float16"),
        (without_autocast_only, "300 in float16"),
        (lambda x: x.float().square().mean(-1, keepdim=True).sqrt(), "the dtype of x"),
        (lambda x: right_rms(x).squeeze(-1), "keepdim=True"),
        (lambda x: right_rms(x).detach(), "has no gradient"),
        (by_largest, "rows of zeros"),
        (with_eps, "became 0|wrong even in float32|rows of zeros"),
        (unreliable_product, "under autocast"),
        (lambda x: x.float().abs().mean(-1, keepdim=True).to(x.dtype), "wrong even in float32"),
        (lambda x: x.float().square().mean().sqrt().to(x.dtype), "the shape should be"),
        (
            lambda x: x.bfloat16().float().square().mean(-1, keepdim=True).sqrt().to(x.dtype),
            "wrong",
        ),
        (lambda x: None, "expected a tensor, got None"),
        (lambda x: x.nope, "AttributeError"),
    ],
)
def test_check_rms_returns_the_expected_verdict(answer, says):
    for seed in range(8):
        torch.manual_seed(seed)
        found = exercises.check_rms(answer)
        assert found.passed == (says is None), (seed, found)
        assert says is None or re.search(says, found.message), (seed, found)


# ---------------------------------------------------------------- sentences of the chapter


def test_autocast_removes_the_dtype_errors_as_the_chapter_states():
    text = demos.refusals()
    assert text["grid_sample"] == "expected scalar type Half but found Float"
    assert text["bmm"] == "expected scalar type Float but found Half"
    assert len(text) == 6
    with torch.autocast("cpu", dtype=torch.float16):
        assert set(demos.refusals()) == {"x[index] = h", "scatter_add"}


@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_cache_keeps_old_weights(enabled):
    layer, x = nn.Linear(3, 1), torch.ones(1, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=enabled):
        before = layer(x)
        with torch.no_grad():
            layer.weight.add_(1)
        assert torch.equal(before, layer(x)) == enabled
        layer.load_state_dict({"weight": torch.zeros(1, 3), "bias": torch.zeros(1)})
        assert torch.equal(before, layer(x)) == enabled


def test_cuda_autocast_converts_scatter_add_but_not_assignment():
    def has(name, key):
        return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key)

    assert has("scatter_add", "AutocastCUDA") and not has("scatter_add", "AutocastCPU")
    for key in ("AutocastCUDA", "AutocastCPU"):  # x[index] = h calls the second one
        assert has("linear", key) and not has("index_put_", key)
    with torch.no_grad(), fake_tensors(), mixed.autocast_without_device("cuda", torch.float16):
        x, index = torch.zeros(3, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")
        h = torch.ones(1, device="cuda", dtype=torch.float16)
        assert x.scatter_add(0, index, h).dtype == torch.float32


@pytest.mark.parametrize(("fused", "left"), [(False, True), (True, False)])
def test_unfused_adam_in_float16_returns_nan(fused, left):
    w = nn.Parameter(torch.ones(1).half())
    optimizer = torch.optim.Adam([w], lr=0.01, fused=fused)
    w.grad = torch.zeros_like(w)
    optimizer.step()
    assert w.isnan().item() == left


@pytest.mark.parametrize("skipped", [0, 1])
def test_a_scheduler_warns_if_the_first_step_is_skipped(skipped):
    w = nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([w], lr=0.1), torch.amp.GradScaler("cpu")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(3):
            optimizer.zero_grad()
            scaler.scale(w.sum() * (torch.inf if i == skipped else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
    text = [str(w.message) for w in caught if "before `optimizer.step()`" in str(w.message)]
    assert len(text) == (skipped == 0)


def test_autocast_caches_only_trained_weights():
    """Autocast caches a trainable weight, but no frozen one and nothing in inference mode."""

    def old_copy(frozen, mode):
        layer, x = nn.Linear(3, 1).requires_grad_(not frozen), torch.ones(1, 3)
        with mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            before = layer(x).clone()
            layer.weight.data.add_(1)
            return torch.equal(before, layer(x))

    assert old_copy(False, torch.enable_grad) and old_copy(False, torch.no_grad)
    assert not old_copy(True, torch.enable_grad) and not old_copy(False, torch.inference_mode)


def test_adam_hides_clipping_before_unscale():
    """Adam's step has the expected length although each gradient is clipped to the same norm."""
    length, norm = [], []
    for early in (True, False):
        for size in (0.01, 1.0):
            w = nn.Parameter(torch.ones(1))
            optimizer, scaler = torch.optim.Adam([w], lr=0.1), torch.amp.GradScaler("cpu")
            scaler.scale((w * size).sum()).backward()
            if not early:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([w], 1.0)
            if early:
                scaler.unscale_(optimizer)
            norm.append(w.grad.item())
            scaler.step(optimizer)
            length.append(1 - w.item())
    assert all(0.099 < one < 0.101 for one in length)
    assert norm[0] == pytest.approx(norm[1]) and norm[2:] == pytest.approx([0.01, 1.0])


def test_normalize_of_float16_zeros_returns_nan_under_cpu_autocast():
    with torch.autocast("cpu", dtype=torch.float16):
        assert F.normalize(torch.zeros(1, 2).half()).isnan().all()
        assert not F.normalize(torch.zeros(1, 2).bfloat16()).isnan().any()


def test_binary_cross_entropy_clamps_log_of_zero():
    assert F.binary_cross_entropy(torch.tensor(0.9999).half().float(), torch.tensor(0.0)) == 100


def test_grad_scaler_errors_match_the_chapter():
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.ones(1, 3)).sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called on this optimizer since the last"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        scaler.load_state_dict({})


def test_grad_scaler_doubles_only_after_2000_good_steps():
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    w = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([w], lr=1e-3)
    for n in range(2000):
        assert scaler.get_scale() == 256, n
        w.grad = None
        scaler.scale(w.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512


def test_half_precision_overflows_and_rounds_at_the_expected_values():
    h = torch.ones(2).half()
    with pytest.raises(RuntimeError, match="value cannot be converted to type .* without overflow"):
        h.masked_fill(torch.tensor([True, False]), -1e9)
    assert (h - 1e9 == -torch.inf).all()
    assert torch.tensor(0.9999).half() == 1 and torch.tensor(256.0).bfloat16() + 1 == 256
    assert (1 - torch.tensor(0.9999).half()).log() == -torch.inf


def test_bfloat16_spacing_near_10000_is_64():
    x = torch.tensor(10_000.0).bfloat16()
    assert torch.nextafter(x, torch.tensor(torch.inf).bfloat16()) - x == 64


def test_torch_cuda_amp_names_warn_as_deprecated():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.amp.GradScaler()
        torch.cuda.amp.autocast()
    output = [str(w.message) for w in caught if w.category is FutureWarning]
    assert len(output) == 2 and all("is deprecated" in text for text in output)


def test_digit_model_is_reproducible():
    a, b = demos.digit_model(3), demos.digit_model(3)
    assert torch.equal(a[1].weight, b[1].weight) and a(torch.ones(2, 1, 8, 8)).shape == (2, 10)


def test_cpu_layer_norm_accumulates_in_float32():
    x = (torch.randn(4, 4096) + 100).bfloat16()
    wide = F.layer_norm(x.float(), (4096,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = F.layer_norm(x, (4096,))
    assert found.dtype == torch.bfloat16
    assert (found.float() - wide).abs().max() <= 0.02 * wide.abs().max()


def test_autocast_around_an_epoch_updates_weights_once_per_epoch():
    torch.manual_seed(0)
    model, x, y = demos.digit_model(), torch.randn(64, 64), torch.arange(64) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(4):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    assert len(set(losses)) == 4 and losses[-1] < losses[0]


def test_cast_inputs_runs_without_autocast():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx, x):
            return torch.is_autocast_enabled("cpu"), x.dtype, x.clone()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        enabled, dtype, _ = Product.apply(torch.ones(2).bfloat16())
    assert not enabled and dtype == torch.float32
    assert Product.apply(torch.ones(2).bfloat16())[1] == torch.bfloat16  # outside of autocast


def test_compiled_model_ignores_cached_weights():
    model, x = nn.Linear(4, 1), torch.ones(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    counts = []
    for run in (model, torch.compile(model, backend="aot_eager")):
        losses = set()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(3):
                optimizer.zero_grad()
                loss = run(x).float().sum()
                loss.backward()
                optimizer.step()
                losses.add(loss.item())
        counts.append(len(losses))
    assert counts == [1, 3]


def test_loss_scaling_keeps_bfloat16_gradients():
    got = []
    for scale in (1.0, 2.0**16):
        torch.manual_seed(0)
        model, x = demos.digit_model(), torch.randn(8, 64)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        (loss * scale).backward()
        got.append(model[1].weight.grad / scale)
    assert torch.equal(*got)


def test_float32_matmul_precisions_set_the_expected_backends():
    before = torch.get_float32_matmul_precision()
    matmul = torch.backends.cuda.matmul
    try:
        for name, new in (("highest", "ieee"), ("high", "tf32"), ("medium", "tf32")):
            torch.set_float32_matmul_precision(name)
            assert (matmul.allow_tf32, matmul.fp32_precision) == (new == "tf32", new)
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision(before)


def test_result_types_rejects_weights_created_outside():
    with pytest.raises(TypeError, match="layer must create its own weights inside the call"):
        mixed.result_types({"layer": nn.Linear(4, 4)}, "cpu", torch.bfloat16)


@pytest.mark.parametrize("unscale", [False, True])
def test_fused_optimizer_accepts_float16_gradients_without_unscale(unscale):
    w = nn.Parameter(torch.ones(1, dtype=torch.float16))
    optimizer = torch.optim.SGD([w], lr=0.5, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(w.float().sum()).backward()
    if unscale:
        with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
            scaler.unscale_(optimizer)
    else:
        scaler.step(optimizer)
        assert w == 0.5
