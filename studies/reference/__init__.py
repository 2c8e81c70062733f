"""The ten reference models: their training, and what the chapters on measuring make of them."""
