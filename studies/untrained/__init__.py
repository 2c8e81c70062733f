"""The law of untrained networks: its limits, and measurements of real architectures."""
