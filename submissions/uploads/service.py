"""Chunked uploads: create, continue, expire, and consume them. Only this module writes `Upload`.

The file is created before its row and deleted after it. After a crash, the sweep removes a file without a row.
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
from evaluation.core.files import file_sha256
from evaluation.core.problems import ProblemCode
from leaderboard.core.storage import deletion_lock
from leaderboard.core.storage.disk import DiskFull, require_free_space
from leaderboard.models import User
from submissions.core.errors import Refused
from submissions.models import UPLOAD_LIFETIME_SECONDS, Upload
from submissions.uploads import storage
from submissions.uploads.storage import UploadInUse

#: Maximum number and total size of a user's uploads that are not part of a submission yet.
UPLOADS_PER_PERSON = 20
UPLOAD_BYTES_PER_PERSON: int = settings.CHECKPOINT_PIECES_LIMIT_BYTES
UNKNOWN_UPLOAD = ProblemCode("unknown_upload", "You have no upload with this id. A submission used it, it was deleted, "
    "or it expired one day after its last bytes arrived.", "Send the file again.", "-F upload=ID",
    is_free=True)  # fmt: skip
UNFINISHED_UPLOAD = ProblemCode("unfinished_upload", "The upload is incomplete.", "Send the rest, then submit "
    "it.")  # fmt: skip
WRONG_UPLOAD_KIND = ProblemCode("wrong_upload_kind", "A checkpoint was uploaded as a run, or a run as a "
    "checkpoint.", "Set kind to run or model in Upload-Metadata.")  # fmt: skip
UPLOAD_IN_USE = ProblemCode("upload_in_use", "The upload is being written, or used by another submission.",
    "Wait until that has finished. If the other submission is refused, the upload remains.")  # fmt: skip
UPLOAD_TOO_LARGE = ProblemCode("upload_too_large", "The file exceeds the limit for its kind, or its announced "
    "length.", "The default limits are 512 MiB for runs and 33 GiB for checkpoints.")  # fmt: skip
UPLOAD_CHECKSUM = ProblemCode("upload_checksum", "The bytes do not match Upload-Checksum, or its algorithm is not "
    "supported.", "Send sha1 or sha256, a space, and the digest in base64.")  # fmt: skip
UPLOAD_OFFSET = ProblemCode("upload_offset", "Upload-Offset differs from the number of bytes received.",
    "Request the offset with HEAD.", "Upload-Offset: 1048576")  # fmt: skip
UPLOAD_EXPIRED = ProblemCode("upload_expired", "The upload expired because no bytes arrived for a day.",
    "Start a new upload.")  # fmt: skip
TOO_MANY_PIECES = ProblemCode("too_many_pieces", "You or the site have too many concurrent uploads.",
    "Retry in a few seconds; tus clients do so on their own.")  # fmt: skip
TOO_MANY_UPLOADS = ProblemCode("too_many_uploads", "You have too many uploads that are not part of a submission.",
    "Submit or delete some. Uploads expire one day after their last bytes arrived.")  # fmt: skip


#: Maximum number of chunks that one user may send at once to one web process.
MAX_USER_CHUNKS = 2
#: Seconds after which clients without a slot should retry.
RETRY_SECONDS = 5

_slots_lock = threading.Lock()
_used_slots: Counter[int] = Counter()


class ChecksumMismatch(Refused):
    """Refusal of bytes that do not match their checksum; they are not stored."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """Checksum of one request's bytes: the name of the algorithm in hashlib, and the digest."""

    algorithm: str
    digest: bytes


def get_size_limit(kind: str) -> int:
    """Return the maximum size in bytes of files of this kind."""
    is_model = kind == Upload.Kind.MODEL
    return int(settings.CHECKPOINT_PIECES_LIMIT_BYTES if is_model else settings.UPLOAD_LIMIT_BYTES)


