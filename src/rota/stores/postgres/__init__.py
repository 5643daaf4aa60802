"""PostgreSQL 14 and newer: any number of processes and machines on one database."""
