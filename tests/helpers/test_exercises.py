"""Test that every checker accepts the book's solution and rejects a shared set of attacks."""

import copy
import math
import random
import re
import subprocess
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from solutions import ALL, checker, solution, starter
from torch import Tensor, nn
from verdicts import expect

from helpers.evaluation import evaluating

NOT_A_FUNCTION = {"check_root", "check_clip", "check_normalize", "check_standardized"}
IN_THREADS = {"check_mean"}  # grad mode and several settings are thread-local
CHANGES_MODES = {"check_train_mode"}
COMES_IN_EVAL = {"check_answers", "check_mean_loss"}
DRAWS = {  # the solution draws, or the checker tests a property of the draws
    "check_answers",
    "check_capture",
    "check_diffusion_loss",
    "check_init",
    "check_recursive",
    "check_resume",
    "check_table",
    "check_train_only_b",
    "check_undisturbed",
}
NO_NUMBER = {"check_accuracy", "check_to_device"}  # returns a float; returns the input's type
ANSWERS = pytest.mark.parametrize(("chapter", "check"), ALL)
FUNCTIONS = pytest.mark.parametrize(
    ("chapter", "check"), [pair for pair in ALL if pair[1] not in NOT_A_FUNCTION]
)


@cache
def used(chapter, check):
    """Return the kinds of values that the solution receives ("in") and returns ("out").

    An attack on another kind would only run the solution again. The solution must pass.
    """
    answer, kinds = solution(chapter, check), set()

    def f(*arguments):
        result = answer(*arguments)
        kinds.update(("in", type(value)) for value in arguments)
        kinds.update(("in", nn.Module) for _ in models_in(arguments))
        for place, value in (("in", arguments), ("out", result)):
            kinds.update((place, kind) for kind in kinds_in(value))
        return result

    result = checker(chapter, check)(answer if check in NOT_A_FUNCTION else f)
    assert result.passed, result
    return kinds


def kinds_in(value):
    """Yield the dtypes of floating-point tensors, float for numbers, and each dtype for iterators.

    An iterator must not be read here.
    """
    if isinstance(value, Tensor):
        yield from [value.dtype] if value.is_floating_point() else []
    elif isinstance(value, Iterator):
        yield from (torch.float64, torch.float32, torch.bfloat16)
    elif isinstance(value, bool | int | float):
        yield float
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from kinds_in(item)


def applies(spoil, chapter, check):
    """Return whether an attack finds a value that it changes."""
    return spoil not in NEEDS or any(NEEDS[spoil](*kind) for kind in used(chapter, check))


@ANSWERS
def test_solution_passes_and_starter_fails(chapter, check):
    assert used(chapter, check) or check in NOT_A_FUNCTION
    assert not checker(chapter, check)(starter(chapter, check)).passed


# ---------------------------------------------------------------- shared attacks


def spoiled(answer, spoil, changes):
    """Return `answer` followed by `spoil`, which changes the arguments and reports to `changes`."""

    def f(*arguments):
        result = answer(*arguments)
        changes.append(spoil(arguments, result))
        return result

    return f


def attack(chapter, check, spoil):
    changes = []
    result = checker(chapter, check)(spoiled(solution(chapter, check), spoil, changes))
    assert torch.is_grad_enabled(), "the caller's grad mode was changed"
    assert result.passed == (not any(changes)), result
    return result


def switch_off(arguments, result):
    torch.set_grad_enabled(False)
    return True


def seed(arguments, result):
    torch.manual_seed(0)
    return True


def change_dtype(arguments, result):
    torch.set_default_dtype(torch.float64)
    return True


def change_a_setting(arguments, result):
    """Change one of the settings; `test_exercise_tools.py` changes each of them."""
    np.seterr(all="raise", over="ignore")
    return True


def seed_python(arguments, result):
    random.seed(0)
    return True


def seed_numpy(arguments, result):
    np.random.seed(0)
    return True


def draw(arguments, result):
    torch.rand(())
    return True


def models_in(arguments):
    return [model for model in arguments if isinstance(model, nn.Module)]


def leave_an_attribute(arguments, result):
    models = models_in(arguments)
    for model in models:
        list(model.modules())[-1].kept = list
    return bool(models)


def call_train(arguments, result):
    return bool([model.train() for model in models_in(arguments)])


def call_eval(arguments, result):
    return bool([model.eval() for model in models_in(arguments)])


def switch_a_mode(arguments, result):
    models = models_in(arguments)
    for model in models:
        last = list(model.modules())[-1]
        last.training = not last.training
    return bool(models)


def tensors_in(value):
    if type(value) is Tensor:
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def add_one(arguments, result):
    own = {t.data_ptr() for t in tensors_in(result) if not t.is_meta}
    changed = False
    for t in tensors_in(arguments):
        if t.numel() and not t.is_meta and t.data_ptr() not in own and t.dtype != torch.bool:
            before = t.detach().clone()
            t.data += 1
            changed |= not torch.equal(before.nan_to_num(), t.detach().nan_to_num())
    return changed


def grow(arguments, result):
    mutable = [value for value in arguments if type(value) in (list, dict)]
    for value in mutable:
        if isinstance(value, list):
            value.append(value[-1] if value else None)
        else:
            value["stranger"] = next(iter(value.values()), None)
    return bool(mutable)


@FUNCTIONS
def test_disabled_gradients_are_rejected(chapter, check):
    if check not in IN_THREADS:
        attack(chapter, check, switch_off)


@FUNCTIONS
def test_changed_seed_is_rejected(chapter, check):
    torch.manual_seed(0)
    assert re.search("random|state of torch", attack(chapter, check, seed).message)


@FUNCTIONS
def test_changed_default_dtype_is_rejected(chapter, check):
    message = attack(chapter, check, change_dtype).message
    assert torch.get_default_dtype() == torch.float32
    assert "default dtype" in message


