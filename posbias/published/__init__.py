"""What the authors of the source papers published: numbers that ship with the package, and what they are made from."""
