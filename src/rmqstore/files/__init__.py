"""Names, links and lengths of a store's files, and files of RocketMQ 5."""
