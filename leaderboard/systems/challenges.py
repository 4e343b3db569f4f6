"""Challenges: public doubts about a system's claims, raised by users and settled by curators.

This module is the only writer of `Challenge`. A challenge changes no scores; while it is open, boards mark the
system's rows. A decision that upholds a challenge may also correct the system's claims, which updates its boards.
"""

from dataclasses import asdict, dataclass
from typing import NamedTuple

from django.db import transaction
from django.utils import timezone

from leaderboard.core import audit
from leaderboard.core.work_requests import request_notice
from leaderboard.models import Challenge, Dataset, Entry, EntryQuerySet, Membership, System, User
from leaderboard.results.publishing.descriptions import challenge_changed, lock_systems, system_changed

State = Challenge.State
#: Maximum length of a challenge or decision, in characters.
LONGEST_TEXT = 4000
#: Minimum length of a challenge, in characters; shorter ones cannot be verified.
SHORTEST_TEXT = 20
#: Maximum number of open challenges per user.
MAX_OPEN = 10
#: Claims that a decision may correct; afterward only curators can change them.
CLAIMS = ("training_declared", "training_datasets", "adapted_to")
#: Markdown that replaces a redacted text, or follows a partly redacted one.
REDACTED_NOTE = "*A curator removed this text.*"
PARTLY_REDACTED_NOTE = "*A curator removed parts of this text.*"


class ChallengeRefused(ValueError):
    """The challenge cannot be raised, retracted, or settled; the message says why."""


@dataclass(frozen=True, slots=True)
class TrainingCorrection:
    """Corrected training claims of a system; datasets are slugs or names."""

    training_declared: bool
    training_datasets: list[str]
    adapted_to: list[str]


class PublicChallenge(NamedTuple):
    """A challenge as shown publicly: `text` and `decision` are Markdown, days are ISO, `by` is a name."""

    key: int
    claim: str
    claim_label: str
    dataset: str | None
    text: str
    state: str
    state_label: str
    by: str
    raised: str
    decision: str
    settled: str


def public_challenges(system_id: int) -> list[PublicChallenge]:
    """Return the system's challenges as shown publicly, in one query."""
    rows = Challenge.objects.filter(system=system_id).select_related("dataset", "raised_by")
    return [
        PublicChallenge(
            key=row.pk, claim=row.claim, claim_label=row.get_claim_display(), text=row.text, decision=row.decision,
            dataset=row.dataset.name if row.dataset and row.dataset.state != Dataset.State.PREPARING else None,
            state=row.state, state_label=row.get_state_display(), by=row.raised_by.name or "a user without a name",
            raised=row.raised_at.date().isoformat(),
            settled=row.settled_at.date().isoformat() if row.settled_at else "",
        )
        for row in rows
    ]  # fmt: skip


def open_challenge(system_id: int) -> PublicChallenge | None:
    return next((challenge for challenge in public_challenges(system_id) if challenge.state == State.OPEN), None)


def challengeable_datasets(system: System) -> list[Dataset]:
    """Return the datasets on which the system has public results, by name."""
    dataset_ids = EntryQuerySet(Entry).seen().filter(system=system).values("dataset")
    return list(Dataset.objects.filter(pk__in=dataset_ids).order_by("name"))


@transaction.atomic
def raise_challenge(system: System, person: User, claim: str, text: str, dataset: Dataset | None = None) -> Challenge:
    """Store a challenge, notify the system's team, and update its boards.

    Raises ChallengeRefused if the challenge is incomplete, a duplicate, about one's own system, or one too many.
    """
    lock_systems(system)
    text = text.strip()
    if not person.name:
        raise ChallengeRefused("Challenges show their author's name. Enter a name in your account first.")
    if claim not in Challenge.Claim.values:
        raise ChallengeRefused(f"Choose the claim that you doubt: {', '.join(Challenge.Claim.values)}.")
    if not SHORTEST_TEXT <= len(text) <= LONGEST_TEXT:
        raise ChallengeRefused(f"Enter your reasons in {SHORTEST_TEXT} to {LONGEST_TEXT:,} characters.")
    allowed_datasets = challengeable_datasets(system)
    if not allowed_datasets or (dataset is not None and dataset not in allowed_datasets):
        raise ChallengeRefused("The system has no public result that you could challenge there.")
    if system.team_id and Membership.objects.filter(team=system.team_id, user=person).exists():
        raise ChallengeRefused("This is your own team's system. Correct its claims on its editing page.")
    open_challenges = Challenge.objects.filter(raised_by=person, state=State.OPEN)
    if open_challenges.filter(system=system, claim=claim).exists():
        raise ChallengeRefused("You have already challenged this claim. Wait for the decision.")
    if open_challenges.count() >= MAX_OPEN:
        raise ChallengeRefused(f"You have {MAX_OPEN} open challenges. Wait until some are settled.")
    challenge = Challenge.objects.create(system=system, raised_by=person, claim=claim, text=text, dataset=dataset)
    with audit.acting(person):
        audit.record("challenged", system, dataset=dataset, after={"challenge": challenge.pk, "claim": claim})
    challenge_changed(system)
    request_notice("challenged", challenge=challenge.pk)
    return challenge


