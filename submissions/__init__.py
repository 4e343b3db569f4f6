"""From upload to verdict: intake, lifecycle, queue, people."""
