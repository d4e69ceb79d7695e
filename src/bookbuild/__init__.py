"""Turns the notebooks of Executable PyTorch Notes into two web sites, and proves them on the way.

One room per step: `notebooks` (read, clean, write), `run`, `sync`, `check`, `pages`, `site`;
`text` shows a chapter in both languages as one text file. The `book` command is in `cli`.
"""
