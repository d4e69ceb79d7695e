"""Helpers of the chapter on modules.

Source: `torch.nn.Module`, https://pytorch.org/docs/stable/generated/torch.nn.Module.html
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from helpers.evaluation import preserve_modes


def inventory(module: nn.Module) -> dict[str, str]:
    """What becomes of each attribute of `module` that holds tensors.

    Each word is tried out on a copy: `moves` (it follows `to()` to another device, here the meta
    device), `saves` (it is in the `state_dict`), `trains` (it is in `parameters()` and requires
    grad). An attribute of which none is true is `lost`. Attributes without a tensor are left
    out; lists, tuples and dicts are looked into.

    The attributes of `module` itself are all listed. Of its submodules, and of the attributes
    that begin with an underscore, only those that are lost are, by their path, as in `0.basis`.

    Raises:
        TypeError: `module` is not a module.
        ValueError: `module` is on the meta device already, so no move could be seen.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"expected an nn.Module, got {type(module).__name__}")
    held = _held(module)
    if any(t.is_meta for ts in held.values() for t in ts):
        raise ValueError("expected a module with data, got one on the meta device")
    # tensors with a history cannot be copied; as they are not registered, nothing moves them
    memo: dict[int, Any] = {id(t): t for ts in held.values() for t in ts if not t.is_leaf}
    after = _held(copy.deepcopy(module, memo).to("meta"))
    parameters = {id(p): p.requires_grad for p in module.parameters()}
    saved = {id(t) for t in module.state_dict(keep_vars=True).values()}
    found = {}
    for name, tensors in held.items():
        facts = {
            # what else points at a parameter moves along: `to` changes the parameter itself
            "moves": all(
                id(t) in parameters or m.is_meta for t, m in zip(tensors, after[name], strict=True)
            ),
            "saves": any(id(t) in saved for t in tensors),
            "trains": any(parameters.get(id(t), False) for t in tensors),
        }
        words = ", ".join(word for word, true in facts.items() if true)
        if tensors and (not words or not ("." in name or name.startswith("_"))):
            found[name] = words or "lost"
    return found


def _held(module: nn.Module) -> dict[str, list[Tensor]]:
    """The tensors of each attribute, and by their path those of unregistered ones further down."""
    own = {
        n: v for d in (module._parameters, module._buffers, module._modules) for n, v in d.items()
    }
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                own[f"{path}.{name}" if path else name] = value
    return {name: list(_tensors(value)) for name, value in own.items()}


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def summary(model: nn.Module, *inputs: Tensor) -> str:
    """The table of layers, output shapes and parameters that `torchinfo` makes of `model`.

    It runs `model(*inputs)` once, in eval mode and without gradients. Unlike `torchinfo.summary`
    it gives every layer back its own mode, and leaves out the estimates of time and memory.

    Args:
        model: on the same device as the inputs.
        inputs: what `forward` takes, at least one tensor.

    Raises:
        ValueError: no input is given.
        RuntimeError: the forward pass failed; its own error is the cause.

    Source: https://github.com/TylerYep/torchinfo
    """
    import torchinfo

    if not inputs:
        raise ValueError("summary needs the inputs of forward, got none")
    with preserve_modes(model):
        table = torchinfo.summary(model, input_data=list(inputs), verbose=0)
    lines = str(table).splitlines()
    end = next(n for n, line in enumerate(lines) if line.startswith("Non-trainable params"))
    return "\n".join(lines[: end + 1])
