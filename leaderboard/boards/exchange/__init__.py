"""Exchange formats: results for MTEB, Hugging Face, and Every Eval Ever; datasets as Croissant."""
