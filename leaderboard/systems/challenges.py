"""Doubts about what a system says of itself: raised by anyone signed in, settled by a curator, on record for everyone.

The only writer of `Challenge`. A challenge changes no number; while it is open, boards mark the system's rows. One
that is upheld may correct the system's claims in the same step, and its boards with them.
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
#: How long a challenge, or its decision, may be, in characters.
LONGEST_TEXT = 4000
#: What is shorter says nothing that could be checked.
SHORTEST_TEXT = 20
#: How many challenges of one person may be open.
MOST_OPEN = 10
#: What a decision may correct: from then on these are a curator's to change, and their team's no more.
CLAIMS = ("training_declared", "training_datasets", "adapted_to")
#: What stands, in Markdown, where a curator took a challenge's words out: all of them, or some.
TAKEN_OUT = "*A curator took the text out.*"
WORDS_TAKEN_OUT = "*A curator took words out of this.*"


class ChallengeRefused(ValueError):
    """The challenge cannot be raised, retracted or settled so; the message says why."""


@dataclass(frozen=True, slots=True)
class TrainingCorrection:
    """What a system says from now on of what it had seen; datasets by slug or name."""

    training_declared: bool
    training_datasets: list[str]
    adapted_to: list[str]


class PublicChallenge(NamedTuple):
    """A challenge as everyone reads it: `text` and `decision` are Markdown, days are ISO, `by` is never an address."""

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


def challenges_of(system_id: int) -> list[PublicChallenge]:
    """The system's challenges, the newest first. One query."""
    rows = Challenge.objects.filter(system=system_id).select_related("dataset", "raised_by")
    return [
        PublicChallenge(
            key=row.pk,
            claim=row.claim,
            claim_label=row.get_claim_display(),
            dataset=row.dataset.name
            if row.dataset and row.dataset.state != Dataset.State.PREPARING
            else None,
            text=row.text,
            state=row.state,
            state_label=row.get_state_display(),
            by=row.raised_by.name or "somebody without a name",
            raised=row.raised_at.date().isoformat(),
            decision=row.decision,
            settled=row.settled_at.date().isoformat() if row.settled_at else "",
        )
        for row in rows
    ]


def challengeable_datasets(system: System) -> list[Dataset]:
    """The datasets that the system has results on which everyone sees, by name."""
    seen = EntryQuerySet(Entry).seen().filter(system=system).values("dataset")
    return list(Dataset.objects.filter(pk__in=seen).order_by("name"))


@transaction.atomic
def raise_challenge(
    system: System, person: User, claim: str, text: str, dataset: Dataset | None = None
) -> Challenge:
    """Put a doubt on record, and tell the system's team. Raises ChallengeRefused."""
    lock_systems(system)
    text = text.strip()
    if not person.name:
        raise ChallengeRefused("A challenge is public, with its author's name: give your account one first.")
    if claim not in Challenge.Claim.values:
        raise ChallengeRefused(f"Say what you doubt: {', '.join(Challenge.Claim.values)}.")
    if not SHORTEST_TEXT <= len(text) <= LONGEST_TEXT:
        raise ChallengeRefused(f"Say why, in {SHORTEST_TEXT} to {LONGEST_TEXT:,} characters.")
    seen = challengeable_datasets(system)
    if not seen or (dataset is not None and dataset not in seen):
        raise ChallengeRefused("There is no public result of the system that this could be about.")
    if system.team_id and Membership.objects.filter(team=system.team_id, user=person).exists():
        raise ChallengeRefused("It is your own team's system: correct what it says on its editing page.")
    mine = Challenge.objects.filter(raised_by=person, state=State.OPEN)
    if mine.filter(system=system, claim=claim).exists():
        raise ChallengeRefused("You have challenged this already, and it is not settled yet.")
    if mine.count() >= MOST_OPEN:
        raise ChallengeRefused(f"{MOST_OPEN} challenges of yours are open. Wait until some are settled.")
    found = Challenge.objects.create(system=system, raised_by=person, claim=claim, text=text, dataset=dataset)
    with audit.acting(person):
        audit.record("challenged", system, dataset=dataset, after={"challenge": found.pk, "claim": claim})
    challenge_changed(system)
    request_notice("challenged", challenge=found.pk)
    return found


