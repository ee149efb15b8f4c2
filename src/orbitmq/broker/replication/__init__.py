"""Replication: a master streams its log, slaves copy it."""
