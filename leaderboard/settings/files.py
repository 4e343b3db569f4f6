"""Static files, what is stored, and what may be sent."""

from __future__ import annotations

from pathlib import Path

from leaderboard.environment import embeddings_storage
from leaderboard.settings.site import BASE_DIR, VAR, env

# --- static files: out of this project and installed packages, collected and hashed at start
STATIC_URL = "/static/"
STATIC_ROOT = VAR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "leaderboard.bundles.PlotlyBundleFinder",
]
#: Where this machine has its embeddings; empty: `store/embeddings` in `VAR`.
EMBEDDINGS_FOLDER = env.str("EMBEDDINGS_FOLDER", default="")
STORAGES = {
    "embeddings": embeddings_storage(
        env.str("EMBEDDINGS_STORAGE", default=""), Path(EMBEDDINGS_FOLDER or VAR / "store" / "embeddings")
    ),
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(VAR / "media")},
    },
    "staticfiles": {
        "BACKEND": env.str(
            "RUNBOARD_STATIC_BACKEND", default="whitenoise.storage.CompressedManifestStaticFilesStorage"
        )
    },
}

#: Whether a proxy before this process sends what lies in the store (`leaderboard.downloads`); off: this process does.
ACCEL_REDIRECT = env.bool("ACCEL_REDIRECT", default=False)

# --- uploads
FILE_UPLOAD_HANDLERS = ["submissions.uploads.LimitedUploadHandler"]
FILE_UPLOAD_TEMP_DIR = VAR / "uploads"
FILE_UPLOAD_TEMP_DIR.mkdir(parents=True, exist_ok=True)
#: The largest request body with files that is read, in bytes.
UPLOAD_LIMIT_BYTES = env.int("UPLOAD_LIMIT_BYTES", default=512 * 1024 * 1024)
#: The same where a model's checkpoint comes with it.
CHECKPOINT_LIMIT_BYTES = env.int("CHECKPOINT_LIMIT_BYTES", default=2 * 1024 * 1024 * 1024)
#: What uploads leave free on the disk they are written to, in bytes: the database is often on the same one.
DISK_RESERVE_BYTES = env.int("DISK_RESERVE_BYTES", default=256 * 1024 * 1024)
#: Files that come in pieces: how many a person may have here before submissions take them, with how many bytes in all,
#: and after how many seconds without bytes one is given up.
UPLOADS_PER_PERSON = env.int("UPLOADS_PER_PERSON", default=20)
UPLOAD_BYTES_PER_PERSON = env.int("UPLOAD_BYTES_PER_PERSON", default=3 * CHECKPOINT_LIMIT_BYTES)
UPLOAD_LIFETIME_SECONDS = env.int("UPLOAD_LIFETIME_SECONDS", default=24 * 3600)
#: How many of these one web process takes at once: two less than its threads, so that readers are served meanwhile.
PIECES_AT_ONCE = env.int("PIECES_AT_ONCE", default=2)
#: How many datasets a team's models may be run on from midnight to midnight, UTC.
MODEL_JOBS_PER_DAY = env.int("MODEL_JOBS_PER_DAY", default=60)
#: How many files for hidden datasets may be refused to a person in such a day; more are not read.
REFUSALS_PER_DAY = env.int("REFUSALS_PER_DAY", default=20)
#: Whether workers fetch models from the hub for whoever names one with its commit. It needs a way to the internet.
HUB_DOWNLOADS = env.bool("HUB_DOWNLOADS", default=False)
#: Up to this many bytes, expanded, a run is validated while its sender waits.
VALIDATE_AT_ONCE_BYTES = 16 * 1024 * 1024
