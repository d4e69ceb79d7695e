"""Test the four steps of DataParallel against PyTorch, its stand-in, and the checkers."""

import copy
import importlib
from collections import OrderedDict, defaultdict
from typing import NamedTuple
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.nn.parallel import scatter_gather
from verdicts import expect

from helpers import data_parallel
from helpers.demos import data_parallel as demos
from helpers.exercises import data_parallel as exercises

sizes = st.integers(1, 17)
counts = st.integers(1, 7)


class ScatterOnCPU:
    """Replace torch's Scatter, which needs GPUs; torch's own recursion still calls it."""

    @staticmethod
    def apply(target_gpus, chunk_sizes, dim, tensor):
        return tensor.chunk(len(target_gpus), dim)


class GatherOnCPU:
    @staticmethod
    def apply(target_device, dim, *tensors):
        if all(t.dim() == 0 for t in tensors):
            return torch.cat([t.view(1) for t in tensors])
        return torch.cat(tensors, dim)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if hasattr(a, "_fields") and type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


class Pair(NamedTuple):
    x: object
    y: object


def structures(n):
    return st.recursive(
        st.sampled_from([torch.arange(n * 2.0).view(n, 2), torch.arange(n), "word", 3, None]),
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3)
            | st.tuples(inner, inner)
            | st.builds(Pair, inner, inner)
            | st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(OrderedDict)
            | st.dictionaries(st.sampled_from("abc"), inner, min_size=1)
        ),
        max_leaves=5,
    )


@given(n=sizes, replicas=counts, data=st.data())
@settings(deadline=None)
def test_scatter_matches_torch(n, replicas, data):
    inputs = data.draw(structures(n))
    with mock.patch.object(scatter_gather, "Scatter", ScatterOnCPU):
        expected = scatter_gather.scatter(inputs, list(range(replicas)))
    assert same(list(expected), data_parallel.scatter(inputs, replicas))


@given(n=sizes, replicas=counts, data=st.data())
@settings(deadline=None)
def test_gather_matches_torch(n, replicas, data):
    outputs = data_parallel.scatter(
        data.draw(
            st.sampled_from(
                [
                    torch.randn(n, 2),
                    (torch.randn(n), [torch.randn(n, 1)]),
                    {"a": torch.randn(n)},
                    Pair(torch.randn(n), OrderedDict(a=torch.randn(n))),
                ]
            )
        ),
        replicas,
    )
    with mock.patch.object(scatter_gather, "Gather", GatherOnCPU):
        expected = scatter_gather.gather(outputs, 0)
    assert same(expected, data_parallel.gather(outputs))


def test_stand_in_accepts_a_named_tuple():
    class Swap(nn.Module):
        def forward(self, pair):
            return Pair(pair.y, pair.x)

    x, y = torch.arange(5), torch.arange(10.0).view(5, 2)
    out = data_parallel.StandIn(Swap(), 2)(Pair(x, y))
    assert same(out, Pair(y, x))


