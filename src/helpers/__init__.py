"""Provide the modules that the chapters import, ready to copy.

A chapter's module has the chapter's name. Functions import heavy libraries when they are called.
"""
