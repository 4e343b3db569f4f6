"""Images downloaded by digest from a registry on this machine."""

from __future__ import annotations

import gzip
import ipaddress
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evaluation.archives import hub
from evaluation.archives.hub import NotFetched
from evaluation.images.archive import ImageArchive, own_architecture
from submissions.checkpoints import registry_download
from submissions.checkpoints.hub import PinnedModel, fetch_image, parse_image
from submissions.checkpoints.registry_download import pull
from submissions.core.errors import Refused
from tests.evaluation.images.builder import image_config, layer
from tests.servers.certificates import certificate_for_localhost
from tests.servers.registry import REPOSITORY, TOKEN, FakeRegistry, digest_of, serving

GB = 10**9
#: Two expanded layers; the second does not compress.
LAYERS = [
    layer({"bin/run": b"#!", "etc/passwd": b"root:x:0:0::/root:/bin/sh\n"}),
    layer({"data": random.Random(1).randbytes(300_000)}),
]
BLOBS = [gzip.compress(content, 1, mtime=0) for content in LAYERS]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """A registry that this process may reach, and retries without pauses."""
    monkeypatch.setattr(registry_download, "is_public", lambda address: address.is_loopback)
    monkeypatch.setattr(registry_download, "_PAUSE", 0.0)
    with serving(certificate_for_localhost(tmp_path), monkeypatch) as fake:
        yield fake


@dataclass
class Download:
    """A download of an image. `archive` is its file."""

    registry: FakeRegistry
    archive: Path
    digest: str = ""
    layers: list[bytes] = field(default_factory=lambda: list(BLOBS))

    def __post_init__(self) -> None:
        self.digest = self.registry.add(image_config(LAYERS), self.layers)

    def run(self, limit: int = GB) -> ImageArchive:
        """Download the image and return it as read by the checks of uploaded images."""
        size = pull(f"{self.registry.address}/{REPOSITORY}", self.digest, self.archive, limit, 0)
        assert size == self.archive.stat().st_size
        return ImageArchive(self.archive)

    def fail(self, code: str, words: str, limit: int = GB) -> None:
        with pytest.raises(NotFetched, match=words) as refused:
            self.run(limit)
        assert refused.value.code == code, refused.value.message


@pytest.fixture
def download(registry: FakeRegistry, tmp_path: Path) -> Download:
    return Download(registry, tmp_path / "image.tar")


def test_an_image_is_an_archive_that_passes_all_checks(download: Download, tmp_path: Path) -> None:
    image = download.run()
    assert image.report.valid, image.report
    assert (image.digest, image.id) == (download.digest, digest_of(image_config(LAYERS)))
    image.unpack(tmp_path / "root")
    assert (tmp_path / "root" / "data").stat().st_size == 300_000
    asked = len(download.registry.blobs_asked())
    assert download.run().report.valid  # nothing is left to download
    assert len(download.registry.blobs_asked()) == asked


def test_an_index_of_several_platforms_leads_to_the_one_for_this_machine(download: Download) -> None:
    other = download.registry.add(image_config(LAYERS, platform={"architecture": "s390x"}), BLOBS)
    windows = download.registry.add(image_config(LAYERS, platform={"os": "windows"}), BLOBS)
    own = own_architecture()
    platforms = {f"windows/{own}": windows, "linux/s390x": other, f"linux/{own}": download.digest}
    expected, download.digest = download.digest, download.registry.add_index(platforms)
    image = download.run()
    assert image.report.valid, image.report
    assert image.digest == expected


def test_an_index_without_this_platform_is_refused(download: Download) -> None:
    other = download.digest
    download.digest = download.registry.add_index({"linux/s390x": other, "linux/riscv64": other})
    download.fail("image_platform", f"linux/{own_architecture()}")
    assert not download.registry.blobs_asked()


def test_a_token_is_requested_and_not_sent_to_other_hosts(download: Download) -> None:
    download.registry.asks_token = download.registry.redirects = True
    assert download.run().report.valid
    tokens = {host: headers.get("Authorization") for host, path, headers in download.registry.blobs_asked()}
    assert tokens == {"registry": f"Bearer {TOKEN}", "layers": None}
    (query,) = {path for _, path, _ in download.registry.asked if path.startswith("/token")}
    assert query == "/token?service=here&scope=repository%3Asomeone%2Fsmall-image%3Apull"


def test_a_private_image_is_refused(download: Download) -> None:
    download.registry.asks_token = download.registry.is_private = True
    download.fail("image_missing", "asks for a password")


def test_an_unknown_digest_is_refused(download: Download) -> None:
    download.digest = f"sha256:{'0' * 64}"
    download.fail("image_missing", "no image of this name with this digest")


@pytest.mark.parametrize("place", ["manifest", "layer"])
def test_another_content_than_the_digest_states_is_refused(download: Download, place: str) -> None:
    digest = download.digest if place == "manifest" else digest_of(BLOBS[1])
    content = download.registry.manifests[digest] + b" " if place == "manifest" else BLOBS[1][:-1] + b"!"
    download.registry.sent[digest] = content
    download.fail("image_digest", "other content than sha256:")
    assert BLOBS[1][:1000] not in download.archive.read_bytes()  # a later download begins it anew
    del download.registry.sent[digest]
    assert download.run().report.valid


def test_an_interrupted_layer_is_continued(download: Download) -> None:
    digest = digest_of(BLOBS[1])
    download.registry.breaks[digest] = [100_000, 50_000]
    assert download.run().report.valid
    ranges = [headers.get("Range") for _, path, headers in download.registry.blobs_asked() if path.endswith(digest)]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_a_registry_without_ranges_sends_the_layer_again(download: Download) -> None:
    download.registry.breaks[digest_of(BLOBS[1])] = [100_000]
    download.registry.ignores_ranges = True
    assert download.run().report.valid


