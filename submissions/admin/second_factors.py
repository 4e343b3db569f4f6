"""allauth's tables of second factors and sessions are no pages here.

They would take a factor away, or add one, without the record and the end of all sessions that
`manage.py reset_second_factor` makes.
"""

from __future__ import annotations

import allauth.mfa.admin
import allauth.usersessions.admin  # noqa: F401
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib import admin

admin.site.unregister([Authenticator, UserSession])
