"""What training asked for: SmolLM2 fine-tuned with the answer at some places of a prompt, measured before and after.

Thresholds, set on 2026-11-29 before any run. *Middle* are places 2 to 7 of eight competing documents, *ends* the first
and the last; right answers are those of 40 sets of invented facts whose kinds and names no training has.

Y-asked: the lost middle is a matter of what training asked for if, with the answer asked for at every place, the middle
gains more than the ends do, and with the answer in the middle alone more answers are right in the middle than at the
ends. Each is decided by a 95 % interval over sets that leaves out 0, in each of three seeds. It is refuted if the
interval of the first lies below 0.05 in each seed; anything else is open. Documents that do not compete, and text, are
controls: with neither is the middle's gain to differ from that of the ends by more than 0.10.

Y-finger: training at every place sharpens the finger if γ, the loss in log-odds per place of distance, grows by 0.25 or
more with an interval above 0, and lifts the pull of the ends if the mean b of the ends less that of the middle falls by
0.25 or more.

Y-follow: a quantity (influence, use, contributions; on text that no training has) follows the answers if the share of
the middle half of the prompt moves by 0.02 or more, up with the arm *every place* and further up with *middle*, with
95 % intervals over documents that leave out 0. It stays if each of these changes is below 0.02 with its whole interval.
"""