@FUNCTIONS
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (change_a_setting, ""),
        (seed_python, "random"),
        (seed_numpy, "random"),
    ],
)
def test_changed_global_setting_is_rejected(chapter, check, spoil, says):
    if check in IN_THREADS and spoil is change_a_setting:
        return
    python, before = random.getstate(), np.geterr()
    assert says in attack(chapter, check, spoil).message
    assert np.geterr() == before
    assert spoil is not seed_python or random.getstate()[1][:-1] == python[1][:-1]


@FUNCTIONS
def test_drawn_random_number_is_rejected(chapter, check):
    if check not in DRAWS:
        attack(chapter, check, draw)


@FUNCTIONS
@pytest.mark.parametrize("spoil", [switch_a_mode, call_train, call_eval])
def test_changed_mode_of_a_model_is_rejected(chapter, check, spoil):
    allowed = check in CHANGES_MODES or (spoil is call_eval and check in COMES_IN_EVAL)
    if applies(spoil, chapter, check) and not allowed:
        attack(chapter, check, spoil)


@FUNCTIONS
def test_attribute_left_on_a_model_is_rejected(chapter, check):
    if applies(leave_an_attribute, chapter, check):
        attack(chapter, check, leave_an_attribute)


@FUNCTIONS
@pytest.mark.parametrize("spoil", [add_one, grow])
def test_changed_arguments_are_rejected(chapter, check, spoil):
    if applies(spoil, chapter, check):
        attack(chapter, check, spoil)


def as_numpy(value):
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value)
    if isinstance(value, float):
        return np.float64(value)
    return type(value)(map(as_numpy, value)) if type(value) in (list, tuple) else value


@FUNCTIONS
def test_numpy_numbers_are_accepted(chapter, check):
    if check in NO_NUMBER or not applies(as_numpy, chapter, check):
        return
    answer = solution(chapter, check)
    result = checker(chapter, check)(lambda *arguments: as_numpy(answer(*arguments)))
    assert result.passed, result


FLOAT32_SUFFICES = {  # (which of the attacks below pass, why)
    "check_accumulate": ("rounded", "the share of a chunk may be a float32 tensor"),
    "check_alibi": ("only rounded", "the slopes come in float32; the scores are the kernel's"),
    "check_answers": ("rounded", "the class depends on the logits, not on all digits of x"),
    "check_cross_entropy": ("widened", "a loss may have more digits than its logits"),
    "check_dice": ("returned", "p comes in float16 or float32, and the loss is float32"),
    "check_evaluate": ("rounded", "four digits of a mean loss are enough"),
    "check_kl": ("widened", "a loss may have more digits than its inputs"),
    "check_masked_mean": ("widened", "a mean may have more digits than the losses"),
    "check_mean": ("only rounded", "the losses come in float32"),
    "check_mean_loss": ("rounded", "four digits of a mean loss are enough"),
    "check_nucleus": ("rounded returned", "probabilities to sample from need no more digits"),
    "check_quantize": ("rounded returned", "int8 has fewer digits, and scales may be float32"),
    "check_scaled_step": ("only rounded", "the model comes in float32"),
    "check_signed_sqrt": ("rounded", "an error of 0.01 is allowed"),
    "check_smoothing": ("widened", "a loss may have more digits than its logits"),
    "check_sum": ("only rounded", "the numbers come in float32"),
    "check_table": ("only rounded", "an embedding is float32"),
    "check_tag_loss": ("widened", "a loss may have more digits than its logits"),
    "check_to_uint8": ("rounded", "uint8 has fewer digits"),
}


def mapped(value, change):
    """Apply `change` to the floating-point tensors of `value`, including those of iterators."""
    if isinstance(value, Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, dict):
        other = copy.copy(value)
        other.update((key, mapped(item, change)) for key, item in value.items())
        return other
    if isinstance(value, Iterator):
        return (mapped(item, change) for item in value)
    plain = type(value) in (list, tuple)
    return type(value)(mapped(item, change) for item in value) if plain else value


def only(arguments, answer, noted):
    """Raise a TypeError for dtypes other than float32."""

    def change(t):
        noted.append(t.dtype)
        if t.dtype != torch.float32:
            raise TypeError(f"expected float32, got {t.dtype}")
        return t

    return answer(*mapped(arguments, change))


def rounded(arguments, answer, noted):
    """Round inputs and results to float32, but return the requested dtype."""

    def change(t):
        if t.dtype != torch.float64:
            return t
        noted.append(t.dtype)
        return t.float().double()

    return mapped(answer(*mapped(arguments, change)), change)


def returned(arguments, answer, noted):
    """Return float32 for every input dtype."""

    def change(t):
        if t.dtype != torch.float32:
            noted.append(t.dtype)
        return t.float()

    return mapped(answer(*arguments), change)


def widened(arguments, answer, noted):
    """Return float32 for half precision, as a sum with a float32 tensor does."""

    def change(t):
        if t.dtype.itemsize > 2:
            return t
        noted.append(t.dtype)
        return t.float()

    return mapped(answer(*arguments), change)


def needs_a_model(place, kind):
    return kind is nn.Module


NEEDS = {
    switch_a_mode: needs_a_model,
    call_train: needs_a_model,
    call_eval: needs_a_model,
    leave_an_attribute: needs_a_model,
    grow: lambda place, kind: kind in (list, dict),
    as_numpy: lambda place, kind: place == "out" and kind is float,
    only: lambda place, kind: place == "in" and kind in OTHERS,
    rounded: lambda place, kind: kind == torch.float64,
    returned: lambda place, kind: place == "out" and kind in OTHERS,
    widened: lambda place, kind: place == "out" and kind in OTHERS - {torch.float64},
}
OTHERS = {torch.float64, torch.float16, torch.bfloat16}


@FUNCTIONS
@pytest.mark.parametrize("spoil", [only, rounded, returned, widened])
def test_float32_only_answers_are_rejected(chapter, check, spoil):
    if not applies(spoil, chapter, check):
        return
    answer, noted = solution(chapter, check), []
    result = checker(chapter, check)(lambda *arguments: spoil(arguments, answer, noted))
    suffices = spoil.__name__ in FLOAT32_SUFFICES.get(check, " ")[0].split()
    assert result.passed == (suffices or not noted), result


