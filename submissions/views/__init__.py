"""Views of submitters' pages."""
