"""The groups that results are ranked in, and the reasons why one is not ranked."""

from __future__ import annotations

#: Values of `Row.ranked_in`.
REPORTED = "reported"
SCORED = "scored"
#: Scored, but behind somebody's paid interface: nobody can repeat it.
CLOSED = "closed"
STALE = "stale"
#: Of the reader's own team, for their eyes alone.
PRIVATE = "private"
#: Taken out of the ranking by a curator: it stands last, with the reason and without a number.
QUARANTINED = "quarantined"
#: On an old board: shown then, and by now no longer, of which no reason is public. It has no mark.
GONE = "gone"
#: These rows have no rank, and move neither those of others nor what is best.
UNRANKED = frozenset({STALE, PRIVATE, QUARANTINED})
