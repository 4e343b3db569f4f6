"""Reader of image archives from `docker save` (manifest.json) and in OCI layout (index.json), without a daemon.

Sources: the OCI image format specification 1.1 (image layout, manifest, configuration), and moby's
image/spec/spec.md (manifest.json).
"""

import hashlib
import json
import platform
import posixpath
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.archives.tar import DamagedTar, TarReader
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind, Plan
from evaluation.checkpoints.findings import quote
from evaluation.checkpoints.rebuilding import Validation
from evaluation.core.problems import InvalidContent, Report
from evaluation.images.findings import (
    DEFAULT_LIMITS,
    IMAGE_COMMAND,
    IMAGE_DIGEST,
    IMAGE_FORMAT,
    IMAGE_PLATFORM,
    IMAGE_SIZE,
    ImageFindings,
    ImageLimits,
    ImageRefused,
)
from evaluation.images.layers import FileSystem, Layer, Slice, iterate_members, write_file_system

#: Architecture names in images, keyed by `platform.machine()`.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: Pattern of supported digests.
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}")
#: Image label that selects the interface: `batch`, `embeddings`, or `rerank`.
INTERFACE_LABEL = "org.runboard.interface"
INTERFACES = ("batch", "embeddings", "rerank")
#: Image label of the server's port, and the default port. Servers get their port in PORT.
PORT_LABEL, DEFAULT_PORT = "org.runboard.port", 8000
#: Name of the archive in the folder of a stored image.
ARCHIVE_NAME = "image.tar"
_HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost\n"
#: Mount points of the sandbox in the image.
MOUNT_POINTS = (
    "proc", "dev", "sys", "tmp", "etc", "tira-data/input", "tira-data/output", "tira-data/beir",
    "usr/local/nvidia/lib64",
)  # fmt: skip
_MAX_LABELS, _MAX_LABEL = 100, 500
#: Limits of the command and environment, below those of Linux (128 KiB and 2 MiB), because placeholders are replaced,
#: and each value needs pointers and an option.
_MAX_VALUE_BYTES, _MAX_CONFIG_BYTES, _ENTRY_BYTES = 64 << 10, 512 << 10, 64
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """Parts of an image's configuration that are needed to run it. `user` and `group` are numeric."""

    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: int = 0
    group: int = 0
    home: str = "/root"
    labels: Mapping[str, str] = field(default_factory=dict)
    port: int = DEFAULT_PORT