def test_gather_accepts_scalars_and_none():
    assert data_parallel.gather([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert data_parallel.gather([None, None]) is None
    with pytest.raises(ValueError, match="at least one output"):
        data_parallel.gather([])


@pytest.mark.parametrize(
    "function", [data_parallel.scatter, data_parallel.replicate, data_parallel.StandIn]
)
def test_zero_replicas_raises(function):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        function(nn.Linear(1, 1), 0)


@pytest.mark.parametrize("replicas", ["2", 2.0, True, None])
@pytest.mark.parametrize(
    "function", [data_parallel.scatter, data_parallel.replicate, data_parallel.StandIn]
)
def test_replicas_must_be_an_integer(function, replicas):
    with pytest.raises(TypeError, match=f"replicas must be an integer, got {replicas!r}"):
        function(nn.Linear(1, 1), replicas)


@pytest.mark.parametrize("module", [3, nn.Linear, len, None])
@pytest.mark.parametrize("function", [data_parallel.replicate, data_parallel.StandIn])
def test_module_must_be_a_module(function, module):
    with pytest.raises(TypeError, match="module must be an nn.Module, got"):
        function(module, 2)


@given(n=sizes, replicas=counts)
@settings(deadline=None, max_examples=30)
def test_replica_gradients_add_up_to_the_full_gradient(n, replicas):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x, y = torch.randn(n, 3), torch.randn(n, 1)
    parameters = list(model.parameters())
    whole = torch.autograd.grad(F.mse_loss(model(x), y), parameters)
    out = data_parallel.StandIn(model, replicas)(x)
    split = torch.autograd.grad(F.mse_loss(out, y), parameters)
    for a, b in zip(whole, split, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_private_copy_of_a_module_matches_expectations():
    """`nn.Module._replicate_for_data_parallel` copies the dictionaries, but no parameters."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    twin = data_parallel._shallow_copy(model[1])
    assert type(twin) is nn.BatchNorm1d and twin is not model[1] and not twin.training
    assert twin._parameters == {} and twin._buffers == model[1]._buffers
    assert twin._buffers is not model[1]._buffers
    whole = data_parallel._shallow_copy(model)
    assert whole._modules == model._modules and whole._modules is not model._modules


def test_only_the_first_replica_shares_memory():
    model = nn.BatchNorm1d(2)
    first, second = data_parallel.replicate(model, 2)
    for name in ("weight", "bias", "running_mean"):
        original = getattr(model, name)
        assert getattr(first, name).data_ptr() == original.data_ptr()
        assert getattr(second, name).data_ptr() != original.data_ptr()
        assert torch.equal(getattr(second, name), original)
    assert not list(first.parameters()) and len(list(model.parameters())) == 2
    second.running_mean.add_(1)
    assert model.running_mean.tolist() == [0.0, 0.0]
    first.running_mean.add_(1)
    assert model.running_mean.tolist() == [1.0, 1.0]


def test_replicate_keeps_tied_weights_and_missing_biases():
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    replica = data_parallel.replicate(model, 2)[1]
    assert replica["a"].weight is replica["b"].weight
    assert replica["a"].bias is None and replica["a"] is not model["a"]


def test_replicate_supports_recurrent_modules():
    model, x = nn.LSTM(3, 4, batch_first=True), torch.randn(5, 2, 3)
    out = torch.cat([r(x)[0] for r in data_parallel.replicate(model, 2)])
    torch.testing.assert_close(out, torch.cat([model(x)[0]] * 2))


def test_stand_in_uses_the_forward_of_data_parallel():
    assert data_parallel.StandIn.forward is nn.DataParallel.forward
    model = nn.Bilinear(2, 2, 1)
    x = torch.randn(5, 2)
    parallel = data_parallel.StandIn(model, 2)
    torch.testing.assert_close(parallel(x, input2=x), model(x, x))
    torch.testing.assert_close(parallel.module.weight, model.weight)
    assert list(parallel.state_dict()) == ["module.weight", "module.bias"]


def test_stand_in_pairs_arguments_and_keywords_as_torch():
    class Scaled(nn.Module):
        def forward(self, x=None, scale=None):
            return x if scale is None else scale if x is None else x * scale

    parallel = data_parallel.StandIn(Scaled(), replicas=2)
    x, scale = torch.randn(4, 3), torch.randn(4, 1)
    assert torch.equal(parallel(x, scale=scale), x * scale)
    assert torch.equal(parallel(x=x), x) and torch.equal(parallel(scale=scale), scale)
    with pytest.raises(ValueError, match="2 replicas, got 2 of the arguments and 1 of the keyword"):
        parallel(x, scale=torch.ones(1, 3))


def test_unsupported_inputs_and_outputs_raise():
    with pytest.raises(ValueError, match=r"batch dimension, got one of shape \(\)"):
        data_parallel.scatter((torch.ones(()),), 2)
    with pytest.raises(TypeError, match="tensors, or tuples, lists and dicts of them, got str"):
        data_parallel.gather(["a", "b"])
    x = torch.ones(4, 3)
    for call in (
        lambda: data_parallel.scatter(defaultdict(list, x=x), 2),
        lambda: data_parallel.gather([defaultdict(list, x=x)] * 2),
        lambda: data_parallel.StandIn(nn.Identity())(defaultdict(list, x=x)),
    ):
        with pytest.raises(TypeError, match="defaultdict cannot be built from pairs.* pass a dict"):
            call()
    for other in ({"a": x, "b": x}, {"b": x}):
        with pytest.raises(ValueError, match="dicts of the same keys"):
            data_parallel.gather([{"a": x}, other])
    for outputs in ([x, (x,)], [x.sum(), x]):
        with pytest.raises(ValueError, match="tensors of as many dimensions"):
            data_parallel.gather(outputs)
    for outputs in ([None, x], [x, None]):
        with pytest.raises(ValueError, match="None from all replicas or from none"):
            data_parallel.gather(outputs)
    with pytest.raises(TypeError, match="compile the wrapper"):
        data_parallel.replicate(nn.Sequential(torch.compile(nn.Linear(2, 1))), 2)


def test_stand_in_checks_devices_and_moves_inputs():
    with pytest.raises(RuntimeError, match="on device meta.*but found one of them on device: cpu"):
        data_parallel.StandIn(nn.Linear(2, 1), device="meta")(torch.ones(2, 2))
    out = data_parallel.StandIn(nn.Linear(2, 1).to("meta"), device="meta")(torch.ones(3, 2))
    assert out.is_meta and out.shape == (3, 1)


def test_no_gpus_hides_existing_gpus():
    with mock.patch("torch.cuda.is_available", return_value=True), demos.no_gpus():
        wrapped = nn.DataParallel(nn.Linear(2, 1), device_ids=[1, 3])
    assert wrapped.device_ids == [] and wrapped(torch.ones(3, 2)).shape == (3, 1)


def test_mps_ignores_the_device_ids():
    module = importlib.import_module("torch.nn.parallel.data_parallel")
    with mock.patch.object(module, "_get_available_device_type", return_value="mps"):
        wrapped = nn.DataParallel(nn.Linear(2, 1), device_ids=[1, 3])
    assert wrapped.device_ids == [] and wrapped(torch.ones(3, 2)).shape == (3, 1)


# ---------------------------------------------------------------- exercises


def by_share(model, shards):
    total = sum(len(x) for x, _ in shards)
    loss = sum(len(x) / total * F.mse_loss(model(x), y) for x, y in shards)
    return torch.autograd.grad(loss, list(model.parameters()))


def mean_of_means(model, shards):
    losses = [F.mse_loss(model(x), y) for x, y in shards]
    return torch.autograd.grad(sum(losses) / len(losses), list(model.parameters()))


def sum_of_means(model, shards):
    losses = [F.mse_loss(model(x), y) for x, y in shards]
    return torch.autograd.grad(sum(losses), list(model.parameters()))


def sum_of_sums(model, shards):
    losses = [F.mse_loss(model(x), y, reduction="sum") for x, y in shards]
    return torch.autograd.grad(sum(losses), list(model.parameters()))


def joined(model, shards):
    x, y = (torch.cat(column) for column in zip(*shards, strict=True))
    return torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))


def joined_layer_by_layer(model, shards):
    x, y = (torch.cat(column) for column in zip(*shards, strict=True))
    for layer in model:
        x = layer(x)
    return torch.autograd.grad(F.mse_loss(x, y), list(model.parameters()))


def sample_by_sample(model, shards):
    pairs = [pair for shard in shards for pair in zip(*shard, strict=True)]
    losses = [F.mse_loss(model(x[None]), y[None]) for x, y in pairs]
    return torch.autograd.grad(sum(losses) / len(losses), list(model.parameters()))


def two_columns(model, shards):
    total = sum(F.mse_loss(model(x), y, reduction="sum") for x, y in shards)
    count = 2 * sum(len(x) for x, _ in shards)
    return torch.autograd.grad(total / count, list(model.parameters()))


def last_shard(model, shards):
    return mean_of_means(model, shards[-1:])


def reversed_order(model, shards):
    return by_share(model, shards)[::-1]


def in_the_gradients(model, shards):
    count = sum(y.numel() for _, y in shards)
    model.zero_grad()
    for x, y in shards:
        (F.mse_loss(model(x), y, reduction="sum") / count).backward()
    return [p.grad for p in model.parameters()]


def clears_the_gradients(model, shards):
    found = by_share(model, shards)
    model.zero_grad()
    return found


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (in_the_gradients, "the gradient of 0.weight of model was changed"),
        (clears_the_gradients, "the gradient of 0.weight of model was changed"),
        (mean_of_means, "not the gradients of the full batch"),
        (sum_of_means, "2.00 times too large"),
        (sum_of_sums, "16.00 times too large"),
        (joined, "joined"),
        (joined_layer_by_layer, "joined"),
        (sample_by_sample, "a shard was divided"),
        (last_shard, "not the gradients of the full batch"),
        (reversed_order, "expected gradients of shapes"),
        (lambda model, shards: None, "expected a list"),
    ],
)
def test_check_shard_gradients_rejects_wrong_answers(answer, says):
    for _ in range(5):
        expect(exercises.check_shard_gradients(answer), says)


def test_check_shard_gradients_varies_the_number_of_columns():
    verdicts = [exercises.check_shard_gradients(two_columns) for _ in range(10)]
    assert any("times too large" in verdict.message for verdict in verdicts)


def by_sums(model, shards):
    """Divide each shard's sum by the total count and add the gradients: also correct."""
    count = sum(y.numel() for _, y in shards)
    totals = [torch.zeros_like(p) for p in model.parameters()]
    for x, y in shards:
        loss = F.mse_loss(model(x), y, reduction="sum") / count
        for total, grad in zip(
            totals, torch.autograd.grad(loss, [*model.parameters()]), strict=True
        ):
            total += grad
    return totals


def outputs_joined(model, shards):
    """Run each shard separately, then compute one loss on all outputs: also correct."""
    outputs = torch.cat([model(x) for x, _ in shards])
    loss = F.mse_loss(outputs, torch.cat([y for _, y in shards]))
    return torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("answer", [by_share, by_sums, outputs_joined])
def test_check_shard_gradients_accepts_right_answers(answer):
    for _ in range(20):
        verdict = exercises.check_shard_gradients(answer)
        assert verdict.passed, verdict


def plain(checkpoint):
    stripped = {}
    for key, value in checkpoint.items():
        while key.startswith(("module.", "_orig_mod.")):
            key = key.partition(".")[2]
        stripped[key] = value
    return stripped


def load(model, checkpoint):
    state = copy.copy(checkpoint)
    if hasattr(state, "_metadata"):
        state._metadata = state._metadata.copy()
    names = model.state_dict().keys()
    while state and not names & state.keys():
        prefix = next(iter(state)).partition(".")[0] + "."
        if prefix not in ("module.", "_orig_mod."):
            break
        consume_prefix_in_state_dict_if_present(state, prefix)
    model.load_state_dict(state)


def load_by_metadata(model, checkpoint):
    """Find the prefix by comparing the first key with the model's names: also correct."""
    first = next(iter(checkpoint))
    prefix = ""
    while first.removeprefix(prefix) not in model.state_dict():
        prefix += first.removeprefix(prefix).partition(".")[0] + "."
        if prefix == first + ".":
            prefix = ""
            break
    state = OrderedDict((k.removeprefix(prefix), v) for k, v in checkpoint.items())
    state._metadata = {
        key[len(prefix) :]: value
        for key, value in checkpoint._metadata.items()
        if f"{key}.".startswith(prefix)
    }
    model.load_state_dict(state)


def load_without_metadata(model, checkpoint):
    model.load_state_dict(plain(checkpoint))


def load_greedily(model, checkpoint):
    state = copy.copy(checkpoint)
    state._metadata = state._metadata.copy()
    for prefix in ("module.", "_orig_mod.", "module."):
        consume_prefix_in_state_dict_if_present(state, prefix)
    model.load_state_dict(state)


def load_shares_metadata(model, checkpoint):
    state = copy.copy(checkpoint)
    for prefix in ("module.", "_orig_mod.", "module."):
        consume_prefix_in_state_dict_if_present(state, prefix)
    model.load_state_dict(state)


def load_nothing(model, checkpoint):
    model.load_state_dict(checkpoint, strict=False)


def load_strictly(model, checkpoint):
    model.load_state_dict(checkpoint)


def load_data_parallel_only(model, checkpoint):
    model.load_state_dict({k.removeprefix("module."): v for k, v in checkpoint.items()})


def load_always_cut(model, checkpoint):
    model.load_state_dict({k.partition(".")[2]: v for k, v in checkpoint.items()})


def load_silently(model, checkpoint):
    model.load_state_dict(plain(checkpoint), strict=False)


def load_in_place(model, checkpoint):
    for prefix in ("module.", "_orig_mod.", "module."):
        consume_prefix_in_state_dict_if_present(checkpoint, prefix)
    model.load_state_dict(checkpoint)


def load_shared(model, checkpoint):
    for prefix in ("_orig_mod.module.", "module._orig_mod.", "_orig_mod.", "module.", ""):
        state = OrderedDict((k.removeprefix(prefix), v) for k, v in checkpoint.items())
        if state.keys() & model.state_dict().keys():
            break
    model.load_state_dict(state, assign=True)


def load_by_endings(model, checkpoint):
    state, names = {}, model.state_dict().keys()
    for key, value in checkpoint.items():
        found = [name for name in names if key.endswith(name)]
        if not found:
            raise KeyError(key)
        state[found[0]] = value
    if names - state.keys():
        raise KeyError(names - state.keys())
    model.load_state_dict(state)


def load_vague(model, checkpoint):
    state = plain(checkpoint)
    if set(state) != set(model.state_dict()):
        raise ValueError("something is wrong")
    model.load_state_dict(state)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (load_nothing, "was accepted, but 0.weight did not change"),
        (load_strictly, "with the prefix 'module.' does not load"),
        (load_data_parallel_only, "with the prefix '_orig_mod.' does not load"),
        (load_always_cut, "without a prefix does not load"),
        (load_silently, "lacks 2.bias was loaded without an error"),
        (load_in_place, "was changed: work on a copy"),
        (load_without_metadata, "lacks 1.num_batches_tracked was loaded without an error"),
        (load_greedily, "a child `module`, without a prefix does not load"),
        (load_shares_metadata, "was changed; copy it first"),
        (load_shared, "was changed"),
        (load_by_endings, "adds x2.weight was loaded without an error"),
        (load_vague, "does not name it"),
    ],
)
def test_check_load_rejects_wrong_answers(answer, says):
    expect(exercises.check_load(answer), says)


def load_through_a_wrapper(model, checkpoint):
    for wrap in (
        lambda m: m,
        nn.DataParallel,
        torch.compile,
        lambda m: torch.compile(nn.DataParallel(m)),
        lambda m: nn.DataParallel(torch.compile(m)),
    ):
        wrapped = wrap(model)
        if wrapped.state_dict().keys() & checkpoint.keys():
            break
    wrapped.load_state_dict(checkpoint)


@pytest.mark.parametrize("answer", [load, load_by_metadata, load_through_a_wrapper])
def test_check_load_accepts_right_answers(answer):
    verdict = exercises.check_load(answer)
    assert verdict.passed, verdict


def test_solution_loads_checkpoints_of_real_wrappers(tmp_path):
    for wrap in (nn.DataParallel, torch.compile, lambda m: nn.DataParallel(torch.compile(m))):
        source, model = nn.Linear(2, 1), nn.Linear(2, 1)
        torch.save(wrap(source).state_dict(), tmp_path / "c.pt")
        load(model, torch.load(tmp_path / "c.pt"))
        assert torch.equal(model.weight, source.weight)
    with pytest.raises(RuntimeError, match="Missing key"):
        load(nn.Linear(2, 1), {})
    with pytest.raises(RuntimeError, match="Missing key"):
        load(nn.Linear(2, 1), {"other.weight": torch.ones(1, 2)})


# ---------------------------------------------------------------- sentences of the chapter


def test_only_in_place_changes_of_a_buffer_are_kept():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("assigned", torch.zeros(()))
            self.register_buffer("in_place", torch.zeros(()))

        def forward(self, x):
            self.assigned = self.assigned + 1
            self.in_place.add_(1)
            return x

    counts = Counts()
    data_parallel.StandIn(counts, replicas=3)(torch.ones(6, 1))
    assert (counts.assigned.item(), counts.in_place.item()) == (0, 1)


def test_batch_norm_rejects_a_shard_of_one_sample():
    parallel = data_parallel.StandIn(nn.BatchNorm1d(3), replicas=4)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        parallel(torch.randn(10, 3))
    assert parallel.eval()(torch.randn(10, 3)).shape == (10, 3)


def test_rows_without_a_counterpart_are_dropped():
    class Scale(nn.Module):
        def forward(self, x, scale):
            return x * scale

    parallel = data_parallel.StandIn(Scale(), replicas=2)
    assert len(parallel(torch.ones(4, 3), torch.ones(1, 3))) == 2
    with mock.patch.object(scatter_gather, "Scatter", ScatterOnCPU):
        real = scatter_gather.scatter((torch.ones(4, 3), torch.ones(1, 3)), [0, 1])
    assert len(real) == 1 and real[0][0].shape == (2, 3)


def test_strings_and_numbers_are_passed_whole_to_every_replica():
    shards = data_parallel.scatter((torch.ones(4, 3), 2, None, ["a", "b", "c", "d"]), 2)
    assert [(len(x), n, none) for x, n, none, _ in shards] == [(2, 2, None)] * 2
    with mock.patch.object(scatter_gather, "Scatter", ScatterOnCPU):
        real = scatter_gather.scatter((torch.ones(4, 3), ["a", "b", "c", "d"]), [0, 1])
    assert [words for _, words in real] == [["a", "b", "c", "d"]] * 2


def test_replica_has_no_parameters():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return x.to(next(self.parameters()).dtype)

    assert Looks()(torch.ones(2, 3)).shape == (2, 3)
    with pytest.raises(StopIteration):
        data_parallel.StandIn(Looks(), replicas=2)(torch.ones(2, 3))


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        ([{"a": torch.ones(1)}, (torch.ones(1),)], "dict, tuple"),
        ([(torch.ones(2), torch.ones(2)), torch.ones(2, 2)], "tuple, Tensor"),
        ([[torch.ones(1)], {"a": torch.ones(1)}], "list, dict"),
        ([{"a": torch.ones(1)}, torch.ones(1)], "dict, Tensor"),
    ],
)
def test_gather_rejects_different_structures(outputs, names):
    with pytest.raises(ValueError, match=f"one structure from all replicas, got {names}"):
        data_parallel.gather(outputs)


@pytest.mark.parametrize("outputs", [torch.ones(4, 2), {"a": torch.ones(2)}, "ab", None])
def test_gather_rejects_what_is_no_list_of_outputs(outputs):
    with pytest.raises(TypeError, match="expects a list of outputs, got"):
        data_parallel.gather(outputs)


def test_gather_rejects_different_numbers_of_outputs():
    with pytest.raises(ValueError, match="as many outputs from all replicas"):
        data_parallel.gather([(torch.ones(2),), (torch.ones(2), torch.ones(2))])


def test_gather_accepts_a_tuple_and_a_list():
    (joined,) = data_parallel.gather([(torch.ones(1),), [torch.zeros(2)]])
    assert joined.tolist() == [1, 0, 0]
