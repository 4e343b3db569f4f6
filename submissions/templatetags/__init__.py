"""Template tags and filters for submitters' pages."""