@transaction.atomic
def retract_challenge(challenge: Challenge, person: User) -> None:
    """Retract an open challenge, which remains on record. Raises ChallengeRefused if another user raised it."""
    row = _lock_open_challenge(challenge)
    if row.raised_by_id != person.pk:
        raise ChallengeRefused("Only the author of a challenge can retract it.")
    row.state, row.settled_at = State.RETRACTED, timezone.now()
    row.save(update_fields=["state", "settled_at"])
    with audit.acting(person):
        audit.record("challenge retracted", row.system, dataset=row.dataset, after={"challenge": row.pk})
    challenge_changed(row.system)


@transaction.atomic
def settle_challenge(
    challenge: Challenge, *, upheld: bool, decision: str, correction: TrainingCorrection | None = None
) -> Challenge:
    """Settle a challenge publicly, optionally correcting the system if it is upheld.

    Call this within `leaderboard.core.audit.acting`, which records the curator; readers see “a curator”. Raises
    ChallengeRefused if the challenge is not open, or decision or correction are not allowed.
    """
    row = _lock_open_challenge(challenge)
    decision = decision.strip()
    if not decision or len(decision) > LONGEST_TEXT:
        raise ChallengeRefused(f"Enter the decision and its reasons in at most {LONGEST_TEXT:,} characters.")
    if correction is not None and not upheld:
        raise ChallengeRefused("Only an upheld challenge can correct the system.")
    previous_claims = _claims(row.system)
    if correction is not None:
        for name, value in asdict(correction).items():
            setattr(row.system, name, value)
        row.system.save(update_fields=list(asdict(correction)))
    row.state = State.UPHELD if upheld else State.REJECTED
    row.corrected = correction is not None
    row.decision, row.settled_by, row.settled_at = decision, audit.actor().person, timezone.now()
    row.save(update_fields=["state", "corrected", "decision", "settled_by", "settled_at"])
    before = {"challenge": row.pk, "state": State.OPEN.value, **previous_claims}
    after = {"challenge": row.pk, "state": row.state, **_claims(row.system)}
    audit.record("challenge settled", row.system, dataset=row.dataset, before=before, after=after)
    (challenge_changed if correction is None else system_changed)(row.system)
    request_notice("challenged", challenge=row.pk)
    return row


@transaction.atomic
def redact_challenge(challenge: Challenge, text: str = "") -> Challenge:
    """Replace a challenge's text, for example if it names an anonymous system's team.

    The text then says that a curator changed it; the old text is not stored anywhere. Raises ChallengeRefused for a
    text that is too long. Call this within `leaderboard.core.audit.acting`.
    """
    lock_systems(challenge.system)
    row = Challenge.objects.select_related("system", "dataset").get(pk=challenge.pk)
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        raise ChallengeRefused(f"The text has {len(text):,} characters. Shorten it to at most {LONGEST_TEXT:,}.")
    row.text = f"{text}\n\n{PARTLY_REDACTED_NOTE}" if text else REDACTED_NOTE
    row.save(update_fields=["text"])
    audit.record("challenge redacted", row.system, dataset=row.dataset, after={"challenge": row.pk})
    challenge_changed(row.system)
    return row


def latest_settlement(system: System) -> Challenge | None:
    """Return the newest challenge that corrected the system's claims, or None."""
    upheld_challenges = Challenge.objects.filter(system=system, state=State.UPHELD, corrected=True)
    return upheld_challenges.order_by("-settled_at", "-pk").first()


def _claims(system: System) -> dict[str, object]:
    return {name: getattr(system, name) for name in CLAIMS}


def _lock_open_challenge(challenge: Challenge) -> Challenge:
    """Lock and return the current challenge. Raises ChallengeRefused if it is not open."""
    lock_systems(challenge.system)
    row = Challenge.objects.select_related("system", "dataset").get(pk=challenge.pk)
    if row.state != State.OPEN:
        raise ChallengeRefused(f"This challenge is already settled: {row.get_state_display()}.")
    return row
