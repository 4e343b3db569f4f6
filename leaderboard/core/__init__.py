"""What every sub-package stands on: storage, HTTP, caches, logging, text, and who did what when."""
