"""Render the Jinja templates in `bookbuild/<step>/templates`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup


def render(step: str, name: str, **values: object) -> Markup:
    """Render the template `src/bookbuild/<step>/templates/<name>` with `values`.

    Values are HTML-escaped unless they are `Markup` or the file's suffix is `.txt`.
    """
    return Markup(_environment(step).get_template(name).render(values))


@cache
def _environment(step: str) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / step / "templates"),
        autoescape=select_autoescape(disabled_extensions=("txt",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    return environment
