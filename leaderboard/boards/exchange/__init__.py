"""What other sites and tools read of a system or a dataset: MTEB's and Hugging Face's results, Croissant."""
