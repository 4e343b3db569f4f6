"""Users, teams, memberships and invitations. Written by `submissions.accounts`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from django.conf import settings
from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.db import models
from django.urls import reverse
from simple_history.models import HistoricalRecords


class UserManager(BaseUserManager["User"]):
    """Manager that creates users by email address."""

    def _create(self, email: str, password: str | None, **fields: Any) -> User:
        """Create a user with a lower-case email address. Raises ValueError if the address is empty."""
        if not email:
            raise ValueError("an account needs an email address")
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create a user without permissions beyond their own submissions."""
        return self._create(email, password, **{"is_staff": False, "is_superuser": False, **fields})

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create a user with all permissions."""
        return self._create(email, password, **{**fields, "is_staff": True, "is_superuser": True})


class User(AbstractUser):
    """A user, who signs in with an email address and is shown by name only."""

    username = None  # type: ignore[assignment]
    first_name = None  # type: ignore[assignment]
    last_name = None  # type: ignore[assignment]
    email = models.EmailField("email address", unique=True)
    name = models.CharField(max_length=150, blank=True)
    approval_awaited = models.BooleanField(
        default=False, help_text="The account cannot sign in until a curator approves it."
    )

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]
    #: Set for the current request, but never stored, if the session or token has no second factor although staff need
    #: one. Staff permissions are then suspended.
    restrained = False

    def __str__(self) -> str:
        return self.name or self.email

    @property
    def name_on_record(self) -> str:
        """Name that records keep permanently in addition to the number; empty except for staff."""
        return self.name if self.is_staff else ""

    @property
    def curates(self) -> bool:
        """Whether the user currently has staff permissions."""
        return self.is_active and self.is_staff and not self.restrained

    def has_usable_password(self) -> bool:
        """Return whether the user has a password and passwords are enabled."""
        return settings.SIGN_IN == "all" and super().has_usable_password()

    def check_password(self, raw_password: str | None) -> bool:
        """Return whether the password is correct and passwords are enabled."""
        return settings.SIGN_IN == "all" and super().check_password(raw_password)

    def has_perm(self, perm: str, obj: Any = None) -> bool:
        """Return whether the user has the permission and staff permissions are not suspended."""
        return not self._rights_suspended() and super().has_perm(perm, obj)

    def has_module_perms(self, app_label: str) -> bool:
        """Return whether the user has any permission in the application, unless staff permissions are suspended."""
        return not self._rights_suspended() and super().has_module_perms(app_label)

    def _rights_suspended(self) -> bool:
        return self.restrained and (self.is_staff or self.is_superuser)


class Team(models.Model):
    """A team, which owns results on boards. Single users have a team with one member."""

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    members: models.ManyToManyField[User, Membership] = models.ManyToManyField(
        User, through="Membership", related_name="teams"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    approved_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which a curator approved the team for hidden judgments; empty if not approved.",
    )
    runs_containers = models.BooleanField(
        "may submit container images",
        default=False,
        help_text="Images run unknown programs in the sandbox. Approve only teams with members that you can identify.",
    )

    history = HistoricalRecords()

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("team", args=[self.slug])

    @staticmethod
    def has_address(slug: str) -> models.Q:
        """Return the condition that a team has this slug or had it before a renaming."""
        return models.Q(slug=slug) | models.Q(pk__in=TeamRedirect.objects.filter(slug=slug).values("team"))


class TeamRedirect(models.Model):
    """An earlier slug of a renamed team, so that links to it still work."""

    slug = models.SlugField(max_length=80, unique=True)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="redirects")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.slug} → {self.team}"


class Membership(models.Model):
    """A user's membership in a team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    owner = models.BooleanField(default=False)
    joined_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_team")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"


class InvitationQuerySet(models.QuerySet["Invitation"]):
    """Queries for invitations by status."""

    def waiting(self) -> Self:
        """Return invitations that were neither accepted nor revoked, including expired ones."""
        return self.filter(accepted_at=None, revoked_at=None)


class Invitation(models.Model):
    """A single-use invitation to a team by email. Only the hash of its secret is stored."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField("email address")
    secret_sha256 = models.CharField(max_length=64, unique=True)
    owner = models.BooleanField(default=False, help_text="The invited user joins as owner instead of member.")
    invited_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"invitation to {self.team}"
