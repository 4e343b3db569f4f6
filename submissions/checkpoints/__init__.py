"""Checkpoints that people send: kept once per owner, or fetched from the hub."""
