"""Test the helpers of `fine_tuning`, and its checkers with solutions and wrong answers."""

from __future__ import annotations

import contextlib
import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision import models
from verdicts import expect

from helpers import digits, fine_tuning
from helpers.demos import fine_tuning as demos
from helpers.evaluation import evaluating
from helpers.exercises import fine_tuning as exercises
from helpers.training_loop import accuracy, evaluate

# ---------------------------------------------------------------- the small network


def right(model, x, y):
    return evaluate(model, [(x, y)], accuracy=accuracy)["accuracy"]


def test_pretrained_recognizes_the_old_digits_and_returns_copies():
    state = torch.get_rng_state()
    model, other = demos.pretrained(), demos.pretrained()
    assert torch.equal(torch.get_rng_state(), state)
    x, y = demos.unseen()
    assert right(model, x, y) > 0.9
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    model.stem[1].running_mean.fill_(7)
    for again in (other, demos.pretrained()):
        assert again.stem[0].weight.any() and again.stem[1].running_mean.ne(7).any()


def test_unseen_returns_the_digits_not_used_for_pretraining():
    x, y = digits.load(range(5))
    x_unseen, y_unseen = demos.unseen()
    assert torch.equal(x_unseen, x[demos.KNOWN :]) and len(y_unseen) == len(y) - 700


@pytest.mark.parametrize("per_class", [1, 5, 80])
def test_few_returns_balanced_samples_outside_the_test_set(per_class):
    (x, y), (x_test, y_test) = demos.few(per_class)
    assert y.bincount().tolist() == [per_class] * 5 and len(x_test) == len(y_test) == 400
    new, _ = digits.load(range(5, 10))
    first_test = new.flatten(1)[len(new) - 400]
    assert torch.equal(first_test, x_test[0].flatten())
    seen = {tuple(row) for row in new[: len(new) - 400].flatten(1).tolist()}
    assert all(tuple(row) in seen for row in x.flatten(1).tolist())


@pytest.mark.parametrize("per_class", [0, 81])
def test_few_rejects_other_counts(per_class):
    with pytest.raises(ValueError, match="from 1 to 80"):
        demos.few(per_class)


def test_batches_are_reproducible_and_contain_every_sample():
    x, y = torch.arange(41.0).unsqueeze(1), torch.arange(41)
    first, second = (list(demos.batches(x, y, 8)) for _ in range(2))
    assert [len(labels) for _, labels in first] == [8] * 5 + [1]
    assert str(first) == str(second)
    assert all(torch.equal(images.flatten(), labels.float()) for images, labels in first)
    order = torch.cat([labels for _, labels in first])
    assert not torch.equal(order, y) and torch.equal(order.sort().values, y)
    batches = demos.batches(x, y, 8)
    assert [list(b[1]) for b in batches] != [list(b[1]) for b in batches]  # reshuffled each epoch


# ---------------------------------------------------------------- inspecting a fine-tuning run


def sgd(parameters, lr=0.1):
    return torch.optim.SGD(parameters, lr=lr)


def test_audit_reports_every_state():
    model = demos.pretrained()
    model.scale = nn.Parameter(torch.ones(1))
    model.stem.requires_grad_(False)
    model.layer1.eval().requires_grad_(False)
    model.layer2[0].requires_grad_(False)
    optimizer = sgd([{"params": model.layer2.parameters()}, {"params": [model.scale], "lr": 0.5}])
    assert fine_tuning.audit(model, optimizer) == {
        "scale": "lr 0.5",
        "stem": "frozen, statistics move",
        "layer1": "frozen",
        "layer2": "lr 0.1, partly frozen",
        "head": "in no group",
    }


