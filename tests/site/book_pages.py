"""Provide the pages and screen sizes for the tests of the site."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
NAMES = [chapter["file"] for part in TOC["parts"] for chapter in part["chapters"]]
LANGUAGES = {"en": "en", "zh": "zh-CN"}
HAN = re.compile("[\u3400-\u9fff]")

# Screen widths of phones, without those between two breakpoints of the styles; styles that make
# text narrower or wider than this machine's fonts.
PHONES = (320, 414)
LETTERS = {
    "as installed": "",
    "narrow": "* { font-family: 'Liberation Sans Narrow', 'Noto Sans CJK SC' !important }",
    "spaced": "* { letter-spacing: .12em !important }",  # text spacing of WCAG 1.4.12
}
