"""Every stored run of a dataset evaluated again on other judgements, before its board may stand on them.

The only writer of `Rescore`; `switch` puts the board on the other judgements.
"""
