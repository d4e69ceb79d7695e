"""The commands of `book`: each calls the steps in their order."""
