"""Uploads that go on where they broke off: the tus protocol, version 1.0, over files and rows of ours."""
