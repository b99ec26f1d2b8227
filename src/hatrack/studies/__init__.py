"""Studies: many runs from one file, and the table that comes of them; the search for settings.

A package of its own, beside `runs`: `runs` knows one folder and nothing of other runs, a study only ever starts,
resumes and reads such folders. So a run looks the same whoever started it, and neither room grows by the other.

file → plan (every run and every reference it needs) → executor (processes here, or a Ray cluster) → findings (read back
from the run folders) → tables, page, CSV, LaTeX.
"""
