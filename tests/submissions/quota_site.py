"""What `test_quota_at_once.py` serves: the site, to which one person may send more in a minute."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()

from submissions.accounts.throttling import SubmitThrottle  # noqa: E402

SubmitThrottle.THROTTLE_RATES = {"submit": "10000/min"}
