"""Explain an error message of PyTorch: its cause, the fix, and the section that shows it.

    python train.py 2>&1 | python -m helpers.explain
    python -m helpers.explain log.txt --lang zh
    python -m helpers.explain --clipboard
    python -m helpers.explain "loss does not go down"

In Jupyter, Colab or IPython, `%load_ext helpers.explain` adds the explanation below an exception,
and `%explain loss does not go down` answers a question.

It works offline and without PyTorch. `matching.py` finds the messages in a text, `questions.py`
the symptoms and sections that answer a question, and `unknown.py` describes other errors;
`messages.json`, which `book update` generates, contains the data.
"""

from helpers.explain.matching import Answer, Messages, messages
from helpers.explain.notebook import load_ipython_extension, unload_ipython_extension
from helpers.explain.report import answers, explain

__all__ = [
    "Answer",
    "Messages",
    "answers",
    "explain",
    "load_ipython_extension",
    "messages",
    "unload_ipython_extension",
]
