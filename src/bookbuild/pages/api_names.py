"""The names of PyTorch that the sections of the book are about, read from its texts."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells
from bookbuild.source.checkout import Book
from bookbuild.source.outline import Part, Where, section, sections
from bookbuild.source.texts import Text
from bookbuild.source.texts import load as load_text

ALIASES = {"torch": "torch", "torchvision": "torchvision", "nn": "torch.nn", "optim": "torch.optim",
           "F": "torch.nn.functional"}  # fmt: skip
# Whose methods are looked for, in this order, and the words in a variable's name that say it is one
CLASSES = {
    "torch.Tensor": r"\Z\A",
    "torch.nn.Module": r"model|net\b|module|layer|head|body|encoder|generator|bn\b",
    "torch.optim.Optimizer": r"optim|opt\b|sgd|adam",
    "torch.optim.lr_scheduler.LRScheduler": r"sched|warmup|cosine|plateau",
    "torch.amp.GradScaler": r"scaler",
}
# An object is no tensor if its variable says that it is one of these.
_OTHERS = r"loader|dataset|sampler|writer|prof|^np$|array|frame|image_pil|file|path|json|plt|axis"
KEPT = Path(__file__).with_name("names.json")  # see `installed`
HEADING, ANSWER, CODE = range(3)
_BUILTIN = {n for t in (str, list, dict, set, tuple, int, float, bytes) for n in dir(t)}


@dataclass(frozen=True)
class Place:
    """A section, with its titles in each language."""

    href: str
    titles: dict[str, str]


def installed() -> dict[str, list[str]]:
    """What the installed PyTorch has and `names.json` keeps, since pages are made without PyTorch:
    the public attributes of each of CLASSES, and the classes of `torch` itself."""
    import torch

    found = {}
    for name in CLASSES:
        owner = torch
        for part in name.split(".")[1:]:
            owner = getattr(owner, part)
        made = owner
        public = {n for n in dir(made) if not n.startswith("_")}
        annotated = {n for n in getattr(owner, "__annotations__", {}) if not n.startswith("_")}
        found[name] = sorted(public | annotated)
    found["classes"] = sorted(n for n in dir(torch) if isinstance(getattr(torch, n), type))
    return found


@cache
def _kept() -> dict[str, list[str]]:
    return json.loads(KEPT.read_text("utf8"))


def by_name(book: Book, notebooks: Mapping[str, NotebookNode]) -> dict[str, list[Place]]:
    """The sections that are about each name, the most telling first.

    A section is about a name that stands in its heading, in the line that is its answer, or in the
    code of its cells tagged `wrong` or `right`, and it counts in this order. In prose a name is
    what stands in backticks, is called with brackets, or has a capital inside; aliases (`nn`, `F`,
    what the chapter imports) are written out. A method belongs to the class that the name of the
    variable says, otherwise to Tensor or Module if one has it; one that Python's own types have,
    too, belongs to none. What the code of more than one section in a hundred uses is a tool there
    and no subject, so code does not count; nor do cells, and names, that an error says are missing;
    the errors stand in the English `notebooks`, by chapter.
    """
    found: dict[str, list[tuple[int, int, Part]]] = {}
    parts, said, used, gone = [], [], [], []
    for name in book.chapters:
        text = load_text(book, name)
        aliases = ALIASES | _imports(text)
        missing = _missing(notebooks.get(name))
        for part in sections(text):
            chosen = [
                c
                for c in part.code
                if {"wrong", "right"} & {*c.metadata.get("tags", ())} and c.id not in missing
            ]
            parts.append(part)
            gone.append(" ".join(missing.get(c.id, "") for c in part.code))
            used.append({n for c in chosen for n in in_code(c.source, aliases)})
            said.append((part.heading, part.answer["en"], aliases))
    known = Counter(n for names in used for n in names)
    ends = by_end(known)
    for number, (part, names, (heading, answer, aliases)) in enumerate(
        zip(parts, used, said, strict=True)
    ):
        titled, answered = (in_prose(text, aliases, ends) for text in (heading, answer))
        rare = {n for n in names if known[n] <= max(1, len(parts) / 100)}
        for name in (titled | answered | rare) - {*re.findall(r"[\w.]+", gone[number])}:
            rank = HEADING if name in titled else ANSWER if name in answered else CODE
            found.setdefault(name, []).append((rank, number, part))
    return {
        name: [Place(*section(book, Where(f"{p.name}#{p.id}", name))) for *_, p in _ranked(places)]
        for name, places in sorted(found.items(), key=lambda kv: _order(kv[0]))
    }


def _ranked(places: list[tuple[int, int, Part]]) -> list[tuple[int, int, Part]]:
    """By rank, then in reading order; code is left out beyond the fifth."""
    ordered = sorted(places, key=lambda place: place[:2])
    return [place for n, place in enumerate(ordered) if n < 5 or place[0] != CODE]


def _order(name: str) -> tuple[str, str]:
    return name.rpartition(".")[2].lower(), name


def _imports(text: Text) -> dict[str, str]:
    """What a chapter's cells call modules and names of PyTorch."""
    found = {}
    for cell in text.cells:
        for node in ast.walk(_tree(cell.source)) if "import" in cell.source else ():
            if isinstance(node, ast.Import):
                found |= {a.asname: a.name for a in node.names if a.asname and _ours(a.name)}
            elif isinstance(node, ast.ImportFrom) and node.module and _ours(node.module):
                found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def _ours(name: str) -> bool:
    return name.partition(".")[0] in ("torch", "torchvision")


