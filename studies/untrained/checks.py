"""Checks of the law of untrained networks, and of what others say of such networks."""

from __future__ import annotations

import numpy as np

from posbias.comparison.distances import normalised_wasserstein
from studies.checks import Check
from studies.untrained import evidence as e
from studies.untrained import gates, networks
from studies.untrained.evidence import Untrained


def law_checks(seen: Untrained) -> list[Check]:
    """Return the checks of the law: where its hypotheses hold, and in architectures."""
    return [theorem_check(), real_check(seen), families_check(seen), relu_check(), gates_check(seen)]


def other_checks(seen: Untrained) -> list[Check]:
    """Return the checks of other papers' claims."""
    return [u_check(seen), rope_check(seen), cesaro_check(seen)]


def theorem_check() -> Check:
    """Return the check of the theorem, by means over all signs."""
    broken = {}
    for name, how in networks.BROKEN.items():
        broken[name] = [networks.law_met(run, **how) for run in networks.RUNS]
    return Check(
        "BI-law", "theorem",
        "Influence is the law's if value maps are independent and of mean zero, given attention, gains, "
        "denominators and gates.",
        all(map(networks.law_met, networks.RUNS)),
        f"{len(networks.RUNS)} random networks, {networks.LAYERS} layers of {networks.HEADS} heads, mean over all "
        "signs: the law is met to 1e-9",
        "one position's share of the profile is 1e-9 off the law", broken, "the law is not met", {"kind": "proved"},
    )  # fmt: skip


def real_check(seen: Untrained) -> Check:
    """Return the check of the law in published architectures."""
    hushed, loud = seen.hushed, e.of(seen.real[seen.real["model"].isin(seen.loud)], "untrained")
    law = e.of(hushed, "untrained")
    means = e.over_seeds(law)["mean"]
    return Check(
        "BI-law", "architectures of real size",
        f"The law holds in published architectures whose content logits spread by less than {e.LOUD}.",
        all(e.within(law)),
        f"{len(means)} architectures and kinds of prompts, mean of 3 seeds: W1 ≤ {means.max():.3f}, single networks "
        f"≤ {law['W1'].max():.3f}; with loud logits {', '.join(seen.loud)} {loud['W1'].mean():.3f}",
        f"one whose logits spread by less than {e.LOUD} is more than {e.LIMIT} off",
        {e.NAMES[x]: e.within(e.of(hushed, x)) for x in e.RIVALS}, "see the table", {"post_hoc": True},
    )  # fmt: skip


def families_check(seen: Untrained) -> Check:
    """Return the check of the law in small architectures of fourteen families."""
    families, odd = seen.small, seen.odd
    kept_to = families[~families["model"].isin(odd)]
    meets = e.of(kept_to, "untrained")
    usual = e.of(families, "untrained").groupby("model")["W1"].mean()
    shown = ", ".join(f"{x} {usual[x]:.3f}" for x in odd)
    return Check(
        "BI-law", "families", "The law holds in small architectures that meet its hypotheses.", all(e.within(meets)),
        f"{meets['model'].nunique()} small networks, mean of 3 seeds: W1 ≤ {usual.drop(odd).max():.3f}; hypotheses "
        f"broken: {shown}",
        f"one whose hypotheses hold is more than W1 = {e.LIMIT} off",
        {e.NAMES[x]: e.within(e.of(kept_to, x)) for x in e.RIVALS}, "see the table", {"post_hoc": True},
    )  # fmt: skip


def relu_check() -> Check:
    """Return the check of the factors of a ReLU MLP in small networks."""
    tried = np.array([gates.gate_distances(run, 64) for run in networks.RUNS[:10]])
    held = tried < gates.ENOUGH
    alike = list(gates.KINDS).index(gates.ALIKE)
    return Check(
        "BI-gates", "small networks",
        r"What an MLP adds to $G$ is in proportion to $\mathbb E f'^2$ on the diagonal and $(\mathbb E f')^2$ off it.",
        bool(held[:, 0].all()),
        f"{gates.NETWORKS * len(tried)} ReLU networks of width 64, {gates.DEPTH} layers: W₁ of the mean of "
        f"{gates.NETWORKS} {tried[0, 0]:.3f}, without gates {tried[0, alike]:.3f}",
        f"W₁ of the mean profile of {gates.NETWORKS} networks is {gates.ENOUGH} or more",
        {name: held[:, k].tolist() for k, name in enumerate(gates.KINDS) if k}, "a law with these factors is off",
        {"post_hoc": True},
    )  # fmt: skip