class ImageArchive:
    """An image in an archive, checked on construction. `report` contains all problems of the image."""

    def __init__(self, path: Path, limits: ImageLimits = DEFAULT_LIMITS) -> None:
        self.path, self.limits, self.findings = path, limits, ImageFindings()
        self.digest = self.id = ""
        self.layers: list[Layer] = []
        self.config = ImageConfig()
        self.file_system = FileSystem(limits, self.findings)
        self._entries: dict[str, tuple[int, int]] = {}
        with suppress(ImageRefused):
            self._read()

    @property
    def report(self) -> Report:
        return self.findings.report()

    def unpack(self, target: Path) -> None:
        """Write the root file system into the new folder `target`. Raises InvalidContent if the image has problems."""
        if self.report.valid:
            for name in MOUNT_POINTS:
                self.file_system.make_folder(name)
            self.file_system.make_folder("etc").children.pop("hosts", None)
            with suppress(ImageRefused):
                write_file_system(self.file_system, self.layers, target, self.limits, self.findings)
        if not self.report.valid:
            raise InvalidContent(self.report)
        # Container runtimes provide this file. Programs cannot resolve "localhost" without it.
        hosts = target / "etc" / "hosts"
        hosts.write_text(_HOSTS, encoding="ascii")
        hosts.chmod(0o644)

    def describe(self) -> CheckpointDescription:
        """Return the description to store. Its `model_type` is the interface that the image's label selects."""
        labels = {quote(name, _MAX_LABEL): quote(value, _MAX_LABEL) for name, value in self.config.labels.items()}
        return CheckpointDescription(
            CheckpointKind.CONTAINER,
            (),
            self.config.labels.get(INTERFACE_LABEL, ""),
            size=self.path.stat().st_size,
            sha256=self.id.removeprefix("sha256:"),
            image={
                "digest": self.digest,
                "command": [quote(word) for word in self.config.command[:50]],
                "labels": dict(sorted(labels.items())[:_MAX_LABELS]),
                "port": self.config.port,
                "layers": len(self.layers),
                "expanded_bytes": self.file_system.expanded_bytes,
            },
        )

    # --- reading

    def _read(self) -> None:
        self.findings.require_size("bytes of the archive", self.path.stat().st_size, self.limits.archive_bytes)
        self._list_entries()
        manifest = self._docker_manifest() if "manifest.json" in self._entries else None
        if "index.json" in self._entries:
            config_name, names, blob_digests = self._oci_manifest()
        elif manifest is not None:
            config_name, names, blob_digests = manifest
        else:
            raise self.findings.stop(IMAGE_FORMAT, "it has neither manifest.json nor index.json")
        content = self._content(config_name)
        self.id = content_digest(content)
        self.digest = self.digest or self.id
        values = self._parse(content, config_name)
        self._check_platform(values)
        diff_ids = _list(_object(values.get("rootfs")).get("diff_ids"))
        self.findings.require_size("layers", len(names), self.limits.layers, is_bytes=False)
        if len(diff_ids) != len(names) or not all(DIGEST.fullmatch(str(each)) for each in diff_ids):
            raise self.findings.stop(IMAGE_FORMAT, "the configuration lists other layers than the manifest")
        for name, diff_id, blob_digest in zip(names, diff_ids, blob_digests, strict=True):
            self.layers.append(Layer(self.path, *self._entry(name), diff_id, blob_digest))
        for number, layer in enumerate(self.layers):
            try:
                layer.read(partial(self.file_system.add_layer, number), self.limits, self.findings)
            except ImageRefused as refusal:
                if refusal.args[0] is IMAGE_SIZE:
                    raise
        self.file_system.require_short_paths()
        self._read_config(_object(values.get("config")))

    def _list_entries(self) -> None:
        """Index the archive's regular files by name, with offset and size."""
        with self.path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                raise self.findings.stop(IMAGE_FORMAT, "the archive is compressed")
            file.seek(0)
            reader = _SeekingReader(Slice(file, 0, self.path.stat().st_size))
            try:
                for member in iterate_members(reader):
                    if len(self._entries) > 4 * self.limits.layers + 16:
                        raise self.findings.stop(IMAGE_FORMAT, "it contains too many files")
                    name = member.name.removeprefix("./")
                    if member.issym() or member.islnk():  # docker links layers that occur twice
                        folder = f"{name.rpartition('/')[0]}/" if member.issym() else ""
                        target = _normalize(f"{folder}{member.linkname}")
                        if target in self._entries:
                            self._entries[name] = self._entries[target]
                    elif member.isreg():
                        self._entries[name] = (member.offset_data, member.size)
            except DamagedTar as error:
                raise self.findings.stop(IMAGE_FORMAT, f"the archive cannot be read: {error}") from error

    def _docker_manifest(self) -> tuple[str, list[str], list[str]]:
        """Return the names of the configuration and of the layers."""
        manifests = self._parse(self._content("manifest.json"), "manifest.json", list)
        if len(manifests) != 1:
            raise self.findings.stop(IMAGE_FORMAT, "manifest.json must list exactly one image")
        manifest = _object(manifests[0])
        names = [str(name) for name in _list(manifest.get("Layers"))]
        return str(manifest.get("Config")), names, [""] * len(names)

    def _oci_manifest(self) -> tuple[str, list[str], list[str]]:
        """Return the names of the configuration and of the layers, and the digests of the layers' blobs."""
        values, digest = self._parse(self._content("index.json"), "index.json"), ""
        for _ in range(4):  # an index may contain an index of platforms
            if "manifests" not in values:
                break
            digest = choose_manifest(values["manifests"])
            if not digest:
                raise self.findings.stop(IMAGE_PLATFORM, f"index.json lists no image for linux/{own_architecture()}")
            values = self._parse(self._blob(digest), "the manifest")
        self.digest = digest
        config_digest = str(_object(values.get("config")).get("digest"))
        blob_digests = [str(_object(layer).get("digest")) for layer in _list(values.get("layers"))]
        self._blob(config_digest)
        return blob_name(config_digest), list(map(blob_name, blob_digests)), blob_digests

    def _entry(self, name: str) -> tuple[int, int]:
        if name not in self._entries:
            raise self.findings.stop(IMAGE_FORMAT, "the archive lacks {}", name)
        return self._entries[name]

    def _content(self, name: str) -> bytes:
        """Return the content of a small file of the archive."""
        offset, size = self._entry(name)
        self.findings.require_size("bytes of a JSON file", size, self.limits.json_bytes)
        with self.path.open("rb") as file:
            return Slice(file, offset, size).read(size)

    def _blob(self, digest: str) -> bytes:
        """Return a small blob after verifying its digest."""
        content = self._content(blob_name(digest))
        if content_digest(content) != digest:
            raise self.findings.stop(IMAGE_DIGEST, "{} has other content than its digest states", digest)
        return content

    def _parse(self, content: bytes, name: str, kind: type = dict) -> Any:
        """Return a JSON file's value, which must be an object or, with `kind`, a list."""
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self.findings.stop(IMAGE_FORMAT, "{} is not valid JSON", name) from error
        if not isinstance(value, kind):
            what = "object" if kind is dict else "list"
            raise self.findings.stop(IMAGE_FORMAT, f"{{}} does not contain a JSON {what}", name)
        return value

    def _check_platform(self, values: Mapping[str, Any]) -> None:
        found = f"{values.get('os')}/{values.get('architecture')}"
        if found != f"linux/{own_architecture()}":
            message = f"the image is for {{}}, but this site runs linux/{own_architecture()}"
            self.findings.add(IMAGE_PLATFORM, message, found)

    def _read_config(self, values: Mapping[str, Any]) -> None:
        """Read the command, environment, user, and labels, and report a problem for each invalid value."""
        word_lists = {name.upper(): values[name] for name in ("Entrypoint", "Cmd") if values.get(name)}
        command = [word for words in word_lists.values() for word in _list(words)]
        for name, words in word_lists.items():
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                message = f'{name} in the configuration is not a JSON list of strings, such as ["python", "run.py"]'
                self.findings.add(IMAGE_COMMAND, message)
        if not word_lists:
            self.findings.add(IMAGE_COMMAND, "the image has neither ENTRYPOINT nor CMD")
        pairs = [str(entry).partition("=") for entry in _list(values.get("Env"))]
        environment = {name: text for name, _, text in pairs if _NAME.fullmatch(name)}
        labels = {str(name): str(text) for name, text in _object(values.get("Labels")).items()}
        interface = labels.get(INTERFACE_LABEL, "")
        if interface not in ("", *INTERFACES):
            message = f"the label {INTERFACE_LABEL} is {{}} instead of {', '.join(INTERFACES)}"
            self.findings.add(IMAGE_COMMAND, message, interface)
        config = ImageConfig(
            command=tuple(map(str, command)),
            environment=environment,
            folder=f"/{_normalize(str(values.get('WorkingDir') or ''))}",
            labels=labels,
            port=_port(labels, _object(values.get("ExposedPorts"))),
        )
        self.config = self._with_user(config, str(values.get("User") or "0"))
        self._check_config()

    def _check_config(self) -> None:
        """Report values with which the operating system cannot start a program."""
        config = self.config
        variables = (f"{name}={text}" for name, text in config.environment.items())
        texts = [*config.command, *variables, config.folder, config.home]
        if any(map(_UNUSABLE.search, texts)):
            message = "the command, ENV, WORKDIR, or the home of the user contains a NUL or a surrogate character"
            self.findings.add(IMAGE_COMMAND, message)
            return
        sizes = [len(text.encode()) for text in texts]
        if max(sizes) > _MAX_VALUE_BYTES or sum(sizes) + _ENTRY_BYTES * len(sizes) > _MAX_CONFIG_BYTES:
            limits = f"{_MAX_VALUE_BYTES >> 10} KiB for each value and {_MAX_CONFIG_BYTES >> 10} KiB in total"
            self.findings.add(IMAGE_COMMAND, f"command and environment exceed the limits of {limits}")
        elif not self.file_system.add_folder(config.folder):
            self.findings.add(IMAGE_COMMAND, "WORKDIR {} is a file, is below a file, or is too long", config.folder)

    def _with_user(self, config: ImageConfig, text: str) -> ImageConfig:
        """Return the configuration with the numeric ids and the home of `user[:group]`."""
        name, _, group_name = text.partition(":")
        users, groups = self._accounts("/etc/passwd"), self._accounts("/etc/group")
        row = next((row for row in users if name in (row[0], row[2])), None)
        group_row = next((row for row in groups if group_name in (row[0], row[2])), None)
        user = row[2] if row else name
        group = group_row[2] if group_row else group_name or (row[3] if row and len(row) > 3 else "0")
        if not (user.isdecimal() and group.isdecimal() and max(len(user), len(group)) < 10):
            self.findings.add(IMAGE_COMMAND, "/etc/passwd has no user {}", text)
            return config
        home = row[5] if row and len(row) > 5 and row[5].startswith("/") else "/root" if user == "0" else "/"
        return replace(config, user=int(user), group=int(group), home=home)

    def _accounts(self, name: str) -> list[list[str]]:
        """Return the rows of an account file of the image, or an empty list if it is missing."""
        node = self.file_system.find(name)
        lines = node.content.decode(errors="replace").splitlines() if node else ()
        return [line.split(":") for line in lines if line.count(":") > 1]


