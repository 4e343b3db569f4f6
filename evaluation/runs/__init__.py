"""File formats that arrive from outside: compressed files, archives, TREC runs, MTEB predictions."""