def begin_upload(owner: User, *, length: int, kind: str, file_name: str = "", metadata: str = "") -> Upload:
    """Create an upload and its empty file. `length` is the announced size in bytes; an upload of 0 bytes is complete.

    Raises:
        Refused: If the file is too large or the user has too many uploads.
        DiskFull: If there is not enough disk space.
    """
    if length > get_size_limit(kind):
        raise Refused.for_problem(
            UPLOAD_TOO_LARGE,
            f"The file has {describe_bytes(length)}; the limit for a {Upload.Kind(kind).label} is "
            f"{describe_bytes(get_size_limit(kind))}.",
            "Set kind to model if it is a checkpoint." if kind == Upload.Kind.RUN else "",
        )
    upload = Upload(owner=owner, length=length, kind=kind, file_name=file_name[:200], metadata=metadata)
    upload.touched_at = timezone.now()
    storage.create_file(upload.pk)
    # Reserve space for each upload in progress: the size that has arrived, plus the next sync, up to the announced
    # size. An announcement alone reserves little. `receive_bytes` checks the space again.
    expiry_limit = timezone.now() - timedelta(seconds=UPLOAD_LIFETIME_SECONDS)
    unfinished_uploads = Upload.objects.filter(completed_at=None, touched_at__gt=expiry_limit)
    reserved_bytes = Sum(Least(F("length") - F("offset"), F("offset") + storage.SYNC_EVERY))
    try:
        require_free_space(
            storage.folder(), length + int(unfinished_uploads.aggregate(kept=reserved_bytes)["kept"] or 0)
        )
        with transaction.atomic():
            # Lock before counting: if two uploads begin at the same time, the second sees the first.
            User.objects.select_for_update(no_key=True).get(pk=owner.pk)
            _refuse_too_many(owner, length)
            upload.save(force_insert=True)
    except BaseException as error:
        # After these two errors no row was committed, so that a concurrent backup has none either.
        storage.remove_file(upload.pk, named=not isinstance(error, (Refused, DiskFull)))
        raise
    return upload if length else _mark_complete(upload, hashlib.sha256().hexdigest())


def _refuse_too_many(owner: User, length: int) -> None:
    """Raise Refused if another upload of `length` bytes would exceed the limits on the user's uploads."""
    uploads = get_uploads(owner)
    total = uploads.aggregate(total=Sum("length"))["total"] or 0
    if len(uploads) < UPLOADS_PER_PERSON and total + length <= UPLOAD_BYTES_PER_PERSON:
        return
    raise Refused.for_problem(
        TOO_MANY_UPLOADS,
        f"You have {len(uploads)} uploads with {describe_bytes(total)} that are not part of a submission; the limit is "
        f"{UPLOADS_PER_PERSON} with {describe_bytes(UPLOAD_BYTES_PER_PERSON)}.",
        "Submit them, or delete those that you no longer need; your account page and GET uploads/ list them. Uploads "
        f"expire {UPLOAD_LIFETIME_SECONDS // 3600} hours after their last bytes.",
    )


def get_uploads(owner: User) -> QuerySet[Upload]:
    """Return the user's uploads that have not expired, newest first."""
    expiry_limit = timezone.now() - timedelta(seconds=UPLOAD_LIFETIME_SECONDS)
    return Upload.objects.filter(owner=owner, touched_at__gt=expiry_limit)


def find_upload(owner: User, identifier: str) -> Upload | None:
    """Return the user's upload, or None if it does not exist. Raises Refused if it has expired."""
    if not storage.is_identifier(identifier):
        return None
    upload = Upload.objects.filter(owner=owner, pk=identifier).first()
    if upload is not None and upload.expires_at <= timezone.now():
        hours = UPLOAD_LIFETIME_SECONDS // 3600
        message = f"The upload expired because no bytes arrived for {hours} hours."
        raise Refused.for_problem(UPLOAD_EXPIRED, message, "Start a new upload.")
    return upload


def require_offset(upload: Upload, offset: int) -> None:
    """Raise Refused if `offset` is not the end of the upload."""
    if offset != upload.offset:
        message = f"The upload has {upload.offset:,} bytes, but the request starts at {offset:,}."
        raise Refused.for_problem(UPLOAD_OFFSET, message, "Request the offset with HEAD and continue from there.")


