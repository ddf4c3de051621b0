"""Small documents (JSON, msgpack), bounded before they are read and checked after; ours carry a checksum."""
