"""Run the tests that the last change touches: `make quick`.

The change is the set of uncommitted files or, in a clean checkout, the last commit. It selects

- for a module of `src`: the test files that import it or are named after it
- for a helper, a text or a notebook: the English notebook of the chapter
- for `book/messages`: the proofs of the changed messages, and the tests of the matcher
- for the site's code and theme: the tests that build the small book of `tests/site/toy.py`

`make test` and `make rest` run everything.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDERS = ("tests/helpers", "tests/bookbuild", "tests/site")
SITE = ("src/bookbuild/site/", "src/bookbuild/pages/", "book/_", "_config.yml", "_toc.yml")
# `make rest` proves all messages; here only the changed ones are proved.
SHORT = "not of_the_book_is_proved and not installed_packages"


def git(*command: str) -> str:
    """Return a git command's output, or an empty string if it fails."""
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True).stdout


def changed() -> tuple[list[str], str]:
    """Return the paths of the last change, and the commit before it."""
    paths = git("diff", "--name-only", "HEAD") + git("ls-files", "-o", "--exclude-standard")
    if paths:
        return sorted(paths.split()), "HEAD"
    return git("diff", "--name-only", "HEAD~1", "HEAD").split(), "HEAD~1"


@cache
def imports(path: Path) -> set[str]:
    """Return the modules and names that a file imports, such as `helpers.detach`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def tests_of(path: str) -> set[str]:
    """Return the test files of a changed path."""
    files = [f for folder in FOLDERS for f in sorted((ROOT / folder).glob("test_*.py"))]
    tests = {str(file.relative_to(ROOT)): file for file in files}
    if path in tests:
        return {path}
    name = Path(path).stem
    chosen = {
        test for test in tests if Path(test).stem in (f"test_{name}", f"test_{name}_explorer")
    }
    if path.startswith("src/helpers/explorers/"):
        chosen.add("tests/helpers/test_explorer_scripts.py")
    if path.startswith("src/") and path.endswith(".py"):
        module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        chosen |= {test for test, file in tests.items() if module in imports(file)}
    if path.startswith(("book/messages/", "src/helpers/explain/")):
        chosen |= {
            "tests/helpers/test_explain.py",
            "tests/helpers/test_explain_forms.py",
            "tests/bookbuild/test_messages.py",
        }
    if path.startswith(SITE):
        chosen |= {"tests/site/test_build.py", "tests/site/test_published.py"}
    return chosen


def notebook_of(path: str) -> set[str]:
    """Return the English notebook of the chapter of a helper, text or notebook."""
    notebook = f"book/en/{Path(path).stem}.ipynb"
    owners = ("src/helpers/", "book/text/", "book/en/", "book/zh/")
    return {notebook} if path.startswith(owners) and (ROOT / notebook).exists() else set()


def messages_of(path: str, before: str) -> set[str]:
    """Return the ids of the messages in a file that are new or changed since a commit."""

    def rows(text: str) -> list[dict]:
        content = yaml.safe_load(text) or []
        return content["messages"] if isinstance(content, dict) else content

    if not path.startswith("book/messages/") or not (ROOT / path).exists():
        return set()
    old = {row["id"]: row for row in rows(git("show", f"{before}:{path}"))}
    new = rows((ROOT / path).read_text("utf8"))
    return {row["id"] for row in new if row != old.get(row["id"])}


def pytest_collection_modifyitems(config, items):
    """Deselect the tests that need the built site of the whole book."""
    whole = [item for item in items if "site" in item.fixturenames]
    config.hook.pytest_deselected(items=whole)
    items[:] = [item for item in items if "site" not in item.fixturenames]


def main() -> int:
    """Run the selected proofs, notebooks and tests; return the highest exit status."""
    paths, before = changed()
    tests = sorted(set().union(*map(tests_of, paths)))
    notebooks = sorted(set().union(*map(notebook_of, paths)))
    messages = sorted(set().union(*(messages_of(path, before) for path in paths)))
    for title, names in (("changed", paths), ("runs", [*messages, *notebooks, *tests])):
        print(f"{title}:", *(names or ["nothing"]), sep="\n  ", flush=True)
    commands = []
    if messages:
        commands.append([str(Path(sys.executable).with_name("book")), "messages", *messages])
    if notebooks:
        commands.append([sys.executable, "-m", "pytest", "-q", *notebooks])
    codes = [subprocess.run(command, cwd=ROOT).returncode for command in commands]
    if tests:
        options = ["-q", "-p", "quick", "-n2", "--dist=loadfile", "-k", SHORT]
        codes.append(pytest.main([*options, *tests]))
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
