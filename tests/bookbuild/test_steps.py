"""Test that no module of `bookbuild` imports from a later step."""

import ast
from collections import Counter
from pathlib import Path

import bookbuild

ROOT = Path(bookbuild.__file__).parent
STEPS = ("source", "notebooks", "pages", "site", "editions", "commands", "cli")


def imported(path: Path) -> set[str]:
    """Return the steps that a module imports from, also inside functions."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "bookbuild":
            modules |= {f"bookbuild.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in modules if name.startswith("bookbuild.")}


def test_no_module_imports_from_a_later_step():
    back = [
        f"{path.relative_to(ROOT)}: {step}"
        for path in sorted(ROOT.rglob("*.py"))
        for step in imported(path)
        if path.parent != ROOT or path.stem != "__init__"
        if STEPS.index(step) > STEPS.index(path.relative_to(ROOT).parts[0].removesuffix(".py"))
    ]
    assert back == []


def test_every_module_belongs_to_a_step_and_has_a_unique_name():
    modules = [p for p in ROOT.rglob("*.py") if p.stem != "__init__"]
    assert {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in modules} == {*STEPS}
    assert [name for name, count in Counter(p.stem for p in modules).items() if count > 1] == []


def test_helpers_import_nothing_of_bookbuild():
    helpers = ROOT.parent / "helpers"
    assert [p.name for p in helpers.rglob("*.py") if "bookbuild" in p.read_text("utf8")] == []
