"""Plans that DeepSpeed runs."""
