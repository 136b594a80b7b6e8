"""What benches/peers.py measures."""
