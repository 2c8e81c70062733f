"""Position bias proper: the same tokens in five orders, in the last of which place tells nothing.

Thresholds, set on 2026-11-29 before any run. A profile's *first* eighth and its *last* eighth (the last token aside,
whose neighbours are not exchangeable) are given relative to an equal share, 1. *Proper* is what the profile of tokens
that are drawn at random has beyond 1, *earned* what the profile of the text as written has beyond that.

Y-proper: SmolLM2 has a position bias proper at an end if that eighth of the profile of drawn tokens is off 1 by 0.10 or
more, with a 95 % interval over documents that leaves out 1; by gradient and by use apart. It has none if the whole
interval is within 0.10 of 1. Anything else is open.

Y-earned: the text earns the larger part of an end if the earned part of that eighth is larger than the proper one, with
a 95 % interval of the difference over documents above 0, and the smaller part if that interval is below 0.

Y-scrambled (Rahimi et al. 2026 say that profiles survive scrambled words): the profile survives if its rank correlation
with that of the tokens in random order is 0.80 or more and W₁ between them is at most 0.05, both with their intervals.
"""