def test_audit_reports_left_gradients_lost_heads_and_two_rates():
    model = demos.pretrained()
    optimizer = sgd(model.parameters())
    model(torch.randn(4, 1, 8, 8)).sum().backward()
    model.eval().stem.requires_grad_(False)
    model.head = nn.Linear(128, 3)
    message = fine_tuning.audit(model, optimizer)
    assert message["stem"] == "frozen, gradient left"
    assert message["head"] == "in no group" and message["(not in the model)"] == "2 parameters"
    model.stem.zero_grad()
    assert fine_tuning.audit(model, optimizer)["stem"] == "frozen"
    two = sgd([{"params": [model.head.weight]}, {"params": [model.head.bias], "lr": 1e-3}])
    assert fine_tuning.audit(model, two)["head"] == "lr 0.001, lr 0.1"


def test_audit_skips_modules_without_parameters():
    model = nn.Sequential(nn.ReLU(), nn.Linear(2, 1), nn.Dropout())
    assert fine_tuning.audit(model, sgd(model.parameters())) == {"1": "lr 0.1"}


def test_audit_reports_moving_statistics():
    plain = nn.BatchNorm1d(2, affine=False)
    mixed = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).requires_grad_(False))
    learning = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model = nn.Sequential(plain, mixed, learning)
    optimizer = sgd(model.parameters())
    assert fine_tuning.audit(model, optimizer) == {
        "0": "statistics move",
        "1": "lr 0.1, partly frozen, statistics move",
        "2": "lr 0.1",
    }
    kept = fine_tuning.keep(model)
    model(torch.randn(4, 2))
    assert fine_tuning.changed(kept, model) == ["0", "1", "2"]
    message = fine_tuning.audit(model.eval(), optimizer)
    assert message == {"1": "lr 0.1, partly frozen", "2": "lr 0.1"}


@settings(max_examples=30, deadline=None)
@given(st.sets(st.sampled_from(["stem", "layer1", "layer2", "head"])), st.booleans())
def test_audit_reports_frozen_exactly_where_a_step_changes_nothing(frozen, training):
    model = demos.pretrained().train(training)
    for name in frozen:
        model.get_submodule(name).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    message = fine_tuning.audit(model, optimizer)
    kept = fine_tuning.keep(model)
    if len(frozen) < 4:
        model(torch.randn(4, 1, 8, 8)).sum().backward()
        optimizer.step()
        moved = fine_tuning.changed(kept, model)
        assert [name for name, state in message.items() if state != "frozen"] == moved


def test_changed_lists_each_child_once_and_new_entries():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    kept = fine_tuning.keep(model)
    assert fine_tuning.changed(kept, model) == []
    with torch.no_grad():
        model(torch.randn(4, 2))
    assert fine_tuning.changed(kept, model) == ["1"]
    model.append(nn.Linear(2, 2))
    assert fine_tuning.changed(kept, model) == ["1", "2"]
    del model[2]
    model[1].running_mean[0] = torch.nan
    kept = fine_tuning.keep(model.append(nn.Linear(2, 2, device="meta")))
    assert fine_tuning.changed(kept, model) == []  # nan equals nan, and meta tensors compare equal
    del model[2]
    assert fine_tuning.changed(kept, model) == ["2"]


def test_changed_compares_extra_states():
    class Counted(nn.Linear):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    model = nn.Sequential(Counted(1, 1), Counted(1, 1))
    kept = fine_tuning.keep(model)
    assert fine_tuning.changed(kept, model) == []
    model[1].count += 1
    assert fine_tuning.changed(kept, model) == ["1"]


def test_head_of_returns_the_layer_with_the_classes():
    with torch.device("meta"):
        for name in ("resnet50", "vgg11_bn", "mobilenet_v2", "vit_b_16", "efficientnet_b0"):
            model = models.get_model(name, weights=None, num_classes=7)
            assert model.get_submodule(fine_tuning.head_of(model)).out_features == 7
        with pytest.raises(ValueError, match="SqueezeNet has no nn.Linear"):
            fine_tuning.head_of(models.squeezenet1_1(weights=None))


