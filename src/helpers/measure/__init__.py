"""What only a GPU can tell: for each recording of a chapter the function that measures it."""
