"""The `book` command."""

from __future__ import annotations

import difflib
import errno
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from bookbuild.source.checkout import Book, BookError

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
NAMES = click.argument("names", metavar="[CHAPTER]...", nargs=-1)


class Commands(click.Group):
    """Shows errors that a user can mend as one message instead of a traceback."""

    def invoke(self, ctx: click.Context):
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BookError as error:
            problem = str(error)
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
            problem = f"{error.filename or 'a file'}: cannot be written: {error.strerror}"
        click.echo(f"book: {problem}", err=True)
        ctx.exit(1)


@click.group(cls=Commands)
@click.version_option(package_name="executable-pytorch-notes")
def main() -> None:
    """Write, prove and build the book that the current directory is in."""


@main.command()
@NAMES
@click.option(
    "--accept",
    multiple=True,
    metavar="CHAPTER[::CELL]",
    help="Its Chinese is right for today's English.",
)
@click.option("--again", is_flag=True, help="Run the chapters even if nothing changed.")
def update(names: tuple[str, ...], accept: tuple[str, ...], again: bool) -> None:
    """Make notebooks, pages and stamps from the texts; run what changed; check it."""
    from bookbuild.commands.check import check, waiting
    from bookbuild.commands.update import update

    book = Book.find()
    names = names or tuple(dict.fromkeys(a.partition("::")[0] for a in accept))
    failed = update(book, names, accept, again, echo=click.echo)
    untranslated = waiting(book)
    for piece in untranslated:
        click.echo(f"waits: {piece}")
    if untranslated:
        first = untranslated[0]
        click.echo(
            f"{len(untranslated)} translation{'s wait' if len(untranslated) != 1 else ' waits'}; "
            f"one that is still right: book update --accept {first.chapter}::{first.cell}"
        )
    _report([*failed.values(), *check(book, names, failed=failed)], names)


@main.command()
@click.argument("name", metavar="CHAPTER")
def adopt(name: str) -> None:
    """Take what was edited in a chapter's notebooks into its text, and update."""
    from bookbuild.commands.adopt import adopt
    from bookbuild.commands.check import check
    from bookbuild.commands.update import update

    book = Book.find()
    for cell in adopt(book, name):
        click.echo(f"book/text/{name}.md: took {cell}")
    failed = update(book, [name], over=True, echo=click.echo)
    _report([*failed.values(), *check(book, [name], failed=failed)], [name])


@main.command()
@NAMES
@click.option("--release", is_flag=True, help="A translation that waits is a problem, too.")
def check(names: tuple[str, ...], release: bool) -> None:
    """Prove what needs no kernel; a line for each problem, exit 1 if there is one."""
    from bookbuild.commands.check import check

    _report(check(Book.find(), names, release), names)


def _report(problems: list[str], names: Sequence[str] = ()) -> None:
    """Print problems, a line each, and exit 1 if there is one."""
    problems = list(dict.fromkeys(problems))
    for problem in problems:
        click.echo(problem)
    left_out = "; other chapters and generated pages were not checked" if names else ""
    click.echo(f"{len(problems)} problem{'s' * (len(problems) != 1)}{left_out}", err=True)
    sys.exit(1 if problems else 0)


@main.command()
@click.argument("names", metavar="[ID]...", nargs=-1)
def messages(names: tuple[str, ...]) -> None:
    """Prove the wordings of book/messages: run their code, look into the installed PyTorch."""
    from importlib.util import find_spec

    from bookbuild.notebooks import message_proofs
    from bookbuild.source import messages

    book = Book.find()
    entries = messages.load(book)
    installed = [find_spec(name) for name in ("torch", "torchvision")]
    folders = [Path(spec.origin).parent for spec in installed if spec]
    ids = {entry.id for entry in entries}
    for name in names:
        if name not in ids:
            near = difflib.get_close_matches(name, ids, 1)
            hint = f": did you mean {near[0]}?" if near else " in book/messages"
            raise BookError(f"no message {name!r}{hint}")
    chosen = [e for e in entries if not names or e.id in names]
    _report([*messages.problems(book, entries), *message_proofs.unproved(book, chosen, folders)])


@main.command()
@click.option("--pdf", is_flag=True, help="Also print each language; Chromium does it.")
@click.option("--epub", is_flag=True, help="Also make a book for readers of each language.")
@click.option("--zip", is_flag=True, help="Also pack all of it for reading and running offline.")
def build(**kinds: bool) -> None:
    """Build both languages into _build/site, warnings as errors; executes nothing.

    What is made beside the pages lies at the root of the site, and its home pages offer it.
    """
    from bookbuild.commands.build import build

    for path in build(Book.find(), [kind for kind, chosen in kinds.items() if chosen]):
        click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


@main.command()
@click.option("--port", default=8000, show_default=True, help="A free one is taken if it is not.")
def serve(port: int) -> None:
    """Serve the built site on 127.0.0.1."""
    from bookbuild.site import server

    book = Book.find()
    built = book.root / "_build/site"
    if not built.is_dir():
        raise BookError("there is no site yet: run `book build`")
    server.serve(built, port)


@main.command()
@click.option("--port", default=8888, show_default=True, help="A free one is taken if it is not.")
@click.option("--browser/--no-browser", default=True, help="Whether to open a browser.")
def live(port: int, browser: bool) -> None:
    """Serve the built site on 127.0.0.1 with kernels that run its cells."""
    from bookbuild.site.live_server import live

    live(Book.find(), port, browser)


@main.command()
def status() -> None:
    """Show when each chapter was last proved, on what, and how its translation stands."""
    from bookbuild import pages

    click.echo(pages.status_table(Book.find()))


if __name__ == "__main__":
    main()