@transaction.atomic
def retract_challenge(challenge: Challenge, person: User) -> None:
    """Take one's own challenge back; it stays on record as that. Raises ChallengeRefused."""
    row = _lock_open_challenge(challenge)
    if row.raised_by_id != person.pk:
        raise ChallengeRefused("Only who raised it can take it back.")
    row.state, row.settled_at = State.RETRACTED, timezone.now()
    row.save(update_fields=["state", "settled_at"])
    with audit.acting(person):
        audit.record("challenge retracted", row.system, dataset=row.dataset, after={"challenge": row.pk})
    challenge_changed(row.system)


@transaction.atomic
def settle_challenge(
    challenge: Challenge, *, upheld: bool, decision: str, correction: TrainingCorrection | None = None
) -> Challenge:
    """Decide on a challenge, publicly, and correct the system with it where it is upheld. Raises ChallengeRefused.

    Call within `leaderboard.core.audit.acting`, which names the curator; everyone else reads “a curator”.
    """
    row = _lock_open_challenge(challenge)
    decision = decision.strip()
    if not decision or len(decision) > LONGEST_TEXT:
        raise ChallengeRefused(f"Say how it was decided and why, in at most {LONGEST_TEXT:,} characters.")
    if correction is not None and not upheld:
        raise ChallengeRefused("A rejected challenge corrects nothing.")
    before = _claims(row.system)
    if correction is not None:
        for name, value in asdict(correction).items():
            setattr(row.system, name, value)
        row.system.save(update_fields=list(asdict(correction)))
    row.state = State.UPHELD if upheld else State.REJECTED
    row.corrected = correction is not None
    row.decision, row.settled_by, row.settled_at = decision, audit.actor().person, timezone.now()
    row.save(update_fields=["state", "corrected", "decision", "settled_by", "settled_at"])
    audit.record(
        "challenge settled",
        row.system,
        dataset=row.dataset,
        before={"challenge": row.pk, "state": State.OPEN.value, **before},
        after={"challenge": row.pk, "state": row.state, **_claims(row.system)},
    )
    if correction is not None:
        system_changed(row.system)
    else:
        challenge_changed(row.system)
    request_notice("challenged", challenge=row.pk)
    return row


@transaction.atomic
def redact_challenge(challenge: Challenge, text: str = "") -> Challenge:
    """Put other words in the place of a challenge's text, such as one that names an anonymous system's team.

    Readers are told that a curator did; the old words are kept nowhere. Raises ChallengeRefused for words too long.
    Call within `leaderboard.core.audit.acting`.
    """
    lock_systems(challenge.system)
    row = Challenge.objects.select_related("system", "dataset").get(pk=challenge.pk)
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        raise ChallengeRefused(f"The text has {len(text):,} characters; at most {LONGEST_TEXT:,} are kept.")
    row.text = f"{text}\n\n{WORDS_TAKEN_OUT}" if text else TAKEN_OUT
    row.save(update_fields=["text"])
    audit.record("challenge redacted", row.system, dataset=row.dataset, after={"challenge": row.pk})
    challenge_changed(row.system)
    return row


def settlement_of(system: System) -> Challenge | None:
    """The newest challenge whose decision corrected what the system claims; None where none did."""
    upheld = Challenge.objects.filter(system=system, state=State.UPHELD, corrected=True)
    return upheld.order_by("-settled_at", "-pk").first()


def _claims(system: System) -> dict[str, object]:
    return {name: getattr(system, name) for name in CLAIMS}


def _lock_open_challenge(challenge: Challenge) -> Challenge:
    """The challenge as it is now, held. Raises ChallengeRefused for one that is not open."""
    lock_systems(challenge.system)
    row = Challenge.objects.select_related("system", "dataset").get(pk=challenge.pk)
    if row.state != State.OPEN:
        raise ChallengeRefused(f"It is settled already: {row.get_state_display()}.")
    return row
