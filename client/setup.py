"""The version is the project's, read from ../pyproject.toml, or from PKG-INFO in a source distribution."""

import tomllib
from email import message_from_string
from pathlib import Path

from setuptools import setup

folder = Path(__file__).resolve().parent
package_info = folder / "PKG-INFO"
if package_info.exists():
    version = message_from_string(package_info.read_text("utf-8"))["Version"]
else:
    version = tomllib.loads((folder.parent / "pyproject.toml").read_text("utf-8"))["project"]["version"]
setup(version=version)
