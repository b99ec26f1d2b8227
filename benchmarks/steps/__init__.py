"""Speed, measured: both sides of every ratio in one run, interleaved."""
