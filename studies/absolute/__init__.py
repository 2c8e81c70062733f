"""Where absolute position leaks into the attention of rotary models."""
