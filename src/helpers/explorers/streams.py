"""Show which random numbers each line draws, and the effect of one additional line."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader

from helpers.explorers import Explorer

SEED, SHUFFLING = 0, 1  # seeds of the global generator and of the loader's own generator
SAMPLES = 6


class Draw(NamedTuple):
    """Random numbers that one line of the program drew.

    `own`: True for the loader's generator. `start`, `count`: range of 32-bit numbers in its stream.
    `values`: weights, indices of the data, or noise.
    """

    name: str
    own: bool
    start: int
    count: int
    values: tuple[float, ...]


ADDED: dict[str, Callable[[], object]] = {
    "print": lambda: torch.rand(1),
    "layer": lambda: nn.Linear(2, 2),
    "loader": lambda: list(DataLoader(range(4))),
}
PLACES = ("first", "layers", "epochs")


@cache
def _following(seed: int) -> dict[tuple[int, ...], int]:
    """Return a table from the next numbers of a generator to the count drawn since `seed`."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.empty(100, dtype=torch.int32).random_(generator=generator).tolist()
    return {tuple(numbers[k : k + 4]): k for k in range(90)}


def position(seed: int, generator: torch.Generator) -> int:
    """Return the count (< 90) of 32-bit numbers that a CPU generator has drawn since `seed`."""
    copy = generator.clone_state()
    numbers = torch.empty(4, dtype=torch.int32).random_(generator=copy)
    return _following(seed)[tuple(numbers.tolist())]


def program(
    added: str | None, place: str = "first", own: bool = False, fork: bool = False
) -> list[Draw]:
    """Build two layers and iterate twice over shuffled data with noise, after seeding.

    Args:
        added: one more line, a key of `ADDED`, or None.
        place: its position, one of `PLACES`: first, after the layers, between the epochs.
        own: shuffle with the loader's own generator.
        fork: run the added line inside `torch.random.fork_rng()`.

    Returns:
        The numbers that each line drew, in order. The caller's global stream is restored.
    """
    draws = []
    shuffling = torch.Generator().manual_seed(SHUFFLING) if own else None

    def at(mine: bool) -> int:
        if mine and shuffling is not None:
            return position(SHUFFLING, shuffling)
        return position(SEED, torch.default_generator)

    def note(name: str, make: Callable[[], Any], mine: bool = False) -> None:
        start, values = at(mine), make()
        values = values.flatten().tolist() if torch.is_tensor(values) else ()
        draws.append(Draw(name, mine and own, start, at(mine) - start, tuple(values)))

    def line(here: str) -> None:
        if added and here == place:
            with torch.random.fork_rng(devices=[], enabled=fork):
                note("added", ADDED[added])

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        line("first")
        note("fc1", lambda: nn.Linear(2, 2, bias=False).weight.detach())
        note("fc2", lambda: nn.Linear(2, 2, bias=False).weight.detach())
        line("layers")
        data = torch.arange(SAMPLES)
        loader = DataLoader(data, batch_size=SAMPLES, shuffle=True, generator=shuffling)
        for epoch in (1, 2):
            note(f"order{epoch}", lambda: torch.cat(list(loader)), mine=True)
            note(f"noise{epoch}", lambda: torch.rand(4))
            if epoch == 1:
                line("epochs")
    return draws


def streams_explorer(lang: str | None = None) -> Explorer:
    """Add a line that draws random numbers; see which later numbers change."""
    table: list[tuple[float, ...]] = []

    def encoded(draws: list[Draw]) -> list[list[Any]]:
        rows = []
        for name, own, start, count, values in draws:
            values = tuple(round(v, 2) for v in values)
            if values not in table:
                table.append(values)
            rows.append([name, int(own), start, count, table.index(values)])
        return rows

    data = {
        "plain": [encoded(program(None, own=own)) for own in (False, True)],
        "runs": [
            [
                [
                    [encoded(program(added, place, own, fork)) for fork in (False, True)]
                    for own in (False, True)
                ]
                for place in PLACES
            ]
            for added in ADDED
        ],
        "values": table,
    }
    return Explorer(
        "streams",
        data,
        {
            "en": (
                "One more number, drawn before the layers are built, changes the weights, the "
                "order of the data and the noise. A generator for the loader keeps the order; "
                "fork_rng around the added line keeps everything."
            ),
            "zh": (
                "在创建层之前多抽取一个随机数，权重、数据的顺序和噪声就都变了。给数据加载器一个"
                "自己的生成器，顺序不变；用 fork_rng 包住新加的这一行，一切都不变。"
            ),
        },
        lang,
    )
