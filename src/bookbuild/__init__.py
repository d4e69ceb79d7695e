"""Turns the texts of Executable PyTorch Notes into notebooks and two web sites, and proves them.

One room per step: `text` reads a chapter, `translation` says which Chinese is current, `products`
makes the notebooks of it, `run` runs them, `update` does all of it, `adopt` goes back, `check`
proves, `pages` makes errors and the like, `site` builds. The `book` command
is in `cli`.
"""
