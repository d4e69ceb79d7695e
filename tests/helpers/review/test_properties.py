"""Test that no input crashes the review, and that its time is linear in the number of lines."""

from __future__ import annotations

import ast
import random
import re
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.review.reading import Source, script
from helpers.review.registry import RULES
from helpers.review.review import review

HERE = Path(__file__).parent
CLEAN = [path.read_text("utf8") for path in sorted((HERE / "clean").glob("*.py"))]
CASES = (HERE / "cases.txt").read_text("utf8")
FLOWS = re.sub(
    r"\{\{(.*?)\|\|.*?\}\}(?!\})", r"\1", (HERE / "flows.txt").read_text("utf8"), flags=re.S
)
FLOWS = [part.partition("\n")[2] for part in FLOWS.split("=== ")[1:]]
LINES = sorted({line for text in (*CLEAN, CASES) for line in text.split("\n") if line.strip()})


def reviewed(text: str) -> None:
    for source in script("a.py", text.encode("utf8", "replace")):
        if isinstance(source, Source):
            for one in review(source.text):
                assert one.rule in RULES and 1 <= one.line <= source.text.count("\n") + 1


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(CLEAN + FLOWS), st.randoms(use_true_random=False))
def test_review_accepts_shifted_lines(text, chance):
    lines = text.split("\n")
    for _ in range(6):
        n = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                lines.insert(n, lines[n])
            case 1:
                del lines[n]
            case 2:
                lines[n] = chance.choice(LINES)
            case 3:
                indent = len(lines[n]) - len(lines[n].lstrip())
                lines[n] = " " * indent + chance.choice(LINES).strip()
    reviewed("\n".join(lines))


class _Swap(ast.NodeTransformer):
    """Replace random expressions of a source by others of the same source."""

    def __init__(self, chance: random.Random, pool: list[ast.expr]) -> None:
        self.chance, self.pool = chance, pool

    def visit(self, node: ast.AST) -> ast.AST:
        node = super().generic_visit(node)
        loads = not hasattr(node, "ctx") or isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.expr) and loads and self.chance.random() < 0.02:
            return self.chance.choice(self.pool)
        return node


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(CLEAN + FLOWS), st.randoms(use_true_random=False))
def test_review_accepts_swapped_expressions(text, chance):
    tree = ast.parse(text)
    pool = [n for n in ast.walk(tree) if isinstance(n, ast.expr) and not isinstance(n, ast.Starred)]
    pool = [n for n in pool if not hasattr(n, "ctx") or isinstance(n.ctx, ast.Load)]
    try:
        changed = ast.unparse(ast.fix_missing_locations(_Swap(chance, pool).visit(tree)))
    except (ValueError, RecursionError):  # the tree has no source form
        return
    reviewed(changed)


@pytest.mark.parametrize("value", ["x.mean()", "[x]", "torch.tensor(x)", "x.squeeze()", "x[-1]"])
def test_review_accepts_self_assignments(value):
    used = "nn.BCEWithLogitsLoss(pos_weight=x), loss + 0.1 * x, x.softmax(1) @ v, dice_loss(x, y)"
    body = (
        f"    x = {value}\n    loss = F.mse_loss(x, y) + 0.1 * x\n    loss.backward()\n    {used}\n"
    )
    reviewed(f"import torch\nfrom torch import nn\nfor _ in range(3):\n{body}")


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200))
def test_review_accepts_any_text(text):
    reviewed("import torch\n" + text)


def test_review_accepts_standard_library_files():
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(folder.glob("*.py")) + sorted(folder.glob("test/test_[a-z]*.py"))
    chosen = random.Random(time.strftime("%Y%j")).sample(files, 60)
    start = time.perf_counter()
    for path in chosen:
        text = path.read_bytes().decode("utf8", "replace")
        reviewed(f"import torch\n{text}" if "from __future__" not in text else text)
        if time.perf_counter() - start > 3:
            break


def test_review_accepts_deep_expressions():
    reviewed("import torch\nx = " + " + ".join(["loss"] * 3000))
    reviewed("import torch\nx = " + "f(" * 80 + ")" * 80)
    reviewed("import torch\nx" + ".f()" * 400)


def seconds(text: str) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        review(text)
        times.append(time.process_time() - start)
    return min(times)


def test_review_time_is_linear_in_the_lines():
    def renamed(n):
        return "\n\n".join(
            text.replace("def ", f"def f{n}_")
            .replace("class ", f"class C{n}_")
            .replace(f"def f{n}___", "def __")
            for text in CLEAN[:3]
        )

    small, large = (
        "\n".join(renamed(n) for n in range(count)).replace("from __future__", "from future")
        for count in (2, 8)
    )
    assert seconds(large) < 4 * 2.0 * seconds(small)
