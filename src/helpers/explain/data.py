"""Read `messages.json`: the messages, symptoms and sections, and the rules of the matcher.

`book update` generates the file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

FILE = Path(__file__).with_name("messages.json")
DATA = json.loads(FILE.read_text("utf8"))
LIMITS = SimpleNamespace(**DATA["matcher"]["limits"])
PATTERNS = {
    name: re.compile(pattern, re.A | (re.M if name in ("rank", "head", "margin") else 0))
    for name, pattern in DATA["matcher"]["patterns"].items()
}
VARIABLE, TYPE, HEAD = (PATTERNS[name] for name in ("variable", "type", "head"))
QUOTES = str.maketrans(dict.fromkeys(DATA["matcher"]["quotes"], "'"))
ENTITIES = DATA["matcher"]["entities"]
NAMES = {module: names.split() for module, names in DATA["matcher"]["names"].items()}
OWNERS = {
    package: re.compile(rf"(?:{names})(?:\.[\w<>]+)*", re.A)
    for package, names in DATA["matcher"]["owners"].items()
}
DIRECTORIES = DATA["matcher"]["directories"]
