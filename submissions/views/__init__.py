"""The pages of submitters."""
