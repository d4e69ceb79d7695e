"""What the chapters of Executable PyTorch Notes import: one module per chapter, same name.

Shared parts: `exercises` (checkers), `figures` (explorers), `recorded` (GPU measurements).
Heavy libraries are imported inside the functions that need them.
"""
