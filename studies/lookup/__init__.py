"""Networks that learn to look values up, and remedies for them."""
