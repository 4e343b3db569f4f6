"""A system's results made again on this machine, and held against the site's: the run's bytes, then its scores."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runboard.answers import Recipe
from runboard.client import Client
from runboard.errors import Refused

if TYPE_CHECKING:
    from runboard_eval.checkpoints.description import CheckpointDescription

#: Scores that differ by less are the same: sums are taken in another order on other machines.
_EQUAL = 1e-9
#: Documents for each query; no measure looks deeper.
_DEEPEST = 100_000
#: The kinds of files that every result is made of.
_READ = {"corpus", "queries", "qrels"}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came of one result: `differs` says in what, `reason` why it cannot be made again, neither that it is the
    same. `versions` are the engine's, there and here, where they differ."""

    dataset: str
    configuration: str
    reason: str = ""
    differs: list[str] = field(default_factory=list)
    scores: Mapping[str, float] = field(default_factory=dict)
    versions: tuple[str, str] | None = None

    def __str__(self) -> str:
        there_here = self.versions and "; the site has version {} of the engine, this machine {}".format(
            *self.versions
        )
        return f"{self._verdict()}{there_here or ''}"

    def _verdict(self) -> str:
        name = " · ".join(filter(None, [self.dataset, self.configuration]))
        if self.reason:
            return f"{name}: cannot be made again. {self.reason}"
        if self.differs:
            return f"{name}: differs: {'; '.join(self.differs)}"
        return f"{name}: the same run, byte for byte, and the same {len(self.scores)} scores"


@dataclass(frozen=True, slots=True)
class _Made:
    """Runs of one search by label, the main one's empty; and what was another than the recipe says."""

    runs: Mapping[str, Path]
    differs: list[str]


def site_and_slug(address: str) -> tuple[str | None, str]:
    """The site and the system that the address of a system's page names; a slug names no site. Raises ValueError."""
    if "://" not in address:
        return None, address.strip("/").rpartition("/")[2]
    found = re.fullmatch(r"(https?://[^?#]+?)/systems/([\w-]+)/?(?:[?#].*)?", address)
    if found is None:
        raise ValueError(
            f"{address} is no system's page: write https://SITE/systems/NAME/, or the name alone."
        )
    return found[1], found[2]


def reproduce(
    site: Client, slug: str, folder: Path, checkpoint: Path | None = None, replaces: bool = False
) -> Iterator[Reproduction]:
    """Make each result of a system again; what is downloaded stays in the folder. Needs runboard-eval.

    Raises FileExistsError for other files of the downloads' names, unless these may be replaced.
    """
    made: dict[str, _Made] = {}
    for recipe in site.recipes(slug):
        where = recipe["dataset"], recipe["configuration"]
        if recipe["reason"]:
            yield Reproduction(*where, reason=recipe["reason"])
            continue
        place = folder / recipe["dataset"]
        by_sha256 = {file["sha256"]: file["name"] for file in site.files(recipe["dataset"])}
        gone = [kind for kind, sha256 in recipe["files"].items() if sha256 not in by_sha256]
        if gone:
            yield Reproduction(*where, differs=[f"the site has another {kind} by now" for kind in gone])
            continue
        if not recipe["files"].keys() >= _READ:
            yield Reproduction(*where, reason="The site does not say which files it was made of.")
            continue
        if not 1 <= recipe["depth"] <= _DEEPEST:
            told = f"The site says a depth of {recipe['depth']:,}; 1 to {_DEEPEST:,} can be."
            yield Reproduction(*where, reason=told)
            continue
        files = {kind: place / by_sha256[sha256] for kind, sha256 in recipe["files"].items()}
        site.download(recipe["dataset"], place, list(files), replaces)
        model = checkpoint or _checkpoint(site, recipe, place, replaces)
        if model is None and recipe["checkpoint"]:
            name = recipe["checkpoint"].get("hub_name", "")
            told = f"download {name} at {recipe['checkpoint'].get('hub_commit', '')} and " if name else ""
            yield Reproduction(*where, reason=f"Its model is needed: {told}give --checkpoint FOLDER.")
            continue
        yield replace(_compared(recipe, files, model, made), versions=_versions(recipe["software"]))


def _versions(there: str) -> tuple[str, str] | None:
    """The engine's versions there and here, where they are two."""
    import runboard_eval

    here: str = runboard_eval.__version__
    return None if there == here else (there, here)


