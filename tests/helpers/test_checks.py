"""Tests of arguments of another kind: helpers name the argument, and change nothing."""

import copy
import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset

from helpers import (
    allocator,
    attention,
    autograd,
    backward,
    binary_losses,
    checkpoints,
    checks,
    child,
    convolution,
    cuda_semantics,
    data_loading,
    data_parallel,
    debugging,
    detach,
    diffusion,
    digits,
    embeddings,
    evaluation,
    explain,
    export,
    figures,
    fine_tuning,
    flex_attention,
    forward,
    generative,
    grad_modes,
    graphs,
    images,
    installation,
    language_models,
    learning_rate,
    losses,
    memory_caching,
    mixed_precision,
    modules,
    monitoring,
    names,
    normalization,
    reinforcement,
    reproducibility,
    review,
    sequences,
    sparse,
    tensor_recipes,
    tensors,
    time_series,
    timing,
    training_loop,
    views_and_copies,
)
from helpers.demos import convolution as convolution_demos
from helpers.demos import cuda_semantics as device_demos
from helpers.demos import data_loading as loading_demos
from helpers.demos import diffusion as diffusion_demos
from helpers.demos import generative as generative_demos
from helpers.demos import grad_modes as mode_demos
from helpers.demos import graphs as graph_demos
from helpers.demos import images as image_demos
from helpers.demos import normalization as norm_demos
from helpers.demos import performance as speed_demos
from helpers.demos import reproducibility as reproducibility_demos
from helpers.demos import tensor_recipes as recipe_demos
from helpers.demos import time_series as series_demos

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
    "saved_bytes x": lambda v: grad_modes.saved_bytes(nn.Identity(), v),
    "to_tf32 x": reproducibility.to_tf32,
    "backends query": lambda v: attention.backends(v, X, X),
    "backends key": lambda v: attention.backends(X, v, X),
    "backends value": lambda v: attention.backends(X, X, v),
    "storage_id tensor": autograd.storage_id,
    "graph output": autograd.graph,
    "where tensor": cuda_semantics.where,
    "equal a": lambda v: forward.equal(v, X),
    "equal b": lambda v: forward.equal(X, v),
    "dense_parts x": sparse.dense_parts,
    "soft_iou_loss probability": lambda v: binary_losses.soft_iou_loss(v, X),
    "soft_iou_loss target": lambda v: binary_losses.soft_iou_loss(X, v),
    "region_confusion x": lambda v: images.region_confusion(v, 2, 1),
    "write_clip frames": lambda v: images.write_clip("clip.avi", v),
    "decode ids": lambda v: language_models.Characters("ab").decode(v),
    "filter_logits logits": language_models.filter_logits,
    "uses tensor": mode_demos.uses,
    "sum_in_parts values": reproducibility_demos.sum_in_parts,
    "Mixture centres": lambda v: diffusion_demos.Mixture(v, BETAS, 1.0, BETAS),
    "Mixture weights": lambda v: diffusion_demos.Mixture(BETAS, v, 1.0, BETAS),
    "Mixture alpha_bars": lambda v: diffusion_demos.Mixture(BETAS, BETAS, 1.0, v),
    "near x": lambda v: diffusion_demos.near(v, [1.0], 0.1),
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
        (lambda: checks.number("n", X), TypeError, "n must be a number, got a tensor"),
        (lambda: checks.fraction("p", 2), ValueError, "p must be from 0 to 1, got 2"),
    ],
)
def test_helpers_reject_other_wrong_arguments(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_tensors_and_numbers_are_returned_unchanged():
    assert checks.tensor("x", X) is X and checks.number("n", 2.5) == 2.5
    weight = nn.Parameter(torch.ones(2))
    assert checks.tensor("weight", weight) is weight
    out, _ = sequences.run_packed(nn.GRU(4, 2, batch_first=True), X, [3, 2])
    assert out.shape == (2, 3, 2) and generative.ring(0).shape == (0, 2)


# ---------------------------------------------------------------- models, optimizers, functions


MODEL = nn.Linear(4, 2)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)
DATA = TensorDataset(X[0], torch.zeros(3, dtype=torch.int64))
BATCHES = DataLoader(DATA, batch_size=2)
FRAMES = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
EDGES, MATRIX = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[2, 1], [0, 3]])
GPT = language_models.GPT(4, 8, 8, 1, 2)


def fit(model=MODEL, loader=BATCHES, loss=F.cross_entropy, optimizer=OPTIMIZER, **options):
    return training_loop.fit(model, loader, loss, optimizer, **options)


