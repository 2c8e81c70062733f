"""Place × content: what a passage's share of influence owes to where it stands, and what to what it says."""