def _compared(
    recipe: Recipe,
    files: Mapping[str, Path],
    model: Path | None,
    made: dict[str, _Made],
) -> Reproduction:
    """Retrieve, unless a result of the same search was made already, and compare."""
    from runboard_eval.core.problems import InvalidContent, ModelFailure
    from runboard_eval.engines import InvalidParameter
    from runboard_eval.measures.registry import UnknownMeasureError

    where, key = (recipe["dataset"], recipe["configuration"]), _search(recipe)
    try:
        if key not in made:
            made[key] = _retrieve(recipe, files, model, files["queries"].with_name(f"{key}.run"))
        return _against_the_site(recipe, files, made[key])
    except ImportError as error:
        told = f"It needs the extra [neural] of the wheel of runboard-eval: see docs/client.md ({error})."
        return Reproduction(*where, reason=told)
    except (InvalidContent, ModelFailure) as error:
        return Reproduction(*where, reason=f"What it is made of cannot be read: {error}")
    except UnknownMeasureError as error:
        return Reproduction(*where, reason=f"The site has a measure that this version does not have: {error}")
    except InvalidParameter as error:
        return Reproduction(*where, differs=[f"the engine here has other parameters ({error})"])


def _against_the_site(recipe: Recipe, files: Mapping[str, Path], made: _Made) -> Reproduction:
    """The run's bytes and scores beside those of the recipe."""
    from runboard_eval.judgements.qrels import read_excluded, read_qrels
    from runboard_eval.runs.score import ScoringTarget, score_run

    differs = list(made.differs)
    run = made.runs.get(recipe["configuration"].partition(" · ")[0]) or made.runs[""]
    with run.open("rb") as text:
        if hashlib.file_digest(text, "sha256").hexdigest() != recipe["run_sha256"]:
            differs.append("the run has other bytes")
    qrels = read_qrels(files["qrels"])
    target = ScoringTarget(
        qrels=qrels,
        query_ids=qrels.query_ids,
        hidden=False,
        drop_self_matches=recipe["drop_self_matches"],
        excluded=read_excluded(files["excluded"]) if "excluded" in files else None,
    )
    found = score_run(run, target, list(recipe["scores"])).means
    for measure, value in recipe["scores"].items():
        here = found.get(measure, math.nan)
        if not abs(here - value) <= _EQUAL:
            differs.append(_told_apart(measure, here, value))
    return Reproduction(recipe["dataset"], recipe["configuration"], differs=differs, scores=found)


def _search(recipe: Recipe) -> str:
    """Names the search that a result is of: results that only differ in what was scored are of one."""
    scored = ("configuration", "run_sha256", "scores")
    of = {name: value for name, value in recipe.items() if name not in scored}
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]


def _told_apart(measure: str, here: float, there: float) -> str:
    """Both scores, with as many digits as tell them apart."""
    digits = next((each for each in range(4, 17) if f"{here:.{each}f}" != f"{there:.{each}f}"), 17)
    return f"{measure} is {here:.{digits}f}, there {there:.{digits}f}"


def _retrieve(recipe: Recipe, files: Mapping[str, Path], model: Path | None, out: Path) -> _Made:
    """Make the runs of a recipe's search."""
    from runboard_eval.checkpoints.rebuilding import CheckpointDescription, open_checkpoint
    from runboard_eval.engines import Resources, RetrievalTask, describe, retrieve

    engine, differs = describe(recipe["engine"]), list[str]()
    with tempfile.TemporaryDirectory(prefix="runboard-") as scratch:
        checkpoint = None
        if model is not None:
            checkpoint = open_checkpoint(model, engine.checkpoints, Path(scratch))
            differs = _other_model(recipe["checkpoint"], CheckpointDescription.read(checkpoint))
        task = RetrievalTask(
            recipe["engine"],
            files["corpus"],
            files["queries"],
            out,
            parameters=recipe["parameters"],
            k=recipe["depth"],
            drop_self_matches=recipe["drop_self_matches"],
            excluded=files.get("excluded"),
            tag=recipe["tag"],
            resources=Resources(checkpoint=checkpoint, language=recipe["language"]),
        )
        done = retrieve(task)
    return _Made({**done.variants, "": out}, differs)


def _other_model(wanted: Mapping[str, Any], found: CheckpointDescription) -> list[str]:
    """That the model is another one, with the files that have other checksums; empty where it is the same."""
    if wanted.get("sha256", found.sha256) == found.sha256:
        return []
    said = wanted.get("files")
    files: Mapping[str, str] = said if isinstance(said, Mapping) else {}
    names = sorted(name for name in {*files, *found.files} if files.get(name) != found.files.get(name))
    told = f": another checksum of {', '.join(names)}" if files else ""
    return [f"the checkpoint is another model{told}"]


def _checkpoint(site: Client, recipe: Recipe, place: Path, replaces: bool) -> Path | None:
    """The model's archive, where the dataset offers it."""
    name = recipe["checkpoint"].get("file")
    if not name:
        return None
    kinds = [file["kind"] for file in site.files(recipe["dataset"]) if file["name"] == name]
    if not kinds:
        raise Refused(404, "not_found", f"{name} is no longer offered.", [])
    return next(
        path for path in site.download(recipe["dataset"], place, kinds, replaces) if path.name == name
    )
