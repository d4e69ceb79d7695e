"""Import and thereby register all rules; each family of rules has a module.

A rule takes a `Code` and yields the nodes with a mistake. Its texts (effect,
fix, section) are in `book/review.yml`, from which `book update` generates `rules.json`.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
