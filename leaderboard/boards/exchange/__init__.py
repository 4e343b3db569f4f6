"""What other sites and tools read: results for MTEB, Hugging Face and Every Eval Ever; datasets as Croissant."""
