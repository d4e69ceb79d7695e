"""Tests of arguments that are not a tensor, or not one number: helpers name the argument."""

import numpy as np
import pytest
import torch
from torch import nn

from helpers import (
    attention,
    debugging,
    diffusion,
    embeddings,
    generative,
    grad_modes,
    images,
    language_models,
    losses,
    scalars,
    sequences,
    training_loop,
    views_and_copies,
)

X = torch.ones(2, 3, 4)
STEPS, BETAS = torch.tensor([0, 1]), torch.tensor([0.1, 0.2])
IDS = torch.zeros(2, 3, dtype=torch.int64)
NOT_TENSORS = [None, "abc", np.ones((2, 3, 4), dtype=np.float32), [1.0]]

CALLS = {
    "reads x": lambda v: sequences.reads(torch.sum, v),
    "run_packed x": lambda v: sequences.run_packed(nn.GRU(4, 2, batch_first=True), v, [3, 3]),
    "masked_mean out": lambda v: sequences.masked_mean(v, [3, 3]),
    "count_modes samples": lambda v: generative.count_modes(v, X[0], 1.0),
    "count_modes centres": lambda v: generative.count_modes(X[0], v, 1.0),
    "kl mu": lambda v: generative.kl_to_standard_normal(v, X),
    "kl logvar": lambda v: generative.kl_to_standard_normal(X, v),
    "effects x": lambda v: grad_modes.effects(nn.Identity(), v),
    "same_storage a": lambda v: views_and_copies.same_storage(v, X),
    "same_storage b": lambda v: views_and_copies.same_storage(X, v),
    "view_or_copy t": lambda v: views_and_copies.view_or_copy(lambda t: X, v),
    "storage_cells t": views_and_copies.storage_cells,
    "attention_weights query": lambda v: attention.attention_weights(v, X),
    "attention_weights key": lambda v: attention.attention_weights(X, v),
    "reach x": lambda v: attention.reach(lambda x: x, v),
    "rotary x": lambda v: attention.rotary(v, torch.arange(3)),
    "q_sample x0": lambda v: diffusion.q_sample(v, STEPS, X, BETAS),
    "q_sample noise": lambda v: diffusion.q_sample(X, STEPS, v, BETAS),
    "q_sample alpha_bars": lambda v: diffusion.q_sample(X, STEPS, X, v),
    "reverse_step x": lambda v: diffusion.reverse_step(v, X, 0, BETAS, X),
    "reverse_step betas": lambda v: diffusion.reverse_step(X, X, 0, v, X),
    "guided conditional": lambda v: diffusion.guided(v, X, 2.0),
    "guided unconditional": lambda v: diffusion.guided(X, v, 2.0),
    "per_sample the_coefficients": lambda v: diffusion.per_sample(v, STEPS, X),
    "per_sample the_data": lambda v: diffusion.per_sample(BETAS, STEPS, v),
    "neighbours x": lambda v: debugging.neighbours(lambda x: x, v),
    "labels_of ids": lambda v: language_models.labels_of(v, STEPS),
    "labels_of lengths": lambda v: language_models.labels_of(IDS, v),
    "next_token_loss logits": lambda v: language_models.next_token_loss(v, IDS),
    "next_token_loss labels": lambda v: language_models.next_token_loss(X, v),
    "offsets ids": lambda v: language_models.offsets(nn.Embedding(4, 4), v),
    "leaks ids": lambda v: language_models.leaks(nn.Embedding(4, 4), v, 4),
    "generate ids": lambda v: language_models.generate(nn.Embedding(4, 4), v, 2, context=8),
    "accuracy scores": lambda v: training_loop.accuracy(v, torch.zeros(2)),
    "accuracy labels": lambda v: training_loop.accuracy(X[0], v),
}


@pytest.mark.parametrize("value", NOT_TENSORS, ids=["None", "str", "numpy", "list"])
@pytest.mark.parametrize("call", CALLS)
def test_helpers_name_an_argument_that_is_not_a_tensor(call, value):
    name = call.split()[1].replace("_", " ") if "the_" in call else call.split()[1]
    with pytest.raises(TypeError, match=f"^{name} must be a tensor, got {type(value).__name__}$"):
        CALLS[call](value)


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: sequences.masked_mean(X, None), TypeError, "lengths must be integers, got None"),
        (lambda: sequences.run_packed("gru", X, [3, 3]), TypeError, "rnn must be an nn.RNN"),
        (lambda: sequences.run_packed(nn.GRU(4, 2), X[0], [3]), ValueError, "three dimensions"),
        (lambda: embeddings.out_of_range(torch.ones(2).long(), None), TypeError, "table must be"),
        (lambda: debugging.neighbours(abs, X, None), TypeError, "sample must be an int, got None"),
        (lambda: language_models.padded([], None), ValueError, "expected at least one line"),
        (lambda: language_models.next_token_loss(X, IDS[:1]), ValueError, "expected logits"),
        (lambda: generative.ring(-1), ValueError, "n must be an int of at least 0, got -1"),
        (lambda: generative.kl_to_standard_normal(X.bool(), X), TypeError, "mu must be floating"),
        (lambda: attention.attention_weights(X, X[0, 0]), ValueError, "key must be"),
        (lambda: losses.target_distribution(torch.sum, 0), ValueError, "classes must be at least"),
        (lambda: images.read_frames("clip.avi", None), TypeError, "frame numbers must be integers"),
        (lambda: scalars.number("n", X), TypeError, "n must be a number, got a tensor"),
        (lambda: scalars.fraction("p", 2), ValueError, "p must be from 0 to 1, got 2"),
    ],
)
def test_helpers_reject_other_wrong_arguments(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_tensors_and_numbers_are_returned_unchanged():
    assert scalars.tensor("x", X) is X and scalars.number("n", 2.5) == 2.5
    weight = nn.Parameter(torch.ones(2))
    assert scalars.tensor("weight", weight) is weight
    out, _ = sequences.run_packed(nn.GRU(4, 2, batch_first=True), X, [3, 2])
    assert out.shape == (2, 3, 2) and generative.ring(0).shape == (0, 2)
