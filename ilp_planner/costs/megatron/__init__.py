"""What training jobs of Megatron-LM take and hold: the cost model of `solve --runtime megatron`."""
