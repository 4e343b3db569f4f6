"""Teams' checkpoints: validation, storage, and downloads from the Hugging Face Hub."""
