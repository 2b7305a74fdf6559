"""The network: how hosts are reached, asked and changed."""
