"""Reproduction of a system's results on this machine, compared with the site's: the run's bytes, then its scores."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
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

#: Maximum difference of equal scores, because other machines may sum in another order.
_MAX_SCORE_DIFFERENCE = 1e-9
#: Maximum number of documents per query; no measure reads more.
_MAX_DEPTH = 100_000
#: Digest of a container image.
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: Advice on loading an archive into Docker, so that the image's id is the digest of its configuration.
_LOAD_HINT = (
    "Load the team's archive with `docker load --input ARCHIVE` or, if it is in OCI layout, with "
    "`skopeo copy oci-archive:ARCHIVE docker-daemon:runboard:latest`. "
)
#: Kinds of files that are necessary for every result.
_REQUIRED_FILES = {"corpus", "queries", "qrels"}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Outcome for one result.

    Attributes:
        reason: Why the result cannot be reproduced, if it cannot.
        differs: Differences from the site's result.
        versions: The engine's versions on the site and here, if they differ.
    """

    dataset: str
    configuration: str
    reason: str = ""
    differs: list[str] = field(default_factory=list)
    scores: Mapping[str, float] = field(default_factory=dict)
    versions: tuple[str, str] | None = None

    def __str__(self) -> str:
        there_here = self.versions and "; the site has version {} of the engine, this machine {}".format(*self.versions)
        return f"{self._verdict()}{there_here or ''}"

    def _verdict(self) -> str:
        """Return a sentence with the reason, the differences, or the number of equal scores."""
        name = " · ".join(filter(None, [self.dataset, self.configuration]))
        if self.reason:
            return f"{name}: cannot be reproduced. {self.reason}"
        if self.differs:
            return f"{name}: differs: {'; '.join(self.differs)}"
        return f"{name}: the same run, byte for byte, and the same {len(self.scores)} scores"


@dataclass(frozen=True, slots=True)
class _SearchRuns:
    """Runs of one search by label, with an empty label for the main one, and differences from the recipe."""

    runs: Mapping[str, Path]
    differs: list[str]


def site_and_slug(address: str) -> tuple[str | None, str]:
    """Return the site and the slug in the address of a system's page. For a slug alone, the site is None.

    Raises ValueError for other addresses.
    """
    if "://" not in address:
        return None, address.strip("/").rpartition("/")[2]
    match = re.fullmatch(r"(https?://[^?#]+?)/systems/([\w-]+)/?(?:[?#].*)?", address)
    if match is None:
        raise ValueError(f"{address} is not a system's page: enter https://SITE/systems/NAME/, or only the name.")
    return match[1], match[2]


def reproduce(
    site: Client, slug: str, folder: Path, checkpoint: Path | None = None, replaces: bool = False
) -> Iterator[Reproduction]:
    """Retrieve each result of a system again, compare it with the site's, and yield the outcome. Needs runboard-eval.

    Downloads remain in the folder. `checkpoint` is a local copy of the system's model. Raises FileExistsError if
    different files have the names of downloads, unless `replaces` is set.
    """
    searches: dict[str, _SearchRuns] = {}
    for recipe in site.recipes(slug):
        result = recipe["dataset"], recipe["configuration"]
        if recipe["reason"]:
            yield Reproduction(*result, reason=recipe["reason"])
            continue
        dataset_folder = folder / recipe["dataset"]
        by_sha256 = {file["sha256"]: file["name"] for file in site.files(recipe["dataset"])}
        changed_kinds = [kind for kind, sha256 in recipe["files"].items() if sha256 not in by_sha256]
        if changed_kinds:
            yield Reproduction(*result, differs=[f"the site now has a different {kind}" for kind in changed_kinds])
            continue
        if not recipe["files"].keys() >= _REQUIRED_FILES:
            yield Reproduction(*result, reason="The site does not state the files from which it was produced.")
            continue
        if not 1 <= recipe["depth"] <= _MAX_DEPTH:
            detail = f"The site states a depth of {recipe['depth']:,}; 1 to {_MAX_DEPTH:,} are possible."
            yield Reproduction(*result, reason=detail)
            continue
        files = {kind: dataset_folder / by_sha256[sha256] for kind, sha256 in recipe["files"].items()}
        site.download(recipe["dataset"], dataset_folder, list(files), replaces)
        if _DIGEST.fullmatch(recipe["checkpoint"].get("image", "")):
            yield Reproduction(*result, reason=_image_command(recipe, files, dataset_folder / "image"))
            continue
        model = checkpoint or _download_checkpoint(site, recipe, dataset_folder, replaces)
        if model is None and recipe["checkpoint"]:
            name = recipe["checkpoint"].get("hub_name", "")
            detail = f"download {name} at {recipe['checkpoint'].get('hub_commit', '')} and " if name else ""
            yield Reproduction(*result, reason=f"Its model is needed: {detail}set --checkpoint FOLDER.")
            continue
        yield replace(_compare_result(recipe, files, model, searches), versions=_versions(recipe["software"]))


