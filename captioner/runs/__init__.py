"""What a config describes, wired together from the other rooms: from data to a trained model."""
