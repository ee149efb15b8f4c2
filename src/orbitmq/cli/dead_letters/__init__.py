"""Dead letters on the command line: which are meant, and sending copies of them."""