def loss_of():
    return MODEL(X[0]).sum()


def enter(manager):
    with manager:
        pass


def alive_bytes(but):
    with autograd.watch_saved() as alive:
        alive.bytes(but)


MODELS = {
    "fit model": fit,
    "fit each of still": lambda v: fit(still=[v]),
    "evaluate model": lambda v: training_loop.evaluate(v, BATCHES, loss=F.cross_entropy),
    "untrained model": lambda v: training_loop.untrained(v, OPTIMIZER),
    "effects net": lambda v: grad_modes.effects(v, X),
    "saved_bytes net": lambda v: grad_modes.saved_bytes(v, X),
    "inventory module": modules.inventory,
    "summary model": lambda v: modules.summary(v, X),
    "load_weights model": lambda v: checkpoints.load_weights(v, {}),
    "unregistered module": cuda_semantics.unregistered,
    "replicate module": lambda v: data_parallel.replicate(v, 2),
    "overfit model": lambda v: debugging.overfit(v, loss_of, OPTIMIZER),
    "movement model": lambda v: debugging.movement(v, loss_of, OPTIMIZER),
    "first_nonfinite model": lambda v: debugging.first_nonfinite(loss_of, v),
    "first_difference first": lambda v: debugging.first_difference(v, MODEL, X),
    "first_difference second": lambda v: debugging.first_difference(MODEL, v, X),
    "census model": debugging.census,
    "gradients module": detach.gradients,
    "preserve_modes model": lambda v: enter(evaluation.preserve_modes(v)),
    "evaluating model": lambda v: enter(evaluation.evaluating(v)),
    "why_not model": lambda v: export.why_not(v, X),
    "audit model": lambda v: fine_tuning.audit(v, OPTIMIZER),
    "keep model": fine_tuning.keep,
    "changed model": lambda v: fine_tuning.changed({}, v),
    "head_of model": fine_tuning.head_of,
    "copied_buffers model": lambda v: enter(forward.copied_buffers(v)),
    "perplexity model": lambda v: language_models.perplexity(v, []),
    "generate model": lambda v: language_models.generate(v, STEPS, 1, context=8),
    "training_bytes model": language_models.training_bytes,
    "moving model": lambda v: normalization.moving(v, X),
    "alive_bytes but": alive_bytes,
    "paths module": lambda v: convolution_demos.paths(v, (1, 4)),
    "overlap layer": convolution_demos.overlap,
    "neighbour_noise layer": lambda v: norm_demos.neighbour_noise(v, 2),
}
OPTIMIZERS = {
    "fit optimizer": lambda v: fit(optimizer=v),
    "untrained optimizer": lambda v: training_loop.untrained(MODEL, v),
    "overfit optimizer": lambda v: debugging.overfit(MODEL, loss_of, v),
    "movement optimizer": lambda v: debugging.movement(MODEL, loss_of, v),
    "audit optimizer": lambda v: fine_tuning.audit(MODEL, v),
}
FUNCTIONS = {
    "fit loss_function": lambda v: fit(loss=v),
    "evaluate loss": lambda v: training_loop.evaluate(MODEL, BATCHES, loss=v),
    "reach function": lambda v: attention.reach(v, X),
    "saved_tensors function": autograd.saved_tensors,
    "blame function": backward.blame,
    "rehearse step": lambda v: cuda_semantics.rehearse(v),
    "H5Dataset transform": lambda v: data_loading.H5Dataset("a.h5", ["x"], v),
    "overfit loss": lambda v: debugging.overfit(MODEL, v, OPTIMIZER),
    "movement loss": lambda v: debugging.movement(MODEL, v, OPTIMIZER),
    "neighbours model": lambda v: debugging.neighbours(v, X),
    "broadcasting_lines function": debugging.broadcasting_lines,
    "first_nonfinite function": debugging.first_nonfinite,
    "leaks step": debugging.leaks,
    "ddpm_sample model": lambda v: diffusion.ddpm_sample(v, (1, 2), BETAS),
    "offsets model": lambda v: language_models.offsets(v, IDS),
    "leaks model": lambda v: language_models.leaks(v, IDS, 4),
    "rates make": lambda v: learning_rate.rates(v, 2),
    "target_distribution loss": lambda v: losses.target_distribution(v, 2),
    "result_types sin": lambda v: mixed_precision.result_types({"sin": v}, "cpu", torch.bfloat16),
    "reads function": lambda v: sequences.reads(v, X),
    "largest_tensor function": tensor_recipes.largest_tensor,
    "forecast model": lambda v: time_series.forecast(v, X[0], 1),
    "time_ratio slow": lambda v: timing.time_ratio(v, float),
    "time_ratio fast": lambda v: timing.time_ratio(float, v),
    "view_or_copy operation": lambda v: views_and_copies.view_or_copy(v, X),
}
LOADERS = {
    "fit loader": lambda v: fit(loader=v),
    "evaluate loader": lambda v: training_loop.evaluate(MODEL, v, loss=F.cross_entropy),
    "perplexity batches": lambda v: language_models.perplexity(GPT, v),
}
MAPPINGS = {
    "draw_graphs outputs": lambda v: autograd.draw_graphs(v, {}),
    "draw_graphs names": lambda v: autograd.draw_graphs({"x": X}, v),
    "save_checkpoint state": lambda v: checkpoints.save_checkpoint(v, "a.pt"),
    "set_rng_state state": checkpoints.set_rng_state,
    "differences a": lambda v: checkpoints.differences(v, {}),
    "differences b": lambda v: checkpoints.differences({}, v),
    "changed before": lambda v: fine_tuning.changed(v, MODEL),
    "result_types operations": lambda v: mixed_precision.result_types(v, "cpu", torch.bfloat16),
    "draw_curves curves": lambda v: figures.draw_curves(v, "x", "y"),
    "first_difference names": lambda v: debugging.first_difference(MODEL, MODEL, X, names=v),
}
TEXTS = {
    "Characters text": language_models.Characters,
    "encode text": lambda v: language_models.Characters("a").encode(v),
    "chunk_reads key": lambda v: data_loading.chunk_reads("a.h5", v, [0]),
    "H5Dataset each of keys": lambda v: data_loading.H5Dataset("a.h5", [v]),
}
OF_A_KIND = {
    "must be an nn.Module": (MODELS, ["abc", nn.Linear, {}, [X], 3, OPTIMIZER, (x for x in ())]),
    "must be a torch.optim.Optimizer": (OPTIMIZERS, ["sgd", torch.optim.SGD, MODEL, {}, None]),
    "must be a function or a module": (FUNCTIONS, ["abc", 3, X, [], nn.Linear]),
    "must be an iterable of batches, such as a DataLoader": (
        LOADERS,
        ["abc", None, 3, DATA, nn.Sequential(MODEL), X, DataLoader],
    ),
    "must be a dict": (MAPPINGS, ["abc", 3, [X], MODEL, X]),
    "must be a str": (TEXTS, [None, 3, ["a"], b"a"]),
}


