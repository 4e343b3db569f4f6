"""Date and time formats under the names that Django reads."""

DATETIME_FORMAT = r"j M Y, H:i \U\T\C"
MONTH_DAY_FORMAT = "j M"
YEAR_MONTH_FORMAT = "M Y"
TIME_FORMAT = r"H:i \U\T\C"