def build_too_long_refusal(upload: Upload) -> Refused:
    """Return the refusal of more bytes than were announced."""
    return Refused.for_problem(
        UPLOAD_TOO_LARGE,
        f"The client sent more than the announced {upload.length:,} bytes.",
        "Start a new upload with the file's length in Upload-Length.",
    )


def receive_bytes(upload: Upload, offset: int, blocks: Iterable[bytes], checksum: Checksum | None = None) -> Upload:
    """Write the blocks that arrive, starting at `offset`, and return the updated upload, which may now be complete.

    Without a checksum, bytes that arrived before an error remain. With a checksum, all bytes are stored or none.

    Raises:
        Refused: If the offset, the length, or the checksum is wrong.
        DiskFull: If there is not enough disk space.
        UploadInUse: If another request writes or reads the upload.
        Upload.DoesNotExist: If the upload was deleted.
    """
    try:
        with storage.lock_file(upload.pk) as file:
            upload.refresh_from_db()
            require_offset(upload, offset)
            # A file that arrives in one request is hashed on the way; others are read once more.
            file_hash = hashlib.sha256() if offset == 0 else None
            request_hash = hashlib.new(checksum.algorithm) if checksum else None

            def record_synced_bytes(synced_bytes: int) -> None:
                if checksum is None and synced_bytes > upload.offset:
                    _record_offset(upload, synced_bytes)

            hashed_blocks = _hash_blocks(blocks, [digest for digest in (file_hash, request_hash) if digest])
            end = storage.append_blocks(file, offset, upload.length, hashed_blocks, record_synced_bytes)
            if checksum is not None and request_hash is not None:
                if not hmac.compare_digest(request_hash.digest(), checksum.digest):
                    file.truncate(offset)
                    message = "The received bytes do not match the checksum and were discarded."
                    problem = UPLOAD_CHECKSUM.problem(message, "Send it again.")
                    raise ChecksumMismatch(UPLOAD_CHECKSUM, message, [problem])
                _record_offset(upload, end)
            if end == upload.length and upload.completed_at is None:
                _mark_complete(upload, file_hash.hexdigest() if file_hash else file_sha256(storage.path_of(upload.pk)))
    except storage.UploadTooLong as error:
        raise build_too_long_refusal(upload) from error
    except FileNotFoundError as error:
        raise Upload.DoesNotExist from error
    return upload


def _hash_blocks(blocks: Iterable[bytes], hashes: list[Any]) -> Iterator[bytes]:
    """Yield the blocks after adding each to the hashes."""
    for block in blocks:
        for digest in hashes:
            digest.update(block)
        yield block


def _record_offset(upload: Upload, offset: int) -> None:
    upload.offset, upload.touched_at = offset, timezone.now()
    Upload.objects.filter(pk=upload.pk).update(offset=offset, touched_at=upload.touched_at)


def keep_file(owner: User, path: Path, sha256: str, file_name: str, kind: str) -> Upload:
    """Return an upload with the file's content: an existing complete one with the same hash and kind, or a new copy.

    The user can then submit the file without sending it again. Raises the exceptions of `begin_upload` and
    `receive_bytes`.
    """
    existing_upload = get_uploads(owner).filter(kind=kind, sha256=sha256).exclude(completed_at=None).first()
    if existing_upload is not None:
        return existing_upload
    upload = begin_upload(owner, length=path.stat().st_size, kind=kind, file_name=file_name)
    with path.open("rb") as file:
        return receive_bytes(upload, 0, iter(lambda: file.read(storage.SYNC_EVERY), b""))


