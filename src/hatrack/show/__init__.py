"""What the command line prints: progress, the summary of a run, lists. It changes nothing."""
