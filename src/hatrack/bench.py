"""`hatrack.bench`: the modules of `benchmarks/steps`, which are the maintainers' and no source of the package."""

from hatrack.shipped import shipped

__path__ = [str(shipped("benchmarks/steps"))]
