"""Tables that give each id a row when it is first seen, and that evict rare or old ids."""
