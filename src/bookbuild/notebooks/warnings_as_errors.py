"""Raise deprecation warnings as errors; kernels run this file first if `BOOK_WARNINGS=error`.

A cell that shows a deprecated idiom on purpose catches the warning, so it passes.
"""

import warnings

for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
    warnings.filterwarnings("error", category=category, module=r"__main__|helpers|torch")
# PyTorch issues many deprecation warnings as UserWarning, so match the message
warnings.filterwarnings("error", message=r"(?is).*\bdeprecat", category=UserWarning)
del category, warnings
