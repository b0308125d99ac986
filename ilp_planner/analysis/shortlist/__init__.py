"""A short list of plans to try, chosen together under the constants that data leave open."""
