"""What a table of segments says, in sentences: which has most, and why; what deletions do; the place with most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posbias.explain.prompt import line
from posbias.explain.shares import centred_logs

if TYPE_CHECKING:
    import pandas as pd


def answer(table: pd.DataFrame) -> list[str]:
    """Return the answers that the segments give, none for one segment; of three or more the last one is set apart."""
    if len(table) < 2:
        return []
    last = f"The last segment has {table['share'].iloc[-1]:.0%} of the influence. Among the others: "
    front, rivals = (last, table.iloc[:-1]) if len(table) > 2 else ("", table)
    return [f"{front}{_most(rivals)}", *filter(None, (_why(rivals), _deleted(rivals), _places(rivals)))]


def _named(table: pd.DataFrame, k: int) -> str:
    """Return the k-th segment by number and first words."""
    return f"segment {table.index[k]} (“{line(table['text'].iloc[k])}”)"


def _most(table: pd.DataFrame) -> str:
    """Return which segment has most influence, as measured and with position divided out."""
    share, rest = (table[name].to_numpy() for name in ("share", "without_position"))
    k, second = np.argsort(-rest, kind="stable")[:2].tolist()
    same = int(share.argmax()) == k
    words = f"{_named(table, int(share.argmax()))} has the most influence. With position divided out, "
    words += "it still has the most" if same else f"{_named(table, k)} has the most"
    if table["low"].iloc[k] <= table["high"].iloc[second]:
        words += f", but its interval overlaps that of segment {table.index[second]}"
    return f"{words}."


def _why(table: pd.DataFrame) -> str:
    """Return how much of the leader's share is its place and how much its words; nothing for a single segment."""
    if len(table) < 3:
        return ""
    k = int(table["share"].to_numpy().argmax())
    whole, place = (float(centred_logs(table[name].to_numpy())[k]) for name in ("share", "profile"))
    return (
        f"Segment {table.index[k]} has {np.exp(whole):.2f} times the geometric mean of their shares: "
        f"{np.exp(place):.2f} times for where it stands (and how long it is), "
        f"{np.exp(whole - place):.2f} times for what it says."
    )


def _deleted(table: pd.DataFrame) -> str:
    """Return which deletion lowers the target most, and which raises it most; nothing where none was tried."""
    change = table["removed"].to_numpy()
    if np.isnan(change).all():
        return ""
    least, most = int(np.nanargmin(change)), int(np.nanargmax(change))
    said = []
    if change[least] < 0:
        said.append(
            f"Deleting {_named(table, least)} lowers the target's log-probability most ({change[least]:+.3f} nats)"
        )
    else:
        said.append("No deletion lowers the target's log-probability")
    if change[most] > 0:
        said.append(f"deleting {_named(table, most)} raises it most ({change[most]:+.3f})")
    return f"{'; '.join(said)}."


def _places(table: pd.DataFrame) -> str:
    """Return where a passage has the most and the least influence per token in other prompts."""
    if len(table) < 3:
        return ""
    density = (table["profile"] / table["tokens"]).to_numpy()
    most, least = int(density.argmax()), int(density.argmin())
    return (
        f"In other prompts the place of segment {table.index[most]} has the most influence per token, "
        f"{density[most] / density[least]:.1f} times that of segment {table.index[least]}, which has the least."
    )
