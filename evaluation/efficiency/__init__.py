"""What a system costs, measured: latency, throughput, memory and size under a published protocol."""
