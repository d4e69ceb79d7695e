"""Helpers of the chapter on modules: an inventory of attributes, a table of layers.

Source: `torch.nn.Module`, https://pytorch.org/docs/stable/generated/torch.nn.Module.html
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from helpers import checks
from helpers.evaluation import preserve_modes


def inventory(module: nn.Module) -> dict[str, str]:
    """Return for each attribute of `module` with tensors whether it moves, saves and trains.

    The words are verified on a copy: `moves` (it follows `to()` to another device, here the meta
    device), `saves` (it is in the `state_dict`), `trains` (it is in `parameters()` and requires
    grad). An attribute to which none applies is `lost`. Attributes without a tensor are left out;
    lists, tuples and dicts are searched.

    All attributes of `module` itself are listed. Of its submodules, and of attributes that begin
    with an underscore, only lost ones are listed, by their path, as in `0.basis`.

    Raises:
        TypeError: `module` is not a module.
        ValueError: `module` is already on the meta device, so that no move could be detected.
    """
    checks.module("module", module)
    module = getattr(module, "_orig_mod", module)  # of torch.compile(module)
    tensors_of = _held(module)
    if any(t.is_meta for ts in tensors_of.values() for t in ts):
        raise ValueError("expected a module with data, got one on the meta device")
    # deepcopy supports neither tensors with a graph, which are not registered, so they do not move,
    # nor locks, files and generators
    memo: dict[int, Any] = {id(t): t for ts in tensors_of.values() for t in ts if not t.is_leaf}
    for name, value in _attributes(module).items():
        if not tensors_of[name]:
            memo[id(value)] = value
    after = _held(copy.deepcopy(module, memo).to("meta"))
    parameters = {id(p): p.requires_grad for p in module.parameters()}
    saved = {id(t) for t in module.state_dict(keep_vars=True).values()}
    uses = {}
    for name, tensors in tensors_of.items():
        if name not in after:  # torch.compile's attributes are not copied
            continue
        facts = {
            # another reference to a parameter moves, too, because `to` changes the parameter
            "moves": all(
                id(t) in parameters or m.is_meta for t, m in zip(tensors, after[name], strict=True)
            ),
            "saves": any(id(t) in saved for t in tensors),
            "trains": any(parameters.get(id(t), False) for t in tensors),
        }
        words = ", ".join(word for word, true in facts.items() if true)
        if tensors and (not words or not ("." in name or name.startswith("_"))):
            uses[name] = words or "lost"
    return uses


def _held(module: nn.Module) -> dict[str, list[Tensor]]:
    """Return the tensors of each attribute, and by path those of unregistered attributes below."""
    own = {
        n: v for d in (module._parameters, module._buffers, module._modules) for n, v in d.items()
    }
    return {n: list(_tensors(value)) for n, value in (own | _attributes(module)).items()}


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module and its submodules that are not registered, by path."""
    return {
        f"{path}.{name}" if path else name: value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if name not in ("_parameters", "_buffers", "_modules")
    }


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        # by name: moving to another device may untie a tied tensor
        yield from (p for _, p in value.named_parameters(remove_duplicate=False))
        yield from (b for _, b in value.named_buffers(remove_duplicate=False))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def summary(model: nn.Module, *inputs: Tensor) -> str:
    """Return `torchinfo`'s table of the layers, output shapes and parameters of `model`.

    `model(*inputs)` runs once, in eval mode and without gradients. Unlike `torchinfo.summary`, this
    restores every layer's mode, and omits the estimates of time and memory.

    Args:
        model: on the same device as the inputs.
        inputs: arguments of `forward`, at least one tensor.

    Raises:
        TypeError: `model` is not a module.
        ValueError: no input is given.
        RuntimeError: the forward pass failed; its own error is the cause.

    Source: https://github.com/TylerYep/torchinfo
    """
    import torchinfo

    checks.module("model", model)
    if not inputs:
        raise ValueError("expected the inputs of forward, got none")
    with preserve_modes(model):
        table = torchinfo.summary(model, input_data=list(inputs), verbose=0)
    lines = str(table).splitlines()
    end = next(n for n, line in enumerate(lines) if line.startswith("Non-trainable params"))
    return "\n".join(lines[: end + 1])
