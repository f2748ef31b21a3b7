"""Many tasks: one budget, one record each, and a batch that goes on where it was broken off."""
