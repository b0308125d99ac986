"""What plans are chosen by besides their time: what they cost, on which of the nodes."""
