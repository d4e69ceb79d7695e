"""Build and check the notebooks and the two web sites of Executable PyTorch Notes.

Each folder is one step of the build, in order; no folder imports from a later one:

    source/     files that people write, parsed: chapters, messages, symptoms, claims, words
    notebooks/  texts to notebooks: conversion, execution, cleaning, comparison, proofs
    pages/      generated pages: errors, pitfalls, symptoms, review, names, then and now, status
    site/       notebooks and pages to a site: Sphinx and its extensions, search, Markdown copies
    editions/   the built site to PDF, EPUB and zip
    commands/   update, adopt, check, build: each calls the steps; `cli` is the `book` command
"""