def test_download_of_returns_the_file_name_without_a_download(monkeypatch):
    def network(*args, **options):
        raise AssertionError("a download was tried")

    monkeypatch.setattr(torch.hub, "download_url_to_file", network)
    weights = models.ResNet18_Weights.DEFAULT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            fine_tuning.download_of(lambda: models.resnet18(weights=weights))
            == (weights.url.split("/")[-1])
        )
        assert (
            fine_tuning.download_of(lambda: models.resnet18(pretrained=True))
            == (models.ResNet18_Weights.IMAGENET1K_V1.url.split("/")[-1])
        )
        assert fine_tuning.download_of(lambda: models.resnet18(weights=None)) is None
        quantized = models.quantization.shufflenet_v2_x0_5
        file = fine_tuning.download_of(lambda: quantized(weights="DEFAULT", quantize=True))
        assert "fbgemm" in file
        file = fine_tuning.download_of(lambda: models.regnet_y_400mf(weights="DEFAULT"))
        assert file.startswith("regnet_y_400mf-")
    with pytest.raises(KeyError, match="V9"):
        fine_tuning.download_of(lambda: models.resnet18(weights="V9"))
    assert models.WeightsEnum.get_state_dict.__name__ == "get_state_dict"  # restored


def test_children_extractor_returns_the_named_outputs():
    model = nn.Sequential()
    model.add_module("a", nn.Linear(3, 4))
    model.add_module("b", nn.Tanh())
    x = torch.randn(2, 3)
    first, second = demos.ChildrenExtractor(model, ["b", "a"])(x)
    assert torch.equal(first, model.a(x)) and torch.equal(second, first.tanh())
    assert not first.requires_grad and not model.training
    (only,) = demos.ChildrenExtractor(model, ["b"])(x)
    assert torch.equal(only, second)


# ---------------------------------------------------------------- low-rank adaptation


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 8),
    st.sampled_from([None, 0.5, 16.0]),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_lora_starts_at_the_base_and_merges(inputs, outputs, rank, alpha, bias, dtype):
    base = nn.Linear(inputs, outputs, bias=bias, dtype=dtype)
    before = fine_tuning.keep(base)
    layer = fine_tuning.LoRALinear(base, rank, alpha)
    x = torch.randn(2, 3, inputs, dtype=dtype)
    assert torch.equal(layer(x), base(x)) and layer(x).dtype == dtype
    assert [n for n, p in layer.named_parameters() if p.requires_grad] == ["down", "up"]
    layer(x).sum().backward()
    assert layer.up.grad is not None and not layer.down.grad.any()  # up is zero at the start
    with torch.no_grad():
        layer.up.normal_()
    delta = (alpha or rank) / rank * layer.up.double() @ layer.down.double()
    merged = layer.merge()
    assert type(merged) is nn.Linear and merged.weight.dtype == dtype
    loose = {"atol": 0.1, "rtol": 0.1} if dtype == torch.bfloat16 else {"atol": 1e-5}
    assert torch.allclose(merged.weight.double(), base.weight.double() + delta, **loose)
    if dtype != torch.bfloat16:
        assert torch.allclose(layer(x), merged(x), atol=1e-4)
    assert all(torch.equal(v, before[k]) for k, v in base.state_dict().items())  # unchanged


def test_attention_and_encoder_layers_use_the_adapted_weight():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    plain = copy.deepcopy(encoder)
    encoder.linear1 = fine_tuning.LoRALinear(encoder.linear1, 2)
    encoder.self_attn.out_proj = fine_tuning.LoRALinear(encoder.self_attn.out_proj, 2)
    for layer in (encoder.linear1, encoder.self_attn.out_proj):
        nn.init.normal_(layer.up)
    plain.linear1 = encoder.linear1.merge()
    with torch.no_grad():
        plain.self_attn.out_proj.weight.copy_(encoder.self_attn.out_proj.weight)
    x = torch.randn(2, 3, 8)
    assert torch.allclose(encoder(x), plain(x), atol=1e-5)
    encoder(x).sum().backward()
    assert encoder.self_attn.out_proj.up.grad is not None
    with torch.no_grad():
        assert torch.allclose(encoder.eval()(x), plain.eval()(x), atol=1e-5)


