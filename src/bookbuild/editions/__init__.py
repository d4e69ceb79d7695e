"""Editions made from the built site: PDF, EPUB and zip."""
