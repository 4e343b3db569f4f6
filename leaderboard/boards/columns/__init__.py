"""The columns of a dataset's board, each with how its cells are made."""
