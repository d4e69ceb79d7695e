"""Build and check the notebooks and web sites of the book; ARCHITECTURE.md lists the folders."""
