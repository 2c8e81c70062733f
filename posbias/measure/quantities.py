"""What is measured, chosen by name, and what is predicted from it."""

from __future__ import annotations

from collections.abc import Iterable

from posbias import errors

QUANTITIES = {
    "mixing": "λ of each layer and prompt",
    "influence": "input-token influence, by gradients",
    "kernels": "attention averaged over heads, and each prompt's own rollout",
    "content": "content logits: means and histograms of each head",
    "logits": "content logits as matrices for each head",
    "heads": "attention as matrices for each head",
    "branches": "what the law at birth needs: gains, denominators, steps",
}
"""Name → meaning, in the order in which files name them."""
ALWAYS = ("mixing", "influence")
DEFAULT = ("mixing", "influence", "kernels", "content", "branches")
NEEDS = {"heads": "kernels", "logits": "content"}

VARIANTS = {
    "a": "attention only",
    "b": "with residual",
    "c": "with residual and content",
    "kernels": "with residual and measured attention",
    "own": "with residual and each prompt's attention",
    "birth": "the law at birth",
}
"""What each rollout takes from a measurement, in a few words."""


def quantities_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return quantities in their order, from their names.

    Parameters
    ----------
    names
        In one text with commas between them, or one by one. A name with a + is added to the mixing and the influence
        if all names have one, which are measured in any case.

    Raises
    ------
    ValueError
        For an unknown name, and for one that needs another that is not there.

    >>> quantities_of("kernels")
    ('mixing', 'influence', 'kernels')
    """
    given = names.split(",") if isinstance(names, str) else list(names)
    if not all(isinstance(name, str) for name in given):
        raise errors.invalid("quantities", f"some of {', '.join(QUANTITIES)}", repr(names))
    wanted = {name.strip().removeprefix("+") for name in given} - {""}
    if unknown := sorted(wanted - set(QUANTITIES)):
        raise errors.invalid("quantities", f"some of {', '.join(QUANTITIES)}", ", ".join(unknown))
    for name, needed in NEEDS.items():
        if name in wanted and needed not in wanted:
            raise errors.invalid(
                "quantities", f"{needed} beside {name}", ",".join(x for x in QUANTITIES if x in wanted)
            )
    return tuple(name for name in QUANTITIES if name in wanted or name in ALWAYS)


def labels() -> dict[str, str]:
    """Return what each variant is called in figures and tables."""
    return {name: f"({name}) {words}" if len(name) == 1 else words for name, words in VARIANTS.items()}