def test_the_next_download_continues_a_layer_of_an_earlier_one(download: Download) -> None:
    digest = digest_of(BLOBS[1])
    download.registry.breaks[digest] = [100_000] + [0] * 7
    download.fail("image_unreachable", "a layer ended after 97.66 KiB of 293.3 KiB")
    download.registry.asked.clear()
    assert download.run().report.valid
    asked = [(path.rpartition("/")[2], headers.get("Range")) for _, path, headers in download.registry.blobs_asked()]
    assert asked == [(digest, "bytes=100000-")]


def test_an_image_over_the_limit_is_refused_before_its_layers(download: Download) -> None:
    download.fail("image_size", "over the limit of 97.66 KiB", limit=100_000)
    assert not download.registry.blobs_asked()


def test_a_layer_that_announces_more_than_its_manifest_is_refused_unread(download: Download) -> None:
    download.registry.lengths[digest_of(BLOBS[1])] = len(BLOBS[1]) + 1
    download.fail("image_size", "larger than its manifest states")
    assert len(download.registry.blobs_asked()) == 3


@pytest.mark.parametrize("is_endless", [False, True])
def test_a_layer_that_is_larger_than_its_manifest_states_is_cut_off(download: Download, is_endless: bool) -> None:
    content = random.Random(2).randbytes(50_000)
    lie = {"digest": digest_of(content), "size": 1000}
    download.registry.blobs[lie["digest"]] = content
    if is_endless:
        download.registry.endless.add(lie["digest"])
    download.digest = download.registry.add(image_config(LAYERS), BLOBS, layers=[lie])
    download.fail("image_size", "larger than its manifest states")
    assert download.archive.stat().st_size < 10_000


def test_a_slow_layer_is_given_up(download: Download, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TIMEOUT", -1)
    download.fail("image_unreachable", "arrives too slowly")


@pytest.mark.parametrize(
    "location", ["http://localhost:1/", "ftp://localhost:1/", "file:///etc/passwd", "https://localhost:99999/"]
)
def test_redirects_lead_to_https_only(download: Download, location: str) -> None:
    download.registry.location = location
    download.fail("image_unreachable", "registry")


def test_private_addresses_are_not_reached(download: Download, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as a registry, nor by a redirect, nor for a token."""
    addresses = {"inside.example": "10.0.0.7", "localhost": "127.0.0.1"}
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, port, *_, **__: [(socket.AF_INET, 1, 6, "", (addresses.get(host, host), port))],
    )
    with pytest.raises(NotFetched, match="not on the internet"):
        pull("inside.example/a/b", download.digest, download.archive, GB, 0)
    download.registry.location = "https://inside.example/layer"
    download.fail("image_unreachable", "not on the internet")
    download.registry.asks_token, download.registry.other_address = True, "https://inside.example"
    download.fail("image_unreachable", "not on the internet")
    monkeypatch.undo()
    assert not registry_download.is_public(ipaddress.ip_address("127.0.0.1"))


@pytest.mark.parametrize(("status", "code"), [(500, "image_unreachable"), (429, "image_unreachable")])
def test_a_registry_in_trouble_is_reported(download: Download, status: int, code: str) -> None:
    download.registry.status = status
    download.fail(code, f"answered {status}")


@pytest.mark.parametrize(
    "manifest",
    [
        {"schemaVersion": 1, "fsLayers": []},
        {"config": {"digest": "sha512:00", "size": 1}, "layers": []},
        {"config": {"digest": f"sha256:{'0' * 64}", "size": -1}, "layers": []},
        {"config": None, "layers": [1]},
        {"layers": [{}] * 1000},
    ],
)
def test_manifests_of_other_kinds_are_refused(download: Download, manifest: dict[str, Any]) -> None:
    download.digest = download.registry.add_manifest(manifest)
    download.fail("image_format", "its manifest")


def test_a_full_disk_is_no_problem_of_the_image(download: Download) -> None:
    with pytest.raises(OSError, match="does not fit"):
        pull(f"{download.registry.address}/{REPOSITORY}", download.digest, download.archive, GB, 1 << 60)
    assert not download.registry.blobs_asked()


@pytest.mark.parametrize(
    "text",
    [
        "ghcr.io/owner/name",
        "ghcr.io/owner/name:latest",
        f"owner/name@sha256:{'a' * 64}",
        f"ghcr.io/owner/name:latest@sha256:{'a' * 64}",
        f"ghcr.io/owner/../name@sha256:{'a' * 64}",
        f"ghcr.io/owner/name@sha256:{'a' * 63}",
        f"https://ghcr.io/owner/name@sha256:{'a' * 64}",
        f"user:password@ghcr.io/owner/name@sha256:{'a' * 64}",
        f"ghcr.io/{'a' * 300}@sha256:{'a' * 64}",
    ],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_image(text)
    assert refused.value.code == "image_name"


def test_names_of_registries_are_accepted() -> None:
    digest = f"sha256:{'a' * 64}"
    for name in ("ghcr.io/owner/name", "docker.io/library/python", "registry.example.org:5000/a__b/c-d.e"):
        assert parse_image(f" {name}@{digest}\n") == PinnedModel(name, digest)


@pytest.mark.django_db
def test_the_site_refuses_images_without_the_switch(settings: Any, tmp_path: Path) -> None:
    settings.HUB_DOWNLOADS = False
    with pytest.raises(Refused, match="does not download images") as refused:
        fetch_image(PinnedModel("ghcr.io/a/b", f"sha256:{'a' * 64}"), tmp_path / "image.tar", lambda: None)
    assert refused.value.code == "hub_downloads_off"
