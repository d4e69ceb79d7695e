"""The `book` command."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from bookbuild.source.basics import nearest
from bookbuild.source.checkout import Book, BookError

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
NAMES = click.argument("names", metavar="[CHAPTER]...", nargs=-1)


class Commands(click.Group):
    """Command group that prints errors a user can fix as one message, without a traceback."""

    def invoke(self, ctx: click.Context):
        """Run the command; print a `BookError` or a disk error to stderr and exit with 1."""
        try:
            return super().invoke(ctx)
        except BookError as error:
            problem = str(error)
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
            problem = f"{error.filename or 'a file'}: {error.strerror}"
        click.echo(f"book: {problem}", err=True)
        ctx.exit(1)


@click.group(cls=Commands)
@click.version_option(package_name="executable-pytorch-notes")
def main() -> None:
    """Update, check and build the book that contains the current directory."""


@main.command()
@NAMES
@click.option(
    "--accept",
    multiple=True,
    metavar="CHAPTER[::CELL]",
    help="Mark the Chinese of CHAPTER or CELL as matching the current English.",
)
@click.option("--again", is_flag=True, help="Run the chapters even if nothing changed.")
def update(names: tuple[str, ...], accept: tuple[str, ...], again: bool) -> None:
    """Update notebooks, message data and translation stamps from the texts; check them."""
    from bookbuild.commands.check import check, outdated
    from bookbuild.commands.update import update

    book = Book.find()
    names = names or tuple(dict.fromkeys(a.partition("::")[0] for a in accept))
    failed = update(book, names, accept, again, echo=click.echo)
    untranslated = outdated(book)
    for piece in untranslated:
        click.echo(f"translate: {piece}")
    if untranslated:
        first = untranslated[0]
        click.echo(
            f"{len(untranslated)} translation{'s' * (len(untranslated) != 1)} missing or outdated; "
            f"to accept one that is still right: book update --accept {first.chapter}::{first.cell}"
        )
    _report([*failed.values(), *check(book, names, failed=failed)], names)


@main.command()
@click.argument("name", metavar="CHAPTER")
def adopt(name: str) -> None:
    """Copy edits made in a chapter's notebooks into its text, then update the chapter."""
    from bookbuild.commands.adopt import adopt
    from bookbuild.commands.check import check
    from bookbuild.commands.update import update

    book = Book.find()
    for cell in adopt(book, name):
        click.echo(f"book/text/{name}.md: copied {cell}")
    failed = update(book, [name], overwrite=True, echo=click.echo)
    _report([*failed.values(), *check(book, [name], failed=failed)], [name])


@main.command()
@NAMES
@click.option("--release", is_flag=True, help="Report outdated translations as problems, too.")
def check(names: tuple[str, ...], release: bool) -> None:
    """Check everything that needs no kernel; print one line per problem and exit with 1."""
    from bookbuild.commands.check import check

    _report(check(Book.find(), names, release), names)


def _report(problems: list[str], names: Sequence[str] = ()) -> None:
    """Print each problem on one line; exit with 1 if there are any, else with 0."""
    problems = list(dict.fromkeys(problems))
    for problem in problems:
        click.echo(problem)
    left_out = "; other chapters and generated pages were not checked" if names else ""
    click.echo(f"{len(problems)} problem{'s' * (len(problems) != 1)}{left_out}", err=True)
    sys.exit(1 if problems else 0)


@main.command()
@click.argument("names", metavar="[ID]...", nargs=-1)
def messages(names: tuple[str, ...]) -> None:
    """Verify the wordings of book/messages by running code and searching PyTorch's files."""
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
            hint = nearest(name, ids, "not in book/messages")
            raise BookError(f"no message {name!r}: {hint}")
    chosen = [e for e in entries if not names or e.id in names]
    _report([*messages.problems(book, entries), *message_proofs.unproved(book, chosen, folders)])


@main.command()
@click.option("--pdf", is_flag=True, help="Also make a PDF of each language (requires Chromium).")
@click.option("--epub", is_flag=True, help="Also make an EPUB of each language.")
@click.option("--zip", is_flag=True, help="Also make a zip file for offline use.")
def build(**kinds: bool) -> None:
    """Build both languages into _build/site without running code; warnings are errors.

    PDF, EPUB and zip files are written to the root of the site and linked on the home pages.
    """
    from bookbuild.commands.build import build

    for path in build(Book.find(), [kind for kind, chosen in kinds.items() if chosen]):
        click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


@main.command()
@click.option("--port", default=8000, show_default=True, help="Uses a free port if it is taken.")
def serve(port: int) -> None:
    """Serve the built site on 127.0.0.1."""
    from bookbuild.site import server

    server.serve(Book.find().site, port)


@main.command()
@click.option("--port", default=8888, show_default=True, help="Uses a free port if it is taken.")
@click.option("--browser/--no-browser", default=True, help="Whether to open a browser.")
def live(port: int, browser: bool) -> None:
    """Serve the built site on 127.0.0.1 with kernels that run its cells."""
    from bookbuild.site.live_server import live

    live(Book.find(), port, browser)


@main.command()
def status() -> None:
    """Print when and on which device each chapter last passed, and its translation status."""
    from bookbuild import pages

    click.echo(pages.status_table(Book.find()))


if __name__ == "__main__":
    main()
