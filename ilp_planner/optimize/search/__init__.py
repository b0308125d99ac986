"""Planning whole layers on clusters whose devices differ."""
