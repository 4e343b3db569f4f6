"""Uploads that come in pieces: begun, continued, expired, and taken by a submission once. The only writer of `Upload`.

The file comes first and the row after it, and the row goes before the file: a crash leaves at most a file without a
row, which the sweep removes.
"""

import hashlib
import hmac
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet, Sum
from django.db.models.functions import Least
from django.utils import timezone

from evaluation.archives.compression import describe_bytes
from evaluation.core.files import sha256_of
from evaluation.core.problems import ProblemCode
from leaderboard.core.storage import deletion_lock
from leaderboard.core.storage.disk import DiskFull, require_free_space
from leaderboard.models import User
from submissions.core.errors import Refused
from submissions.models import Upload
from submissions.models.uploads import UPLOAD_LIFETIME_SECONDS
from submissions.uploads import storage
from submissions.uploads.storage import UploadInUse

#: The most uploads of a user, and their most bytes, that no submission has used yet.
UPLOADS_PER_PERSON = 20
UPLOAD_BYTES_PER_PERSON: int = settings.CHECKPOINT_PIECES_LIMIT_BYTES
UNKNOWN_UPLOAD = ProblemCode("unknown_upload", "You have no upload of this id: a submission took it, or it was "
    "deleted, or given up a day after its last bytes.", "Send the file again.", "-F upload=ID",
    is_free=True)  # fmt: skip
UNFINISHED_UPLOAD = ProblemCode("unfinished_upload", "The upload is not whole.", "Send the rest, then submit "
    "it.")  # fmt: skip
WRONG_UPLOAD_KIND = ProblemCode("wrong_upload_kind", "A checkpoint was uploaded for a run, or a run for a "
    "checkpoint.", "Say kind run or model in Upload-Metadata.")  # fmt: skip
UPLOAD_IN_USE = ProblemCode("upload_in_use", "The upload is being written, or another submission takes it.",
    "Wait for that one to end; if it is refused, the upload stays.")  # fmt: skip
UPLOAD_TOO_LARGE = ProblemCode("upload_too_large", "The file is over the limit for its kind, or longer than was "
    "announced.", "512 MiB for runs, 33 GiB for checkpoints, unless the site's operator says otherwise.")  # fmt: skip
UPLOAD_CHECKSUM = ProblemCode("upload_checksum", "The bytes are not those of Upload-Checksum, or it cannot be "
    "tested.", "sha1 or sha256, a blank, and the digest in base64.")  # fmt: skip
UPLOAD_OFFSET = ProblemCode("upload_offset", "The upload is elsewhere than where these bytes begin.",
    "Ask with HEAD how far it is.", "Upload-Offset: 1048576")  # fmt: skip
UPLOAD_EXPIRED = ProblemCode("upload_expired", "No bytes came for a day, so the upload was given up.",
    "Begin another.")  # fmt: skip
TOO_MANY_PIECES = ProblemCode("too_many_pieces", "You send as many pieces at once as you may, or the site takes no "
    "more.", "Send it again in a few seconds; clients of tus do so by themselves.")  # fmt: skip
TOO_MANY_UPLOADS = ProblemCode("too_many_uploads", "You have many uploads here that no submission has taken.",
    "Submit or delete them; each is given up a day after its last bytes.")  # fmt: skip


#: How many pieces one person may send at once to one web process.
PIECES_EACH = 2
#: After so many seconds who finds no place tries again.
RETRY_SECONDS = 5

_lock = threading.Lock()
_taken: Counter[int] = Counter()


