"""Read training code and name the pitfalls of the book in it; nothing is executed.

    python -m helpers.review train.py notebooks/
    git diff --name-only | grep '\\.py$' | xargs python -m helpers.review

`%load_ext helpers.review` in Jupyter, Colab or IPython reviews each cell as it runs.

The standard library is all that it needs. `rules/` has the rules, `code.py`, `kinds.py` and
`flow.py` answer their questions about a source, `rules.json` has the words (`book/review.yml`).
"""

from helpers.review.cells import load_ipython_extension, unload_ipython_extension
from helpers.review.review import Finding, review

__all__ = ["Finding", "load_ipython_extension", "review", "unload_ipython_extension"]
