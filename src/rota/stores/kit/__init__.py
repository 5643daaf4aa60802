"""What every SQL store shares: the operations, written once over named queries."""
