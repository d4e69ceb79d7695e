"""Every kernel runs this first under `BOOK_WARNINGS=error`: what will stop working stops now.

A cell that shows an old idiom on purpose catches its warning, so it passes.
"""

import warnings

for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
    warnings.filterwarnings("error", category=category, module=r"__main__|helpers|torch")
# PyTorch issues many deprecations as plain UserWarnings
warnings.filterwarnings("error", message=r"(?is).*\bdeprecat", category=UserWarning)
del category, warnings