class _SeekingReader(TarReader):
    """Reader of an uncompressed tar file that seeks past skipped members."""

    def __init__(self, file: Slice) -> None:
        super().__init__(file.readinto)
        self._file, self._end = file, file.seek(0, 2)
        file.seek(0)

    def seek(self, position: int) -> None:
        if not self._position <= position <= self._end:
            raise DamagedTar("it is truncated")
        self._position = self._file.seek(position)


def validate_image(path: Path, limits: ImageLimits = DEFAULT_LIMITS) -> Validation:
    """Check an image archive and return the verdict. Its plan is the image's description."""
    image = ImageArchive(path, limits)
    report = image.report
    return Validation(report, Plan(image.describe(), {}) if report.valid else None)


def choose_manifest(entries: object) -> str:
    """Return the digest of the only image in an index, or of the one for this machine, or an empty string."""
    platforms = [(_object(_object(entry).get("platform")), _object(entry)) for entry in _list(entries)]
    images = [(platform, entry) for platform, entry in platforms if platform.get("os") != "unknown"]
    own = [entry for platform, entry in images if _is_own(platform)]
    candidates = [images[0][1]] if len(images) == 1 else own
    return str(candidates[0].get("digest")) if candidates else ""


def _is_own(platform: Mapping[str, Any]) -> bool:
    return platform.get("os", "linux") == "linux" and platform.get("architecture") == own_architecture()


def own_architecture() -> str:
    """Return the name of this machine's processor architecture in images."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _port(labels: Mapping[str, str], exposed: Mapping[str, Any]) -> int:
    """Return the port from the label, else an unprivileged port that the image exposes, else the default port."""
    ports = [labels.get(PORT_LABEL, ""), *(name.removesuffix("/tcp") for name in exposed)]
    numbers = [int(port) for port in ports if port.isdecimal() and len(port) < 6]
    return next((number for number in numbers if 1024 <= number < 65536), DEFAULT_PORT)


def content_digest(content: bytes) -> str:
    """Return the digest of a blob in the format of manifests."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def blob_name(digest: str) -> str:
    """Return the name of a blob in an OCI archive."""
    return f"blobs/{digest.replace(':', '/', 1)}"


def _normalize(name: str) -> str:
    return posixpath.normpath(f"/{name}").lstrip("/")


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
