"""Which version of the site this is."""

#: As `pyproject.toml` has it; workers announce it.
VERSION = "0.1.0"
