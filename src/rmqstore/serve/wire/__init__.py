"""The remoting protocol: frames, codes, the fields and bodies of requests."""
