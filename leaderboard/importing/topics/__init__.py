"""Rolling benchmarks: batches of topics, and the renewal that starts and reveals them."""
