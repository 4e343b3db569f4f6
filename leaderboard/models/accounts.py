"""Who submits, and for whom. Written by `submissions.accounts`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from django.conf import settings
from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.db import models
from django.urls import reverse
from simple_history.models import HistoricalRecords


class UserManager(BaseUserManager["User"]):
    """Makes people, who are known by their e-mail address."""

    def _create(self, email: str, password: str | None, **fields: Any) -> User:
        if not email:
            raise ValueError("an account needs an e-mail address")
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A person with no rights beyond their own submissions."""
        return self._create(email, password, **{"is_staff": False, "is_superuser": False, **fields})

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A person with every right."""
        return self._create(email, password, **{**fields, "is_staff": True, "is_superuser": True})


class User(AbstractUser):
    """A person: signs in with an e-mail address, is shown by name, never by address."""

    username = None  # type: ignore[assignment]
    first_name = None  # type: ignore[assignment]
    last_name = None  # type: ignore[assignment]
    email = models.EmailField("e-mail address", unique=True)
    name = models.CharField(max_length=150, blank=True)
    approval_awaited = models.BooleanField(
        default=False, help_text="Signed up, and cannot sign in before a curator approves the account."
    )

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]
    #: Set on who comes in by a session or token that has not shown the second factor that staff need: then the rights
    #: of staff rest, whatever the table says. Never stored.
    restrained = False

    def __str__(self) -> str:
        return self.name or self.email

    @property
    def name_on_record(self) -> str:
        """What records keep for good beside the number: the name of staff, and nothing of other people."""
        return self.name if self.is_staff else ""

    @property
    def curates(self) -> bool:
        """Whether the person may do here and now what staff may."""
        return self.is_active and self.is_staff and not self.restrained

    def has_usable_password(self) -> bool:
        """Whether the person may show a password: nobody may where services alone sign in."""
        return settings.SIGN_IN == "all" and super().has_usable_password()

    def check_password(self, raw_password: str | None) -> bool:
        """Whether it is the person's password, where passwords are taken."""
        return settings.SIGN_IN == "all" and super().check_password(raw_password)

    def has_perm(self, perm: str, obj: Any = None) -> bool:
        """Whether the person has the right here and now: none while their rights of staff rest."""
        return not self._rights_suspended() and super().has_perm(perm, obj)

    def has_module_perms(self, app_label: str) -> bool:
        """Whether the person has any right in the application, here and now."""
        return not self._rights_suspended() and super().has_module_perms(app_label)

    def _rights_suspended(self) -> bool:
        return self.restrained and (self.is_staff or self.is_superuser)

    def get_full_name(self) -> str:
        """The name to show."""
        return self.name

    def get_short_name(self) -> str:
        """The name to show."""
        return self.name


class Team(models.Model):
    """Whom a result belongs to on a board. A person alone has a team of one."""

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    members: models.ManyToManyField[User, Membership] = models.ManyToManyField(
        User, through="Membership", related_name="teams"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    approved_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When a curator approved it for hidden judgements; empty: nobody did.",
    )

    history = HistoricalRecords()

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """The team's page."""
        return reverse("team", args=[self.slug])

    @staticmethod
    def has_address(slug: str) -> models.Q:
        """The condition that a team has this slug, or had it before it was renamed."""
        return models.Q(slug=slug) | models.Q(pk__in=TeamRedirect.objects.filter(slug=slug).values("team"))


class TeamRedirect(models.Model):
    """Where a team was found before it was renamed: links to it go on working."""

    slug = models.SlugField(max_length=80, unique=True)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="redirects")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.slug} → {self.team}"


class Membership(models.Model):
    """A person in a team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    owner = models.BooleanField(default=False)
    joined_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_team")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"


class InvitationQuerySet(models.QuerySet["Invitation"]):
    """Invitations, by what became of them."""

    def waiting(self) -> Self:
        """Those that nobody has accepted or revoked, expired ones too."""
        return self.filter(accepted_at=None, revoked_at=None)


class Invitation(models.Model):
    """A way into a team, sent to an e-mail address: good once, for a while. Only the hash of its secret is kept."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField("e-mail address")
    secret_sha256 = models.CharField(max_length=64, unique=True)
    owner = models.BooleanField(default=False, help_text="Joins as an owner, not as a member.")
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
