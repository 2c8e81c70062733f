"""Where a result comes from: the versions that made it."""

import platform
from importlib.metadata import version


def versions(*packages: str) -> dict[str, str]:
    """Return the version of posbias, of numpy, of Python and of the named packages, as attributes of a result.

    >>> sorted(versions("scipy"))
    ['numpy', 'posbias', 'python', 'scipy']
    """
    found = {name: version(name) for name in ("posbias", "numpy", *packages)}
    return found | {"python": platform.python_version()}