def _image_command(recipe: Recipe, files: Mapping[str, Path], folder: Path) -> str:
    """Write the input of the recipe's container image to `folder`, and return the commands that load and run the image.

    The name of an uploaded image is the digest of its configuration, which is its id in Docker's image store.
    """
    from runboard_eval.images import tira

    checkpoint, words = recipe["checkpoint"], ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp"]  # noqa: S108
    image, load = "sha256:{}".format(checkpoint.get("sha256", "")), _LOAD_HINT
    if name := checkpoint.get("hub_name", ""):
        image, load = f"{name}@{checkpoint['image']}", ""
    command = str(recipe["parameters"].get("command", ""))
    program = ["--entrypoint", "/bin/sh", image, "-c", command] if command else [image]
    if recipe["engine"] != "container":
        port = int(checkpoint.get("port", 8000))
        words += ["--publish", f"127.0.0.1:{port}:{port}", "--env", f"PORT={port}", *program]
        address = f"--endpoint http://127.0.0.1:{port}"
        return f"{load}Serve its container image with `{shlex.join(words)}`, and retrieve with `{address}`."
    is_new = not folder.exists()
    (folder / "output").mkdir(parents=True, exist_ok=True)
    (folder / "output").chmod(0o777)  # The image may run as another user.
    if is_new:
        tira.write_inputs(files["corpus"], files["queries"], None, folder, lambda share: None)
    for name, target, mode in (("input", tira.INPUT, ":ro"), ("beir", tira.BEIR, ":ro"), ("output", tira.OUTPUT, "")):
        words += ["--volume", f"{(folder / name).absolute()}:{target}{mode}"]
    for variable, value in tira.VARIABLES.items():
        words += ["--env", f"{variable}={value}"]
    return f"{load}Run its container image with `{shlex.join([*words, '--network', 'none', *program])}`."


def _versions(site_version: str) -> tuple[str, str] | None:
    """Return the engine's versions on the site and here if they differ."""
    import runboard_eval

    own_version: str = runboard_eval.__version__
    return None if site_version == own_version else (site_version, own_version)


def _compare_result(
    recipe: Recipe,
    files: Mapping[str, Path],
    model: Path | None,
    searches: dict[str, _SearchRuns],
) -> Reproduction:
    """Return the outcome for a recipe, with errors as its reason or as differences.

    `searches` contains the runs of earlier searches by key, and results with the same key share one search.
    """
    from runboard_eval.core.problems import InvalidContent, ModelFailure
    from runboard_eval.engines import InvalidParameter
    from runboard_eval.measures.registry import UnknownMeasureError

    result, key = (recipe["dataset"], recipe["configuration"]), _get_search_key(recipe)
    try:
        if key not in searches:
            searches[key] = _retrieve(recipe, files, model, files["queries"].with_name(f"{key}.run"))
        return _compare_with_site(recipe, files, searches[key])
    except ImportError as error:
        reason = f"It needs the extra [neural] of the wheel of runboard-eval: see docs/client.md ({error})."
        return Reproduction(*result, reason=reason)
    except (InvalidContent, ModelFailure) as error:
        return Reproduction(*result, reason=f"Its inputs cannot be read: {error}")
    except UnknownMeasureError as error:
        return Reproduction(*result, reason=f"The site has a measure that this version does not have: {error}")
    except InvalidParameter as error:
        return Reproduction(*result, differs=[f"the engine here has other parameters ({error})"])