def test_lora_rejects_other_layers_and_invalid_ranks():
    with pytest.raises(TypeError, match=r"expected an nn\.Linear, got Conv2d"):
        fine_tuning.LoRALinear(nn.Conv2d(1, 1, 1), 2)
    with pytest.raises(ValueError, match="rank of at least 1, got 0"):
        fine_tuning.LoRALinear(nn.Linear(2, 2), 0)
    for rank in (2.0, True):
        with pytest.raises(ValueError, match=f"integer rank of at least 1, got {rank}"):
            fine_tuning.LoRALinear(nn.Linear(2, 2), rank)
    assert fine_tuning.LoRALinear(nn.Linear(2, 2), np.int64(2)).up.shape == (2, 2)


# ---------------------------------------------------------------- learning rate of the backbone


def test_body_rate_zero_keeps_the_old_digits():
    x, y = demos.unseen()
    before = right(demos.pretrained(), x, y)
    found = demos.body_rate(0.0, seeds=1)
    assert found["old"] == before and found["new"] > 0.5
    assert found == demos.body_rate(0.0, seeds=1)


def test_diverging_body_rate_is_measured():
    found = demos.body_rate(10.0, seeds=1)
    assert 0 <= found["new"] < 0.5 and 0 <= found["old"] < 0.5


@pytest.mark.parametrize(("rate", "seeds"), [(-0.1, 1), (0.1, 0)])
def test_body_rate_rejects_negative_rates_and_zero_seeds(rate, seeds):
    with pytest.raises(ValueError, match="a rate of 0 or more and a seed"):
        demos.body_rate(rate, seeds)


def test_draw_body_rates_draws_the_numbers_in_order():
    found = {0.1: {"new": 0.2, "old": 0.3}, 0.01: {"new": 0.8, "old": 0.9}}
    figure = demos.draw_body_rates(found)
    new, old = figure.axes[0].lines[:2]
    assert list(new.get_xdata()) == [0.01, 0.1]
    assert list(new.get_ydata()) == [0.8, 0.2] and list(old.get_ydata()) == [0.9, 0.3]
    for bad in ({}, {0.1: found[0.1]}, {0.0: found[0.1], 0.1: found[0.1]}):
        with pytest.raises(ValueError, match="two rates above 0"):
            demos.draw_body_rates(bad)


# ---------------------------------------------------------------- exercises


def by_name(model, head, lr):
    parts = {True: [], False: []}
    for name, p in model.named_parameters():
        if p.requires_grad:
            parts[name.startswith(f"{head}.")].append(p)
    return [{"params": parts[False], "lr": lr / 10}, {"params": parts[True], "lr": lr}]


def by_identity(model, head, lr):
    top = list(model.get_submodule(head).parameters())
    ids = set(map(id, top))
    rest = [p for p in model.parameters() if id(p) not in ids and p.requires_grad]
    top = [p for p in top if p.requires_grad]
    return [{"params": top, "lr": lr}, {"params": rest, "lr": lr / 10}]


def starter_groups(model, head, lr):
    body = (p for name, p in model.named_parameters() if not name.startswith(head))
    return [
        {"params": body, "lr": lr / 10},
        {"params": model.get_submodule(head).parameters(), "lr": lr},
    ]


def listed(model, head, lr):
    return [{**g, "params": list(g["params"])} for g in starter_groups(model, head, lr)]


def without_dot(model, head, lr):
    parts = {True: [], False: []}
    for name, p in model.named_parameters():
        if p.requires_grad:
            parts[name.startswith(head)].append(p)
    return [{"params": parts[False], "lr": lr / 10}, {"params": parts[True], "lr": lr}]