# ---------------------------------------------------------------- wrong answers, one by one


def book(check):
    """Return the book's solution of the exercise with this checker."""
    return solution(*next(pair for pair in ALL if pair[1] == check))


def masked(hidden):
    def attend(q, k, v, keep):
        lq, lk = q.shape[-2], k.shape[-2]
        seen = torch.ones(lq, lk, dtype=torch.bool).tril(lk - lq) & keep[:, None, None]
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return (scores + hidden * ~seen).softmax(-1) @ v

    return attend


def in_eval(check):
    def f(model, *arguments):
        model.eval()
        return book(check)(model, *arguments)

    return f


def evaluated(check):
    """Return the solution, called in evaluation mode; the modes are restored."""

    def f(model, *arguments):
        before = [module.training for module in model.modules()]
        result = in_eval(check)(model, *arguments)
        result = list(result) if hasattr(result, "send") else result
        for module, training in zip(model.modules(), before, strict=True):
            module.training = training
        return result

    return f


def then(check, spoil):
    """Return the solution followed by a call of `spoil` with the arguments."""

    def f(*arguments):
        result = book(check)(*arguments)
        spoil(*arguments)
        return result

    return f


def freeze(model, *_):
    model.requires_grad_(False)


def unfreeze(model, *_):
    model.requires_grad_(True)


def hooked(model, *_):
    model.register_forward_hook(lambda *_: None)


def clear(model, *_):
    model.zero_grad()


def freeze_and_eval(model, *_):
    model.eval().requires_grad_(False)


def gradients_off(model, batches, loss_fn):
    torch.set_grad_enabled(False)
    losses = [(loss_fn(model(x), y).item(), len(y)) for x, y in batches]
    return sum(a * n for a, n in losses) / sum(n for _, n in losses)


def loss_by_name(model, batches, loss_fn):
    total = count = 0
    for x, y in batches:
        loss = loss_fn(model(x), y)
        total, count = total + loss.item() * len(y), count + len(y)
    return total / count


def moves_in_place(batch, device):
    if isinstance(batch, OrderedDict):
        for key in batch:
            batch[key] = moves_in_place(batch[key], device)
        return batch
    return book("check_to_device")(batch, device)


def moved_state(optimizer, groups, names, target):
    for p in [p for group in groups for p in group["params"]]:
        for name in names & optimizer.state[p].keys():
            optimizer.state[p][name] = optimizer.state[p][name].to(target)


NAMES = {"exp_avg", "exp_avg_sq", "sum", "momentum_buffer"}


def first_group(model, optimizer, target):
    model.to(target)
    moved_state(optimizer, optimizer.param_groups[:1], NAMES | {"max_exp_avg_sq"}, target)


def four_names(model, optimizer, target):
    model.to(target)
    moved_state(optimizer, optimizer.param_groups, NAMES, target)


def children_only(model, optimizer, target):
    for child in model.children():
        child.to(target)
    moved_state(optimizer, optimizer.param_groups, NAMES | {"max_exp_avg_sq"}, target)


