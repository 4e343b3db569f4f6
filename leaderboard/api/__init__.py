"""Public read API: boards, datasets, systems."""
