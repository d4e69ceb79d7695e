"""Questions that a chapter asks before a cell shows its output, each choice held to a proof.

    %%% predict
    What does the last line print, and why?
    - `2.0`, because each backward pass writes its own gradient
      The second pass adds to what the first one left in `w.grad`.
      = output
    + `4.0`, because gradients add up
      Call `optimizer.zero_grad()` between two passes to begin anew.
      = output
    - `4.0`, because the graph is walked twice
      Each pass walks a graph of its own, and one alone gives 2.
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

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from nbformat import NotebookNode

from bookbuild.notebooks import code_cells, output

SUFFIX = "-predict"
CHOICES = range(3, 6)
_WORDS = {
    "en": ("Predict.", "Yes.", "No."),
    "zh": ("先猜一猜。", "对。", "不对。"),
}


@dataclass(frozen=True)
class Choice:
    """A choice, and what a reader who takes it is told."""

    right: bool
    says: str
    why: str


@dataclass(frozen=True)
class Question:
    """A question with its choices, in one language."""

    asks: str
    choices: list[Choice]


def split(body: str) -> tuple[str, list[str]]:
    """A block without its proofs, and the proof of each choice; empty where it has none.

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
    """The block that `split` takes apart."""
    lines, rest = [], list(proofs)
    blocks = re.split(r"\n(?=[+-] )", words)
    for number, block in enumerate(blocks):
        lines.append(block)
        if number and rest and (proof := rest.pop(0)):
            lines.append(f"  = {proof}")
    return "\n".join(lines)


@cache
def parse(words: str) -> Question:
    """The question in a block without its proofs.

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


def html(words: str, name: str, lang: str) -> str:
    """A question as one block of HTML: it unfolds in Jupyter, in Colab and on the page.

    `name` is the id of the cell that it is asked about.
    """
    from markdown_it import MarkdownIt

    question, inline = parse(words), MarkdownIt("commonmark", {"html": False}).renderInline
    title, yes, no = _WORDS[lang]
    lines = [
        f'<div class="predict" role="group" data-cell="{name}">',
        f"<p><strong>{title}</strong> {inline(question.asks)}</p>",
    ]
    for choice in question.choices:
        kind, sign, verdict = ("yes", "✓", yes) if choice.right else ("no", "✗", no)
        lines += [
            f'<details class="{kind}"><summary>{inline(choice.says)}</summary>',
            f"<p><strong>{sign} {verdict}</strong> {inline(choice.why)}</p></details>",
        ]
    return "\n".join([*lines, "</div>"])


def problems(words: str, proofs: list[str], name: str, nb: NotebookNode) -> Iterator[str]:
    """What is not proved of a question about the cell `name` of a notebook, a line each."""
    cells = {c.id: c for c in code_cells(nb)}
    if name not in cells:
        return  # the notebook is older than the text
    for choice, proof in zip(parse(words).choices, proofs, strict=True):
        where = f"predict: {choice.says!r}"
        if proof.startswith("assert "):
            if not _stands(proof, cells.values()):
                yield f"{where}: no cell has `{proof}`"
            continue
        form = re.fullmatch(r"output(?: of ([\w-]+))?", proof)
        code = re.match(r"(`+)(.+?)\1", choice.says)
        if not form:
            yield f"{where}: expected a proof `= output` or `= assert …`, got {proof!r}"
        elif not code:
            yield f"{where}: what is printed stands in backticks at the beginning of the choice"
        elif form[1] and form[1] not in cells:
            yield f"{where}: there is no cell {form[1]}"
        elif form[1] and not _prints(cells[form[1]], code[2]):
            yield f"{where}: {form[1]} does not print it"
        elif _prints(cells[name], code[2]) != choice.right:
            yield f"{where}: the cell's output {'has no such thing' if choice.right else 'has it'}"


def _prints(cell: NotebookNode, code: str) -> bool:
    """Whether a cell's output has a text as a whole word, whatever its blanks."""
    ours, theirs = (" ".join(text.split()) for text in (code, output(cell)))
    return re.search(rf"(?<![\w.-]){re.escape(ours)}(?![\w]|\.\d)", theirs) is not None


def _stands(proof: str, cells: object) -> bool:
    """Whether an executed cell has this assertion; blanks and its message do not count."""
    wanted = _asserted(proof)
    return bool(wanted) and any(
        wanted & _asserted(cell.source) for cell in cells if cell.execution_count is not None
    )


@cache
def _asserted(source: str) -> frozenset[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return frozenset()
    return frozenset(ast.unparse(n.test) for n in ast.walk(tree) if isinstance(n, ast.Assert))
