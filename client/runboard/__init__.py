"""Client of Runboard sites.

from runboard import Client
Client("https://runboard.example.org").board("nfcorpus")
"""

from runboard.answers import Submission
from runboard.client import Client, has_ended
from runboard.errors import Refused, SiteUnavailable

__all__ = ["Client", "Refused", "SiteUnavailable", "Submission", "has_ended"]
