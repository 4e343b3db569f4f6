"""The files, judgements and lists of datasets."""