class ChecksumMismatch(Refused):
    """What arrived has another checksum than was sent. It is not stored."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """Of what one request brings: the algorithm as hashlib calls it, and the digest."""

    algorithm: str
    digest: bytes


def limit_of(kind: str) -> int:
    """Return the most bytes that a file of the kind may have."""
    if kind == Upload.Kind.MODEL:
        return int(settings.CHECKPOINT_PIECES_LIMIT_BYTES)
    return int(settings.UPLOAD_LIMIT_BYTES)


def begin_upload(owner: User, *, length: int, kind: str, file_name: str = "", metadata: str = "") -> Upload:
    """Begin an upload. Raises Refused if it is too large or one of too many, and DiskFull without room."""
    if length > limit_of(kind):
        raise Refused.of(
            UPLOAD_TOO_LARGE,
            f"The file has {describe_bytes(length)}; the limit for a {Upload.Kind(kind).label} is "
            f"{describe_bytes(limit_of(kind))}.",
            "Say kind model where it is a checkpoint." if kind == Upload.Kind.RUN else "",
        )
    upload = Upload(owner=owner, length=length, kind=kind, file_name=file_name[:200], metadata=metadata)
    upload.touched_at = timezone.now()
    storage.create_file(upload.pk)
    # Bytes are reserved for what uploads under way have announced and not sent: of each as many as came already, and
    # what the next sync may bring. An upload that is only announced takes no room. Where more comes, `receive_bytes`
    # finds no room.
    since = timezone.now() - timedelta(seconds=UPLOAD_LIFETIME_SECONDS)
    under_way = Upload.objects.filter(completed_at=None, touched_at__gt=since)
    kept = Sum(Least(F("length") - F("offset"), F("offset") + storage.SYNC_EVERY))
    try:
        require_free_space(storage.folder(), length + int(under_way.aggregate(kept=kept)["kept"] or 0))
        with transaction.atomic():
            # Held while they are counted: of two that begin at once the second sees the first.
            User.objects.select_for_update(no_key=True).get(pk=owner.pk)
            _refuse_too_many(owner, length)
            upload.save(force_insert=True)
    except BaseException as error:
        # Of these two it is known that no row was committed: a backup that is just being made has none either.
        storage.remove_file(upload.pk, named=not isinstance(error, (Refused, DiskFull)))
        raise
    return upload if length else _complete(upload, hashlib.sha256().hexdigest())


def _refuse_too_many(owner: User, length: int) -> None:
    mine = uploads_of(owner)
    total = mine.aggregate(total=Sum("length"))["total"] or 0
    if len(mine) < UPLOADS_PER_PERSON and total + length <= UPLOAD_BYTES_PER_PERSON:
        return
    raise Refused.of(
        TOO_MANY_UPLOADS,
        f"You have {len(mine)} uploads with {describe_bytes(total)} here that no submission has taken; you may have "
        f"{UPLOADS_PER_PERSON} with {describe_bytes(UPLOAD_BYTES_PER_PERSON)}.",
        "Submit them, or delete those that you no longer need: your account's page and GET uploads/ list them. Each "
        f"is given up by itself {UPLOAD_LIFETIME_SECONDS // 3600} hours after its last bytes.",
    )


def uploads_of(owner: User) -> QuerySet[Upload]:
    """Return the person's uploads that have not expired, newest first."""
    since = timezone.now() - timedelta(seconds=UPLOAD_LIFETIME_SECONDS)
    return Upload.objects.filter(owner=owner, touched_at__gt=since)


def find_upload(owner: User, identifier: str) -> Upload | None:
    """Return the person's own upload, or None. Raises Refused for one that has expired."""
    if not storage.is_identifier(identifier):
        return None
    upload = Upload.objects.filter(owner=owner, pk=identifier).first()
    if upload is not None and upload.expires_at <= timezone.now():
        hours = UPLOAD_LIFETIME_SECONDS // 3600
        message = f"No bytes came for {hours} hours, so the upload was given up."
        raise Refused.of(UPLOAD_EXPIRED, message, "Begin another.")
    return upload


def require_offset(upload: Upload, offset: int) -> None:
    """Raise Refused for bytes that begin elsewhere than the upload ends."""
    if offset != upload.offset:
        message = f"The upload has {upload.offset:,} bytes, and these begin at {offset:,}."
        hint = "Ask with HEAD how far it is, and go on from there."
        raise Refused.of(UPLOAD_OFFSET, message, hint)


