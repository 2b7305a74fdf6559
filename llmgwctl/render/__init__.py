"""Plans, status and inventory for people and for programs."""
