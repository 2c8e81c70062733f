"""Which document an answer is from, by place asked and place read: a law of reading by place, and its tests."""
