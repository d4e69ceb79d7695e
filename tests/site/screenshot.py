"""Take the pictures of the READMEs from the built site: python tests/site/screenshot.py."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from bookbuild.site import server

ROOT = Path(__file__).resolve().parents[2]
PICTURES = {"en": "screenshot.png", "zh": "screenshot.zh.png"}


def main() -> None:
    """The home page in both languages, light, as wide as a README shows it sharply."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    with server(ROOT / "_build/site", 0) as http, sync_playwright() as playwright:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        for lang, name in PICTURES.items():
            page.goto(f"http://127.0.0.1:{http.server_port}/{lang}/index.html")
            page.evaluate("document.fonts.ready")
            page.screenshot(path=ROOT / ".github" / name, animations="disabled")
        browser.close()
        http.shutdown()


if __name__ == "__main__":
    main()
