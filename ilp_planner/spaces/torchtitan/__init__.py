"""Plans that torchtitan runs."""
