"""Hidden benchmarks that renew themselves: batches of topics, and the renewal that opens and reveals them."""
