"""The version is the project's: it stands in the pyproject.toml above this folder alone."""

import tomllib
from pathlib import Path

from setuptools import setup

project = Path(__file__).resolve().parents[1] / "pyproject.toml"
setup(version=tomllib.loads(project.read_text())["project"]["version"])
