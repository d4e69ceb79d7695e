"""Test the rules on the book's cells: only cells tagged `wrong` have findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bookbuild.source import pitfalls
from bookbuild.source.checkout import Book
from helpers.review.reading import Source, notebook
from helpers.review.registry import RULES
from helpers.review.review import review

ROOT = Path(__file__).resolve().parents[3]

# Cells without the tag `wrong` that show wrong code on purpose, to explain or compare it.
ON_PURPOSE = {
    "cheat_sheet": {
        "checkpoints-strangers": "checkpoints-unloaded",
        "data-loading-random-proof": "loading-random-own",
        "fine-tuning-head-proof": "fine-tuning-head-nothing",
        "grad-modes-decorator-proof": "grad-modes-bare",
        "grad-modes-flags-proof": "training-frozen-name",
        "losses-shapes-proof": "training-broadcast",
        "losses-stable-proof": "losses-underflow",
        "losses-which-proof": "losses-class-error losses-double-softmax",
        "modules-hook-proof": "modules-call-prune",
        "modules-repeat-proof": "modules-multiplied",
        "normalization-init-proof": "fine-tuning-head-late",
        "tensor-recipes-where-proof": "tensor-recipes-where-nan",
        "tensors-inspect-proof": "tensors-convert-lost tensors-type-string",
    },
    "fine_tuning": {"fine-tuning-which-weights": "fine-tuning-pretrained-warns"},
    "generative": {"gan-wgan": "gan-penalty-norm"},
    "grad_modes": {
        "grad-modes-attribute": "training-frozen-name",
        "grad-modes-who-fix-shown": "losses-grad-forced",
    },
    "losses": {
        "losses-class": "losses-class-error",
        "losses-double-gradient": "losses-double-softmax",
        "losses-kl": "losses-kl-log",
    },
    "mixed_precision": {"mixed-cache-nested": "mixed-cache"},
    "modules": {
        "modules-call": "modules-call-prune",
        "modules-inventory": "modules-list-error",
        "modules-replaced": "fine-tuning-head-late",
    },
    "old_notes": {
        "old-checkpoints-not-faster": "checkpoints-whole-error",
        "old-losses-elementwise": "losses-reduction-error",
    },
    "performance": {"performance-which-table": "tensor-recipes-width"},
    "tensor_recipes": {"tensor-recipes-dim": "tensor-recipes-implicit-dim"},
}


def findings(name: str) -> dict[str, set[tuple[str, str]]]:
    """Return the ids of the cells with findings and their rules, by kind of cell."""
    data = (ROOT / f"book/en/{name}.ipynb").read_bytes()
    cells = [cell for cell in json.loads(data)["cells"] if cell["cell_type"] == "code"]
    found = {"wrong": set(), "exercise": set(), "other": set()}
    for source in notebook(name, data):
        for one in review(source.text) if isinstance(source, Source) else ():
            _, number = max(start for start in source.cells if start[0] <= one.line)
            cell = cells[number - 1]
            tags = {*cell["metadata"].get("tags", ())}
            kind = "wrong" if "wrong" in tags else "exercise" if "exercise" in tags else "other"
            found[kind].add((cell["id"], one.rule))
    return found


CHAPTERS = Book(ROOT).texts


@pytest.fixture(scope="module")
def book() -> dict[str, dict[str, set[tuple[str, str]]]]:
    return {name: findings(name) for name in CHAPTERS if (ROOT / f"book/en/{name}.ipynb").exists()}


def test_cells_not_tagged_wrong_have_no_finding(book):
    expected = {
        name: {(cell, rule) for cell, rules in cells.items() for rule in rules.split()}
        for name, cells in ON_PURPOSE.items()
    }
    assert {name: found["other"] for name, found in book.items() if found["other"]} == expected


def test_pitfall_rules_are_found_in_their_own_cells(book):
    named = {pair for found in book.values() for pair in found["wrong"]}
    own = {rule for cell, rule in named if cell == rule}
    known = {one.id for one in pitfalls.load(Book(ROOT))} & RULES.keys()
    assert len(own) >= 40 and own <= known
    assert len({cell for cell, _ in named}) >= 47
