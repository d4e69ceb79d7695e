"""Questions that a chapter asks before a cell shows its output, each choice held to a proof.

    %%% predict
    What does the last line print, and why?
    - `2.0`, because each backward pass writes its own gradient
      The second pass adds to what the first one left in `w.grad`.
      = output
    + `4.0`, because gradients add up
      Call `optimizer.zero_grad()` between two passes to start again.
      = output
    - `4.0`, because the graph is walked twice
      Each pass traverses a graph of its own, and one alone gives 2.
      = assert single == 2

A line with `+` is the right choice, one with `-` is a wrong one; below it stands what the reader is
told, and the proof, which the Chinese of the block leaves out:

- `= output`: the code at the beginning of a right choice is in the cell's stored output, and that
  of a wrong one is not;
- `= output of other-cell`: it is what another cell of the chapter prints;
- `= assert …`: this assertion of a cell of the chapter proves the right choice, or refutes the
  wrong one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

SUFFIX = "-predict"  # of the id of the cell that asks
CHOICES = range(3, 6)


@dataclass(frozen=True)
class Choice:
    """A choice, and its reason."""

    right: bool
    says: str
    why: str


@dataclass(frozen=True)
class Question:
    """A question with its choices, in one language."""

    asks: str
    choices: list[Choice]


def split(body: str) -> tuple[str, list[str]]:
    """Return a block without its proofs, and the proof of each choice; empty where it has none.

    Raises:
        ValueError: a proof belongs to no choice, or a choice has two.
    """
    words, proofs = [], []
    for line in body.split("\n"):
        if line.startswith(("+ ", "- ")):
            proofs.append("")
        if not line.startswith("  = "):
            words.append(line)
        elif not proofs or proofs[-1]:
            raise ValueError(f"a proof belongs to one choice, got {line.strip()!r}")
        else:
            proofs[-1] = line.removeprefix("  = ").strip()
    return "\n".join(words), proofs


def join(words: str, proofs: list[str]) -> str:
    """Return the block that `split` takes apart."""
    lines, rest = [], list(proofs)
    blocks = re.split(r"\n(?=[+-] )", words)
    for number, block in enumerate(blocks):
        lines.append(block)
        if number and rest and (proof := rest.pop(0)):
            lines.append(f"  = {proof}")
    return "\n".join(lines)


@cache
def parse(words: str) -> Question:
    """Return the question in a block without its proofs.

    Raises:
        ValueError: it has another form.
    """
    asks, *blocks = re.split(r"(?:^|\n)(?=[+-] )", words)
    choices = []
    for block in blocks:
        says, *why = block.split("\n")
        if not why or not all(line.startswith("  ") and line.strip() for line in why):
            raise ValueError(f"below a choice stand two spaces and its reason: {says!r}")
        choices.append(Choice(says[0] == "+", says[2:].strip(), " ".join(x.strip() for x in why)))
    if not asks.strip():
        raise ValueError("no question before the choices")
    if len(choices) not in CHOICES:
        raise ValueError(f"{CHOICES[0]} to {CHOICES[-1]} choices are wanted, got {len(choices)}")
    if [c.right for c in choices].count(True) != 1:
        raise ValueError("one choice is right (+), the others are wrong (-)")
    return Question(" ".join(asks.split("\n")), choices)
