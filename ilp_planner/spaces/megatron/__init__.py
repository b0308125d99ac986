"""Planning what Megatron-LM can run, for `solve --runtime megatron`."""
