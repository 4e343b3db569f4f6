"""Client of Runboard sites.

from runboard import Client
Client("https://runboard.example.org").board("nfcorpus")
"""

from runboard.client import Client, Submission
from runboard.errors import Refused, SiteUnavailable

__all__ = ["Client", "Refused", "SiteUnavailable", "Submission"]
