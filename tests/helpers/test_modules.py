"""Test the helpers of `modules` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune
from verdicts import expect

from helpers import modules
from helpers.exercises import modules as exercises

# ---------------------------------------------------------------- inventory


class Kinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.parameter = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.tensor([1, 2]), requires_grad=False)
        self.layer = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2, affine=False)
        self.relu = nn.ReLU()
        self.buffer = nn.Buffer(torch.tensor([1, 2]))
        self.scratch = nn.Buffer(torch.ones(2), persistent=False)
        self.none = None
        self.width = 3
        self.plain = torch.ones(2)
        self.history = torch.ones(2, requires_grad=True) * 2
        self.in_list = [nn.Linear(2, 2)]
        self.in_dict = {"deep": (torch.ones(2),)}
        self.module_list = nn.ModuleList([nn.Linear(2, 2)])
        self.empty = []
        self.register_buffer("absent", None)


def test_inventory_reports_what_each_kind_supports():
    all_three = "moves, saves, trains"
    assert modules.inventory(Kinds()) == {
        "parameter": all_three,
        "frozen": "moves, saves",
        "layer": all_three,
        "norm": "moves, saves",
        "buffer": "moves, saves",
        "scratch": "moves",
        "plain": "lost",
        "history": "lost",
        "in_list": "lost",
        "in_dict": "lost",
        "module_list": all_three,
    }


def test_inventory_supports_compiled_modules():
    module = nn.Linear(2, 2)
    words = {"weight": "moves, saves, trains", "bias": "moves, saves, trains"}
    module.compile(backend="eager")
    assert modules.inventory(module) == words
    wrapped = torch.compile(nn.Linear(2, 2), backend="eager")
    assert modules.inventory(wrapped) == words
    assert modules.inventory(nn.Sequential(wrapped)) == {"0": "moves, saves, trains"}


def test_inventory_preserves_the_module():
    module = Kinds()
    before = {name: (id(p), p.device.type) for name, p in module.state_dict(keep_vars=True).items()}
    modules.inventory(module)
    after = {name: (id(p), p.device.type) for name, p in module.state_dict(keep_vars=True).items()}
    assert before == after


def test_inventory_distinguishes_names_with_a_common_prefix():
    class Names(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.ones(1)
            self.weight = nn.Parameter(torch.ones(1))

    assert modules.inventory(Names()) == {"w": "lost", "weight": "moves, saves, trains"}


class Project(nn.Module):
    def __init__(self):
        super().__init__()
        self.basis, self._cache, self.layer = torch.eye(2), [torch.ones(1)], nn.Linear(2, 2)


def test_inventory_finds_nested_and_private_lost_tensors():
    lost = {"basis": "lost", "_cache": "lost"}
    assert modules.inventory(Project()) == {"layer": "moves, saves, trains", **lost}
    nested = modules.inventory(nn.Sequential(nn.Sequential(Project())))
    assert nested == {"0": "moves, saves, trains", "0.0.basis": "lost", "0.0._cache": "lost"}


def test_inventory_supports_pruned_layers():
    net = nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2))
    prune.l1_unstructured(net[0], "weight", amount=0.5)
    words = "moves, saves, trains"
    assert modules.inventory(net) == {"0": words, "1": words, "0.weight": "lost"}
    assert net[0](torch.ones(1, 2)).shape == (1, 2)


def test_inventory_treats_an_alias_as_the_parameter():
    class Alias(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.tied = [self.layer.weight]

    words = "moves, saves, trains"
    assert modules.inventory(Alias()) == {"layer": words, "tied": words}


def test_inventory_of_relu_is_empty_and_invalid_modules_raise():
    assert modules.inventory(nn.ReLU()) == {}
    with pytest.raises(TypeError, match=r"module must be an nn\.Module, got list"):
        modules.inventory([nn.Linear(1, 1)])
    with pytest.raises(ValueError, match="meta device"):
        modules.inventory(nn.Linear(1, 1, device="meta"))


# ---------------------------------------------------------------- summary


def test_summary_counts_match_torch():
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, shared, nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[3].requires_grad_(False)
    text = modules.summary(model, torch.ones(2, 4))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    lines = text.splitlines()
    assert lines[-3:] == [
        f"Total params: {trained + 10}",
        f"Trainable params: {trained}",
        "Non-trainable params: 10",
    ]
    assert "(recursive)" in text and "[2, 2]" in text


@pytest.mark.parametrize("training", [True, False])
def test_summary_restores_modes_statistics_rng_and_hooks(training):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).train(training)
    model[1].train(not training)
    mean, state = model[1].running_mean.clone(), torch.get_rng_state()
    modules.summary(model, torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))
    assert [m.training for m in model.modules()] == [training, training, not training, training]
    assert torch.equal(model[1].running_mean, mean)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_summary_accepts_several_inputs_and_restores_modes_on_error():
    model = nn.Bilinear(2, 3, 4)
    assert "[5, 4]" in modules.summary(model, torch.ones(5, 2), torch.ones(5, 3))
    broken = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    broken[1].eval()
    with pytest.raises(RuntimeError, match="Failed to run torchinfo"):
        modules.summary(broken, torch.ones(1, 3))
    assert [m.training for m in broken.modules()] == [True, True, False]
    with pytest.raises(ValueError, match="inputs of forward"):
        modules.summary(model)


# ---------------------------------------------------------------- exercises


def count(model):
    return (
        sum(p.numel() for p in model.parameters() if p.requires_grad),
        sum(b.numel() for b in model.buffers()),
    )


def count_by_identity(model):
    named = dict(model.named_parameters(remove_duplicate=False)).values()
    unique = {id(p): p.numel() for p in named if p.requires_grad}
    return sum(unique.values()), sum(b.numel() for _, b in model.named_buffers())


def needs(p):
    return p is not None and p.requires_grad


def total(tensors):
    return sum(t.numel() for t in tensors)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (count, None),
        (count_by_identity, None),
        (lambda m: (total(m.state_dict().values()), 0), "are only scale and shift"),
        (lambda m: (total(m.parameters()), total(m.buffers())), "a frozen parameter is counted"),
        (lambda m: (count(m)[0], 0), "mean, variance and a counter"),
        (lambda m: (len(list(m.parameters())), 0), "a * b + b elements"),
        (
            lambda m: (
                total(p for c in m.modules() for p in c.parameters() if p.requires_grad),
                total(m.buffers()),
            ),
            "a frozen parameter is counted",  # Linear(3, 2) is counted with its parent and alone
        ),
        (
            lambda m: (
                total(p for _, p in m.named_parameters(remove_duplicate=False) if p.requires_grad),
                total(m.buffers()),
            ),
            "used twice is counted twice",
        ),
        (
            lambda m: (
                total(p for c in m.modules() for p in c._parameters.values() if needs(p)),
                total(m.buffers()),
            ),
            "a weight that two layers share is counted twice",
        ),
        (
            lambda m: (
                total({p for c in [m, *m.children()] for p in c._parameters.values() if needs(p)}),
                total(m.buffers()),
            ),
            "a layer inside of a nested module is not counted",
        ),
        (
            lambda m: (count(m)[0], total(b for _, b in m.named_buffers(remove_duplicate=False))),
            "used twice count once",
        ),
        (lambda m: list(count(m)), None),
        (
            lambda m: (
                count(m)[0],
                total(t for n, t in m.state_dict().items() if n not in dict(m.named_parameters())),
            ),
            "a non-persistent buffer is a buffer, too",
        ),
        (lambda m: count(m)[0], "expected two ints, got"),
        (lambda m: None, "expected two ints, got None"),
        (lambda m: m.size(), "your code raised AttributeError"),
    ],
)
def test_check_count_returns_the_expected_verdict(answer, says):
    expect(exercises.check_count(answer), says)


def standardized(
    mean=nn.Buffer,
    container=nn.ModuleList,
    drop=lambda self, x: F.dropout(x, 0.5, self.training),
    act=F.relu,
):
    class Standardized(nn.Module):
        def __init__(self, values, widths):
            super().__init__()
            self.mean = mean(values)
            self.layers = container(nn.Linear(a, b) for a, b in pairwise(widths))

        def forward(self, x):
            x = x - self.mean
            for layer in self.layers:
                x = drop(self, act(layer(x)))
            return x

    return Standardized


def one_per_shape(layers):
    shared = {}
    return nn.ModuleList(shared.setdefault(layer.weight.shape, layer) for layer in layers)


def undoubled(self, x):
    return x * (torch.rand_like(x) < 0.5) if self.training else x


class AsSequential(nn.Sequential):
    def __init__(self, mean, widths):
        steps = [(nn.Linear(a, b), nn.ReLU(), nn.Dropout(0.5)) for a, b in pairwise(widths)]
        super().__init__(*(layer for step in steps for layer in step))
        self.register_buffer("mean", mean)

    def forward(self, x):
        return super().forward(x - self.mean)

    def __iter__(self):
        return (m for name, m in self._modules.items() if name != "mean")


class WithoutGradient(AsSequential):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class LastLayerOnly(AsSequential):
    def forward(self, x):
        layers = list(self)
        return nn.Sequential(*layers[-3:])(nn.Sequential(*layers[:-3])(x - self.mean).detach())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (standardized(), None),
        (AsSequential, None),
        (standardized(container=one_per_shape), "with equal widths"),
        (WithoutGradient, "no gradient flows through forward"),
        (LastLayerOnly, "0.weight gets no gradient"),
        (standardized(container=list, mean=lambda v: v), "expected 4 parameters"),
        (standardized(mean=lambda v: v), "the mean is not saved"),
        (standardized(mean=lambda v: nn.Buffer(v, persistent=False)), "the mean is not saved"),
        (standardized(mean=lambda v: nn.Parameter(v, requires_grad=False)), None),
        (standardized(mean=nn.Parameter), "the mean is a parameter"),
        (
            standardized(drop=lambda self, x: F.dropout(x, 0.5)),
            "in eval mode dropout is still active",
        ),
        (
            standardized(drop=lambda self, x: nn.Dropout(0.5)(x)),
            "in eval mode dropout is still active",
        ),
        (standardized(drop=lambda self, x: x), "in training mode dropout is not active"),
        (standardized(mean=lambda v: nn.Buffer(v[None])), None),
        (
            standardized(drop=lambda self, x: F.dropout(x, 0.1, self.training)),
            "of the values are dropped, expected 50%",
        ),
        (standardized(drop=undoubled), "the values that are kept must be doubled"),
        (standardized(act=lambda x: x.relu().unsqueeze(0)), "expected shape"),
        (standardized(act=torch.tanh), "in eval mode the values are not right"),
        (lambda mean, widths: standardized()(mean, [*mean.shape, 8, 8]), "of the shapes"),
        (lambda mean, widths: None, "expected a module, got None"),
    ],
)
def test_check_standardized_returns_the_expected_verdict(answer, says):
    expect(exercises.check_standardized(answer), says)


class SavedButNotMoved(standardized(mean=lambda v: v)):
    def __init__(self, values, widths):
        super().__init__(values, widths)
        self.copy = nn.Buffer(values.clone())


def test_check_standardized_reports_a_mean_that_is_not_moved():
    expect(exercises.check_standardized(SavedButNotMoved), "is not moved with the model")


class SavedButNotUsed(standardized(mean=lambda v: nn.Buffer(v, persistent=False))):
    def __init__(self, values, widths):
        super().__init__(values, widths)
        self.copy = nn.Buffer(values.clone())


def test_check_standardized_reports_a_mean_that_is_not_loaded():
    expect(exercises.check_standardized(SavedButNotUsed), "after load_state_dict, forward still")


def test_torchinfo_moves_models_to_gpu_only_without_input_data(monkeypatch):
    from torchinfo.torchinfo import get_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = nn.Linear(1, 1)  # on the CPU
    assert get_device(model, None) == torch.device("cuda")  # summary would move the model there
    assert get_device(model, [torch.ones(1, 1)]) is None  # with input_data it moves nothing


def test_torchinfo_counts_shared_weights_twice():
    import torchinfo

    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    tied = nn.Sequential(embedding, head)
    data = torch.zeros(1, 2, dtype=torch.long)
    assert torchinfo.summary(tied, input_data=data, verbose=0).total_params == 80
    assert exercises.check_count(count).passed and count(tied) == (40, 0)


# ---------------------------------------------------------------- sentences of the chapter


def test_parameter_is_registered_unless_arithmetic_replaces_it():
    class Holds(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value

    def made():
        return nn.Parameter(torch.ones(3))

    for value in (made().requires_grad_(False), nn.init.zeros_(made())):
        assert len(list(Holds(value).parameters())) == 1  # Parameter() need not be outermost
    for value in (made() * 2, made().double(), made().view(1, 3), made().detach()):
        assert not list(Holds(value).parameters())


def test_functional_call_keeps_parameters_and_updates_buffers():
    norm = nn.BatchNorm1d(2)
    torch.func.functional_call(norm, {"weight": torch.zeros(2)}, torch.randn(8, 2) + 3)
    assert norm.weight.tolist() == [1, 1] and (norm.running_mean != 0).all()


def test_forward_skips_model_hooks_and_runs_layer_hooks():
    model, ran = nn.Sequential(nn.Linear(2, 2)), []
    model.register_forward_hook(lambda *_: ran.append("model"))
    model[0].register_forward_hook(lambda *_: ran.append("layer"))
    model.forward(torch.ones(1, 2))
    assert ran == ["layer"]
    model(torch.ones(1, 2))
    assert ran == ["layer", "layer", "model"]


def test_padding_changes_self_attention_only_at_padding():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    keep = torch.tensor([[True, True, True, False]])
    x = torch.randn(1, 4, 8)
    loud = x.masked_fill(~keep[..., None], 100)
    a, b = (attention(t, t, t, key_padding_mask=~keep)[0] for t in (x, loud))
    assert torch.allclose(a[keep], b[keep], atol=1e-5)
    assert not torch.allclose(a[~keep], b[~keep], atol=1e-5)


def test_flatten_class_and_function_have_different_defaults():
    x = torch.randn(2, 3, 4)
    assert nn.Flatten()(x).shape == (2, 12) and torch.flatten(x).shape == (24,)
    assert torch.equal(nn.Flatten(0)(x), torch.flatten(x))


@pytest.mark.parametrize(
    ("where", "says"), [("last", "only the last layer"), ("first", "the last")]
)
def test_check_standardized_requires_dropout_after_every_layer(where, says):
    class Answer(nn.Module):
        def __init__(self, mean, widths):
            super().__init__()
            self.mean = nn.Buffer(mean)
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

        def forward(self, x):
            x = x - self.mean
            for i, layer in enumerate(self.layers):
                x = layer(x).relu()
                if where == "first" and i == 0:
                    x = F.dropout(x, 0.5, self.training)
            return F.dropout(x, 0.5, self.training) if where == "last" else x

    for seed in range(5):
        torch.manual_seed(seed)
        expect(exercises.check_standardized(Answer), says)


def test_inventory_supports_tied_weights_in_a_submodule():
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert modules.inventory(nn.Sequential(tied)) == {"0": "moves, saves, trains"}


def test_inventory_accepts_attributes_that_cannot_be_copied():
    class Logged(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.plain = nn.Linear(2, 2), torch.ones(2)
            self.lock, self.numbers = threading.Lock(), (n for n in range(3))
            self.layer.lock = threading.Lock()

    assert modules.inventory(Logged()) == {"layer": "moves, saves, trains", "plain": "lost"}
