"""The rules, a small file for each family; importing this package registers all of them.

A rule reads a `Code` and yields the nodes where a mistake is. It does not explain: its sentence,
its fix and its section are in `book/review.yml`, from which `book update` makes `rules.json`.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in sorted(one.name for one in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
