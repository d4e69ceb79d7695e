"""Figures and demonstrations, each for a cell of the chapter with the same name."""
