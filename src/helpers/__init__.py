"""What the chapters of Executable PyTorch Notes import, to be taken into other projects.

A module for each chapter, under its name, holds what a reader would copy. Rooms beside them:

- `exercises`: the checkers of each chapter;
- `demos`: figures and demonstrations, each for a cell of the book;
- `explorers`: interactive figures, numbers and element;
- `measure`: what only a GPU can tell, and `recorded`: what one told.

Shared: `autograd` (a look into the graph), `allocator` (a model of the CUDA allocator), `figures`
(one style), `timing`, `child` (one way to start a process). Heavy libraries are imported inside the
functions that need them.
"""