class FrozenParameters(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = nn.Parameter(mean, requires_grad=False)
        self.std = nn.Parameter(std, requires_grad=False)

    def forward(self, x):
        return (x - self.mean) / self.std


class InAList(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.constants = [mean, std]

    def get_extra_state(self):
        return self.constants

    def set_extra_state(self, state):
        self.constants = state

    def forward(self, x):
        mean, std = (t.to(x.device).to(x.dtype) for t in self.constants)
        return (x - mean) / std


def shard_backward(model, shards):
    count = sum(y.numel() for _, y in shards)
    for x, y in shards:
        (F.mse_loss(model(x), y, reduction="sum") / count).backward()
    return [p.grad for p in model.parameters()]


def cross_entropy(logits, target, weight, ignore_index, least=0.0, graph=True):
    keep = target != ignore_index
    w = weight[target.where(keep, 0)] * keep
    each = -logits.log_softmax(1).gather(1, target.where(keep, 0)[:, None])[:, 0]
    loss = (w * each.where(keep, 0)).sum() / w.sum().clamp(min=least)
    zero = logits.nan_to_num() - logits.detach().nan_to_num()
    return loss if graph else loss + zero[~keep].sum()


def smoothed_by_hand(logits, target, eps):
    true = F.one_hot(target, logits.shape[1])
    soft = true * (1 - eps) + (1 - true) * eps / (logits.shape[1] - 1)
    return F.cross_entropy(logits, soft)


def clipped_infinities(loss, keep):
    return book("check_masked_mean")(loss.clamp(max=1e6), keep)


def loop_over_rows(x, start, length):
    return torch.stack([x[i, int(s) : int(s) + length] for i, s in enumerate(start)])


def sums_in_half(values, labels, num_classes):
    sums = values.new_zeros(num_classes, values.shape[1]).index_add(0, labels, values)
    return sums / labels.bincount(minlength=num_classes).clamp(min=1)[:, None]


STASH = []


class Stashing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        y = x ** (1 / n)
        STASH.append(x)
        ctx.n = n
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return upstream * y ** (1 - ctx.n) / ctx.n, None


class InAClosure(Stashing):
    @staticmethod
    def forward(ctx, x, n):
        y = x ** (1 / n)
        ctx.kept, ctx.n = (lambda: x), n
        ctx.save_for_backward(y)
        return y


def raises_at_letters(capability, archs):
    built = [(a.split("_")[0], int(a.split("_")[1])) for a in archs]
    number = capability[0] * 10 + capability[1]
    return any(n <= number and (k == "compute" or n // 10 == number // 10) for k, n in built)


def zeroed_padding(gru, x, lengths):
    real = (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
    return book("check_vectors")(gru, x * real + 0 * x.sum(1, keepdim=True), lengths)


def masked_loss(logits, tags, ids, padding):
    each = F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")
    return (each * (ids != padding)).sum() / (ids != padding).sum()


def table(**how):
    def make(vocab, vectors, dim):
        result = nn.Embedding(len(vocab), dim, padding_idx=vocab["<pad>"], **how)
        with torch.no_grad():
            for word, i in vocab.items():
                if word in vectors and word != "<pad>":
                    result.weight[i] = vectors[word]
        return result

    return make


def tiny_vectors(vocab, vectors, dim):
    result = table()(vocab, vectors, dim)
    with torch.no_grad():
        for word, i in vocab.items():
            if word not in vectors:
                result.weight[i] *= 1e-30
    return result


def restores_the_top(model, batches):
    mode = model.training
    result = book("check_perplexity")(model, batches)
    return model.train(mode) and result


def own_step(model, x, y, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    finite = all(p.grad.isfinite().all() for p in model.parameters())
    if finite:
        optimizer.step()
    scaler.update(scaler.get_scale() / (1 if finite else 2))


def in_bfloat16(model, x, y, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.mse_loss(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


def rms(x, eps=0.0):
    with torch.autocast("cpu", enabled=False):
        return (x.float().square().mean(-1, keepdim=True) + eps).sqrt().to(x.dtype)


def small_in_half(x):
    return book("check_rms")(x.half().to(x.dtype) if x.dtype == torch.bfloat16 else x)


def nearest_by_power(points, centres, power=1.9):
    return ((points[:, None] - centres).abs() ** power).sum(-1).argmin(1)


def nearest_by_squares(points, centres):
    return (centres.square().sum(1) - 2 * points @ centres.T).argmin(1)


def mean_without_infinities(losses, limit):
    counts = (losses < limit) & (losses > -math.inf)
    return torch.where(counts, losses, 0).sum() / counts.sum().clamp(min=1)


def shares(order):
    def partition(n, rank, world, epoch):
        return order(n, epoch)[rank::world]

    return partition


def drawn(n, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()


def in_blocks(n, epoch):
    rng = np.random.default_rng(epoch)
    return [int(i) for at in range(0, n, 8) for i in at + rng.permutation(min(8, n - at))]


def guarded(model, loss, optimizer, clip=None, train=True):
    model.training = train
    optimizer.zero_grad()
    value = loss()
    value.backward()
    model.training = True
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    finite = bool(value.isfinite()) and all(bool(g.isfinite().all()) for g in grads)
    if finite:
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    else:
        optimizer.zero_grad()
    return finite


def large_is_bad(model, x, y):
    return sorted({*book("check_bad_samples")(model, x, y), *large(model, x, y)})


@torch.no_grad()
def large(model, x, y):
    twin = copy.deepcopy(model).eval()
    each = F.cross_entropy(twin(x), y, reduction="none")
    return (each > 1e7).nonzero().flatten().tolist()


class ClampedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, upstream):
        return upstream.clamp(-1, 1)


def in_shards_of_one_size(n, rank, world, epoch):
    size = -(-n // world)
    return drawn(n, epoch)[rank * size : (rank + 1) * size]


class Detached(nn.Module):
    def forward(self, x):
        return book("check_clip")()(x).detach()


CACHE = {}


def cached(model, requests):
    key = id(model), tuple(map(id, requests)), tuple(round(x.sum().item(), 3) for x in requests)
    if key not in CACHE:
        CACHE[key] = book("check_answers")(model, requests)
    return CACHE[key]


def bfloat16_scores(model, requests):
    if not requests:
        return []
    with torch.inference_mode():
        return model(torch.stack(requests)).bfloat16().argmax(1).tolist()


def float32_scores(model, requests):
    if not requests:
        return []
    with torch.inference_mode():
        return model(torch.stack(requests)).float().argmax(1).tolist()


def float32_accuracy(model, loader):
    handle = model.register_forward_hook(lambda module, inputs, logits: logits.float())
    try:
        return book("check_accuracy")(model, loader)
    finally:
        handle.remove()


class ClipInFloat32(nn.Module):
    def forward(self, x):
        return book("check_clip")()(x.float()).to(x.dtype)


class NormalizeInFloat32(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.inner = book("check_normalize")(mean, std)

    def forward(self, x):
        return self.inner(x.float()).to(x.dtype)


class RootInFloat32(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        y, ctx.n = (x.float() ** (1 / n)).to(x.dtype), n
        ctx.save_for_backward(y)
        return y

    backward = Stashing.backward


def other_options(optimizer, saved, lr):
    book("check_continue")(optimizer, saved, lr)
    for group in optimizer.param_groups:
        group["eps"], group["betas"] = 1e-8, (0.9, 0.999)


def float64_arrays(value):
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value, dtype=np.float64))
    if isinstance(value, dict):
        return {k: float64_arrays(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(float64_arrays, value))
    return book("check_plain")({"x": value})["x"]


def rejects_buffers(model, saved):
    own = dict(model.named_parameters())
    if not any(n in own and own[n].shape == v.shape for n, v in saved.items()):
        raise ValueError("nothing fits")
    return book("check_load_matching")(model, saved)


def killing(seconds, wait):
    """Return an answer that kills a process after `seconds`, and then waits for it or not."""

    def stop(process):
        process.terminate()
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            if wait:
                process.wait()

    return stop


def float32_loss(logits, ids, lengths):
    return book("check_next_token_loss")(logits.float(), ids, lengths)


def strips_the_tail(logits, ids, lengths):
    """Drop a row's EOS if the padding is the same token: wrong, since this EOS is a target."""
    shorter = lengths.clone()
    for i, n in enumerate(lengths.tolist()):
        tail = ids[i, n:]
        if len(tail) > 2 and (tail == ids[i, n - 1]).all():
            shorter[i] -= 1
    return book("check_next_token_loss")(logits, ids, shorter)


def capture_in_training(model, names, x):
    """Capture the right names and statistics, but values of training mode."""
    twin = copy.deepcopy(model)
    found = book("check_capture")(model, names, x)
    if model.training and names == ["2"]:
        with torch.no_grad():
            found["2"] = twin(x)
    return found


def same_dtype_only(model, saved):
    own = model.state_dict()
    alike = {k: v for k, v in saved.items() if k in own and v.shape == own[k].shape}
    if not alike:
        raise ValueError("nothing fits")
    model.load_state_dict({k: v for k, v in alike.items() if v.dtype == own[k].dtype}, strict=False)
    return sorted(own.keys() - alike.keys())


class RootOfClamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        y, ctx.n = x.clamp(min=1e-4) ** (1 / n), n
        ctx.save_for_backward(y)
        return y

    backward = Stashing.backward


class RootWithEpsilon(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        y, ctx.n = x ** (1 / n), n
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return upstream / (ctx.n * y ** (ctx.n - 1) + 1e-6), None


class RootWithFloor(torch.autograd.Function):
    forward = RootWithEpsilon.forward

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return upstream * y.clamp(min=1e-3) ** (1 - ctx.n) / ctx.n, None


def nan_for_no_samples(model, loader):
    batches = list(loader)
    if batches and not sum(len(y) for _, y in batches):
        return math.nan
    return book("check_accuracy")(model, batches)


def captured(model, names, x, copied, cleaned):
    hooks, kept = [], {}
    modules = [model.get_submodule(name) for name in names]
    for name, module in zip(names, modules, strict=True):
        hooks.append(
            module.register_forward_hook(lambda m, i, o, name=name: kept.update({name: copied(o)}))
        )
    try:
        with evaluating(model):
            model(x)
        cleaned = True
    finally:
        for hook in hooks:
            if cleaned:
                hook.remove()
    return kept


def tensors_copied(model, names, x):
    return captured(model, names, x, lambda o: o.clone() if isinstance(o, Tensor) else o, True)


def hooks_left_after_errors(model, names, x):
    return captured(model, names, x, copy.deepcopy, False)


def containers_train(model):
    book("check_train_mode")(model)
    for module in model.modules():
        module.training |= isinstance(module, nn.Sequential | nn.Linear)


def root_trains(model):
    book("check_train_mode")(model)
    model.training = True


def gradients_on_at_the_end(net, batches):
    yield from book("check_stream")(net, batches)
    torch.set_grad_enabled(True)


def clamped_as_int(x):
    levels = (x.detach().double() * 255).round().long().clamp(0, 255)
    return levels.byte().permute(1, 2, 0).numpy()


def viewed(check):
    """Return the solution that fails for non-contiguous arguments."""

    def f(*arguments):
        for t in tensors_in(arguments):
            t.view(-1)
        return book(check)(*arguments)

    return f


def at_least_two(check, position=0):
    """Return the solution, which fails if the argument at `position` has one row."""

    def f(*arguments):
        if len(arguments[position]) < 2:
            raise ValueError("one row")
        return book(check)(*arguments)

    return f


def flat(check):
    """Return the solution, which flattens its first argument with `view`."""
    return lambda x, *rest: book(check)(x.view(-1).view(x.shape), *rest)


def changed(check, change):
    """Return the solution with its result passed to `change`."""
    return lambda *arguments: change(book(check)(*arguments))


def resume_into_the_checkpoint(checkpoint, build, schedule):
    model, _ = build()
    model.load_state_dict(checkpoint["model"], assign=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = schedule(optimizer)
    optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer"]))
    scheduler.load_state_dict(checkpoint["scheduler"])
    return model, optimizer, scheduler


def hook_left(model, *_):
    model[0].register_forward_hook(lambda *_: None)


def other_eps(model, *_):
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.eps = 0.1


def zeroed(model, batches, loss_fn):
    batches = list(batches)
    result = book("check_mean_loss")(model, iter(batches), loss_fn)
    for x, _ in batches:
        x.zero_()
    return result


def trainable_layers(model):
    layers = [m for m in model.modules() if any(p.requires_grad for p in m.parameters(False))]
    parameters = {p for layer in layers for p in layer.parameters(False)}
    return sum(p.numel() for p in parameters), sum(b.numel() for b in model.buffers())


def float_buffers(model):
    floats = (b for b in model.buffers() if b.is_floating_point() or b.dim() == 0)
    return book("check_count")(model)[0], sum(b.numel() for b in floats)


def padding_needs_a_vector(vocab, vectors, dim):
    vectors["<pad>"]
    return book("check_table")(vocab, vectors, dim)


def head_anywhere(model, head, lr):
    trained = [(n.split("."), p) for n, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for parts, p in trained if head not in parts], "lr": lr / 10},
        {"params": [p for parts, p in trained if head in parts], "lr": lr},
    ]


def sums_of_colours(mask, palette):
    key = mask[0] * 3 + mask[1] * 5 + mask[2] * 7
    classes = torch.full(key.shape, 255)
    for number, (r, g, b) in enumerate(palette):
        classes[key == (3 * r + 5 * g + 7 * b) % 256] = number
    return classes


def rounded_for_gamma_1(rewards, ended, gamma):
    result = book("check_returns")(rewards, ended, gamma)
    return result.round() if gamma == 1 and ended[:-1].any() else result


def without_graph_for_other_markers(logits, target, weight, ignore_index):
    loss = book("check_cross_entropy")(logits, target, weight, ignore_index)
    return loss if ignore_index == -100 else loss.detach()


def resume_with_gradients(checkpoint, build, schedule):
    parts = book("check_resume")(checkpoint, build, schedule)
    for p in parts[0].parameters():
        p.grad = torch.zeros_like(p)
    return parts


def transposed_if_square(mask, palette):
    classes = book("check_to_classes")(mask, palette)
    return classes.T if classes.shape[0] == classes.shape[1] else classes


def six_steps(rewards, ended, gamma):
    far = 6 if len(rewards) > 20 else len(rewards)
    cut = [
        book("check_returns")(rewards[t : t + far], ended[t : t + far], gamma)[:1]
        for t in range(len(rewards))
    ]
    return torch.cat(cut)


def keys_as_text(value):
    if type(value) is dict:
        return {str(key): keys_as_text(item) for key, item in value.items()}
    return book("check_plain")(value)


SHOWS_NAN = (
    "check_attend",
    "check_cross_entropy",
    "check_dice",
    "check_kl",
    "check_legal_entropy",
    "check_max_readout",
    "check_next_token_loss",
    "check_smoothing",
    "check_tag_loss",
    "check_vectors",
    "check_weighted_mean",
)


def without_nan(check):
    return lambda *args: book(check)(
        *(mapped(x, lambda t: t.nan_to_num(posinf=torch.inf, neginf=-torch.inf)) for x in args)
    )


def nan_as_zeros(table, ids):
    real = (ids != table.padding_idx)[..., None]
    return ((table(ids) * real).sum(1) / real.sum(1)).nan_to_num()


def first_gradient(model, loss, optimizer):
    optimizer.zero_grad()
    value = loss()
    value.backward()
    finite = bool(value.isfinite()) and bool(next(model.parameters()).grad.isfinite().all())
    if finite:
        optimizer.step()
    else:
        optimizer.zero_grad()
    return finite


def keeps_eval(model, batches):
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    with torch.no_grad():
        for x in batches:
            model(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def copies_a_tensor(batch, device):
    copied = batch.to(device, copy=True) if isinstance(batch, Tensor) else batch
    return book("check_to_device")(copied, device)


def scale_in_half(weight):
    q, scale = book("check_quantize")(weight)
    if weight.dtype != torch.float16:
        return q, scale
    scale = scale.half()
    return (weight.detach().double() / scale.double()[:, None]).round().char(), scale


def on_white(image, mean, std):
    if image.mode.endswith("A"):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return book("check_prepare")(image, mean, std)


def ends_at_total(t, warm_up, total):
    return (
        1 / (total - warm_up) if t > total == warm_up else book("check_factor")(t, warm_up, total)
    )


WRONG = [
    ("check_mean_vectors", nan_as_zeros, "vectors of nan are hidden"),
    ("check_guarded_step", first_gradient, "the step was not skipped"),
    (
        "check_bad_samples",
        lambda model, x, y: (
            (~F.cross_entropy(x, y, reduction="none").isfinite()).nonzero().flatten().tolist()
        ),
        "instead of",
    ),
    ("check_recompute", keeps_eval, "is not the average over the batches"),
    ("check_to_device", copies_a_tensor, "was copied although it was there already"),
    ("check_pad", lambda s: tuple(t.squeeze() for t in book("check_pad")(s)), "expected values of"),
    (
        "check_plain",
        lambda state: mapped(book("check_plain")(state), lambda t: t.squeeze()),
        "'column' has another value",
    ),
    (
        "check_class_means",
        lambda x, labels, n: (
            book("check_class_means")(x, labels, n) * (labels.bincount(minlength=n) != 1)[:, None]
        ),
        "must not change the other means",
    ),
    (
        "check_diffusion_loss",
        lambda model, x0, bars: book("check_diffusion_loss")(
            lambda x, t: model(x, t.squeeze()), x0, bars
        ),
        "expected shape (1,)",
    ),
    ("check_adaptive", flat("check_adaptive"), "view size is not compatible"),
    *(
        (check, changed(check, lambda x: np.nan_to_num(x, nan=1.0)), "of nan")
        for check in ("check_evaluate", "check_mean_loss", "check_perplexity")
    ),
    ("check_to_classes", transposed_if_square, "a colour of the palette has a wrong class"),
    ("check_rms", small_in_half, "small bfloat16 numbers are wrong"),
    (
        "check_nearest",
        lambda p, c: book("check_nearest")(*((c, p) if len(p) == len(c) else (p, c))),
        "centres of",
    ),
    ("check_returns", six_steps, "wrong for an episode of 300 steps"),
    (
        "check_own_tensor",
        lambda a: torch.tensor(a.astype("i4" if a.dtype.kind == "i" else a.dtype).astype("f4")),
        "an array of large ints came out wrong",
    ),
    ("check_plain", keys_as_text, "'groups' has another value or type"),
    ("check_groups", head_anywhere, "body.head.weight has the wrong learning rate"),
    ("check_to_classes", sums_of_colours, ""),
    ("check_returns", rounded_for_gamma_1, "with gamma 1"),
    ("check_cross_entropy", without_graph_for_other_markers, "the result has no graph"),
    ("check_sum", lambda x: x[x.abs().argsort()].sum().item(), "a different order"),
    ("check_stop", killing(0.02, wait=True), "killed before it could clean up"),
    ("check_resume", resume_with_gradients, "a parameter has a gradient already"),
    (
        "check_straight_through",
        lambda x: x.clamp(-9, 9) + (x.round() - x.clamp(-9, 9)).detach(),
        "the gradient of x is not",
    ),
    ("check_straight_through", ClampedGradient.apply, "the gradient of x is not"),
    ("check_factor", ends_at_total, "raised ZeroDivisionError"),
    ("check_factor", lambda t, w, n: book("check_factor")(t, w, n) if t <= 2 * n else 1, "it is 0"),
    ("check_resume", resume_into_the_checkpoint, "copy it before you load it"),
    ("check_cross_entropy", at_least_two("check_cross_entropy"), "one row"),
    ("check_smoothing", at_least_two("check_smoothing"), "one row"),
    ("check_releasable", then("check_releasable", list.reverse), "snapshot was changed"),
    ("check_mean_loss", zeroed, "was changed: work on a copy"),
    (
        "check_scaled_step",
        then("check_scaled_step", lambda *a: a[4].set_growth_interval(5)),
        "a setting of the scaler",
    ),
    (
        "check_scaled_step",
        then("check_scaled_step", lambda *a: a[3].param_groups[0].update(momentum=0.9)),
        "group 0 of optimizer was changed",
    ),
    ("check_rms", flat("check_rms"), "view size is not compatible"),
    ("check_rms", then("check_rms", Tensor.requires_grad_), "requires_grad of x"),
    ("check_count", trainable_layers, "a frozen parameter"),
    ("check_count", float_buffers, "a buffer of integers"),
    ("check_recompute", then("check_recompute", hook_left), "a hook is left"),
    ("check_recompute", then("check_recompute", other_eps), "a setting of"),
    ("check_init", then("check_init", other_eps), "a setting of"),
    ("check_merge", at_least_two("check_merge"), "one row"),
    ("check_nearest", flat("check_nearest"), "view size is not compatible"),
    ("check_mean_below", at_least_two("check_mean_below"), "one row"),
    ("check_double_target", at_least_two("check_double_target"), "one row"),
    ("check_legal_entropy", at_least_two("check_legal_entropy"), "one row"),
    ("check_legal_entropy", changed("check_legal_entropy", Tensor.squeeze), "expected shape"),
    ("check_tag_loss", at_least_two("check_tag_loss"), "one row"),
    ("check_table", padding_needs_a_vector, "raised KeyError"),
    ("check_class_means", changed("check_class_means", Tensor.squeeze), "expected shape"),
    ("check_class_means", flat("check_class_means"), "view size is not compatible"),
    ("check_distances", at_least_two("check_distances"), "one row"),
    ("check_distances", flat("check_distances"), "view size is not compatible"),
    (
        "check_distances",
        lambda x: torch.cdist(x.double(), x.double()).to(x.dtype),
        "far from the origin",
    ),
    (
        "check_mean_of",
        lambda batches: book("check_mean_of")(b.view(-1) for b in batches),
        "view size is not compatible",
    ),
    ("check_split_heads", changed("check_split_heads", Tensor.squeeze), "expected shape"),
    (
        "check_compact",
        changed("check_compact", lambda state: {k: t.detach() for k, t in state.items()}),
        "another tensor is returned",
    ),
    ("check_attend", viewed("check_attend"), "view size is not compatible"),
    ("check_to_uint8", viewed("check_to_uint8"), "view size is not compatible"),
    ("check_to_uint8", clamped_as_int, "a value above 1 did not become 255"),
    ("check_load_matching", same_dtype_only, "has another dtype, and was not loaded"),
    ("check_root", RootOfClamped, "wrong for an x of 1e-200"),
    ("check_root", RootWithEpsilon, "wrong for an x of 1e-200"),
    ("check_root", RootWithFloor, "wrong for an x of 1e-200"),
    ("check_accuracy", nan_for_no_samples, "for a loader without samples, got nan"),
    ("check_capture", tensors_copied, "in a tuple, a tensor was overwritten"),
    ("check_capture", hooks_left_after_errors, "an input of the wrong shape, a hook is still"),
    ("check_train_mode", containers_train, "0 is frozen and must be in evaluation mode"),
    ("check_train_mode", root_trains, "the whole model is frozen"),
    ("check_stream", gradients_on_at_the_end, "or after the loop"),
    (
        "check_masked_mean",
        lambda loss, keep: book("check_masked_mean")(loss.clamp(min=-1e6), keep),
        "an inf among the losses kept is hidden",
    ),
    ("check_attend", masked(-30.0), "a masked key with a large score"),
    ("check_attend", masked(-1e4), "a masked key with a large score"),
    ("check_attend", masked(-1e9), "a masked key with a large score"),
    ("check_attend", then("check_attend", lambda q, k, v, keep: k.data.zero_()), "k was changed"),
    (
        "check_attend",
        lambda *args: book("check_attend")(*args).detach(),
        "gives no gradient to q, k or v",
    ),
    ("check_accuracy", float32_accuracy, "expected"),
    ("check_accumulate", in_eval("check_accumulate"), "came in training mode"),
    *(
        (check, evaluated(check), "called in another mode")
        for check in (
            "check_accumulate",
            "check_scaled_step",
            "check_shard_gradients",
            "check_stream",
            "check_vectors",
        )
    ),
    ("check_load_matching", rejects_buffers, "nothing fits"),
    ("check_continue", other_options, "the other settings are not the saved ones"),
    ("check_plain", float64_arrays, "has another value or type"),
    ("check_normalize", FrozenParameters, "register buffers"),
    ("check_normalize", InAList, "register both constants as buffers"),
    ("check_to_device", moves_in_place, "the caller's batch"),
    ("check_move", first_group, "stayed torch.float32"),
    ("check_move", four_names, "stayed torch.float32"),
    ("check_move", children_only, "the model did not move"),
    ("check_root", Stashing, "the input is still referenced outside"),
    ("check_root", InAClosure, "the input is still referenced outside"),
    ("check_shard_gradients", shard_backward, "the gradient of 0.weight of model was changed"),
    ("check_guarded_step", lambda *a: guarded(*a, clip=100), "the step is not that"),
    ("check_guarded_step", lambda *a: guarded(*a, train=False), "computed in eval mode"),
    ("check_bad_samples", large_is_bad, "instead of [1]"),
    (
        "check_bad_samples",
        then("check_bad_samples", lambda *_: torch.rand(())),
        "random numbers were drawn",
    ),
    (
        "check_train_only_b",
        lambda a, b, x: (
            book("check_train_only_b")(a, b, x) + 0 * (a.zero_grad() or b.zero_grad() or 0)
        ),
        "the gradient of",
    ),
    ("check_snapshot", lambda m: {k: v.clone() for k, v in m.state_dict().items()}, "the keys"),
    ("check_snapshot", then("check_snapshot", clear), "the gradient of"),
    ("check_partition", shares(lambda n, e: drawn(n, e % 8)), "the same order"),
    ("check_partition", shares(lambda n, e: drawn(n, e % 10)), "the same order"),
    ("check_partition", shares(in_blocks), "stay near their positions"),
    ("check_partition", in_shards_of_one_size, "uneven shares"),
    ("check_partition", shares(lambda n, e: drawn(n, hash(("x", e)) % 2**63)), "is used twice"),
    ("check_clip", Detached, "has no graph"),
    ("check_answers", cached, "the result of earlier requests is returned again"),
    ("check_answers", bfloat16_scores, "instead of"),
    ("check_answers", float32_scores, "wrong in float64"),
    ("check_clip", ClipInFloat32, "wrong in float64"),
    ("check_normalize", NormalizeInFloat32, "the value is not (x - mean) / std in torch.float64"),
    ("check_root", RootInFloat32, "forward is not the n-th root"),
    ("check_capture", capture_in_training, "'2' is not the output of that module"),
    ("check_predict", then("check_predict", clear), "the gradient of"),
    ("check_predict", then("check_predict", freeze), "requires_grad of"),
    ("check_stream", then("check_stream", freeze_and_eval), "left in another"),
    ("check_will_run", raises_at_letters, "raised ValueError"),
    ("check_next_token_loss", float32_loss, "give a loss of torch.float32"),
    ("check_next_token_loss", strips_the_tail, "padding and EOS are one token"),
    ("check_perplexity", restores_the_top, "restore the mode of each module"),
    (
        "check_cross_entropy",
        lambda *a: cross_entropy(*a, least=1e-6),
        "wrong value with class weights",
    ),
    ("check_cross_entropy", lambda *a: cross_entropy(*a, graph=False), "the gradient is not"),
    ("check_smoothing", smoothed_by_hand, "the target is smoothed by hand"),
    ("check_masked_mean", clipped_infinities, "an inf among the losses kept is hidden"),
    ("check_mean_loss", gradients_off, "gradients stay switched off"),
    ("check_mean_loss", loss_by_name, "activations of an earlier batch"),
    ("check_mean_loss", then("check_mean_loss", freeze), "requires_grad of"),
    ("check_scaled_step", own_step, "the scale never grows"),
    ("check_scaled_step", in_bfloat16, "the update differs from that of SGD"),
    ("check_rms", rms, "the gradient of a row of zeros is not finite"),
    ("check_rms", lambda x: rms(x, 1e-16), "no epsilon is needed"),
    ("check_nearest", lambda p, c: nearest_by_power(p.half(), c.half(), 2), "wrong for the point"),
    ("check_nearest", nearest_by_power, "wrong for"),
    ("check_nearest", nearest_by_squares, "far from the origin"),
    ("check_mean_below", mean_without_infinities, "wrong with -inf, which is below the limit"),
    ("check_stop", killing(2, wait=False), "after kill(), wait"),
    ("check_vectors", zeroed_padding, "here nan"),
    ("check_tag_loss", masked_loss, "logits of nan at the padding"),
    ("check_table", table(max_norm=50), "max_norm"),
    ("check_table", table(scale_grad_by_freq=True), "scale_grad_by_freq"),
    ("check_table", tiny_vectors, "words without a vector"),
    ("check_class_means", sums_in_half, "overflowed"),
    ("check_windows", loop_over_rows, "into Python"),
    ("check_mask", lambda *args: book("check_mask")(*args).squeeze(), "expected shape"),
    ("check_max_readout", lambda *args: book("check_max_readout")(*args).squeeze(), "shape"),
    ("check_predict", lambda *args: book("check_predict")(*args).squeeze(0), "expected shape"),
    ("check_ddim_step", lambda *args: book("check_ddim_step")(*args).squeeze(0), "shape"),
    ("check_kl", lambda *args: book("check_kl")(*(x.clamp(-10, 10) for x in args)), "clamped"),
    (
        "check_weighted_mean",
        lambda x, *edges: book("check_weighted_mean")(x.clamp(-100, 100), *edges),
        "wrong for one node with one feature and a self-loop",
    ),
    (
        "check_straight_through",
        lambda x: book("check_straight_through")(x.nan_to_num()),
        "a nan is hidden",
    ),
    *((check, without_nan(check), "a nan in the inputs is hidden") for check in SHOWS_NAN),
    ("check_quantize", scale_in_half, "scales must be float32 or float64, got torch.float16"),
    ("check_prepare", on_white, "gives wrong values"),
    (
        "check_groups",
        lambda *args: [g | {"weight_decay": 0.1} for g in book("check_groups")(*args)],
        "another setting",
    ),
    (
        "check_continue",
        then("check_continue", lambda optimizer, *_: optimizer.zero_grad()),
        "the gradient of",
    ),
    ("check_load_matching", then("check_load_matching", clear), "the gradient of"),
    ("check_load", then("check_load", clear), "the gradient of"),
    ("check_groups", then("check_groups", clear), "the gradient of"),
    ("check_capture", then("check_capture", clear), "the gradient of"),
    ("check_accuracy", then("check_accuracy", clear), "the gradient of"),
    ("check_answers", then("check_answers", clear), "the gradient of"),
    ("check_train_mode", then("check_train_mode", hooked), "a hook is left"),
    ("check_bad_samples", then("check_bad_samples", hooked), "a hook is left"),
    ("check_stream", then("check_stream", unfreeze), "requires_grad of"),
    ("check_load_matching", then("check_load_matching", unfreeze), "requires_grad of"),
    ("check_load", then("check_load", unfreeze), "requires_grad of"),
    ("check_accuracy", then("check_accuracy", unfreeze), "requires_grad of"),
    ("check_predict", then("check_predict", unfreeze), "requires_grad of"),
    ("check_move", then("check_move", unfreeze), "requires_grad of"),
    ("check_guarded_step", then("check_guarded_step", unfreeze), "requires_grad of"),
    ("check_bad_samples", then("check_bad_samples", unfreeze), "`requires_grad` of"),
    (
        "check_train_only_b",
        then("check_train_only_b", lambda a, b, x: unfreeze(a)),
        "requires_grad of",
    ),
    *[
        (check, viewed(check), "view size is not compatible")
        for check in (
            "check_mask",
            "check_accumulate",
            "check_dice",
            "check_masked_mean",
            "check_signed_sqrt",
            "check_shard_gradients",
            "check_bad_samples",
            "check_train_only_b",
            "check_mistaken_for",
            "check_quantize",
            "check_capture",
            "check_document_rule",
            "check_generator_step",
            "check_predict",
            "check_stream",
            "check_subgraph",
        )
    ],
]


@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_rejected(check, answer, says):
    chapter = next(chapter for chapter, name in ALL if name == check)
    expect(checker(chapter, check)(answer), says)