def _missing(notebook: NotebookNode | None) -> dict[str, str]:
    """What the cells of a chapter say by whose output something does not exist, by their ids."""
    return {
        cell.id: output.evalue
        for cell in (code_cells(notebook) if notebook else ())
        for output in cell.outputs
        if output.output_type == "error"
        and output.ename in ("AttributeError", "ImportError", "ModuleNotFoundError", "NameError")
    }


@cache
def _tree(source: str) -> ast.AST:
    try:
        return ast.parse("\n".join(re.sub(r"^\s*[%!].*", "", li) for li in source.split("\n")))
    except SyntaxError:
        return ast.Module([], [])


def in_code(source: str, aliases: dict[str, str]) -> set[str]:
    """The full names in a piece of Python."""
    return set(_names(_tree(source), aliases))


def _names(tree: ast.AST, aliases: dict[str, str]) -> Iterator[str]:
    inner = set()  # parts of a longer name
    for node in ast.walk(tree):
        if node in inner:
            continue
        if isinstance(node, ast.Attribute):
            chain, base = [], node
            while isinstance(base, ast.Attribute):
                chain.insert(0, base.attr)
                inner.add(base)
                base = base.value
            if isinstance(base, ast.Name) and base.id in aliases:
                inner.add(base)
                full = ".".join([aliases[base.id], *chain])
                yield from _public(full)
            else:
                who = ast.unparse(base)
                for attribute in chain:
                    if owner := _owner(attribute, who, aliases):
                        yield f"{owner}.{attribute}"
                    who = attribute
        elif isinstance(node, ast.Name) and "." in aliases.get(node.id, ""):
            yield from _public(aliases[node.id])


def _public(full: str) -> Iterator[str]:
    """A name that is more than a module's, without what follows a class or a dtype's attribute."""
    if not any(part.startswith("_") for part in full.split(".")) and full not in ALIASES.values():
        yield full


def _owner(attribute: str, who: str, aliases: dict[str, str]) -> str:
    """The class whose attribute it is, empty if it is none of CLASSES."""
    if attribute in _BUILTIN or attribute.startswith("_"):
        return ""
    called = re.match(r"([\w.]+)\(", who)
    if called:  # an instance of a class of torch
        root, _, last = called[1].rpartition(".")
        if last in _kept()["classes"] and aliases.get(root, root) == "torch":
            return ""
    last = re.split(r"[.(\[]", who)[0] if called else who.rpartition(".")[2]
    having = [name for name in CLASSES if attribute in _kept()[name]]
    for name in having:
        if re.search(CLASSES[name], last.lower()):
            return name
    first = having[0] if having and not re.search(_OTHERS, last.lower()) else ""
    return first if first in ("torch.Tensor", "torch.nn.Module") else ""


def by_end(known: Counter) -> dict[str, str]:
    """The full name, of those that code uses, that a last part most likely means."""
    found: dict[str, str] = {}
    for name in sorted(known, key=lambda n: (-known[n], n)):
        found.setdefault(name.rpartition(".")[2], name)
    return found


def in_prose(markdown: str, aliases: dict[str, str], ends: dict[str, str]) -> set[str]:
    """The full names in a heading or an answer; `ends` are those of the book's code."""
    found: set[str] = set()
    spans = [s for s in re.findall(r"`([^`]+)`", markdown) if not s.endswith(".py")]
    plain = re.sub(r"`[^`]+`", " ", markdown)
    spans += re.findall(r"\b(?:torch|torchvision|nn|F)\.\w[\w.]*\w", plain)
    spans += re.findall(r"\b[a-z_]\w*(?=\()", plain)
    spans += [w for w in re.findall(r"\b(?:[A-Z][a-z\d]*){2,}\b", plain) if not w.isupper()]
    for span in spans:
        names = in_code(span, aliases)
        for node in ast.walk(_tree(span)):
            if isinstance(node, ast.Name) and node.id not in aliases and node.id in ends:
                single = span in (node.id, f"{node.id}()") or span.startswith(f"{node.id}(")
                if single and node.id not in _BUILTIN:
                    names.add(ends[node.id])
        found |= names
    return found