def gates_check(seen: Untrained) -> Check:
    """Return the check that the law is closer with each architecture's own gates."""
    found = e.gate_pairs(seen)
    missed = found[found["no gates"] > e.LIMIT]
    closer = missed["untrained"] < missed["no gates"]
    return Check(
        "BI-gates", "networks", "With these factors the law is closer than with one factor everywhere.",
        bool(closer.all()),
        f"where gates that are alike miss by more than {e.LIMIT}, {int(closer.sum())} of {len(closer)} are closer "
        "with their gates",
        "gates bring no closer one architecture that misses when they are alike",
        {"no MLP in place of gates": (missed["no steps"] < missed["no gates"]).tolist()},
        "one is no closer", {},
    )  # fmt: skip


def u_counts(seen: Untrained) -> dict[str, int]:
    """Return how many networks have a U on every kind of prompt, or on some, without ALiBi and with it."""
    measured = e.shape_table(seen).query("profile == 'measured'")
    sloped = measured["model"].isin(seen.alibi)
    bare = measured[~sloped].groupby(["model", "seed"])[["present", "with_last"]]
    sloping = measured[sloped].groupby(["model", "seed"])["present"].all()
    every, some = bare.all(), bare.any()["present"]
    found = {"bare": every["present"].sum(), "of": len(every), "last": every["with_last"].sum()}
    found |= {"some": some.sum(), "alibi": sloping.sum(), "alibi_of": len(sloping)}
    return {name: int(x) for name, x in found.items()}


def u_check(seen: Untrained) -> Check:
    """Return the check that there is a U before training."""
    shapes, count = e.shape_table(seen), u_counts(seen)
    bare = shapes[~shapes["model"].isin(seen.alibi)]
    measured, laws = (bare.query("profile == @x")["present"] for x in ("measured", "untrained"))
    return Check(
        "BI-U", "", "Without encodings there is a U before training (Chowdhury).", bool(measured.all()),
        f"without ALiBi {count['bare']} of {count['of']} networks have a U on every kind of prompts, {count['last']} "
        f"if the last token counts; with ALiBi {count['alibi']} of {count['alibi_of']}",
        "one network without distance bias has no U, the last token left out",
        {"the law without positions": laws.tolist()}, "the rise at the end is one token's own residual",
        {"in_part": True},
    )  # fmt: skip


def rope_check(seen: Untrained) -> Check:
    """Return the check that the profile is the same with and without rotations."""
    found = e.rotation_table(seen)
    share = found["moved"] / found["between"]

    def as_far_as(row: tuple[str, int, float]) -> bool:
        """Say whether two predictions for a network are closer than another seed."""
        model, seed, between = row
        p = seen.kept[model, "random"]["profile"].isel(seed=seed)
        law, alike = (p.sel(prediction=name).values for name in ("untrained", "no gates"))
        return bool(normalised_wasserstein(law, alike) < between)

    rows = found[["model", "seed", "between"]].itertuples(index=False, name=None)
    return Check(
        "BI-rope", "", "The profile is the same with and without RoPE (Chowdhury).", bool((share < 1).all()),
        f"without rotations {int((share < 1).sum())} of {len(found)} profiles move less than from seed to seed, by at "
        f"most {share.max():.0%} of it; means {found['moved'].mean():.4f} and {found['between'].mean():.4f}",
        "without rotations a profile moves further than from seed to seed",
        {"profiles as far apart as gates make them": list(map(as_far_as, rows))},
        "rotations change content logits, whose spread is not small", {"in_part": True},
    )  # fmt: skip


def cesaro_check(seen: Untrained) -> Check:
    """Return the check that Cesàro powers give the profile."""
    bare = seen.real[~seen.real["model"].isin(seen.alibi)]
    means = bare.groupby("prediction")[["spearman", "W1"]].mean()
    near = e.within(e.of(bare, "cesaro"))
    wrong = {"networks' own gains as sizes": "aligned", "α by the law's last token": "cesaro last"}
    return Check(
        "BI-cesaro", "networks", "Cesàro powers give the profile (Chowdhury).", all(near),
        "Cesàro powers with the best α of each network: rank correlation {:.2f}, W1 {:.3f}, ".format(
            *means.loc["cesaro"]
        )
        + f"{sum(near)} of {len(near)} within {e.LIMIT}; the law, nothing fitted: "
        + "{:.2f}, {:.3f}".format(*means.loc["untrained"]),
        f"with the best α they are more than W1 = {e.LIMIT} from an architecture without ALiBi on one kind of prompt",
        {what: e.within(e.of(bare, x)) for what, x in wrong.items()},
        "one fitted number does as well as the law on GPT-2, and is further away on the others", {"in_part": True},
    )  # fmt: skip