def _compare_with_site(recipe: Recipe, files: Mapping[str, Path], search: _SearchRuns) -> Reproduction:
    """Score the search's run and return the outcome, with differences of bytes and scores from the recipe."""
    from runboard_eval.judgements.qrels import read_excluded, read_qrels
    from runboard_eval.runs.score import ScoringTarget, score_run

    differs = list(search.differs)
    run = search.runs.get(recipe["configuration"].partition(" · ")[0]) or search.runs[""]
    with run.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != recipe["run_sha256"]:
            differs.append("the run has different bytes")
    qrels = read_qrels(files["qrels"])
    target = ScoringTarget(
        qrels=qrels,
        query_ids=qrels.query_ids,
        hidden=False,
        drop_self_matches=recipe["drop_self_matches"],
        excluded=read_excluded(files["excluded"]) if "excluded" in files else None,
    )
    scores = score_run(run, target, list(recipe["scores"])).means
    for measure, value in recipe["scores"].items():
        own_score = scores.get(measure, math.nan)
        if not abs(own_score - value) <= _MAX_SCORE_DIFFERENCE:
            differs.append(_describe_difference(measure, own_score, value))
    return Reproduction(recipe["dataset"], recipe["configuration"], differs=differs, scores=scores)


def _get_search_key(recipe: Recipe) -> str:
    """Return a key of the result's search. Results that differ only in the scored variant have the same search."""
    excluded_fields = ("configuration", "run_sha256", "scores")
    key_values = {name: value for name, value in recipe.items() if name not in excluded_fields}
    return hashlib.sha256(json.dumps(key_values, sort_keys=True).encode()).hexdigest()[:16]


def _describe_difference(measure: str, own_score: float, site_score: float) -> str:
    """Describe both scores with enough digits to distinguish them."""
    digits = next((count for count in range(4, 17) if f"{own_score:.{count}f}" != f"{site_score:.{count}f}"), 17)
    return f"{measure} is {own_score:.{digits}f}, there {site_score:.{digits}f}"


def _retrieve(recipe: Recipe, files: Mapping[str, Path], model: Path | None, run: Path) -> _SearchRuns:
    """Retrieve the runs of a recipe's search, the main one to `run`. Record a model that differs from the recipe's."""
    from runboard_eval.checkpoints.rebuilding import CheckpointDescription, open_checkpoint
    from runboard_eval.engines import Resources, RetrievalTask, describe, retrieve

    engine, differs = describe(recipe["engine"]), list[str]()
    with tempfile.TemporaryDirectory(prefix="runboard-") as scratch:
        checkpoint = None
        if model is not None:
            checkpoint = open_checkpoint(model, engine.checkpoints, Path(scratch))
            differs = _compare_models(recipe["checkpoint"], CheckpointDescription.read(checkpoint))
        task = RetrievalTask(
            recipe["engine"],
            files["corpus"],
            files["queries"],
            run,
            parameters=recipe["parameters"],
            k=recipe["depth"],
            drop_self_matches=recipe["drop_self_matches"],
            excluded=files.get("excluded"),
            tag=recipe["tag"],
            resources=Resources(checkpoint=checkpoint, language=recipe["language"]),
        )
        outcome = retrieve(task)
    return _SearchRuns({**outcome.variants, "": run}, differs)


def _compare_models(recipe_model: Mapping[str, Any], own_model: CheckpointDescription) -> list[str]:
    """Return a sentence on a different model, with the files of other checksums; empty if the model is the same."""
    if recipe_model.get("sha256", own_model.sha256) == own_model.sha256:
        return []
    checksums = recipe_model.get("files")
    files: Mapping[str, str] = checksums if isinstance(checksums, Mapping) else {}
    names = sorted(name for name in {*files, *own_model.files} if files.get(name) != own_model.files.get(name))
    detail = f": another checksum of {', '.join(names)}" if files else ""
    return [f"the checkpoint is another model{detail}"]


def _download_checkpoint(site: Client, recipe: Recipe, dataset_folder: Path, replaces: bool) -> Path | None:
    """Download the model's archive that the recipe names, and return its path; None if it names none.

    Raises Refused if the dataset no longer offers it.
    """
    name = recipe["checkpoint"].get("file")
    if not name:
        return None
    kinds = [file["kind"] for file in site.files(recipe["dataset"]) if file["name"] == name]
    if not kinds:
        raise Refused(404, "not_found", f"{name} is no longer offered.", [])
    return next(path for path in site.download(recipe["dataset"], dataset_folder, kinds, replaces) if path.name == name)
