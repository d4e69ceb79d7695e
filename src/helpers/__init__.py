"""Modules that the chapters of Executable PyTorch Notes import; copy them into other projects.

Each chapter has a module of its name with the functions that a reader may reuse. Subpackages:

- `exercises`: the checkers of each chapter;
- `demos`: figures and demonstrations, each for a cell of the book;
- `explorers`: interactive figures, numbers and element.

Shared modules: `autograd` (inspect a graph), `forward` (run a model for inspection), `allocator`
(a model of the CUDA allocator), `figures` (one style), `timing`, `child` (start a process),
`verdicts` (the Chinese of the checkers' sentences). Functions import heavy libraries when they are
called.
"""
