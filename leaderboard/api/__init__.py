"""The public API, read side: boards, datasets, systems."""
