"""The remoting protocol: frames, codes, fields and bodies of requests."""
