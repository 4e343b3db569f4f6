"""A system's results made again on this machine, and held against the site's: the run's bytes, then its scores."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from runboard.answers import Recipe
from runboard.client import Client
from runboard.errors import Refused

if TYPE_CHECKING:
    from runboard_eval.checkpoints import CheckpointDescription

#: Scores that differ by less are the same: sums are taken in another order on other machines.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came of one result: `differs` says in what, `reason` why it cannot be made again, neither that it is the
    same."""

    dataset: str
    configuration: str
    reason: str = ""
    differs: list[str] = field(default_factory=list)
    scores: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        name = " · ".join(filter(None, [self.dataset, self.configuration]))
        if self.reason:
            return f"{name}: cannot be made again. {self.reason}"
        if self.differs:
            return f"{name}: differs: {'; '.join(self.differs)}"
        return f"{name}: the same run, byte for byte, and the same {len(self.scores)} scores"


def slug_of(address: str) -> str:
    """The system that an address of its page, or a slug, names."""
    parts = urlsplit(address)
    words = [word for word in parts.path.split("/") if word]
    if parts.scheme and (len(words) < 2 or words[0] != "systems"):
        raise ValueError(
            f"{address} is no system's page: write https://SITE/systems/NAME/, or the name alone."
        )
    return words[-1] if words else ""


def reproduce(
    site: Client, slug: str, folder: Path, checkpoint: Path | None = None
) -> Iterator[Reproduction]:
    """Make each result of a system again; what is downloaded stays in the folder. Needs runboard-eval."""
    made: dict[tuple[str, str], dict[str, Path]] = {}
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
        files = {kind: place / by_sha256[sha256] for kind, sha256 in recipe["files"].items()}
        site.download(recipe["dataset"], place, list(files))
        model = checkpoint or _checkpoint(site, recipe, place)
        if model is None and recipe["checkpoint"]:
            name = recipe["checkpoint"].get("hub_name", "")
            told = f"download {name} at {recipe['checkpoint'].get('hub_commit', '')} and " if name else ""
            yield Reproduction(*where, reason=f"Its model is needed: {told}give --checkpoint FOLDER.")
            continue
        yield _compared(recipe, files, model, made)


def _compared(
    recipe: Recipe,
    files: Mapping[str, Path],
    model: Path | None,
    made: dict[tuple[str, str], dict[str, Path]],
) -> Reproduction:
    """Retrieve, unless a result of the same search was made already, and compare."""
    from runboard_eval.core.errors import InvalidContent, ModelFailure
    from runboard_eval.engines import InvalidParameter
    from runboard_eval.judgements.excluded import read_excluded
    from runboard_eval.judgements.qrels import read_qrels
    from runboard_eval.runs.score import ScoringTarget, score_run

    differs: list[str] = []
    key = recipe["dataset"], repr(sorted(recipe["parameters"].items()))
    try:
        if key not in made:
            made[key] = _retrieve(recipe, files, model, differs)
    except ImportError as error:
        told = f"It needs another package: pip install runboard-eval[neural] ({error})."
        return Reproduction(recipe["dataset"], recipe["configuration"], reason=told)
    except (InvalidContent, ModelFailure, zipfile.BadZipFile) as error:
        return Reproduction(
            recipe["dataset"], recipe["configuration"], reason=f"Its model cannot be read: {error}"
        )
    except InvalidParameter as error:
        differs.append(f"the engine here has other parameters ({error})")
        return Reproduction(recipe["dataset"], recipe["configuration"], differs=differs)
    label = recipe["configuration"].partition(" · ")[0]
    run = made[key].get(label) or made[key][""]
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
        if abs(found[measure] - value) > _EQUAL:
            differs.append(f"{measure} is {found[measure]:.4f}, there {value:.4f}")
    return Reproduction(recipe["dataset"], recipe["configuration"], differs=differs, scores=found)


def _retrieve(
    recipe: Recipe, files: Mapping[str, Path], model: Path | None, differs: list[str]
) -> dict[str, Path]:
    """The runs by label, the main one's empty."""
    from runboard_eval.checkpoints import CheckpointDescription, open_checkpoint
    from runboard_eval.engines import Resources, describe, retrieve

    engine = describe(recipe["engine"])
    out = files["queries"].with_name(f"{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}.run")
    with tempfile.TemporaryDirectory(prefix="runboard-") as scratch:
        checkpoint = None
        if model is not None:
            checkpoint = open_checkpoint(_unpacked(model, Path(scratch)), engine.checkpoints, Path(scratch))
            differs += _other_model(recipe["checkpoint"], CheckpointDescription.read(checkpoint))
        done = retrieve(
            recipe["engine"],
            files["corpus"],
            files["queries"],
            out,
            recipe["parameters"],
            k=recipe["depth"],
            drop_self_matches=recipe["drop_self_matches"],
            excluded=files.get("excluded"),
            tag=recipe["tag"],
            resources=Resources(checkpoint=checkpoint, language=recipe["language"]),
        )
    return {**done.variants, "": out}


def _other_model(wanted: Mapping[str, Any], found: CheckpointDescription) -> list[str]:
    """That the model is another one, with the files that have other checksums; empty where it is the same."""
    if wanted.get("sha256", found.sha256) == found.sha256:
        return []
    files: Mapping[str, str] = wanted.get("files", {})
    names = sorted(name for name in {*files, *found.files} if files.get(name) != found.files.get(name))
    told = f": another checksum of {', '.join(names)}" if files else ""
    return [f"the checkpoint is another model{told}"]


def _checkpoint(site: Client, recipe: Recipe, place: Path) -> Path | None:
    """The model's archive, where the dataset offers it."""
    name = recipe["checkpoint"].get("file")
    if not name:
        return None
    kinds = [file["kind"] for file in site.files(recipe["dataset"]) if file["name"] == name]
    if not kinds:
        raise Refused(404, "not_found", f"{name} is no longer offered.", [])
    return next(path for path in site.download(recipe["dataset"], place, kinds) if path.name == name)


def _unpacked(model: Path, scratch: Path) -> Path:
    """The folder of a model that may be a zip."""
    if model.is_dir():
        return model
    folder = scratch / "unpacked"
    with zipfile.ZipFile(model) as archive:
        archive.extractall(folder)
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder
