"""``python -m studies.norms norms``: what norms before attention divide by, and how recent that makes attention."""

from studies import making
from studies.making import Part
from studies.norms.measure import measure_norms

PARTS = {"norms": Part("norms", measure_norms, 48, 256, rule="cut")}

if __name__ == "__main__":
    making.main("norms", PARTS)
