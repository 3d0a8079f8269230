"""Files of a store: their names, links, lengths, and those that no store of ours has."""