def with_frozen(model, head, lr):
    body = [p for name, p in model.named_parameters() if not name.startswith(f"{head}.")]
    return [{"params": body, "lr": lr / 10}, by_name(model, head, lr)[1]]


def swapped(model, head, lr):
    body, top = by_name(model, head, lr)
    return [{**body, "lr": lr}, {**top, "lr": lr / 10}]


def head_without_bias(model, head, lr):
    body, top = by_name(model, head, lr)
    return [body, {**top, "params": top["params"][:1]}]


def default_rate(model, head, lr):
    body, top = by_name(model, head, lr)
    return [body, {"params": top["params"]}]


def overlapping(model, head, lr):
    everything = [p for p in model.parameters() if p.requires_grad]
    return [{"params": everything, "lr": lr / 10}, by_name(model, head, lr)[1]]


def unfreezing(model, head, lr):
    model.requires_grad_(True)
    return by_name(model, head, lr)


def by_children(model, head, lr):
    parts = {True: [], False: []}
    for name, child in model.named_children():
        parts[name == head] += [p for p in child.parameters() if p.requires_grad]
    return [{"params": parts[False], "lr": lr / 10}, {"params": parts[True], "lr": lr}]


def head_and_other_names(model, head, lr):
    rest = [p for n, p in model.named_parameters() if not n.startswith(f"{head}.")]
    parts = rest, model.get_submodule(head).parameters()
    return [
        {"params": [p for p in part if p.requires_grad], "lr": rate}
        for part, rate in zip(parts, (lr / 10, lr), strict=True)
    ]


def by_membership(model, head, lr):
    top = set(model.get_submodule(head).parameters())
    rest = [p for p in model.parameters() if p.requires_grad and p not in top]
    return [
        {"params": rest, "lr": lr / 10},
        {"params": [p for p in top if p.requires_grad], "lr": lr},
    ]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (by_name, None),
        (by_identity, None),
        (by_membership, None),
        (head_and_other_names, "is in the groups twice"),
        (unfreezing, "requires_grad has changed"),
        (lambda m, h, lr: by_name(m, "head", lr), "1.weight has the wrong learning rate"),
        (starter_groups, "it is an iterator"),
        (listed, "stem.weight is frozen"),
        (without_dot, "head_norm.weight has the wrong learning rate: expected lr / 10"),
        (with_frozen, "stem.weight is frozen"),
        (swapped, "wrong learning rate"),
        (head_without_bias, "head.bias is in no group"),
        (by_children, "token is in no group"),
        (default_rate, "keys 'params' and 'lr'"),
        (overlapping, "your code raised ValueError: some parameters appear in more than one"),
        (lambda m, h, lr: by_name(m, h, lr)[:1], "a list of two groups"),
        (lambda m, h, lr: [g["params"] for g in by_name(m, h, lr)], "keys 'params' and 'lr'"),
        (lambda m, h, lr: None, "a list of two groups"),
    ],
)
def test_check_groups_accepts_right_and_rejects_wrong_answers(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        expect(exercises.check_groups(answer), says)


def own_mode(model):
    model.train()
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and not any(p.requires_grad for p in parameters):
            module.eval()


def recursive(model):
    parameters = list(model.parameters())
    if parameters and not any(p.requires_grad for p in parameters):
        model.eval()
        return
    model.training = True
    for child in model.children():
        recursive(child)


def starter_mode(model):
    model.train()
    for child in model.children():
        if not any(p.requires_grad for p in child.parameters()):
            child.eval()


def dropout_off(model):
    model.train()
    for module in model.modules():
        if not any(p.requires_grad for p in module.parameters()):
            module.eval()


def norms_only(model):
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d) and not module.weight.requires_grad:
            module.eval()


def all_norms(model):
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()


def any_frozen(model):
    model.train()
    for module in model.modules():
        if not all(p.requires_grad for p in module.parameters()):
            module.eval()


def never_back(model):
    own_mode(model)
    for module in model.modules():
        if not module.training:
            module.train = lambda mode=True, module=module: module


