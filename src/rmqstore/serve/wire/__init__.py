"""What is on a connection: frames, codes, the fields and bodies of requests."""