def finish_upload(upload: Upload) -> Upload:
    """Return the upload, marking it complete if all bytes have arrived but its writer was killed before hashing.

    An upload that is in use is only read again. Raises Upload.DoesNotExist if it was deleted.
    """
    if upload.completed_at is not None or upload.offset < upload.length:
        return upload
    try:
        with storage.lock_file(upload.pk):
            upload.refresh_from_db()
            if upload.completed_at is None:
                _mark_complete(upload, file_sha256(storage.path_of(upload.pk)))
    except FileNotFoundError as error:
        raise Upload.DoesNotExist from error
    except UploadInUse:
        upload.refresh_from_db()
    return upload


def _mark_complete(upload: Upload, sha256: str) -> Upload:
    upload.sha256, upload.completed_at = sha256, timezone.now()
    upload.save(update_fields=["sha256", "completed_at"])
    return upload


def discard_upload(upload: Upload) -> None:
    """Delete the upload's row and file. Raises UploadInUse while it is written or read, or during a backup.

    Backups delay the deletion of files. Deleting only the row would let its owner exceed the limits meanwhile.
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
    """Return the user's complete upload of this kind.

    Raises Refused if it is missing, expired, incomplete, or of another kind.
    """
    try:
        upload = find_upload(owner, identifier)
        upload = finish_upload(upload) if upload is not None else None
    except (Refused, Upload.DoesNotExist):
        upload = None
    if upload is None:
        raise Refused.for_problem(
            UNKNOWN_UPLOAD,
            f"You have no upload “{identifier[:40]}”.",
            "It was used by a submission, deleted, or expired. Send the file again.",
        )
    if upload.completed_at is None:
        raise Refused.for_problem(
            UNFINISHED_UPLOAD,
            f"{upload.file_name or 'The upload'} is incomplete: {upload.offset:,} of {upload.length:,} bytes arrived.",
            "Send the rest, then submit it.",
        )
    if upload.kind != kind:
        message = f"{upload.file_name or 'The upload'} was uploaded as a {upload.get_kind_display()}."
        raise Refused.for_problem(WRONG_UPLOAD_KIND, message, f"Upload it with kind {kind} in Upload-Metadata.")
    return upload


@contextmanager
def lock_for_reading(identifiers: Iterable[str], *, shared: bool = False) -> Iterator[None]:
    """Lock uploads while a submission reads them, so that they are not used or deleted meanwhile.

    With `shared`, other checks may read them at the same time. Raises Refused if one is in use.
    """
    with ExitStack() as stack:
        for identifier in identifiers:
            try:
                stack.enter_context(storage.lock_file(identifier, shared=shared))
            except (UploadInUse, FileNotFoundError) as error:
                raise Refused.for_problem(
                    UPLOAD_IN_USE,
                    "The upload is being written, or used by another submission.",
                    "Wait until that has finished. If the other submission is refused, the upload remains.",
                ) from error
        yield


def consume_uploads(owner: User, identifiers: Iterable[str]) -> None:
    """Delete the uploads' rows in the transaction that stores their submission, and their files after the commit.

    Raises Refused if one was deleted already.
    """
    for identifier in set(identifiers):
        deleted_count, _ = Upload.objects.filter(owner=owner, pk=identifier).delete()
        if not deleted_count:
            completed_upload(owner, identifier, "")
        transaction.on_commit(lambda identifier=identifier: storage.remove_file(identifier))  # type: ignore[misc]


def discard_expired_uploads() -> int:
    """Delete expired uploads that are not in use, and return their number."""
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
    """Reserve a slot of this process for the user while a chunk arrives.

    Raises Refused if the user or the process has no free slot.
    """
    with _slots_lock:
        if _used_slots[person] >= MAX_USER_CHUNKS or _used_slots.total() >= settings.PIECES_AT_ONCE:
            message = f"You are sending {MAX_USER_CHUNKS} chunks already, or this site receives its maximum of chunks."
            problem = TOO_MANY_PIECES.problem("No thread is free for this chunk.", "Retry in a few seconds.")
            raise Refused(TOO_MANY_PIECES, message, [problem])
        _used_slots[person] += 1
    try:
        yield
    finally:
        with _slots_lock:
            _used_slots[person] -= 1
            if not _used_slots[person]:
                del _used_slots[person]
