"""The way in: from files and forms to queued jobs, or a refusal that stores nothing."""
