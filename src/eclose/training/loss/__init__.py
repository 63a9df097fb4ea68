"""The loss on families as a part that other training loops mount."""