def two_levels(model):
    model.train()
    for child in model.children():
        for module in [child, *child.children()]:
            if all(not p.requires_grad for p in module.parameters()) and [*module.parameters()]:
                module.eval()


def cleared(model):
    own_mode(model)
    model.zero_grad()


def refreeze(model):
    own_mode(model)
    model[1].requires_grad_(False)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (own_mode, None),
        (recursive, None),
        (starter_mode, "a frozen BatchNorm layer still updates"),
        (lambda m: m.train(), "a frozen BatchNorm layer still updates"),
        (lambda m: m.eval(), "a trained BatchNorm layer does not update"),
        (all_norms, "a trained BatchNorm layer does not update"),
        (two_levels, "a frozen BatchNorm layer still updates"),
        (any_frozen, "a trained BatchNorm layer does not update"),
        (dropout_off, "the dropout outside of the frozen parts is off"),
        (norms_only, "the dropout inside a frozen part is still on"),
        (never_back, "an attribute is left on"),
        (refreeze, "requires_grad of"),
        (cleared, "gradient"),
    ],
)
def test_check_train_mode_accepts_right_and_rejects_wrong_answers(answer, says):
    for seed in range(10):
        torch.manual_seed(seed)
        expect(exercises.check_train_mode(answer), says)


def capture_with(keep, remove=True, check=True, grad=False, first=False, mode=evaluating):
    """Return a capture that stores `keep(output)`, with the requested faults."""

    def capture(model, names, x):
        kept, hooks = {}, []
        if not check:
            names = [n for n in names if n in dict(model.named_modules())]
        try:
            for name in names:
                hook = model.get_submodule(name).register_forward_hook(
                    lambda m, i, o, name=name: kept.update({name: keep(o)})
                )
                hooks.append(hook)
            with mode(model), torch.set_grad_enabled(grad):
                model(x)
        except Exception:
            if first:
                raise
            for hook in hooks:
                hook.remove()
            raise
        if remove:
            for hook in hooks:
                hook.remove()
        return kept

    return capture


@contextlib.contextmanager
def as_it_is(model):
    with torch.no_grad():
        yield


@contextlib.contextmanager
def eval_for_good(model):
    model.eval()
    yield


@contextlib.contextmanager
def eval_then_train(model):
    was = model.training
    model.eval()
    yield
    model.train(was)


def by_extractor(model, names, x):
    kept = {}
    modules = {name: model.get_submodule(name) for name in names}

    def copied(o):
        return o.detach().clone() if isinstance(o, torch.Tensor) else [copied(part) for part in o]

    def hook(module, args, output):
        kept.update({n: copied(output) for n, m in modules.items() if m is module})

    handles = [m.register_forward_hook(hook) for m in modules.values()]
    try:
        with evaluating(model):
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return kept


def by_named_modules(model, names, x):
    modules = dict(model.named_modules())  # the second name of a shared module is missing
    outputs = capture_with(copy.deepcopy)(model, [n for n in names if n in modules], x)
    return {name: outputs[name] for name in names}


def one_level(o):
    if isinstance(o, tuple):
        return tuple(t.clone() if isinstance(t, torch.Tensor) else t for t in o)
    return o.clone()


def with_outputs(outputs):
    def answer(model, names, x):
        return {n: outputs(o) for n, o in capture_with(copy.deepcopy)(model, names, x).items()}

    return answer


def on_a_copy(model, names, x):
    return capture_with(copy.deepcopy)(copy.deepcopy(model), names, x)


def with_inplace_off(model, names, x):
    for module in model.modules():
        if hasattr(module, "inplace"):
            module.inplace = False
    return capture_with(copy.deepcopy)(model, names, x)


def clearing_all_hooks(model, names, x):
    found = on_a_copy(model, names, x)
    for module in model.modules():
        module._forward_hooks.clear()
    return found


