"""Find the pitfalls of the book in training code without executing it.

    python -m helpers.review train.py notebooks/
    git diff --name-only | grep '\\.py$' | xargs python -m helpers.review

`%load_ext helpers.review` in Jupyter, Colab or IPython reviews each cell as it runs.

It requires only the standard library. `rules/` contains the rules, `rules.json` their texts
(`book/review.yml`). `code.py`, `kinds.py`, `axes.py`, `graphless.py`, `flow.py` and `tracing.py`
analyse a source for the rules, and `inlining.py` inlines local functions at their calls.
"""

from helpers.review.cells import load_ipython_extension, unload_ipython_extension
from helpers.review.review import Finding, review

__all__ = ["Finding", "load_ipython_extension", "review", "unload_ipython_extension"]