@pytest.mark.parametrize(
    "words, call", [(words, call) for words, (calls, _) in OF_A_KIND.items() for call in calls]
)
def test_helpers_name_an_argument_of_another_kind(words, call):
    calls, wrong = OF_A_KIND[words]
    for value in wrong:
        kind = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        with pytest.raises(TypeError) as caught:
            calls[call](value)
        assert str(caught.value) == f"{call.partition(' ')[2]} {words}, got {kind}"


# ---------------------------------------------------------------- numbers


COUNTS = {
    "fit epochs 0": lambda v: fit(epochs=v),
    "sinusoids length": lambda v: attention.sinusoids(v, 4),
    "sinusoids width": lambda v: attention.sinusoids(4, v),
    "random_trace seed": lambda v: allocator.random_trace(v, 5),
    "process_info pid": reproducibility.process_info,
    "shared_memory_needed workers": lambda v: data_loading.shared_memory_needed(X, v),
    "shared_memory_needed prefetch_factor": lambda v: data_loading.shared_memory_needed(X, 2, v),
    "chunk_reads cache 0": lambda v: data_loading.chunk_reads("a.h5", "x", [0], v),
    "chunk_reads each of indices": lambda v: data_loading.chunk_reads("a.h5", "x", [v]),
    "scatter dim": lambda v: data_parallel.scatter(X, 2, v),
    "gather dim": lambda v: data_parallel.gather([X], v),
    "StandIn dim": lambda v: data_parallel.StandIn(MODEL, dim=v),
    "overfit steps 1": lambda v: debugging.overfit(MODEL, loss_of, OPTIMIZER, v),
    "leaks rounds 3": lambda v: debugging.leaks(loss_of, v),
    "ddpm_sample each size of shape 0": lambda v: diffusion.ddpm_sample(print, (v,), BETAS),
    "time_embedding width": lambda v: diffusion.time_embedding(STEPS, v),
    "load each of classes": lambda v: digits.load([v]),
    "split validation": digits.split,
    "confusion_matrix num_classes": lambda v: evaluation.confusion_matrix(STEPS, STEPS, v),
    "confusion_matrix ignore_index": lambda v: evaluation.confusion_matrix(STEPS, STEPS, 2, v),
    "most_confused k": lambda v: evaluation.most_confused(MATRIX, v),
    "top_k_accuracy k": lambda v: evaluation.top_k_accuracy(X[0], torch.zeros(3).long(), v),
    "reliability bins": lambda v: evaluation.reliability(torch.ones(2), torch.ones(2), v),
    "write_report confused": lambda v: evaluation.write_report("a.csv", MATRIX, ["a", "b"], v),
    "window_rule size": flex_attention.window_rule,
    "window_rule past": lambda v: flex_attention.window_rule(2, v),
    "negative_edges count": lambda v: graphs.negative_edges(EDGES, 4, v),
    "region_confusion blocks": lambda v: images.region_confusion(X, v, 1),
    "region_confusion neighbour": lambda v: images.region_confusion(X, 2, v),
    "segment_indices num_frames": lambda v: images.segment_indices(v, 2, True),
    "segment_indices segments": lambda v: images.segment_indices(4, v, True),
    "GPT vocab 1": language_models.GPT,
    "GPT width 1": lambda v: language_models.GPT(4, v),
    "GPT context 1": lambda v: language_models.GPT(4, context=v),
    "GPT layers 0": lambda v: language_models.GPT(4, layers=v),
    "GPT heads 1": lambda v: language_models.GPT(4, heads=v),
    "Block width 1": lambda v: language_models.Block(v, 2, True, 0.0),
    "offsets largest": lambda v: language_models.offsets(GPT, IDS, v),
    "leaks vocab": lambda v: language_models.leaks(GPT, IDS, v),
    "filter_logits top_k": lambda v: language_models.filter_logits(X, top_k=v),
    "generate new 0": lambda v: language_models.generate(GPT, STEPS, v, context=8),
    "generate context 1": lambda v: language_models.generate(GPT, STEPS, 1, context=v),
    "generate end": lambda v: language_models.generate(GPT, STEPS, 1, context=8, end=v),
    "training_bytes optimizer_states 0": lambda v: language_models.training_bytes(MODEL, v),
    "rates epochs 0": lambda v: learning_rate.rates(lambda o: StepLR(o, 2), v),
    "target_distribution classes 1": lambda v: losses.target_distribution(torch.sum, v),
    "run_on_card capacity 0": lambda v: memory_caching.run_on_card(loss_of, v),
    "time_ratio rounds 1": lambda v: timing.time_ratio(float, float, v),
    "schedule batches 1": lambda v: loading_demos.schedule(1, 1, v, 2),
    "schedule workers 0": lambda v: loading_demos.schedule(1, 1, 2, v),
    "schedule prefetch_factor 1": lambda v: loading_demos.schedule(1, 1, 2, 2, v),
    "copies load 0": lambda v: device_demos.copies(v, 1, 1, 1, False),
    "copies batches 1": lambda v: device_demos.copies(1, 1, 1, v, False),
    "community_graph nodes 0": graph_demos.community_graph,
    "community_graph classes 1": lambda v: graph_demos.community_graph(4, v),
    "tower depth": lambda v: mode_demos.tower(v, 4),
    "tower width": lambda v: mode_demos.tower(1, v),
    "memory_by_mode batch": lambda v: mode_demos.memory_by_mode(1, v, 4),
    "blobs n 0": generative_demos.blobs,
    "blobs size 3": lambda v: generative_demos.blobs(1, v),
    "new_gan latent 1": lambda v: generative_demos.new_gan(latent=v),
    "VAE latent 1": generative_demos.VAE,
    "random_walk n 0": series_demos.random_walk,
    "hourly n 0": series_demos.hourly,
    "sum_in_parts parts": lambda v: reproducibility_demos.sum_in_parts(X[0, 0], v),
    "queue steps 0": speed_demos.queue,
    "queue gap 0": lambda v: speed_demos.queue(gap=v),
    "cdist_errors n 1": lambda v: recipe_demos.cdist_errors([1.0], v),
    "cdist_errors d 1": lambda v: recipe_demos.cdist_errors([1.0], 2, v),
    "overlap size 1": lambda v: convolution_demos.overlap(nn.Conv2d(1, 1, 1), v),
    "patches size": image_demos.patches,
    "statistics_noise size": norm_demos.statistics_noise,
    "statistics_noise trials 2": lambda v: norm_demos.statistics_noise(2, v),
    "neighbour_noise trials 2": lambda v: norm_demos.neighbour_noise(nn.Identity(), 2, v),
}
NUMBERS = {
    "rotary base": lambda v: attention.rotary(X, torch.arange(3), v),
    "sinusoids base": lambda v: attention.sinusoids(3, 4, v),
    "format_size nbytes": allocator.format_size,
    "first_difference rtol": lambda v: debugging.first_difference(MODEL, MODEL, X, rtol=v),
    "watchdog seconds": lambda v: enter(debugging.watchdog(v, "w.txt")),
    "noise_schedule first": lambda v: diffusion.noise_schedule(5, v),
    "noise_schedule last": lambda v: diffusion.noise_schedule(5, 0.1, v),
    "time_embedding longest": lambda v: diffusion.time_embedding(STEPS, 4, v),
    "guided scale": lambda v: diffusion.guided(X, X, v),
    "scores zero_division": lambda v: evaluation.scores(MATRIX, v),
    "load_release rtol": lambda v: export.load_release("r", nn.Linear, v),
    "load_release atol": lambda v: export.load_release("r", nn.Linear, 0.1, v),
    "LoRALinear alpha": lambda v: fine_tuning.LoRALinear(nn.Linear(2, 2), 1, v),
    "ring std": lambda v: generative.ring(2, std=v),
    "count_modes radius": lambda v: generative.count_modes(X[0], X[0], v),
    "count_modes least": lambda v: generative.count_modes(X[0], X[0], 1.0, v),
    "write_clip fps": lambda v: images.write_clip("a.avi", FRAMES, v),
    "filter_logits temperature": lambda v: language_models.filter_logits(X, v),
    "filter_logits top_p": lambda v: language_models.filter_logits(X, top_p=v),
    "generate temperature": lambda v: language_models.generate(
        GPT, STEPS, 1, context=8, temperature=v
    ),
    "Block dropout": lambda v: language_models.Block(4, 2, True, v),
    "one_weight lr": learning_rate.one_weight,
    "changes each of values": lambda v: learning_rate.changes([v]),
    "fit max_norm": lambda v: fit(max_norm=v),
    "scaled_step max_norm": lambda v: mixed_precision.scaled_step(
        torch.amp.GradScaler("cpu", enabled=False), OPTIMIZER, v
    ),
    "log step": lambda v: monitoring.Logger().log(v, {}),
    "set_forget_bias value": lambda v: sequences.set_forget_bias(nn.LSTM(2, 2), v),
    "schedule load": lambda v: loading_demos.schedule(v, 1, 2, 2),
    "schedule train": lambda v: loading_demos.schedule(1, v, 2, 2),
    "community_graph inside": lambda v: graph_demos.community_graph(4, inside=v),
    "community_graph outside": lambda v: graph_demos.community_graph(4, outside=v),
    "hourly trend": lambda v: series_demos.hourly(4, v),
    "cdist_errors each of offsets": lambda v: recipe_demos.cdist_errors([v], 2),
    "Mixture std": lambda v: diffusion_demos.Mixture(BETAS, BETAS, v, BETAS),
    "near radius": lambda v: diffusion_demos.near(BETAS, [1.0], v),
}


