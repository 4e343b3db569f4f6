"""Build the distribution `runboard-eval`: `evaluation` as the package `runboard_eval` with its compiled kernel.

    python packages/evaluation_wheel.py FOLDER
    python packages/evaluation_wheel.py --sources FOLDER

The first form writes a wheel for this platform into FOLDER. Only imports, and command names in texts, are rewritten.
Version and dependencies come from the project. `--sources` writes the wheel's sources without compiling the kernel.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
#: Dependencies of `check`, `score`, `score-answers`, and `compare`. Versions come from the project's requirement files.
BASE = ("numpy", "orjson", "isal", "PyYAML", "regex")
#: Additional dependencies of all other commands, and of files compressed with zstd.
INDEX = ("numba", "PyStemmer", "whoosh-reloaded", "icu4py", "zstandard")
#: Additional dependencies for running models.
NEURAL = (
    "torch", "sentence-transformers", "transformers", "tokenizers", "huggingface-hub", "safetensors", "faiss-cpu",
    "scipy",
)  # fmt: skip
#: Replacements in sources, in this order: the command, imports, and qualified names.
REPLACEMENTS = (
    (re.compile(r"python -m evaluation(?= |\b(?!\.))"), "runboard-eval"),
    (re.compile(r"\b(from|import) evaluation\b"), r"\1 runboard_eval"),
    (re.compile(r"\bevaluation\.(?=[a-z])"), "runboard_eval."),
)

PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "runboard-eval"
version = "{version}"
description = "Check, score, compare, fuse, and create TREC runs as a Runboard site does"
readme = "README.md"
requires-python = "{python}"
license = "Apache-2.0"
license-files = ["LICENSE", "NOTICE"]
dependencies = {base}
optional-dependencies = {{index = {index}, neural = {neural}, verification = {verification}}}
scripts = {{runboard-eval = "runboard_eval.__main__:main"}}

[tool.setuptools]
packages = {{find = {{include = ["runboard_eval*"]}}}}
package-data = {{"*" = ["*.c", "*.h", "*.json", "py.typed", "prebuilt/*.so"]}}
"""
SETUP = """from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

class Compiled(Distribution):
    def has_ext_modules(self):
        return True

class PlatformWheel(bdist_wheel):
    # The kernel is loaded by ctypes, so the wheel fits every Python version of one platform.
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])

setup(distclass=Compiled, cmdclass={"bdist_wheel": PlatformWheel})
"""
README = """# runboard-eval

Evaluation tools for information retrieval, as a Runboard site uses them. The wheel alone installs `runboard-eval
check`, `score`, `score-answers`, and `compare`. Extras install more, as in
`pip install "$(echo runboard_eval-*.whl)[index]"`:

| extra | installs |
|---|---|
| `index` | BM25, RM3, `fuse`, `merge`, `retrieve`, and files compressed with zstd |
| `neural` | the same, and models: `encode`, `pack`, and the engines that need a checkpoint |
| `verification` | pytrec_eval, for `runboard_eval.verification` |

```
runboard-eval score --qrels qrels/test.tsv --run run.txt
runboard-eval retrieve --corpus corpus.jsonl.gz --queries queries.jsonl.gz --out run.txt
```
"""


def requirements() -> dict[str, str]:
    """Return the project's pinned versions as lower bounds, by canonical name."""
    bounds = {}
    for name in ("docker/requirements-web.txt", "requirements.txt"):
        for line in (ROOT / name).read_text().splitlines():
            line = line.partition(" #")[0].strip()
            if line and not line.startswith(("#", "-r")):
                requirement = Requirement(line)
                (pinned,) = requirement.specifier
                bounds[canonicalize_name(requirement.name)] = f"{requirement.name}>={pinned.version}"
    return bounds


def rename_package(text: str) -> str:
    """Return the source of a module with the distribution's package name."""
    for pattern, name in REPLACEMENTS:
        text = pattern.sub(name, text)
    return text


def write_tree(folder: Path, kernel: bool) -> None:
    """Write the sources of the distribution into a folder, and compile the kernel there if `kernel` is true."""
    package = folder / "runboard_eval"
    for source in sorted((ROOT / "evaluation").rglob("*")):
        if source.suffix not in (".py", ".c", ".h", ".json"):
            continue
        target = package / source.relative_to(ROOT / "evaluation")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".py":
            target.write_text(rename_package(source.read_text("utf-8")), "utf-8")
        else:
            shutil.copyfile(source, target)
    (package / "py.typed").touch()
    for name in ("LICENSE", "NOTICE"):
        shutil.copyfile(ROOT / name, folder / name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with (package / "__init__.py").open("a") as module:
        module.write(f'\n__version__ = "{project["version"]}"\n')
    versions = requirements()
    extras = {"base": BASE, "index": INDEX, "neural": INDEX + NEURAL, "verification": ("pytrec-eval-terrier",)}
    dependencies = {extra: [versions[canonicalize_name(name)] for name in names] for extra, names in extras.items()}
    (folder / "pyproject.toml").write_text(
        PROJECT.format(version=project["version"], python=project["requires-python"], **dependencies)
    )
    (folder / "setup.py").write_text(SETUP)
    (folder / "README.md").write_text(README)
    if kernel:
        prebuilt = package / "kernel" / "prebuilt"
        command = [sys.executable, "-m", "runboard_eval.kernel", str(prebuilt)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def build(target: Path) -> None:
    """Build the wheel into a folder."""
    with tempfile.TemporaryDirectory(prefix="runboard-eval-") as name:
        write_tree(Path(name), kernel=True)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, "--wheel-dir", str(target), name], check=True)


if __name__ == "__main__":
    if sys.argv[1] == "--sources":
        write_tree(Path(sys.argv[2]).resolve(), kernel=False)
    else:
        build(Path(sys.argv[1]).resolve())
