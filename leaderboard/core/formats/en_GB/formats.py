"""Date and time formats under the names that Django reads."""

DATETIME_FORMAT = r"j M Y, H:i \U\T\C"
TIME_FORMAT = r"H:i \U\T\C"
