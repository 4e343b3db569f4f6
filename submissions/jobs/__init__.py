"""Work: what each kind of job does, and the workers that do it."""
