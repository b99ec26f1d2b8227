"""A storm of kills: commands die at random moments, go on, and must end byte for byte like undisturbed ones.

    python -m tests.storm --kills 300 --seed 7 --jobs 2

`scenarios` says what is carried out, `play` kills and continues one case, `compare` holds the fields that may differ.
"""
