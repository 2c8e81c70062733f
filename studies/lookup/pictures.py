"""How kinds of positions are named and drawn."""

LABELS = {
    "none": "no positions", "alibi": "ALiBi", "steep": "one slope", "rope": "RoPE", "log": "log", "early": "early",
    "flat": "flat",
}  # fmt: skip
"""How a figure names kinds of positions."""
COLOURS = {
    "none": "#7f7f7f", "alibi": "#009E73", "steep": "#D55E00", "rope": "#CC79A7", "log": "#0072B2", "early": "#56B4E9",
    "flat": "#E69F00",
}  # fmt: skip
STYLES = {"steep": "-", "early": "--", "flat": "-.", "rope": ":", "alibi": "--", "log": "-.", "none": ":"}
"""Line styles of kinds of positions: those that share a figure differ in grey too."""
