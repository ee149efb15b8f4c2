"""Files of a store: opened, mapped, named and checked."""
