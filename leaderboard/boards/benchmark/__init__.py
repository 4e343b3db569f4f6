"""Boards of benchmarks: systems over several datasets."""