@pytest.mark.parametrize("call", COUNTS)
def test_helpers_require_ints_as_counts(call):
    _, *words = call.split()
    least = int(words.pop()) if words[-1].isdigit() else None
    name = " ".join(words)
    for value in ("3", 2.5, 2.0, True, math.nan, [3], torch.ones(2), int):
        with pytest.raises(TypeError, match=f"^{name} must be an int, got "):
            COUNTS[call](value)
    if least is not None:
        with pytest.raises(ValueError, match=f"^{name} must be at least {least}, got {least - 1}$"):
            COUNTS[call](least - 1)


@pytest.mark.parametrize("call", NUMBERS)
def test_helpers_require_numbers(call):
    for value in ("3", [3.0], torch.ones(2), 1j, float):
        with pytest.raises(TypeError, match=f"^{call.partition(' ')[2]} must be a number, got "):
            NUMBERS[call](value)


@pytest.mark.parametrize(
    "call, value, message",
    [
        ("rotary base", -1.0, "base must be above 0, got -1.0"),
        ("sinusoids base", 0, "base must be above 0, got 0"),
        ("first_difference rtol", math.nan, "rtol must be at least 0, got nan"),
        ("watchdog seconds", 0.0, "seconds must be above 0, got 0.0"),
        ("watchdog seconds", math.inf, "seconds must be finite, got inf"),
        ("time_embedding longest", math.inf, "longest must be finite, got inf"),
        ("load_release rtol", math.nan, "rtol must be at least 0, got nan"),
        ("load_release atol", -1, "atol must be at least 0, got -1"),
        ("LoRALinear alpha", math.nan, "alpha must be finite, got nan"),
        ("ring std", math.inf, "std must be finite, got inf"),
        ("count_modes radius", -1.0, "radius must be above 0, got -1.0"),
        ("count_modes least", 2.0, "least must be from 0 to 1, got 2.0"),
        ("Block dropout", math.nan, "dropout must be from 0 to 1, got nan"),
        ("one_weight lr", -1.0, "lr must be at least 0, got -1.0"),
        ("one_weight lr", math.inf, "lr must be finite, got inf"),
        ("fit max_norm", -1.0, "max_norm must be above 0, got -1.0"),
        ("fit max_norm", math.nan, "max_norm must be above 0, got nan"),
        ("set_forget_bias value", math.nan, "value must be finite, got nan"),
    ],
)
def test_helpers_require_numbers_in_their_range(call, value, message):
    with pytest.raises(ValueError) as caught:
        NUMBERS[call](value)
    assert str(caught.value) == message