def too_long(upload: Upload) -> Refused:
    """Return the refusal of more bytes than were announced."""
    return Refused.of(
        UPLOAD_TOO_LARGE,
        f"More came than the {upload.length:,} bytes that were announced.",
        "Begin another upload, with the file's length in Upload-Length.",
    )


def receive_bytes(
    upload: Upload, offset: int, blocks: Iterable[bytes], checksum: Checksum | None = None
) -> Upload:
    """Write what comes, from `offset` on, as far as it comes; with a checksum all of it or nothing.

    Raises Refused, DiskFull, and UploadInUse; Upload.DoesNotExist where it is gone.
    """
    try:
        with storage.lock_file(upload.pk) as file:
            upload.refresh_from_db()
            require_offset(upload, offset)
            # Of what comes in one go the checksum is known; else the whole file is read once more.
            whole = hashlib.sha256() if offset == 0 else None
            part = hashlib.new(checksum.algorithm) if checksum else None

            def note(safe: int) -> None:
                if checksum is None and safe > upload.offset:
                    _record_offset(upload, safe)

            hashed = _hashed(blocks, [each for each in (whole, part) if each])
            end = storage.append_blocks(file, offset, upload.length, hashed, note)
            if checksum is not None and part is not None:
                if not hmac.compare_digest(part.digest(), checksum.digest):
                    file.truncate(offset)
                    message = "What arrived has another checksum than was sent: nothing of it was kept."
                    problem = UPLOAD_CHECKSUM.problem(message, "Send it again.")
                    raise ChecksumMismatch(UPLOAD_CHECKSUM, message, [problem])
                _record_offset(upload, end)
            if end == upload.length and upload.completed_at is None:
                _complete(upload, whole.hexdigest() if whole else sha256_of(storage.path_of(upload.pk)))
    except storage.UploadTooLong as error:
        raise too_long(upload) from error
    except FileNotFoundError as error:
        raise Upload.DoesNotExist from error
    return upload


def _hashed(blocks: Iterable[bytes], hashes: list[Any]) -> Iterator[bytes]:
    for block in blocks:
        for each in hashes:
            each.update(block)
        yield block


def _record_offset(upload: Upload, safe: int) -> None:
    """How far the upload is, once that is on disk."""
    upload.offset, upload.touched_at = safe, timezone.now()
    Upload.objects.filter(pk=upload.pk).update(offset=safe, touched_at=upload.touched_at)


def keep_file(owner: User, path: Path, sha256: str, file_name: str, kind: str) -> Upload:
    """Keep a file as an upload, so that it need not be sent again; the same bytes are kept once.

    Raises as `begin_upload`.
    """
    known = uploads_of(owner).filter(kind=kind, sha256=sha256).exclude(completed_at=None).first()
    if known is not None:
        return known
    upload = begin_upload(owner, length=path.stat().st_size, kind=kind, file_name=file_name)
    with path.open("rb") as file:
        return receive_bytes(upload, 0, iter(lambda: file.read(storage.SYNC_EVERY), b""))


def finish_upload(upload: Upload) -> Upload:
    """Complete an upload whose bytes are all here, but whose last writer was killed before hashing.

    What another has hold of is left to them. Raises Upload.DoesNotExist where it is gone.
    """
    if upload.completed_at is not None or upload.offset < upload.length:
        return upload
    try:
        with storage.lock_file(upload.pk):
            upload.refresh_from_db()
            if upload.completed_at is None:
                _complete(upload, sha256_of(storage.path_of(upload.pk)))
    except FileNotFoundError as error:
        raise Upload.DoesNotExist from error
    except UploadInUse:
        upload.refresh_from_db()
    return upload


def _complete(upload: Upload, sha256: str) -> Upload:
    upload.sha256, upload.completed_at = sha256, timezone.now()
    upload.save(update_fields=["sha256", "completed_at"])
    return upload


