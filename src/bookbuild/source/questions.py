"""Parse the questions before a cell's output; each choice has a proof.

    %%% predict
    What does the last line print, and why?
    - `2.0`, because each backward pass writes its own gradient
      The second pass adds to what the first one left in `w.grad`.
      = output
    + `4.0`, because gradients add up
      Call `optimizer.zero_grad()` between two passes to start again.
      = output
    - `4.0`, because the graph is traversed twice
      Each pass traverses a graph of its own, and one alone gives 2.
      = assert single == 2

`+` begins the right choice and `-` a wrong one. The indented lines below a choice are its reason,
shown after the answer, and its proof, which the Chinese block omits:

- `= output`: the code at the beginning of the choice occurs in the cell's stored output for the
  right choice, and does not occur for a wrong one;
- `= output of other-cell`: another cell of the chapter prints this code;
- `= assert …`: this assertion in a cell of the chapter proves the right choice or refutes the
  wrong one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

SUFFIX = "-predict"  # suffix of the question cell's id
CHOICES = range(3, 6)


@dataclass(frozen=True)
class Choice:
    """A choice of a question and its reason."""

    right: bool
    text: str
    reason: str


@dataclass(frozen=True)
class Question:
    """A question with its choices, in one language."""

    text: str
    choices: list[Choice]


def split(body: str) -> tuple[str, list[str]]:
    """Return a block without proofs, and a list with each choice's proof, "" if it has none.

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
    """Return the block with proofs: the inverse of `split`."""
    lines, rest = [], list(proofs)
    blocks = re.split(r"\n(?=[+-] )", words)
    for number, block in enumerate(blocks):
        lines.append(block)
        if number and rest and (proof := rest.pop(0)):
            lines.append(f"  = {proof}")
    return "\n".join(lines)


@cache
def parse(words: str) -> Question:
    """Parse a block without proofs and return its question.

    Raises:
        ValueError: the block is malformed.
    """
    text, *blocks = re.split(r"(?:^|\n)(?=[+-] )", words)
    choices = []
    for block in blocks:
        choice, *reason = block.split("\n")
        if not reason or not all(line.startswith("  ") and line.strip() for line in reason):
            raise ValueError(
                f"choice {choice!r}: expected a reason in lines that are indented by two spaces, "
                f"got {reason}"
            )
        reason = " ".join(line.strip() for line in reason)
        choices.append(Choice(choice[0] == "+", choice[2:].strip(), reason))
    if not text.strip():
        raise ValueError("no question before the choices")
    if len(choices) not in CHOICES:
        raise ValueError(f"expected {CHOICES[0]} to {CHOICES[-1]} choices, got {len(choices)}")
    if [c.right for c in choices].count(True) != 1:
        raise ValueError("one choice is right (+), the others are wrong (-)")
    return Question(" ".join(text.split("\n")), choices)
