"""Runs, their evaluations, what is published of them, and what boards were."""