def starter_capture(model, names, x):
    kept = {}
    for name in names:
        model.get_submodule(name).register_forward_hook(lambda m, i, o: kept.update({name: o}))  # noqa: B023
    model(x)
    return kept


def test_hooks_are_stored_in_the_private_attributes_of_modules():
    model = nn.Sequential(nn.Linear(1, 1))
    assert exercises._hooks(model) == 0
    model[0].register_forward_hook(lambda *_: None)
    model.register_forward_pre_hook(lambda *_: None)
    assert exercises._hooks(model) == 2, (
        "PyTorch no longer keeps hooks in _forward_hooks and _forward_pre_hooks: "
        "check_capture cannot detect a hook that an answer leaves behind"
    )


def then(spoil):
    def answer(model, names, x):
        found = capture_with(copy.deepcopy)(model, names, x)
        spoil(model)
        return found

    return answer


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (capture_with(copy.deepcopy), None),
        (by_extractor, None),
        (on_a_copy, None),
        (by_named_modules, "your code raised KeyError"),
        (capture_with(one_level), "in a tuple, a tensor was overwritten"),
        (with_inplace_off, "`inplace` of a layer has changed"),
        (clearing_all_hooks, "not those of others"),
        (capture_with(torch.clone), "your code raised TypeError"),
        (with_outputs(lambda o: o[0] if isinstance(o, tuple) else o), "keep both"),
        (capture_with(copy.deepcopy, mode=as_it_is), "statistics of a model in training mode"),
        (capture_with(copy.deepcopy, mode=eval_for_good), "the mode of a module has changed"),
        (capture_with(copy.deepcopy, mode=eval_then_train), "the mode of a module has changed"),
        (starter_capture, "expected one key per name, got ['1']"),
        (capture_with(lambda o: o), "overwritten by the in-place ReLU"),
        (capture_with(lambda o: o.detach()), "overwritten by the in-place ReLU"),
        (capture_with(torch.clone, grad=True), "'0.0' still has a graph"),
        (capture_with(copy.deepcopy, remove=False), "a hook is still registered"),
        (capture_with(copy.deepcopy, first=True), "after the error for a missing name"),
        (capture_with(copy.deepcopy, check=False), "must raise an error"),
        (capture_with(lambda o: o.sum(0)), "expected shape"),
        (capture_with(lambda o: o.tolist()), "is not a tensor"),
        (lambda m, n, x: [], "expected a dict, got list"),
        (then(lambda model: model.requires_grad_(True)), "requires_grad of"),
        (then(lambda model: torch.rand(1)), "random numbers were drawn"),
    ],
)
def test_check_capture_accepts_right_and_rejects_wrong_answers(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        expect(exercises.check_capture(answer), says)


def test_check_groups_rejects_frozen_parameters_of_the_head():
    def groups(model, head, lr):
        body = [
            p
            for n, p in model.named_parameters()
            if p.requires_grad and not n.startswith(f"{head}.")
        ]
        kept = list(model.get_submodule(head).parameters())  # frozen or not
        return [{"params": body, "lr": lr / 10}, {"params": kept, "lr": lr}]

    found = exercises.check_groups(groups)
    assert not found.passed and "head.scale is frozen" in found.message


def test_check_capture_rejects_a_mode_lost_at_a_missing_name():
    def capture(model, names, x):
        kept, hooks = {}, []
        modes = [(m, m.training) for m in model.modules()]
        model.eval()  # before the names are looked up; restored only at the end
        try:
            for name in names:
                hooks.append(
                    model.get_submodule(name).register_forward_hook(
                        lambda m, i, o, name=name: kept.update({name: copy.deepcopy(o)})
                    )
                )
            with torch.no_grad():
                model(x)
        finally:
            for hook in hooks:
                hook.remove()
        for module, mode in modes:
            module.training = mode
        return kept

    found = exercises.check_capture(capture)
    assert not found.passed and "for a missing name, a mode has changed" in found.message
