"""From upload to result: intake, queue, jobs, workers, checkpoints, the sandbox, accounts."""
