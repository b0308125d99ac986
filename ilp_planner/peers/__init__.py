"""Systems of other people that this project reproduces to the digit: one folder each."""
