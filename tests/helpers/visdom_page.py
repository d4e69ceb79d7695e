"""Open visdom's page in a browser, and take the screenshot that the book shows.

The page needs scripts that no Python package ships: visdom downloads them when it first starts.
`npm pack` gets the same versions from the npm registry into `_build/visdom-page`:

    python tests/helpers/visdom_page.py --fetch      # once, needs the network
    python tests/helpers/visdom_page.py              # src/helpers/pictures/visdom-page.png

MathJax is left out (20 MB, used for formulas in text windows only).
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import urlparse

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "_build" / "visdom-page"

# Files of visdom's page: the npm package, at visdom's version, and the path inside it.
SCRIPTS = {
    "js/jquery.min.js": ("jquery@3.1.1", "dist/jquery.min.js"),
    "js/bootstrap.min.js": ("bootstrap@3.3.7", "dist/js/bootstrap.min.js"),
    "css/bootstrap.min.css": ("bootstrap@3.3.7", "dist/css/bootstrap.min.css"),
    "js/react-react.min.js": ("react@16.2.0", "umd/react.production.min.js"),
    "js/react-dom.min.js": ("react-dom@16.2.0", "umd/react-dom.production.min.js"),
    "js/plotly-plotly.min.js": ("plotly.js-dist-min@2.11.1", "plotly.min.js"),
    "js/layout_bin_packer.js": ("layout-bin-packer@1.4.0", "dist/layout-bin-packer.js"),
    "js/d3.v3.min.js": ("d3@3.5.17", "d3.min.js"),
    "js/d3-selection-multi.v1.js": ("d3-selection-multi@1.0.1", "build/d3-selection-multi.js"),
    "js/saveSvgAsPng.js": ("save-svg-as-png@1.4.17", "lib/saveSvgAsPng.js"),
    "css/react-resizable-styles.css": ("react-resizable@1.4.6", "css/styles.css"),
    "css/react-grid-layout-styles.css": ("react-grid-layout@0.16.3", "css/styles.css"),
    "fonts/glyphicons-halflings-regular.woff2": (
        "bootstrap@3.3.7",
        "dist/fonts/glyphicons-halflings-regular.woff2",
    ),
}


# JavaScript that returns [name, x, y] of every line that Plotly draws, by window.
LINES = (
    "[...document.querySelectorAll('.js-plotly-plot')]"
    ".map(plot => plot.data.map(line => [line.name, line.x, line.y]))"
)


def fetch() -> None:
    """Download the scripts from the npm registry with npm."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    packages = sorted({package for package, _ in SCRIPTS.values()})
    subprocess.run(["npm", "pack", "--silent", *packages], cwd=FOLDER, check=True)
    for name, (package, inside) in SCRIPTS.items():
        target = FOLDER / name
        target.parent.mkdir(exist_ok=True)
        with tarfile.open(FOLDER / f"{package.replace('@', '-')}.tgz") as archive:
            target.write_bytes(archive.extractfile(f"package/{inside}").read())


def missing() -> list[str]:
    """Return the scripts that are not in the folder."""
    return [name for name in SCRIPTS if not (FOLDER / name).is_file()]


def open_page(browser, url: str, scripts: bool, width: int = 900, height: int = 420):
    """Open a page on the server at `url`; requests to other hosts are blocked.

    Returns:
        The page, and two lists filled while it loads: the static files that the server lacks, and
        the page's own errors.
    """
    page = browser.new_page(viewport={"width": width, "height": height})
    absent: list[str] = []
    errors: list[str] = []

    def route(request):
        address = urlparse(request.request.url)
        name = address.path.removeprefix("/static/")
        if f"{address.scheme}://{address.netloc}" != url:
            request.abort()
        elif scripts and name in SCRIPTS:
            request.fulfill(path=FOLDER / name)
        else:
            request.continue_()

    page.route("**/*", route)
    page.on(
        "response",
        lambda r: (
            absent.append(urlparse(r.url).path.removeprefix("/static/"))
            if r.status == 404
            else None
        ),
    )
    page.on("pageerror", lambda error: errors.append(error.message))
    return page, absent, errors


def main() -> None:
    """Train the chapter's run against a real server and take a picture of its page."""
    if "--fetch" in sys.argv:
        return fetch()
    if missing():
        sys.exit(f"{', '.join(missing())} not in {FOLDER}: run with --fetch first")
    from PIL import Image
    from playwright.sync_api import sync_playwright

    from bookbuild.editions.pdf import chromium
    from helpers import monitoring
    from helpers.demos import monitoring as demos

    with monitoring.visdom_server() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        sink = monitoring.VisdomSink(server.port, env="run")  # creates the environment
        page, _, _ = open_page(browser, server.url, scripts=True, width=960, height=420)
        page.goto(f"{server.url}/env/run")
        with monitoring.Logger(sink) as logger:
            for epoch, values in demos.train(epochs=8):
                logger.log(epoch, values)
        page.wait_for_function(f"JSON.stringify({LINES}).includes('[1,2,3,4,5,6,7,8]')")
        page.wait_for_timeout(1500)  # the lines move into place
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(48)
        demos.PAGE_PICTURE.parent.mkdir(exist_ok=True)
        shot.save(demos.PAGE_PICTURE, optimize=True)
        browser.close()
    print(f"{demos.PAGE_PICTURE}: {demos.PAGE_PICTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
