"""The web site made from notebooks and pages, with Sphinx and its extensions."""
