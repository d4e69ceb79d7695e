"""Take the READMEs' screenshots from the built site, and draw its link preview image and
phone icons: python tests/site/screenshot.py [--drawn: only the drawn images]."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bookbuild.editions.pdf import chromium
from bookbuild.site.metatags import PICTURE
from bookbuild.site.server import server
from bookbuild.source.checkout import Book

ROOT = Path(__file__).resolve().parents[2]
PICTURES = {"en": "screenshot.png", "zh": "screenshot.zh.png"}
ICON = 180  # pixels; size of the touch icon
CARD = """\
<html lang="{code}"><style>
* {{ margin: 0; box-sizing: border-box }}
body {{ width: 1200px; height: 630px; padding: 80px; background: #10182c; color: #fff;
  font: 34px/1.5 "Noto Sans", "Noto Sans CJK SC", "DejaVu Sans", sans-serif }}
svg {{ width: 108px; height: 108px; display: block }}
h1 {{ font-size: 68px; line-height: 1.25; margin: 36px 0 12px }}
p {{ color: #c3cde6 }}
pre {{ margin-top: 44px; font: 34px/1.6 "DejaVu Sans Mono", monospace }}
b {{ color: #ff9d94; margin-right: 24px }}
i {{ color: #8ddc9b; margin-right: 24px; font-style: normal }}
</style><body>{logo}<h1>{name}</h1><p>{about}</p>
<pre><b>✗</b>kept = x.detach()
<i>✓</i>kept = x.detach().clone()</pre>"""


def pages(browser: Browser) -> None:
    """Take a screenshot of the home page in both languages, in the light theme."""
    with server(ROOT / "_build/site", 0) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        for lang, name in PICTURES.items():
            page.goto(f"http://127.0.0.1:{http.server_port}/{lang}/index.html")
            page.evaluate("document.fonts.ready")
            page.screenshot(path=ROOT / ".github" / name, animations="disabled")
        http.shutdown()


def drawn(browser: Browser) -> None:
    """Draw the link preview image of each language, and the touch icon."""
    logo = (ROOT / "book/_static/logo.svg").read_text("utf8")
    card = browser.new_page(viewport={"width": PICTURE[0], "height": PICTURE[1]})
    book = Book(ROOT)
    for lang, language in book.languages.items():
        title = book.config["languages"][lang]["config"]["book_home_title"]
        words = title.removeprefix(f"{language.title} · ")
        card.set_content(
            CARD.format(code=language.tag, logo=logo, name=language.title, about=words)
        )
        card.screenshot(path=ROOT / f"book/_root/social.{lang}.png")
    icon = browser.new_page(viewport={"width": ICON, "height": ICON})
    square = logo.replace(' rx="7"', "").replace("<svg ", f'<svg width="{ICON}" height="{ICON}" ')
    icon.set_content(f"<style>* {{ margin: 0; display: block }}</style>{square}")
    icon.screenshot(path=ROOT / "book/_root/touch-icon.png")


def main() -> None:
    """Draw the images, and take the screenshots unless `--drawn` is given."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        drawn(browser)
        if "--drawn" not in sys.argv:
            pages(browser)
        browser.close()


if __name__ == "__main__":
    main()