def discard_upload(upload: Upload) -> None:
    """Give the upload up, row and file. Raises UploadInUse while somebody writes or reads it, or a backup runs.

    A backup keeps the file: were the row gone, nobody would count what its owner sends again and again meanwhile.
    """
    try:
        with storage.lock_file(upload.pk):
            if deletion_lock.deletions_are_paused():
                raise UploadInUse
            Upload.objects.filter(pk=upload.pk).delete()
            storage.remove_file(upload.pk)
    except FileNotFoundError:
        Upload.objects.filter(pk=upload.pk).delete()


def completed_upload(owner: User, identifier: str, kind: str) -> Upload:
    """Return the upload that a submission names. Raises Refused if it is missing, incomplete, or of another kind."""
    try:
        upload = find_upload(owner, identifier)
        upload = finish_upload(upload) if upload is not None else None
    except (Refused, Upload.DoesNotExist):
        upload = None
    if upload is None:
        raise Refused.of(
            UNKNOWN_UPLOAD,
            f"You have no upload “{identifier[:40]}”.",
            "It was taken by a submission, deleted, or given up after a day without bytes. Send the file again.",
        )
    if upload.completed_at is None:
        raise Refused.of(
            UNFINISHED_UPLOAD,
            f"{upload.file_name or 'The upload'} is not whole: {upload.offset:,} of {upload.length:,} bytes came.",
            "Send the rest, then submit it.",
        )
    if upload.kind != kind:
        message = f"{upload.file_name or 'The upload'} was sent as a {upload.get_kind_display()}."
        hint = f"Send it with kind {kind} in Upload-Metadata."
        raise Refused.of(WRONG_UPLOAD_KIND, message, hint)
    return upload


@contextmanager
def lock_for_reading(identifiers: Iterable[str], *, shared: bool = False) -> Iterator[None]:
    """Around reading uploads for a submission, or (`shared`) a check: nobody else takes or deletes them meanwhile.

    Raises Refused where somebody has them now.
    """
    with ExitStack() as stack:
        for identifier in identifiers:
            try:
                stack.enter_context(storage.lock_file(identifier, shared=shared))
            except (UploadInUse, FileNotFoundError) as error:
                raise Refused.of(
                    UPLOAD_IN_USE,
                    "The upload is just being written, or taken by another submission.",
                    "Wait for that one to end: if it is refused, the upload is here still.",
                ) from error
        yield


def consume_uploads(owner: User, identifiers: Iterable[str]) -> None:
    """Use the uploads up, in the transaction of what they become: with its commit they are gone, else they stay.

    Raises Refused where one is gone already.
    """
    for identifier in set(identifiers):
        gone, _ = Upload.objects.filter(owner=owner, pk=identifier).delete()
        if not gone:
            completed_upload(owner, identifier, "")
        transaction.on_commit(lambda identifier=identifier: storage.remove_file(identifier))  # type: ignore[misc]


def discard_expired_uploads() -> int:
    """Discard the uploads that have expired. Return how many."""
    limit = timezone.now() - timedelta(seconds=UPLOAD_LIFETIME_SECONDS)
    count = 0
    for upload in Upload.objects.filter(touched_at__lte=limit):
        try:
            discard_upload(upload)
            count += 1
        except UploadInUse:
            continue
    return count


@contextmanager
def piece_slot(person: int) -> Iterator[None]:
    """Hold a place of this process while a piece comes. Raises Refused where there is none."""
    with _lock:
        if _taken[person] >= PIECES_EACH or _taken.total() >= settings.PIECES_AT_ONCE:
            message = f"You send {PIECES_EACH} pieces already, or this site takes as many as it can at once."
            problem = TOO_MANY_PIECES.problem(
                "No thread is free for this piece.", "Send it in a few seconds."
            )
            raise Refused(TOO_MANY_PIECES, message, [problem])
        _taken[person] += 1
    try:
        yield
    finally:
        with _lock:
            _taken[person] -= 1
            if not _taken[person]:
                del _taken[person]