# ---------------------------------------------------------------- other arguments


INTEGERS = torch.ones(2, 3, 4, dtype=torch.int64)
META = X.to("meta")


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: fit(still=MODEL), TypeError, "still must be a list of modules, got Linear"),
        (lambda: fit(still=3), TypeError, "still must be a list of modules, got int"),
        (lambda: fit(loader=[DATA[0]]), ValueError, "expected batches, got a single sample"),
        (lambda: training_loop.accuracy(X[0], X[0, :, 0]), TypeError, "labels must be a tensor of"),
        (
            lambda: attention.rotary(X[0, 0, 0], STEPS),
            ValueError,
            "features of shape .* shape \\(\\)",
        ),
        (
            lambda: allocator.CachingAllocator().malloc(5, address="0"),
            TypeError,
            "address must be an int",
        ),
        (lambda: allocator.random_trace(0, 2.5), TypeError, "n must be an int, got 2.5"),
        (lambda: allocator.check_trace(None), TypeError, "trace must be a list of operations"),
        (lambda: allocator.replay([], addresses=3), TypeError, "addresses must be a list, got int"),
        (lambda: autograd.draw_graphs({"x": 3}, {}), TypeError, "output must be a tensor, got int"),
        (lambda: child.call("f"), TypeError, "function must be a function, got str"),
        (lambda: child.run("1", None), TypeError, "os.PathLike object, not NoneType"),
        (
            lambda: convolution.receptive_field(nn.ReLU()).cells(-1),
            ValueError,
            "i must be at least 0",
        ),
        (lambda: cuda_semantics.visible_devices("0", True), TypeError, "a text and an int, got"),
        (lambda: data_loading.fresh_rng(0), ValueError, "expected a call in a worker"),
        (lambda: data_loading.H5Dataset("a.h5", None), ValueError, "at least one dataset .* None"),
        (lambda: data_loading.chunk_reads("a.h5", "x", None), TypeError, "indices must be a list"),
        (lambda: debugging.neighbours(abs, X[0, 0, 0]), ValueError, "x must have the shape"),
        (lambda: diffusion.ddpm_sample(abs, None, BETAS), ValueError, "shape must be a tuple"),
        (lambda: diffusion.ddpm_sample(abs, {2}, BETAS), ValueError, "shape must be a tuple"),
        (
            lambda: diffusion.q_sample(X, STEPS, INTEGERS, BETAS),
            TypeError,
            "noise must be a floating",
        ),
        (
            lambda: diffusion.reverse_step(X, INTEGERS, 0, BETAS, X),
            TypeError,
            "predicted must be a fl",
        ),
        (
            lambda: diffusion.reverse_step(X, X, 0, BETAS, INTEGERS),
            TypeError,
            "noise must be a float",
        ),
        (lambda: diffusion.reverse_step(INTEGERS, X, 0, BETAS, X), TypeError, "x must be a float"),
        (lambda: diffusion.guided(INTEGERS, X, 1.0), TypeError, "conditional must be a floating"),
        (lambda: diffusion.guided(X, INTEGERS, 1.0), TypeError, "unconditional must be a floating"),
        (
            lambda: diffusion.reverse_step(X, X, 0, BETAS.to("meta"), X),
            TypeError,
            "betas .* on the meta",
        ),
        (lambda: digits.load(3), TypeError, "classes must be a list of digits, got int"),
        (
            lambda: embeddings.out_of_range(IDS.to("meta"), nn.Embedding(2, 2)),
            TypeError,
            "on the meta",
        ),
        (
            lambda: embeddings.out_of_range(IDS, nn.Embedding),
            TypeError,
            "table must be an embedding",
        ),
        (
            lambda: evaluation.auroc(META[0, 0], STEPS),
            TypeError,
            "score must .* on the meta device",
        ),
        (lambda: evaluation.write_report("a", MATRIX, 2), TypeError, "names must be a list"),
        (lambda: evaluation.averages(MATRIX, "0"), TypeError, "zero_division must be a number"),
        (lambda: export.error_reason("abc"), TypeError, "error must be an exception, got str"),
        (
            lambda: export.load_release("r", "abc"),
            TypeError,
            "a class or a function as build, got str",
        ),
        (lambda: figures.figure("3"), TypeError, "expected a number of panels, .* '3'"),
        (lambda: figures.figure(size=3), TypeError, "a size as a tuple: got None and 3"),
        (lambda: figures.draw_curves({"a": [1]}, 3, "y"), TypeError, "labels as text, got 3"),
        (lambda: fine_tuning.download_of(3), TypeError, "build must be a function, got int"),
        (
            lambda: flex_attention.document_index(None),
            TypeError,
            "lengths must be one list .* None",
        ),
        (lambda: generative.ring(True), ValueError, "n must be an int of at least 0, got True"),
        (lambda: generative.ring_centres(True), ValueError, "modes must be an int .*, got True"),
        (lambda: generative.count_modes(META[0], X[0], 1.0), TypeError, "samples .* on the meta"),
        (lambda: graphs.gcn_norm(EDGES, None), ValueError, "number of nodes must be an int"),
        (lambda: graphs.negative_edges(EDGES, None, 0), ValueError, "number of nodes must be"),
        (lambda: graphs.gcn_norm(EDGES.to("meta"), 2), ValueError, "shape \\(2, 2\\) on meta"),
        (
            lambda: graphs.gcn_norm(EDGES, int),
            ValueError,
            "number of nodes must be an int .* <class",
        ),
        (lambda: graphs.batch_graphs(3), TypeError, "graphs must be a list of pairs, got int"),
        (lambda: graphs.batch_graphs([3]), ValueError, r"expected pairs .*, got int$"),
        (
            lambda: graphs.sample_neighbours(EDGES, STEPS, 3),
            TypeError,
            "fanouts must be a list of ints",
        ),
        (
            lambda: images.read_frames("a.avi", {"a": 1}),
            TypeError,
            "integers, got a dict of others",
        ),
        (lambda: installation.smoke_test(None), TypeError, "device must be a text such as 'cuda'"),
        (
            lambda: language_models.Characters("ab").decode(torch.tensor([-1])),
            ValueError,
            r"ids must be from 0 to 2, got \[-1\]",
        ),
        (
            lambda: language_models.Characters("ab").decode(IDS),
            ValueError,
            r"ids must have the shape \(T,\)",
        ),
        (lambda: language_models.padded("ab", None), TypeError, "lines must be a list, got str"),
        (lambda: language_models.padded(["ab"], "ab"), TypeError, "expected Characters, got str"),
        (lambda: language_models.Block(6, 4, True, 0.0), ValueError, "width must be a multiple"),
        (lambda: language_models.labels_of(X[0], STEPS), ValueError, "ids must be integers"),
        (
            lambda: language_models.next_token_loss(INTEGERS, IDS),
            TypeError,
            "logits must be a floating",
        ),
        (lambda: language_models.perplexity(GPT, [3]), TypeError, "expected batches .*, got int"),
        (
            lambda: language_models.offsets(lambda ids: ids, IDS),
            ValueError,
            "must return logits .* \\(2, 3\\)",
        ),
        (lambda: language_models.offsets(str, IDS), ValueError, "must return logits .* got str"),
        (
            lambda: language_models.filter_logits(X[0, 0, 0]),
            ValueError,
            "logits must have the shape",
        ),
        (lambda: learning_rate.changes(None), TypeError, "values must be a list of numbers"),
        (
            lambda: learning_rate.rates(ReduceLROnPlateau, 2, metrics=3),
            ValueError,
            "expected 2 metrics",
        ),
        (
            lambda: mixed_precision.scaled_step(torch.amp.GradScaler("cpu", enabled=False), 3),
            TypeError,
            "got int",
        ),
        (lambda: monitoring.Logger("abc"), TypeError, "a sink must be a function .* got str"),
        (
            lambda: monitoring.Logger(monitoring.TensorBoardSink),
            TypeError,
            "got the class TensorBoardSink",
        ),
        (lambda: monitoring.Logger().replay(3), TypeError, "a sink must be a function .* got int"),
        (lambda: monitoring.TensorBoardSink(None), TypeError, "os.PathLike object, not NoneType"),
        (lambda: names.undefined_names(3), TypeError, "source must be a text, got int"),
        (lambda: checkpoints.set_rng_state({}), ValueError, "without .'numpy', 'python', 'torch'"),
        (lambda: explain.answers(3), TypeError, "answers expects a text, got int"),
        (lambda: explain.answers("nan", "fr"), ValueError, "lang must be one of en, zh, got 'fr'"),
        (lambda: review.review(b"x"), TypeError, "source must be a text, got bytes"),
        (lambda: review.review("x", "abc"), TypeError, "chosen must be a collection of ids"),
        (
            lambda: sequences.masked_mean(X, {"a": 1}),
            TypeError,
            "lengths must be integers, got dict",
        ),
        (
            lambda: sequences.run_packed(nn.GRU, X, [3, 3]),
            TypeError,
            "rnn must be an nn.RNN, nn.LSTM",
        ),
        (lambda: tensors.gap(META), TypeError, "x must be a tensor with values"),
        (
            lambda: time_series.Standardizer(META[0]),
            TypeError,
            "train must be a tensor with values",
        ),
        (lambda: time_series.Standardizer(X[0])([1.0]), TypeError, "expected a tensor, got list"),
        (lambda: time_series.Standardizer(X[0]).undo(None), TypeError, "a tensor, got NoneType"),
        (
            lambda: time_series.persistence(X[0], 1, True),
            ValueError,
            "season must be from 1 .* True",
        ),
    ],
)
def test_helpers_reject_other_arguments(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_load_checkpoint_rejects_another_location(tmp_path):
    checkpoints.save_checkpoint({"x": X}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="map_location must be a device such as 'cpu': .* abc"):
        checkpoints.load_checkpoint(tmp_path / "a.pt", "abc")
    with pytest.raises(TypeError, match="map_location must be a device, got int"):
        checkpoints.load_checkpoint(tmp_path / "a.pt", 3)
    for location in (None, "cpu", torch.device("cpu"), {"cpu": "cpu"}, lambda storage, _: storage):
        assert torch.equal(checkpoints.load_checkpoint(tmp_path / "a.pt", location)["x"], X)


COPY, LISTED, OLD_STATE = copy.deepcopy(MODEL), list(BATCHES), checkpoints.rng_state()


@pytest.mark.parametrize(
    "call",
    [
        lambda: fit(optimizer=None),
        lambda: fit(epochs=2.5),
        lambda: fit(max_norm=-1.0),
        lambda: fit(still=3),
        lambda: fit(loader=iter(LISTED), epochs=2),
        lambda: debugging.overfit(MODEL, loss_of, OPTIMIZER, 2.5),
        lambda: fine_tuning.LoRALinear(MODEL, 1, "abc"),
        lambda: reinforcement.soft_update(MODEL, COPY, "abc"),
        lambda: checkpoints.set_rng_state({"python": random.getstate()}),
        lambda: checkpoints.set_rng_state({**OLD_STATE, "torch": None}),
    ],
)
def test_a_rejected_call_changes_nothing(call):
    random.random(), np.random.rand(), torch.rand(())  # the states differ from OLD_STATE
    MODEL.eval()
    before = {name: value.clone() for name, value in MODEL.state_dict().items()}
    state = checkpoints.rng_state()
    with pytest.raises((TypeError, ValueError)):
        call()
    assert not MODEL.training and all(p.requires_grad for p in MODEL.parameters())
    assert checkpoints.differences(before, MODEL.state_dict()) == []
    assert checkpoints.differences(state, checkpoints.rng_state()) == []


def test_counts_may_be_integers_of_numpy_and_of_tensors():
    for value in (2, np.int64(2), np.array(2), torch.tensor(2)):
        assert checks.integer("n", value, 2) == 2 and type(checks.integer("n", value)) is int
    assert checks.finite("n", 0) == 0 and checks.positive("n", math.inf) == math.inf
    assert attention.sinusoids(torch.tensor(2), 4).shape == (2, 4)
    assert learning_rate.rates(lambda o: StepLR(o, 1), 0) == []
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for loader in (iter(BATCHES), (batch for batch in BATCHES), list(BATCHES)):
        assert len(fit(model, loader, optimizer=optimizer)) == 1
