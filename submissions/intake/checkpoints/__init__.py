"""Intake of models: turns requests to run a model into queued jobs."""
