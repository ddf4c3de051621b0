"""The index of shards, which tells where every record begins: its entries and file, and how it is found."""
