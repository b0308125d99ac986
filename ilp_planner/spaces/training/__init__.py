"""Plans that Megatron-LM can run, for `solve --runtime megatron`."""
