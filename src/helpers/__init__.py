"""Provide the modules that the chapters of Executable PyTorch Notes import, ready to copy.

Each chapter has a module with the same name, which contains its reusable functions. Subpackages:

- `exercises`: the checkers of each chapter;
- `demos`: figures and demonstrations for single cells of the book;
- `explorers`: interactive figures, each a Python module with its numbers and a JavaScript element.

Shared modules: `autograd` (inspect a graph), `forward` (run a model for inspection), `allocator`
(a model of the CUDA allocator), `figures` (one style), `timing`, `child` (start a process),
`verdicts` (the Chinese of the checkers' sentences). Functions import heavy libraries when they are
called.
"""
