"""Formats of Django's own pages; the names are Django's."""

DATETIME_FORMAT = r"j M Y, H:i \U\T\C"
TIME_FORMAT = r"H:i \U\T\C"
