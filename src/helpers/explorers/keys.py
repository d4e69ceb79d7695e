"""Show which entries load_state_dict loads while a file's keys are adapted to a model."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from helpers.explorers import Explorer

PREFIXES = ("_orig_mod.", "module.")  # outer wrapper first


def saved_model() -> nn.Module:
    """Return the saved model: its middle layer has another name, its head ten classes."""
    return nn.ModuleDict(
        {"stem": nn.Linear(4, 8), "fc1": nn.Linear(8, 8), "head": nn.Linear(8, 10)}
    )


def model_now() -> nn.Module:
    """Return the model that loads the file."""
    return nn.ModuleDict(
        {"stem": nn.Linear(4, 8), "body": nn.Linear(8, 8), "head": nn.Linear(8, 4)}
    )


def edited(outer: bool, inner: bool, rename: bool, drop: bool) -> dict[str, Tensor]:
    """Return the file's entries (all values 1) after the chosen repairs.

    Args:
        outer: strip `_orig_mod.`, which `torch.compile` prepends.
        inner: strip `module.`, which `DataParallel` prepends; effective after `outer`.
        rename: rename `fc1` to `body`, the layer's name in the model.
        drop: remove the head.
    """
    names = saved_model().state_dict()
    weights = {"".join(PREFIXES) + k: torch.ones_like(v) for k, v in names.items()}
    for prefix, strip in zip(PREFIXES, (outer, inner), strict=True):
        if strip:
            consume_prefix_in_state_dict_if_present(weights, prefix)
    if rename:
        weights = {k.replace("fc1.", "body."): v for k, v in weights.items()}
    return {k: v for k, v in weights.items() if not (drop and "head." in k)}


def loaded(weights: dict[str, Tensor], strict: bool) -> tuple[bool, list[str], str]:
    """Load weights of ones into a model of zeros.

    Returns:
        True if `load_state_dict` raised; the names of the overwritten entries; and the error
        message or the return value.
    """
    model = model_now()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    try:
        raised, message = False, str(model.load_state_dict(weights, strict=strict))
    except RuntimeError as error:
        raised, message = True, str(error)
    return raised, [k for k, v in model.state_dict().items() if v.all()], message


def keys_explorer(lang: str | None = None) -> Explorer:
    """Repair a file's keys one by one, and see how much of it a model loads."""
    own = model_now().state_dict()
    old = saved_model().state_dict()

    def row(strict: bool, *repairs: bool) -> dict[str, Any]:
        weights = edited(*repairs)
        raised, names, _ = loaded(weights, strict)
        state = ["l" if k in names else "s" if k in weights else "m" for k in own]
        return {"raised": raised, "state": "".join(state)}

    choices = (False, True)
    data = {
        "model": [[k, list(v.shape)] for k, v in own.items()],
        "file": [[k, list(v.shape)] for k, v in old.items()],
        "keys": {_code(c): list(edited(*c)) for c in product(choices, repeat=4)},
        "rows": {_code(c): row(*c) for c in product(choices, repeat=5)},
    }
    return Explorer(
        "keys",
        data,
        {
            "en": (
                "A file whose keys begin with _orig_mod.module. is loaded with strict=False: no "
                "error is raised, and no value is loaded. With both prefixes stripped, the "
                "middle layer renamed and the head of another size left out, everything that "
                "fits is loaded."
            ),
            "zh": (
                "一个文件的键以 _orig_mod.module. 开头，用 strict=False 加载：不报错，但一个值也"
                "没有加载。去掉两个前缀、给中间层改名、去掉大小不同的头之后，所有匹配的内容都会"
                "加载。"
            ),
        },
        lang,
    )


def _code(switches: tuple[bool, ...]) -> str:
    return "".join("01"[on] for on in switches)
