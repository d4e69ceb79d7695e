"""Find names of PyTorch in code and prose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

ALIASES = {  # the import aliases of the chapters
    "torch": "torch",
    "torchvision": "torchvision",
    "torchmetrics": "torchmetrics",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "dist": "torch.distributed",
    "mp": "torch.multiprocessing",
}
_CHAIN = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_MODULE = r"((?:torch|torchvision|torchmetrics)\b[\w.]*)"
_FROM = re.compile(rf"^\s*from {_MODULE} import (\([^)]*\)|.+)$", re.M)
_AS = re.compile(rf"^\s*import {_MODULE} as (\w+)$", re.M)
_IMPORT = re.compile(r"^\s*(?:from \S+ )?import (\([^)]*\)|.+)$", re.M)


def imports(code: str) -> dict[str, str]:
    """Return the PyTorch imports of a piece of code: local name to full name."""
    aliases = {alias: module for module, alias in _AS.findall(code)}
    for module, names in _FROM.findall(code):
        for name, alias in re.findall(r"(\w+)(?: as (\w+))?", re.sub("#.*", "", names)):
            aliases[alias or name] = f"{module}.{name}"
    return aliases


def torch_names(text: str, aliases: Mapping[str, str] = ALIASES) -> Iterator[str]:
    """Yield the full names of PyTorch objects in code or prose: for `F.relu`,
    `torch.nn.functional.relu`.

    Modules alone, private names, the import of a name, and the operators in `torch.ops`, which any
    package may register, are left out. `aliases` are the names that stand for others (`imports`).
    """
    for chain in _CHAIN.findall(_IMPORT.sub("", text)):
        first, dot, rest = chain.partition(".")
        if first in aliases and (dot or "." in aliases[first]):
            name = f"{aliases[first]}{dot}{rest}"
            public = "._" not in name and not name.startswith("torch.ops.")
            if public and name not in ALIASES.values() and not name.endswith(".py"):
                yield name
