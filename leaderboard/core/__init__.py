"""What every sub-package but `models` stands on: storage, HTTP, caches, logging, text, and who did what when."""
